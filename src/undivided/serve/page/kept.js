// What stays in this browser, and only there: settings and the history of translations.

const PREFIX = "undivided.";
const MOST_ENTRIES = 100;
const MOST_CHARACTERS = 20000;

export function readKept(name, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(PREFIX + name)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

// Storage may be full or forbidden: the page works without it.
export function keep(name, value) {
  try {
    if (value === null) localStorage.removeItem(PREFIX + name);
    else localStorage.setItem(PREFIX + name, JSON.stringify(value));
  } catch {
    return false;
  }
  return true;
}

// Somebody else's page on the same address may have written there: what is not an entry is left out.
export function readHistory() {
  const found = readKept("history", []);
  const isEntry = (each) => each && ["source", "target", "text", "translation"].every((name) => typeof each[name] === "string");
  return Array.isArray(found) ? found.filter(isEntry) : [];
}

// A translation at the front. One that is being written on replaces what it was before.
export function addToHistory(entry) {
  if (entry.text.length > MOST_CHARACTERS) return readHistory();
  const others = readHistory();
  const [last] = others;
  const same = (each) => each.text === entry.text && each.source === entry.source && each.target === entry.target;
  const grown = last && last.target === entry.target && (entry.text.startsWith(last.text) || last.text.startsWith(entry.text));
  const rest = (grown ? others.slice(1) : others).filter((each) => !same(each));
  const history = [entry, ...rest].slice(0, MOST_ENTRIES);
  keep("history", history);
  return history;
}

export function clearHistory() {
  keep("history", null);
}
