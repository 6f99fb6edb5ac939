// The live page: a sentence is translated as it is typed, and every view follows.

import { palette } from "../colour.js";
import { prepare } from "../data.js";
import { bringToTop, h, signed } from "../dom.js";
import { createStore } from "../store.js";
import { createViewStore, keptChoices, languageChoice, navigation, part, VIEWS } from "../view.js";
import { interfaceLanguage, say, setLanguage } from "../words.js";
import { asTrained, CHANGE_KEYS, changesPanel, isChanged, searchSettings, whatIfLive } from "./changes.js";
import { startEngine } from "./client.js";
import { figureOne } from "./figure.js";
import { headSection } from "./head.js";
import { nextTask, replaceInSlices, whenIdle } from "./slices.js";
import { streamSection } from "./stream.js";
import { walkSection, walkTitle } from "./walk.js";

// Milliseconds after a key before the model is asked, so that a fast typist is not a burden.
const AFTER_A_KEY = 30;

const textOf = (id) => document.getElementById(id).textContent;

// What a page depends on and is made of, for each kind of model: this is that of a Transformer.
// `focus(about)` is what is looked at first, `keys` are the values on which an answer depends, `question(values, about)` is what the
// model is asked, `first(about)` are further values, and `parts(page, rebuild)` gives { header, sections }.
const TRANSLATOR = {
  focus: (about) => ({ use: "cross", layer: about.model.decoder_layers - 1, head: 0, position: 0 }),
  first: () => ({}),
  keys: ["text", ...CHANGE_KEYS],
  question: writerQuestion,
  parts: translatorParts,
};

export function writerQuestion({ text, off, mask, positions, scale, prefix, ...values }, about) {
  return { text, settings: searchSettings(about, values), changes: { off, mask, positions, scale }, prefix };
}

export function mountLive(element, kind = TRANSLATOR) {
  const about = JSON.parse(textOf("live-about"));
  const ask = startEngine(textOf("live-engine"));
  setLanguage(navigator.language.startsWith("ko") ? "ko" : "en");
  const first = { text: about.text, state: "loading", focus: kind.focus(about), chosenKey: 0, ...kind.first(about) };
  const page = show(element, { about, ask, kind }, { ...asTrained(about.search), ...first });
  const loaded = ask("load", { about, weights: textOf("live-weights") });
  document.getElementById("live-weights").remove();
  const ready = (changes) => page.current().set(changes);
  loaded.then(() => ready({ state: "ready" }), (error) => ready({ state: "failed", reason: error.message }));
}

// The whole page in the chosen language. It is built anew where that changes, with the values it had.
function show(element, { about, ask, kind }, before) {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const pieces = about.classes?.length ? about.classes : (about.subwords.target ?? about.subwords.source).pieces;
  const empty = { translation: null, baseline: null, look: null, lost: new Map(), worst: 1, view: null };
  const live = createStore({ ...empty, ...before, pieces, palette: palette(dark.matches) });
  let next = null;
  const repaint = () => live.set({ palette: palette(dark.matches) });
  dark.addEventListener("change", repaint);
  live.cleanups.push(() => dark.removeEventListener("change", repaint));
  const rebuild = () => {
    live.cleanups.forEach((cleanUp) => cleanUp());
    next = show(element, { about, ask, kind }, live.values);
    document.querySelector(`.top-line input[value=${interfaceLanguage()}]`).focus();
  };
  const page = { about, ask, kind, live };
  build(element, page, rebuild);
  followChanges(page);
  return { current: () => next?.current() ?? live };
}

// Ask for a translation whenever what it depends on changes; a new question cancels the one before.
function followChanges(page) {
  const { live, kind } = page;
  const wanted = (values) => JSON.stringify(kind.keys.map((key) => values[key]));
  let timer = 0;
  let { text } = live.values;
  let asked = live.values.look ? wanted(live.values) : "";
  live.cleanups.push(() => clearTimeout(timer));
  live.on(["state", ...kind.keys], (values) => {
    // Words that were forced belong to the text before.
    if (values.text !== text) [text, values.prefix] = [values.text, []];
    if (values.state === "loading" || wanted(values) === asked) return;
    asked = wanted(values);
    clearTimeout(timer);
    timer = setTimeout(() => translate(page), AFTER_A_KEY);
  });
}

