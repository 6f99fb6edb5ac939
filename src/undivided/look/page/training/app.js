// A training with a slider over its steps: every view shows the frame that is chosen.

import { attentionSection } from "../attention.js";
import { css, paint } from "../colour.js";
import { matrix, tensor } from "../data.js";
import { card, h, percent, signed, tokenElement, trackCell } from "../dom.js";
import { createViewStore, keptChoices, languageChoice, navigation, part } from "../view.js";
import { interfaceLanguage, say, setLanguage } from "../words.js";
import { curvesSection } from "./curves.js";
import { timeline } from "./timeline.js";

export function mountTraining(element, raw) {
  setLanguage(navigator.language.startsWith("ko") ? "ko" : "en");
  const data = prepareTraining(raw);
  let store = null;
  const build = (before) => {
    store = createViewStore(data, before);
    showFrame(store, data, raw);
    const sections = SECTIONS.map(([title, view]) => ({ title: say(title), element: part(say(title), view(store, data, raw)) }));
    element.lang = interfaceLanguage();
    document.documentElement.lang = interfaceLanguage();
    element.replaceChildren(trainingHeader(store, raw, rebuild), navigation(sections), timeline(store, raw), ...sections.map((section) => section.element));
  };
  const rebuild = () => {
    store.cleanups.forEach((cleanUp) => cleanUp());
    const { frame, spacing } = store.values;
    build({ ...keptChoices(store.values), frame, spacing, playing: false });
    element.querySelector(`.top-line input[value=${interfaceLanguage()}]`).focus();
  };
  element.classList.add("look", "training");
  build({ frame: raw.frames.length - 1, spacing: "logarithmic", playing: false });
}

const SECTIONS = [
  ["Translations", translationsSection],
  ["Curves", (store, data, raw) => curvesSection(store, raw)],
  ["Attention", (store, data) => attentionSection(store, data)],
  ["Learned positions", positionsOfTraining],
];

// What the views of one look take: of the frame that is shown, in `attention`.
function prepareTraining(raw) {
  const source = raw.source.map((token) => token.piece);
  const read = raw.steps.map((step) => step.read.piece);
  const written = raw.steps.map((step) => step.written.piece);
  const attention = attentionOfFrame(raw, raw.frames.length - 1);
  return {
    ...raw,
    attention,
    sourcePieces: source,
    read,
    written,
    remark: "",
    useNames: Object.keys(raw.uses).filter((use) => attention[use].shape[0] > 0),
    rows: (use) => ({ encoder: source, decoder: read, cross: written })[use],
    columns: (use) => (use === "decoder" ? read : source),
    masked(use, row, column) {
      const far = use !== "cross" && raw.facts.window > 0 && Math.abs(row - column) > Math.floor(raw.facts.window / 2);
      return far || (use === "decoder" && column > row);
    },
  };
}

function attentionOfFrame(raw, frame) {
  return Object.fromEntries(Object.keys(raw.uses).map((use) => [use, tensor(raw.frames[frame][use])]));
}

// The views draw again as their colours are set; what they draw is that of the frame.
function showFrame(store, data, raw) {
  store.on(["frame"], ({ frame, palette }) => {
    data.attention = attentionOfFrame(raw, frame);
    store.set({ palette: { ...palette } });
  });
}

function trainingHeader(store, raw, rebuild) {
  const { facts } = raw;
  const line = (language, name, text) => h("p", { class: `sentence ${name}` }, h("span", { class: "language" }, language), text);
  const translation = h("bdi", { lang: facts.target_lang || null });
  const target = line(facts.target_lang || say("target"), "target", translation);
  store.on(["frame"], ({ frame }) => (translation.textContent = raw.frames[frame].translation));
  // Nobody wants to hear each frame of a film.
  store.on(["playing"], ({ playing }) => target.setAttribute("aria-live", playing ? "off" : "polite"));
  const fixed = raw.is_reference ? say("the fixed translation, as it was given") : say("the fixed translation: what the last step writes");
  const size = say("{size} M parameters", { size: (facts.parameters / 1e6).toFixed(1) });
  const layers = say("{encoder} + {decoder} layers", { encoder: facts.encoder_layers, decoder: facts.decoder_layers });
  return h(
    "header",
    {},
    h("div", { class: "top-line" }, h("h1", {}, say("Watching it learn")), languageChoice(rebuild)),
    line(facts.source_lang || say("source"), "source", h("bdi", { lang: facts.source_lang || null }, raw.text)),
    target,
    h("p", { class: "note" }, `${fixed}: `, h("bdi", { lang: facts.target_lang || null }, raw.target)),
    h("p", { class: "note" }, `${facts.kind} · ${layers} · d_model ${facts.d_model} · ${size}`),
  );
}

