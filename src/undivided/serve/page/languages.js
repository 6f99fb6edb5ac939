// The two languages, and swapping them.

import { h } from "./look/dom.js";
import { say, sayLanguage } from "./texts.js";
import { drawIcon } from "./top.js";
import { joinParts } from "./words.js";

const ARROWS = ["M4 8h14M14 4l4 4-4 4", "M20 16H6M10 12l-4 4 4 4"];

// The codes that a language, or any, can be translated to.
function targetsOf(languages, source) {
  const from = languages.filter(({ code }) => source === "auto" || code === source);
  return [...new Set(from.flatMap(({ targets }) => targets))];
}

export function nameOf(languages, code) {
  return sayLanguage(code, languages.find((each) => each.code === code)?.name);
}

// The language that the text is in: the chosen one, or the detected one.
export function actualSource({ source, detected }) {
  return source === "auto" ? detected : source;
}

export function canSwap(values) {
  const from = actualSource(values);
  return Boolean(from) && from !== values.target && targetsOf(values.languages, values.target).includes(from);
}

export function languagesView(store) {
  const source = document.getElementById("source-language");
  const target = document.getElementById("target-language");
  const swap = document.getElementById("swap");
  swap.append(drawIcon(ARROWS));

  source.addEventListener("change", () => choose({ source: source.value }));
  target.addEventListener("change", () => choose({ target: target.value }));
  swap.addEventListener("click", () => {
    const { values } = store;
    if (!canSwap(values)) return;
    const text = joinParts(values.parts) || values.text;
    choose({ source: values.target, target: actualSource(values), text });
  });

  // A pair that exists: another target where the chosen one cannot be reached.
  function choose(changes) {
    const { languages, source: from, target: to } = { ...store.values, ...changes };
    const known = from === "auto" || languages.some((each) => each.code === from && each.targets.length);
    const reached = targetsOf(languages, known ? from : "auto");
    store.set({ ...changes, source: known ? from : "auto", target: reached.includes(to) ? to : (reached[0] ?? ""), detected: null });
  }

  function options(select, list, chosen) {
    select.replaceChildren(...list.map(([value, name]) => h("option", { value }, name)));
    select.value = chosen;
    select.disabled = !list.length;
  }

  store.on(["languages"], ({ languages }) => languages.length && choose({}));
  store.on(["languages", "source", "target", "detected", "tongue"], (values) => {
    const { languages, detected } = values;
    const name = (code) => nameOf(languages, code);
    const auto = detected && values.source === "auto" ? say("detected", { language: name(detected) }) : say("auto");
    const sources = languages.filter(({ targets }) => targets.length).map(({ code }) => [code, name(code)]);
    options(source, sources.length ? [["auto", auto], ...sources] : [], values.source);
    options(target, targetsOf(languages, values.source).map((code) => [code, name(code)]), values.target);
    swap.disabled = !canSwap(values);
    const text = say(swap.disabled && actualSource(values) ? "noSwap" : "swap");
    swap.setAttribute("aria-label", text);
    swap.title = text;
  });
}
