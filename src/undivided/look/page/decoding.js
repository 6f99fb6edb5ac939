// Decoding step by step: tokens read and masked, candidates, attribution, and the tree of beam search.

import { headsName } from "./attention.js";
import { css } from "./colour.js";
import { matrix, meanMatrix } from "./data.js";
import { card, choice, h, percent, quoted, scrollWhenShown, short, tokenElement } from "./dom.js";
import { treeView } from "./tree.js";
import { say, sayParts } from "./words.js";

export function decodingSection(store, data) {
  const cards = [
    card(say("Candidates"), say("The most likely next tokens at this step."), candidates(store, data)),
    lensCard(store, data),
    card(say("Attribution"), null, attribution(store, data)),
  ];
  const own = data.forced ? say("The translation was given; this is the search for the model's own.") : null;
  const note = own ?? say("Beam size {size}: at each step the best partial translations are kept.", { size: data.facts.beam_size });
  const tree = data.beam.length ? card(say("Beam tree"), note, treeView(store, data)) : null;
  const parts = [stepper(store, data), h("div", { class: "columns three" }, ...cards.filter(Boolean)), tree];
  return h("div", { class: "decoding" }, ...parts.filter(Boolean));
}

function stepper(store, data) {
  const last = data.steps.length - 1;
  const slider = h("input", { type: "range", min: "1", max: String(last + 1), "aria-label": say("step"), oninput: () => store.set({ step: Number(slider.value) - 1 }) });
  const move = (by) => store.set({ step: Math.max(0, Math.min(last, store.values.step + by)) });
  const previous = h("button", { type: "button", "aria-label": say("previous step"), onclick: () => move(-1) }, "‹");
  const next = h("button", { type: "button", "aria-label": say("next step"), onclick: () => move(1) }, "›");
  const status = h("p", { class: "status", "aria-live": "polite" });
  const strip = stripTable(store, data);
  store.on(["step"], ({ step }) => {
    const now = data.steps[step];
    slider.value = String(step + 1);
    slider.setAttribute("aria-valuetext", say("step {step} of {last}", { step: step + 1, last: last + 1 }));
    [previous.disabled, next.disabled] = [step === 0, step === last];
    const rank = now.rank === 1 ? say("the most likely token") : say("rank {rank}", { rank: now.rank });
    status.replaceChildren(
      ...sayParts("Step {step} of {last}: reads {read}, writes {written} with probability {probability}, {rank}.", {
        step: String(step + 1), last: String(last + 1), read: quoted(now.read.piece), written: quoted(now.written.piece), probability: percent(now.probability), rank,
      }),
    );
  });
  return h("section", { class: "card" }, h("h3", {}, say("Step by step")), h("div", { class: "stepper" }, previous, slider, next), status, strip);
}

// The input is the output shifted right by one; later positions are masked.
function stripTable(store, data) {
  const cell = (tag, step, ...children) => h(tag, { onclick: () => store.set({ step }) }, ...children);
  const numbers = data.steps.map((_, step) => cell("th", step, String(step + 1)));
  const reads = data.steps.map((each, step) => cell("td", step, tokenElement(each.read.piece)));
  const writes = data.steps.map((each, step) => cell("td", step, tokenElement(each.written.piece)));
  const row = (name, cells) => h("tr", {}, h("th", { scope: "row" }, name), ...cells);
  const table = h("table", { class: "strip" }, row(say("position"), numbers), row(say("reads"), reads), row(say("writes"), writes));
  const element = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": say("input shifted right and output") }, table);
  const centre = scrollWhenShown(store, element, () => element.scrollTo({ left: numbers[store.values.step].offsetLeft - element.clientWidth / 2 }));
  store.on(["step"], ({ step }) => {
    for (const cells of [numbers, reads, writes]) {
      cells.forEach((each, at) => (each.className = at > step ? "masked" : at === step ? "now" : ""));
    }
    centre();
  });
  const note = data.single
    ? say("What the model reads is the text shifted right by one, after <s>. Hatched positions are masked: no earlier position may attend to them.")
    : say("The decoder's input is its output shifted right by one, after <s>. Hatched positions are masked: in training they exist, but no earlier position may attend to them; in translation they are not written yet.");
  return h("div", {}, element, h("p", { class: "note" }, note));
}

function bar(piece, share, chosen) {
  const fill = h("span", { class: "fill", style: { width: `${100 * share}%` } });
  return h("li", { class: chosen ? "chosen" : "" }, tokenElement(piece), h("span", { class: "bar" }, fill), h("span", { class: "number" }, percent(share)));
}