// What every frame writes, and how likely the fixed translation is to the one that is shown.
function translationsSection(store, data, raw) {
  const rows = raw.frames.map((frame, at) => {
    const go = h("button", { type: "button", class: "small", onclick: () => store.set({ frame: at }) }, frame.step.toLocaleString("en"));
    const text = h("td", {}, h("bdi", { lang: raw.facts.target_lang || null, title: frame.translation }, frame.translation || "—"));
    return h("tr", {}, h("th", { scope: "row" }, go), text, h("td", { class: "number" }, frame.chrf.toFixed(0)), h("td", { class: "number" }, signed(frame.log_probability, 1)));
  });
  const names = [say("step of training"), say("what it writes"), "chrF", say("log-prob.")];
  const table = h("table", { class: "plain frames" }, h("thead", {}, h("tr", {}, ...names.map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, ...rows));
  const scroll = h("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": say("what every step writes") }, table);
  const chips = h("p", { class: "flow" });
  store.on(["frame", "palette"], ({ frame, palette }) => {
    rows.forEach((row, at) => {
      row.classList.toggle("marked", at === frame);
      row.firstChild.firstChild.setAttribute("aria-pressed", String(at === frame));
    });
    scroll.scrollTo({ top: rows[frame].offsetTop - scroll.clientHeight / 2 });
    chips.replaceChildren(
      ...raw.frames[frame].probabilities.map((chance, at) => {
        const shade = palette.weight(chance);
        return h("span", { class: "chip", style: { background: css(shade), color: palette.ink(shade) } }, tokenElement(data.written[at]), h("small", {}, ` ${percent(chance)}`));
      }),
    );
  });
  return h(
    "div",
    { class: "columns wide-left" },
    card(say("What it writes"), say("The translation at every kept step; chrF says how close it is to the fixed translation, from 0 to 100."), scroll),
    card(say("The fixed translation"), say("How likely each token is at this step, after the tokens before it."), chips),
  );
}

function positionsOfTraining(store, data, raw) {
  if (!raw.frames[0].positions) {
    const what = raw.positions === "none" ? say("This model has no position encoding.") : say("The positions of this model are fixed, not learned ({kind}): they are the same at every step.", { kind: raw.positions });
    return card(say("Position encoding"), what);
  }
  const label = say("encoding of each position");
  const canvas = h("canvas", { class: "raster", role: "img", tabindex: "0", "aria-label": say("{label}; move with the arrow keys", { label }) });
  const similar = h("canvas", { class: "raster", role: "img", "aria-label": say("similarity of positions") });
  const pointed = h("p", { class: "status" });
  const tables = raw.frames.map((frame) => tensor(frame.positions));
  // One scale for all frames, or they could not be compared.
  const most = Math.max(1e-9, ...tables.map((table) => table.data.reduce((high, value) => Math.max(high, Math.abs(value)), 0)));
  const [count, width] = tables[0].shape;
  const cellAt = (x, y) => [Math.floor((y / canvas.clientHeight) * count), Math.floor((x / canvas.clientWidth) * width)];
  let cell = [-1, -1];
  const tell = (row, column) => {
    cell = [row, column];
    const value = row < 0 ? "" : signed(tables[store.values.frame].data[row * width + column], 3);
    pointed.textContent = row < 0 ? "" : say("Dimension {dimension} of {width}: {value} at position {position}", { dimension: column + 1, width, value, position: row + 1 });
  };
  trackCell(canvas, cellAt, () => [count, width], tell);
  store.on(["frame", "palette"], ({ frame, palette }) => {
    const values = matrix(tables[frame]);
    paint(canvas, values, (value) => palette.signed(value / most));
    paint(similar, cosines(values), palette.signed);
    tell(...cell);
  });
  const note = say("Positions 1 to {count} from top to bottom, dimensions 1 to {width} from left to right; blue is positive, orange negative.", { count, width });
  const beside = say("Cosine similarity of each pair of positions at this step.");
  return h("div", { class: "columns wide-left" }, card(say("Position encoding"), note, canvas, pointed), card(say("Similarity of positions"), beside, similar));
}

function cosines({ rows, columns, data }) {
  const result = new Float32Array(rows * rows);
  const dot = (one, other) => {
    let sum = 0;
    for (let at = 0; at < columns; at++) sum += data[one * columns + at] * data[other * columns + at];
    return sum;
  };
  const lengths = Array.from({ length: rows }, (_, row) => Math.sqrt(dot(row, row)) || 1);
  for (let one = 0; one < rows; one++) for (let other = 0; other < rows; other++) result[one * rows + other] = dot(one, other) / lengths[one] / lengths[other];
  return { rows, columns: rows, data: result };
}
