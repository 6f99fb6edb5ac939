// The state of the page. Views read it, change it, and listen to changes of the keys they name.

export function createStore(initial) {
  const values = { ...initial };
  const listeners = [];
  return {
    values,
    // Called when the view is removed.
    cleanups: [],
    set(changes) {
      const changed = Object.keys(changes).filter((key) => values[key] !== changes[key]);
      if (!changed.length) return;
      Object.assign(values, changes);
      for (const [keys, listener] of listeners) if (keys.some((key) => changed.includes(key))) listener(values);
    },
    on(keys, listener) {
      listeners.push([keys, listener]);
      listener(values);
    },
  };
}