async function translate({ live, about, ask, kind }) {
  live.set({ state: "working" });
  const onPart = (name, value) => {
    if (name === "refused") live.set({ state: value.reason, tokens: value.tokens, translation: null, baseline: null });
    if (name === "translation" || name === "baseline") live.set({ [name]: value });
    if (name === "look") live.set({ state: "done", lost: new Map(), look: value });
  };
  try {
    await ask("look", kind.question(live.values, about), onPart);
  } catch (error) {
    live.set({ state: "failed", reason: error.message });
  }
}

function build(element, page, rebuild) {
  document.documentElement.lang = interfaceLanguage();
  const { header, sections } = page.kind.parts(page, rebuild);
  element.classList.add("look", "live");
  const named = sections.map((section) => ({ title: section.getAttribute("aria-label"), element: section }));
  element.replaceChildren(header, navigation(named), ...sections);
}

function translatorParts(page, rebuild) {
  const { live, about } = page;
  const reset = () => live.set(asTrained(about.search));
  const shown = lookSections(page);
  const tryIt = part(say("Try it"), changesPanel(live, about, reset));
  const whatIf = part(say("What if"), whatIfLive(live, about, (card) => whenSeen(page, card)));
  const [attention, decoding, positions, embeddings] = shown;
  const places = { decoding, positions, embeddings };
  const oneHead = part(say("One head, step by step"), oneHeadView(page, places));
  const stream = part(say("Residual stream"), streamSection(live, page.ask));
  const sections = [tryIt, attention, decoding, oneHead, stream, whatIf, positions, embeddings, part(walkTitle(about), walkSection(page))];
  return { header: liveHeader(page, rebuild), sections };
}

// The picture of the model beside the numbers of one head. A box leads to its numbers, here or in another section.
export function oneHeadView({ live, about, ask, kind }, places) {
  const numbers = headSection(live, about, ask);
  const go = (element) => {
    bringToTop(element);
    element.focus({ preventScroll: true });
  };
  const open = (name) => {
    const [stack, rest] = name.split("-");
    if (name.endsWith("positions")) return go(places.positions.firstChild);
    if (stack === "source" || stack === "target") return go(places.embeddings.firstChild);
    if (stack === "linear" || stack === "softmax") return go(places.decoding.firstChild);
    const use = rest === "feed" && stack === "decoder" && live.values.focus.use === "cross" ? "cross" : stack;
    live.set({ focus: { ...live.values.focus, use } });
    const wantedStep = rest === "feed" ? (name.endsWith("norm") ? "feed-residual" : "hidden") : rest === "norm" ? "residual" : "x";
    // The worker answers in order: when it has answered this, the numbers are there.
    return ask("encode", { texts: [] }).then(() => go(numbers.querySelector(`[data-step=${wantedStep}]`) ?? numbers));
  };
  return h("div", { class: "columns figure-beside" }, h("section", { class: "card" }, h("h3", {}, say("The model")), (kind.figure ?? figureOne)(live, about, open)), h("section", { class: "card" }, numbers));
}

export function liveHeader({ live, about, kind }, rebuild) {
  const { facts } = about;
  const input = h("textarea", { id: "live-text", rows: "2", lang: facts.source_lang || null, spellcheck: "false", oninput: () => live.set({ text: input.value.replaceAll("\n", " ") }) });
  input.value = live.values.text;
  const result = h("bdi", { lang: facts.target_lang || null });
  const before = h("bdi", { lang: facts.target_lang || null });
  const compared = h("p", { class: "sentence own" }, h("span", { class: "language" }, say("as trained")), before);
  const status = h("p", { class: "note status", role: "status" });
  live.on(["translation"], ({ translation }) => (result.textContent = translation?.text ?? ""));
  live.on(["baseline", ...CHANGE_KEYS], (values) => {
    before.textContent = values.baseline?.text ?? "";
    compared.hidden = !values.baseline || !isChanged(values);
  });
  live.on(["state", "translation"], (values) => (status.textContent = statusText(values, about)));
  return h(
    "header",
    {},
    h("div", { class: "top-line" }, h("h1", {}, say("A look inside, live")), languageChoice(rebuild)),
    h("p", { class: "sentence source" }, h("label", { class: "language", for: "live-text" }, facts.source_lang || say("source")), input),
    h("p", { class: "sentence target", "aria-live": "polite" }, h("span", { class: "language" }, facts.target_lang || say("target")), result),
    compared,
    status,
    h("p", { class: "note" }, (kind.facts ?? factsLine)(about)),
  );
}

