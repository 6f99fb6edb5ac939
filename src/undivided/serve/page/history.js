// What was translated before in this browser.

import { clearHistory } from "./kept.js";
import { nameOf } from "./languages.js";
import { h } from "./look/dom.js";
import { say, sayNumber } from "./texts.js";

const FIRST = 5;

export function historyView(store) {
  const element = document.getElementById("history");
  let isWhole = false;

  function again({ source, target, text }) {
    const { languages } = store.values;
    const exists = languages.some(({ code, targets }) => code === source && targets.includes(target));
    store.set(exists ? { source, target, text, detected: null } : { text });
    document.getElementById("text").focus();
    window.scrollTo({ top: 0 });
  }

  function clear() {
    clearHistory();
    isWhole = false;
    store.set({ history: [] });
    element.querySelector("h2").focus();
  }

  function row(entry, languages) {
    const pair = `${nameOf(languages, entry.source)} → ${nameOf(languages, entry.target)}`;
    const texts = [h("span", { class: "pair" }, pair), h("bdi", { lang: entry.source }, entry.text), h("bdi", { lang: entry.target }, entry.translation)];
    return h("li", {}, h("button", { type: "button", onclick: () => again(entry) }, ...texts));
  }

  function whole() {
    isWhole = true;
    show(store.values);
    element.querySelectorAll("li button")[FIRST]?.focus();
  }

  function show({ history, languages }) {
    const shown = isWhole ? history : history.slice(0, FIRST);
    const clearing = h("button", { type: "button", class: "quiet", onclick: clear }, say("historyClear"));
    const more = h("button", { type: "button", class: "quiet", onclick: whole }, say("more", { count: sayNumber(history.length) }));
    element.replaceChildren(
      h("div", { class: "section-head" }, h("h2", { id: "history-title", tabindex: "-1" }, say("historyTitle")), history.length ? clearing : null),
      history.length ? h("ul", {}, ...shown.map((entry) => row(entry, languages))) : h("p", { class: "hint" }, say("historyEmpty")),
      ...(history.length > shown.length ? [more] : []),
    );
  }
  store.on(["history", "languages", "tongue"], show);
}
