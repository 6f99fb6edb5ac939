// The language of the interface. Texts are written in English where they are used; the other languages are tables of them.

import { KOREAN } from "./korean.js";

const TABLES = { en: {}, ko: KOREAN };

export const LANGUAGES = { en: "English", ko: "한국어" };

let chosen = "en";

export function setLanguage(language) {
  chosen = language;
}

export function interfaceLanguage() {
  return chosen;
}

// Further texts in Korean, for pages that have more to say.
export function addKorean(texts) {
  Object.assign(TABLES.ko, texts);
}

// A text with its {names} filled in.
export function say(text, values = {}) {
  return sayParts(text, values).join("");
}

// The same as a list of texts and elements, since a value may be an element.
export function sayParts(text, values = {}) {
  const known = TABLES[chosen][text] ?? text;
  return known.split(/\{(\w+)\}/).map((part, at) => (at % 2 ? (values[part] ?? "") : part)).filter((part) => part !== "");
}