export function statusText({ state, translation, tokens, reason }, about) {
  if (state === "loading") return say("The model is being unpacked …");
  if (state === "empty") return say("Type a sentence; it is translated as you type.");
  if (state === "long") return say("This text has {tokens} subwords; the model was trained with at most {longest}. Give a shorter one.", { tokens, longest: about.longest });
  if (state === "failed") return say("The model could not compute this: {reason}", { reason });
  if (!translation) return say("translating …");
  const scores = say("score {score}, log-probability {total}", { score: signed(translation.score), total: signed(translation.log_probability) });
  return translation.finished ? scores : `${scores} · ${say("cut at the length limit")}`;
}

// How the weights are stored, and how close that is to those of the model.
export function storedAs({ stored, apart }) {
  return apart ? say("{stored} ({apart} % from those that were trained, root mean square)", { stored, apart: (100 * apart).toPrecision(2) }) : stored;
}

function factsLine(about) {
  const { facts, model } = about;
  const size = (facts.parameters / 1e6).toFixed(1);
  return say("The model is in this file: Transformer, {encoder} + {decoder} layers, {heads} heads, d_model {width}, {size} M parameters as {stored}. Nothing is sent anywhere.", {
    encoder: facts.encoder_layers, decoder: facts.decoder_layers, heads: model.n_heads, width: facts.d_model, size, stored: storedAs(about),
  });
}

// The views of a look, each in a section that stays while its content is replaced: those on the screen first, block by block.
export function lookSections({ live, ask }, views = VIEWS.filter(([title]) => title !== "What if")) {
  const sections = views.map(([title]) => part(say(title), h("div", { class: "content" })));
  let store = null;
  let number = 0;
  live.cleanups.push(() => store?.cleanups.forEach((cleanUp) => cleanUp()));
  live.on(["look"], async ({ look, view: before }) => {
    if (!look) return;
    const mine = ++number;
    const data = prepare(look);
    const cleanups = store?.cleanups ?? [];
    store = createViewStore(data, before ? keptChoices(before.values) : {});
    live.set({ view: store });
    const decoding = sections[views.findIndex(([title]) => title === "Decoding")];
    if (decoding) fillSaliency(store, data, decoding, ask, () => mine === number);
    const order = sections.map((section, at) => ({ at, far: distance(section) })).sort((one, other) => one.far - other.far);
    for (const { at, far } of order) {
      await (far ? whenIdle() : nextTask());
      if (mine !== number || !(await replaceInSlices(sections[at].lastChild, views[at][1](store, data), () => mine === number))) break;
    }
    cleanups.forEach((cleanUp) => cleanUp());
  });
  return sections;
}

// How far a section is from the screen, in pixels; 0 where it can be seen.
function distance(section) {
  const { top, bottom } = section.getBoundingClientRect();
  return Math.max(0, top - window.innerHeight, -bottom);
}

// Gradient × input takes many passes, so it is computed once the section is on the screen.
function fillSaliency(store, data, section, ask, current) {
  const observer = new IntersectionObserver((entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    observer.disconnect();
    ask("saliency", {}, (_, value) => {
      if (!current()) return;
      Object.assign(data, { saliencySource: value.source, saliencyTarget: value.target });
      store.set({ palette: { ...store.values.palette } });
    });
  });
  observer.observe(section);
  store.cleanups.push(() => observer.disconnect());
}

// What each head is worth is measured while the switches are on the screen.
export function whenSeen({ live, ask }, card) {
  let visible = false;
  let measured = null;
  const measure = () => {
    const { look } = live.values;
    if (!visible || !look || measured === look) return;
    measured = look;
    const lost = new Map();
    let shown = 0;
    ask("heads", {}, (_, { use, layer, head, lost: value }) => {
      lost.set(`${use} ${layer} ${head}`, value);
      if (measured !== look || performance.now() - shown < 200) return;
      shown = performance.now();
      live.set({ worst: Math.max(...[...lost.values()].map(Math.abs), 1e-9), lost: new Map(lost) });
    }).then((whole) => whole && measured === look && live.set({ worst: Math.max(...[...lost.values()].map(Math.abs), 1e-9), lost }));
  };
  const observer = new IntersectionObserver((entries) => {
    visible = entries.at(-1).isIntersecting;
    measure();
  });
  observer.observe(card);
  live.cleanups.push(() => observer.disconnect());
  live.on(["look"], measure);
}
