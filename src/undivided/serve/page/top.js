// The head of the page: its language, its colours, and the API key where the server needs one.

import { apiKey } from "./api.js";
import { keep, readKept } from "./kept.js";
import { h, svg } from "./look/dom.js";
import { say, TONGUES } from "./texts.js";

export function topView(store) {
  tongueView(store);
  themeView(store);
  keyView(store);
}

function tongueView(store) {
  const element = document.getElementById("tongue");
  const buttons = Object.entries(TONGUES).map(([code, { language }]) => {
    const choose = () => {
      keep("tongue", code);
      store.set({ tongue: code });
    };
    return [code, h("button", { type: "button", lang: code, onclick: choose }, language)];
  });
  element.replaceChildren(...buttons.map(([, button]) => button));
  store.on(["tongue"], ({ tongue }) => {
    element.setAttribute("aria-label", say("tongue"));
    for (const [code, button] of buttons) button.setAttribute("aria-pressed", String(code === tongue));
  });
}

const SUN = ["M12 7.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9Z", "M12 2v2.2M12 19.8V22M2 12h2.2M19.8 12H22M4.9 4.9l1.6 1.6M17.5 17.5l1.6 1.6M19.1 4.9l-1.6 1.6M6.5 17.5l-1.6 1.6"];
const MOON = ["M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5Z"];

export function drawIcon(paths) {
  return svg("svg", { viewBox: "0 0 24 24", "aria-hidden": "true" }, ...paths.map((d) => svg("path", { d })));
}

// The colours of the system, until somebody chooses others.
const system = window.matchMedia("(prefers-color-scheme: dark)");
export const isDark = () => (document.documentElement.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";

function themeView(store) {
  const button = document.getElementById("theme");
  const chosen = readKept("theme", null);
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
  function show() {
    const name = say(isDark() ? "toLight" : "toDark");
    button.setAttribute("aria-label", name);
    button.title = name;
    button.replaceChildren(drawIcon(isDark() ? SUN : MOON));
  }
  button.addEventListener("click", () => {
    const next = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    keep("theme", next);
    show();
  });
  system.addEventListener("change", show);
  store.on(["tongue"], show);
}

function keyView(store) {
  const element = document.getElementById("key");
  const label = h("label", { for: "api-key" });
  const input = h("input", { id: "api-key", type: "password", autocomplete: "off", spellcheck: "false" });
  const button = h("button", { type: "submit", class: "plain" });
  const use = (event) => {
    event.preventDefault();
    keep("key", input.value.trim() || null);
    // Whatever was refused is asked again.
    store.set({ problem: null, translated: null });
  };
  element.replaceChildren(label, input, button);
  element.addEventListener("submit", use);
  input.value = apiKey() ?? "";
  store.on(["tongue", "settings", "problem"], ({ settings, problem }) => {
    label.textContent = say("keyLabel");
    button.textContent = say("keySave");
    element.hidden = !(settings.keyRequired || problem?.needsKey);
  });
}
