// The page of a recurrent translator (RNN, LSTM, GRU): translated as it is typed, with the gates of every step.

import { choice, h, tokenElement } from "../dom.js";
import { part, VIEWS } from "../view.js";
import { say } from "../words.js";
import { liveHeader, lookSections, mountLive, storedAs, writerQuestion } from "./app.js";
import { asTrained, CHANGE_KEYS, changesPanel, otherWords } from "./changes.js";
import { largestSize, smallStrip, strip } from "./strip.js";

const RECURRENT = {
  focus: () => ({ use: "cross", layer: 0, head: 0, position: 0 }),
  first: (about) => ({ gatePlace: "decoder.0", gateStep: 0, gatePlaces: gatePlaces(about) }),
  keys: ["text", ...CHANGE_KEYS],
  question: writerQuestion,
  facts: recurrentFacts,
  parts: recurrentParts,
};

export function mountRecurrent(element) {
  mountLive(element, RECURRENT);
}

// Every layer of cells: { place, name } with the name said later, in the language of the page.
function gatePlaces({ model }) {
  const ways = model.bidirectional ? ["ahead", "back"] : ["ahead"];
  const encoder = Array.from({ length: model.encoder_layers }, (_, layer) => ways.map((way) => `encoder.${layer}.${way}`)).flat();
  return [...encoder, ...Array.from({ length: model.decoder_layers }, (_, layer) => `decoder.${layer}`)];
}

function recurrentFacts(about) {
  const { facts, model } = about;
  return say("The model is in this file: {cell}, {encoder} + {decoder} layers, {attention}, d_model {width}, {size} M parameters as {stored}. Nothing is sent anywhere.", {
    cell: model.cell.toUpperCase(), encoder: facts.encoder_layers, decoder: facts.decoder_layers, width: facts.d_model, size: (facts.parameters / 1e6).toFixed(1), stored: storedAs(about),
    attention: { none: say("no attention"), additive: say("additive attention"), multiplicative: say("multiplicative attention") }[model.attention],
  });
}

function recurrentParts(page, rebuild) {
  const { live, about } = page;
  const views = VIEWS.filter(([title]) => title !== "What if" && title !== "Positions");
  const [attention, decoding, embeddings] = lookSections(page, views);
  const tryIt = part(say("Try it"), changesPanel(live, about, () => live.set(asTrained(about.search))));
  const gates = part(say("Gates"), gatesSection(page));
  const whatIf = part(say("What if"), h("div", { class: "columns" }, otherWords(live)));
  return { header: liveHeader(page, rebuild), sections: [tryIt, gates, attention, decoding, whatIf, embeddings] };
}

function placeName(place) {
  const [stack, layer, way] = place.split(".");
  const number = Number(layer) + 1;
  if (stack === "decoder") return say("decoder {layer}", { layer: number });
  return way === "back" ? say("encoder {layer}, back", { layer: number }) : say("encoder {layer}, ahead", { layer: number });
}

const GATE_NAMES = {
  i: () => say("input gate i"),
  f: () => say("forget gate f"),
  o: () => say("output gate o"),
  g: () => say("new content g"),
  c: () => say("cell c"),
  r: () => say("reset gate r"),
  z: () => say("update gate z"),
  n: () => say("new state n"),
  h: () => say("state h"),
};

const FORMULAS = {
  rnn: "h' = tanh(W x + U h)",
  lstm: "c' = f ⊙ c + i ⊙ g,  h' = o ⊙ tanh(c'),  g = tanh(W x + U h);  i, f, o = σ(W x + U h)",
  gru: "h' = z ⊙ h + (1 − z) ⊙ n,  n = tanh(W x + r ⊙ (U h));  r, z = σ(W x + U h)",
};

// A row for each step and a column for each gate, each a strip over the units; the chosen step is shown large, with its numbers.
function gatesSection({ live, about, ask }) {
  const places = choice(say("Layer"), live.values.gatePlaces.map((place) => [place, placeName(place)]), live.values.gatePlace, (gatePlace) => live.set({ gatePlace }));
  const head = h("thead", {});
  const body = h("tbody", {});
  const detail = h("div", { class: "gate-detail" });
  const title = h("h3", {});
  let asked = 0;
  let shown = null;
  const draw = (values) => {
    if (!shown) return;
    const step = Math.min(values.gateStep, shown.tokens.length - 1);
    fillGateTable(live, head, body, shown, step, values.palette);
    fillGateDetail(title, detail, shown, step, values.palette);
  };
  live.on(["look", "gatePlace"], ({ look, gatePlace }) => {
    places.show(gatePlace);
    if (!look) return;
    const mine = ++asked;
    const tokens = gatePlace.startsWith("encoder") ? look.source.map(({ piece }) => piece) : look.steps.map((step) => step.read.piece);
    ask("gates", { place: gatePlace }, (_, gates) => {
      if (mine !== asked) return;
      shown = { tokens, ...gates };
      draw(live.values);
    });
  });
  live.on(["gateStep", "palette"], draw);
  const label = say("gates and states, a row for each step");
  const table = h("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": label }, h("table", { class: "plain gates" }, h("caption", { class: "hidden" }, label), head, body));
  const note = say("Every strip is the units of the layer, blue above 0 and orange below. A gate near 1 is strongly coloured: it lets through; near 0 it shuts. Choose a step to see its numbers.");
  return h(
    "div",
    { class: "apart" },
    h("div", { class: "controls" }, places.element),
    h("section", { class: "card" }, h("h3", {}, say("Step by step")), h("p", { class: "note" }, note), h("p", { class: "note formula" }, FORMULAS[about.model.cell]), table),
    h("section", { class: "card" }, title, detail),
  );
}

function rowOfTable(table, step, width) {
  return table.subarray(step * width, (step + 1) * width);
}

function fillGateTable(live, head, body, { tokens, tables, width }, chosen, palette) {
  const names = Object.keys(tables);
  const focused = body.contains(document.activeElement);
  head.replaceChildren(h("tr", {}, h("th", { scope: "col" }, say("token")), ...names.map((name) => h("th", { scope: "col" }, GATE_NAMES[name]()))));
  const most = Object.fromEntries(names.map((name) => [name, Math.max(1, largestSize(tables[name]))]));
  body.replaceChildren(
    ...tokens.map((piece, step) => {
      const pick = h("button", { type: "button", class: "chip", "aria-pressed": String(step === chosen), onclick: () => live.set({ gateStep: step }) }, tokenElement(piece));
      return h("tr", {}, h("th", { scope: "row" }, pick), ...names.map((name) => h("td", {}, smallStrip(rowOfTable(tables[name], step, width), most[name], palette))));
    }),
  );
  if (focused) body.children[chosen]?.querySelector("button").focus();
}

function fillGateDetail(title, detail, { tokens, tables, width }, step, palette) {
  title.replaceChildren(say("Step {step}: ", { step: step + 1 }), tokenElement(tokens[step]));
  detail.replaceChildren(
    ...Object.entries(tables).map(([name, table]) => {
      const row = rowOfTable(table, step, width);
      return strip(GATE_NAMES[name](), row, palette, { most: Math.max(1, largestSize(row)) });
    }),
  );
}
