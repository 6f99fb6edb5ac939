// The whole view: mount(element, data) shows a look in an element, and returns a function that removes it.

import { attentionSection } from "./attention.js";
import { palette } from "./colour.js";
import { prepare } from "./data.js";
import { decodingSection } from "./decoding.js";
import { bringToTop, choice, h, signed } from "./dom.js";
import { embeddingsSection, positionsSection } from "./space.js";
import { createStore } from "./store.js";
import { whatIfSection } from "./whatif.js";
import { interfaceLanguage, LANGUAGES, say, setLanguage } from "./words.js";

export function mount(element, raw) {
  const data = prepare(raw);
  let store = createViewStore(data);
  const build = () => {
    const sections = VIEWS.map(([title, view]) => ({ title: say(title), element: part(say(title), view(store, data)) }));
    element.lang = interfaceLanguage();
    element.replaceChildren(header(data, rebuild), navigation(sections), ...sections.map((section) => section.element));
  };
  const rebuild = () => {
    store.cleanups.forEach((cleanUp) => cleanUp());
    store = createViewStore(data, keptChoices(store.values));
    build();
    element.querySelector(`.top-line input[value=${interfaceLanguage()}]`).focus();
  };
  element.classList.add("look");
  build();
  return () => {
    store.cleanups.forEach((cleanUp) => cleanUp());
    element.replaceChildren();
    element.classList.remove("look");
  };
}

// What was chosen, for another store of the same or of another look.
export function keptChoices({ use, layer, heads, step, attribution, dimension, compared }) {
  return { use, layer, heads, step, attribution, dimension, compared };
}

// A switch between the languages of the interface.
export function languageChoice(rebuild) {
  return choice(say("Language"), Object.entries(LANGUAGES), interfaceLanguage(), (language) => {
    setLanguage(language);
    rebuild();
  }).element;
}

// The sections that show a look, each { title, function from store and data to an element }.
export const VIEWS = [
  ["Attention", attentionSection],
  ["Decoding", decodingSection],
  ["What if", whatIfSection],
  ["Positions", positionsSection],
  ["Embeddings", embeddingsSection],
];

export function part(title, ...content) {
  return h("section", { class: "part", "aria-label": title }, h("h2", { tabindex: "-1" }, title), ...content);
}

// What is chosen in the views; `before` are the choices in the look that was shown before this one.
export function createViewStore(data, before = {}) {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const use = before.use ?? (data.useNames.includes("cross") ? "cross" : (data.useNames[0] ?? null));
  const [layers, heads] = use ? data.attention[use].shape : [1, 0];
  const store = createStore({
    use,
    layer: layers - 1,
    heads: Array.from({ length: heads }, (_, head) => head),
    branch: -1,
    attribution: "gradient",
    dimension: 0,
    compared: "source",
    ...before,
    hover: null,
    pinned: null,
    step: Math.min(before.step ?? 0, data.steps.length - 1),
    position: 0,
    neighbour: { side: "source", index: 0 },
    palette: palette(dark.matches),
  });
  const repaint = () => store.set({ palette: palette(dark.matches) });
  dark.addEventListener("change", repaint);
  store.cleanups.push(() => dark.removeEventListener("change", repaint));
  // A pinned row of the decoder follows the slider.
  store.on(["step", "use"], ({ step, use: current, pinned }) => {
    if (current !== "encoder" && pinned?.side === "row" && pinned.index !== step) store.set({ pinned: { side: "row", index: step } });
  });
  return store;
}

function header(data, rebuild) {
  const { facts } = data;
  const heads = data.attention.cross.shape[1];
  const headCount = heads ? say(heads === 1 ? "1 head" : "{heads} heads", { heads }) : say("no attention");
  const parts = [facts.kind, say("{encoder} + {decoder} layers", { encoder: facts.encoder_layers, decoder: facts.decoder_layers }), headCount, `d_model ${facts.d_model}`, say("{size} M parameters", { size: (facts.parameters / 1e6).toFixed(1) })];
  const line = (language, text, name) => h("p", { class: `sentence ${name}` }, h("span", { class: "language" }, language || say(name)), h("bdi", { lang: language || null }, text));
  const given = data.forced ? `; ${say("this translation was given")}` : `, ${say("beam {size}", { size: facts.beam_size })}`;
  const score = say("score {score}, log-probability {total}", { score: signed(data.score), total: signed(data.log_probability) }) + given;
  return h(
    "header",
    {},
    h("div", { class: "top-line" }, h("h1", {}, say("A look inside")), languageChoice(rebuild)),
    line(facts.source_lang, data.text, "source"),
    line(facts.target_lang, data.translation, "target"),
    data.forced ? line(say("model"), data.own, "own") : null,
    h("p", { class: "note" }, `${score} · ${parts.join(" · ")}`),
  );
}

export function navigation(sections) {
  const links = sections.map(({ title, element }) =>
    h("button", { type: "button", onclick: () => { bringToTop(element); element.firstChild.focus({ preventScroll: true }); } }, title),
  );
  return h("nav", { "aria-label": say("sections of this page") }, ...links);
}