export function candidates(store, data) {
  const list = h("ol", { class: "bars" });
  store.on(["step"], ({ step }) => {
    const now = data.steps[step];
    const rows = now.candidates.map((each) => bar(each.piece, each.probability, each.id === now.written.id));
    if (now.rank > now.candidates.length) rows.push(bar(now.written.piece, now.probability, true));
    list.replaceChildren(...rows);
  });
  return list;
}

export function lensCard(store, data) {
  if (!data.steps[0].lens.length) return null;
  const rows = h("tbody", {});
  store.on(["step"], ({ step }) => {
    const lines = data.steps[step].lens.map((lens, layer) => {
      const first = lens.candidates.slice(0, 3).map((each) => h("td", {}, tokenElement(each.piece), h("small", {}, ` ${percent(each.probability)}`)));
      return h("tr", {}, h("th", { scope: "row" }, String(layer + 1)), h("td", { class: "number strong" }, percent(lens.probability)), ...first);
    });
    rows.replaceChildren(...lines.reverse());
  });
  const head = h("tr", {}, h("th", { scope: "col" }, say("layer")), h("th", { scope: "col" }, say("prob.")), h("th", { scope: "col", colspan: "3" }, say("most likely")));
  const table = h("table", { class: "plain lens" }, h("thead", {}, head), rows);
  const scroll = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": say("logit lens") }, table);
  const note = data.single
    ? say("What would be predicted if this layer were the last, and the probability of the token that stands there.")
    : say("What would be written if this decoder layer were the last, and the probability of the token that is finally written.");
  return card(say("Layer by layer (logit lens)"), note, scroll);
}

function attribution(store, data) {
  const source = h("p", { class: "flow" });
  const target = h("p", { class: "flow" });
  const note = h("p", { class: "note" });
  const kinds = [["gradient", say("Gradient × input")], ...(data.useNames.includes("cross") ? [["attention", say("Attention")]] : [])];
  const kind = choice(say("Method"), kinds, "gradient", (value) => store.set({ attribution: value }));
  const chip = (piece, value, shade, palette) =>
    h("span", { class: "chip", title: short(value) || "0", style: { background: css(shade), color: palette.ink(shade) } }, tokenElement(piece));

  store.on(["step", "attribution", "palette", "use", "layer", "heads"], ({ step, attribution: shown, palette }) => {
    const [fromSource, fromTarget] = shown === "gradient" ? gradients(data, step) : attentions(store, data, step);
    const scale = Math.max(...[...fromSource, ...fromTarget].map(Math.abs), 1e-9);
    const colour = shown === "gradient" ? (value) => palette.signed(value / scale) : palette.weight;
    source.replaceChildren(h("b", {}, `${say("source")} `), ...data.sourcePieces.map((piece, at) => chip(piece, fromSource[at], colour(fromSource[at]), palette)));
    const read = data.read.slice(0, step + 1);
    target.hidden = !fromTarget.length;
    source.hidden = !data.sourcePieces.length;
    target.replaceChildren(h("b", {}, `${say(data.single ? "text so far" : "target so far")} `), ...read.map((piece, at) => chip(piece, fromTarget[at] ?? 0, colour(fromTarget[at] ?? 0), palette)));
    note.textContent =
      shown === "gradient"
        ? say("Blue tokens support the written token, orange ones oppose it: the gradient of its log-probability times each embedding.")
        : attentionName(store, data);
  });
  return h("div", {}, kind.element, source, target, note);
}

function gradients(data, step) {
  const row = (array) => matrix(array).data.subarray(step * array.shape[1], (step + 1) * array.shape[1]);
  return [row(data.saliencySource), row(data.saliencyTarget).subarray(0, step + 1)];
}

// The chosen heads where encoder-decoder attention is chosen above, else all heads of the last layer.
function chosenHeads(store, data) {
  const { use, layer, heads } = store.values;
  const [layers, count] = data.attention.cross.shape;
  return use === "cross" ? [layer, heads] : [layers - 1, Array.from({ length: count }, (_, head) => head)];
}

function attentions(store, data, step) {
  const [layer, heads] = chosenHeads(store, data);
  const mean = meanMatrix(heads.map((head) => matrix(data.attention.cross, layer, head)));
  return [mean.data.subarray(step * mean.columns, (step + 1) * mean.columns), []];
}

function attentionName(store, data) {
  const [layer, heads] = chosenHeads(store, data);
  return say("Encoder-decoder attention of layer {layer}, {which}.", { layer: layer + 1, which: headsName(heads) });
}
