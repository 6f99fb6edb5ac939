// The whole view: mount(element, data) shows a look in an element, and returns a function that removes it.

import { attentionSection } from "./attention.js";
import { palette } from "./colour.js";
import { prepare } from "./data.js";
import { decodingSection } from "./decoding.js";
import { h, signed } from "./dom.js";
import { embeddingsSection, positionsSection } from "./space.js";
import { createStore } from "./store.js";
import { whatIfSection } from "./whatif.js";

export function mount(element, raw) {
  const data = prepare(raw);
  const store = createViewStore(data);
  const sections = VIEWS.map(([title, view]) => ({ title, element: part(title, view(store, data)) }));
  element.classList.add("look");
  element.replaceChildren(header(data), navigation(sections), ...sections.map((section) => section.element));
  return () => {
    store.cleanups.forEach((cleanUp) => cleanUp());
    element.replaceChildren();
    element.classList.remove("look");
  };
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

function header(data) {
  const { facts } = data;
  const heads = data.attention.cross.shape[1];
  const headCount = heads ? `${heads} ${heads === 1 ? "head" : "heads"}` : "no attention";
  const parts = [facts.kind, `${facts.encoder_layers} + ${facts.decoder_layers} layers`, headCount, `d_model ${facts.d_model}`, `${(facts.parameters / 1e6).toFixed(1)} M parameters`];
  const line = (language, text, name) => h("p", { class: `sentence ${name}` }, h("span", { class: "language" }, language || name), h("bdi", { lang: language || null }, text));
  const score = `score ${signed(data.score)}, log-probability ${signed(data.log_probability)}${data.forced ? "; this translation was given" : `, beam ${facts.beam_size}`}`;
  return h(
    "header",
    {},
    h("h1", {}, "A look inside"),
    line(facts.source_lang, data.text, "source"),
    line(facts.target_lang, data.translation, "target"),
    data.forced ? line("model", data.own, "own") : null,
    h("p", { class: "note" }, `${score} · ${parts.join(" · ")}`),
  );
}

export function navigation(sections) {
  const links = sections.map(({ title, element }) =>
    h("button", { type: "button", onclick: () => { element.scrollIntoView(); element.firstChild.focus({ preventScroll: true }); } }, title),
  );
  return h("nav", { "aria-label": "sections of this page" }, ...links);
}
