// What is chosen on the page. Views read it, change it, and are told when a part that they named has changed.

export function createStore(initial) {
  const values = { ...initial };
  const listeners = [];
  return {
    values,
    // What must be undone when the view is taken away.
    cleanups: [],
    set(changes) {
      const changed = Object.keys(changes).filter((key) => values[key] !== changes[key]);
      if (!changed.length) return;
      Object.assign(values, changes);
      for (const [keys, tell] of listeners) if (keys.some((key) => changed.includes(key))) tell(values);
    },
    on(keys, tell) {
      listeners.push([keys, tell]);
      tell(values);
    },
  };
}
