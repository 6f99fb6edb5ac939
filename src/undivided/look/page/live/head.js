// One head, step by step: every number between x and the prediction, for a layer, a head, a use and a position.

import { css } from "../colour.js";
import { choice, h, percent, quoted, signed, tokenElement } from "../dom.js";
import { say, sayParts } from "../words.js";
import { nextFrame } from "./slices.js";
import { largestSize, smallStrip, strip } from "./strip.js";

export function headSection(live, about, ask) {
  const steps = h("ol", { class: "number-steps" });
  let asked = 0;
  const refresh = async ({ look, focus }) => {
    if (!look) return;
    const mine = ++asked;
    await ask("trace", within(focus, look), (_, trace) => {
      if (mine !== asked) return;
      const before = steps.contains(document.activeElement) ? document.activeElement.closest("li")?.dataset.step : null;
      steps.replaceChildren(...headSteps(live, about, trace, tokensOf(look, trace.use)));
      // After the frame that lays them out: to focus now would lay the whole page out at once.
      if (before) nextFrame().then(() => document.activeElement === document.body && steps.querySelector(`[data-step=${before}] [tabindex], [data-step=${before}] button`)?.focus({ preventScroll: true }));
    });
  };
  live.on(["look", "focus", "palette", "chosenKey"], refresh);
  return h("div", { class: "one-head" }, headControls(live, about), steps);
}

// What is chosen, as far as this sentence and this model have it.
function within(focus, look) {
  const [layers, heads, rows] = look[focus.use].shape;
  return { ...focus, layer: Math.min(focus.layer, layers - 1), head: Math.min(focus.head, heads - 1), position: Math.min(focus.position, rows - 1) };
}

function tokensOf(look, use) {
  const read = look.steps.map((step) => step.read.piece);
  const source = look.source.map((token) => token.piece);
  return { rows: use === "encoder" ? source : read, columns: use === "decoder" ? read : source, written: look.steps.map((step) => step.written.piece) };
}

function headControls(live, about) {
  const change = (key) => (value) => live.set({ focus: { ...live.values.focus, [key]: value } });
  const names = { encoder: say("Encoder self"), decoder: say("Decoder self"), cross: say("Encoder–decoder") };
  const numbers = (count) => Array.from({ length: count }, (_, at) => [at, String(at + 1)]);
  const most = Math.max(about.model.encoder_layers, about.model.decoder_layers);
  const offered = Object.entries(names).filter(([use]) => use in about.uses);
  const uses = choice(say("Attention"), offered, live.values.focus.use, change("use"));
  uses.element.hidden = offered.length < 2;
  const layers = choice(say("Layer"), numbers(most), live.values.focus.layer, change("layer"));
  const heads = choice(say("Head"), numbers(about.model.n_heads), live.values.focus.head, change("head"));
  const positions = h("p", { class: "flow positions" });
  live.on(["focus"], ({ focus }) => {
    uses.show(focus.use);
    layers.show(focus.layer);
    heads.show(focus.head);
    layers.limit(focus.use === "encoder" ? about.model.encoder_layers : about.model.decoder_layers);
  });
  live.on(["look", "focus"], ({ look, focus }) => {
    if (!look) return;
    const { rows } = tokensOf(look, focus.use);
    const { position } = within(focus, look);
    const focused = positions.contains(document.activeElement);
    positions.replaceChildren(
      h("b", {}, `${say("Position")} `),
      ...rows.map((piece, at) => h("button", { type: "button", class: "chip", "aria-pressed": String(at === position), onclick: () => change("position")(at) }, tokenElement(piece))),
    );
    if (focused) positions.children[position + 1].focus();
  });
  return h("div", { class: "controls" }, uses.element, layers.element, heads.element, positions);
}

function step(name, title, shape, note, ...content) {
  return h("li", { "data-step": name, tabindex: "-1" }, h("h4", {}, title, shape ? h("span", { class: "shape" }, shape) : null), note ? h("p", { class: "note" }, ...[note].flat()) : null, ...content);
}

const arrow = (from, to) => `[${from}] → [${to}]`;

function headSteps(live, about, trace, tokens) {
  const { palette } = live.values;
  const show = (name, vector, options) => strip(name, vector, palette, options);
  const d = `d_model = ${trace.width}`;
  const [dk, dv] = [`d_k = ${trace.keyWidth}`, `d_v = ${trace.valueWidth}`];
  const own = quoted(tokens.rows[trace.position]);
  const most = largestSize(trace.query, ...trace.keys);
  const all = `h·d_v = ${trace.context.length}`;
  const frame = [trace.head / trace.heads, 1 / trace.heads];
  const chosen = Math.min(live.values.chosenKey, trace.keys.length - 1);
  const normStep = (part) => step(`${part.name}-norm`, "LayerNorm", arrow(d, d), momentsText(part.moments), show("LayerNorm(x)", part.vector, { letters: "d_model" }));
  return [
    step("x", "x", `[1 × ${d}]`, sayParts("The vector at the position of {token}, as it enters this sub-layer.", { token: own }), show("x", trace.x, { letters: "d_model" })),
    trace.pre ? normStep({ name: "attention", moments: trace.moments, vector: trace.input }) : null,
    step("q", "q = x W^Q", arrow(d, dk), sayParts("What this position looks for. Keys and values come from {side}.", { side: say(trace.use === "cross" ? "the encoder's output" : "the same sequence") }), show("q", trace.query, { letters: "d_k", most })),
    step("keys", "q·k → ÷√d_k → mask → softmax", arrow(`${dk}, ${trace.keys.length} × ${dk}`, `${trace.keys.length}`), scoreNote(trace), keyTable(live, trace, tokens, most, chosen)),
    step("dot", "q·k = Σ q_i k_i", arrow(`${dk}, ${dk}`, "1"), sayParts("Element by element against the key of {token}; choose another in the table.", { token: quoted(tokens.columns[chosen]) }), ...dotStrips(show, trace, chosen, most)),
    step("sum", "Σ weight · v", arrow(`${trace.keys.length}, ${trace.keys.length} × ${dv}`, dv), trace.off ? say("This head is switched off: its weights are 0.") : say("The values, each times its weight, added up: the output of this head."), show(`head ${trace.head + 1}`, trace.headOut, { letters: "d_v" })),
    step("concat", "Concat(head_1, …, head_h)", arrow(`h × ${dv}`, all), say("The outputs of all heads side by side; this head is framed."), show("Concat", trace.context, { letters: "h·d_v", frame })),
    step("output", "W^O", arrow(all, d), null, show("Concat W^O", trace.out, { letters: "d_model" })),
    step("residual", "x + Sublayer(x)", arrow(`${d}, ${d}`, d), say("The residual connection: what the attention found is added to what was there."), show("x + Sublayer(x)", trace.sum, { letters: "d_model" })),
    trace.pre ? null : normStep({ name: "attention", moments: trace.moments, vector: trace.result }),
    ...feedSteps(show, trace, d, normStep),
    endStep(live, about, trace, d, tokens, show),
  ].filter(Boolean);
}

function momentsText({ mean, deviation }) {
  return say("mean {mean}, standard deviation {deviation}: both are taken out, then come a learned gain and bias.", { mean: signed(mean, 4), deviation: signed(deviation, 4) });
}

function scoreNote(trace) {
  const root = Math.sqrt(trace.keyWidth).toFixed(2);
  return trace.scaled
    ? say("Each dot product is divided by √d_k = {root}; masked ones become −∞; softmax makes weights that sum to 1.", { root })
    : say("The division by √d_k = {root} is switched off: larger scores make the softmax sharper.", { root });
}

// A row for each key: the key, its dot product, the score, the mask, the weight and the value.
function keyTable(live, trace, tokens, most, chosen) {
  const { palette } = live.values;
  const mostValue = largestSize(...trace.values);
  const names = [say("key of"), "k", "q·k", "÷√d_k", say("mask"), "softmax", "v"];
  const rows = trace.keys.map((key, at) => {
    const shade = palette.weight(trace.weights[at]);
    const pick = h("button", { type: "button", class: "chip", "aria-pressed": String(at === chosen), onclick: () => live.set({ chosenKey: at }) }, tokenElement(tokens.columns[at]));
    return h(
      "tr",
      { class: trace.allowed[at] ? "" : "out" },
      h("th", { scope: "row" }, pick),
      h("td", {}, smallStrip(key, most, palette)),
      h("td", { class: "number" }, signed(trace.dots[at])),
      h("td", { class: "number" }, signed(trace.scores[at])),
      h("td", {}, trace.allowed[at] ? "✓" : "−∞"),
      h("td", { class: "number", style: { background: css(shade), color: palette.ink(shade) } }, percent(trace.weights[at])),
      h("td", {}, smallStrip(trace.values[at], mostValue, palette)),
    );
  });
  const table = h("table", { class: "plain keys" }, h("thead", {}, h("tr", {}, ...names.map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, ...rows));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": say("keys, scores, weights and values") }, table);
}

function dotStrips(show, trace, chosen, most) {
  const key = trace.keys[chosen];
  const products = trace.query.map((value, at) => value * key[at]);
  const sum = say("their sum is {sum}", { sum: signed(trace.dots[chosen], 4) });
  return [show("q", trace.query, { letters: "d_k", most }), show("k", key, { letters: "d_k", most }), show("q_i k_i", products, { letters: "d_k" }), h("p", { class: "note" }, sum)];
}

function feedSteps(show, { feed, pre, width }, d, normStep) {
  const hidden = `d_ff = ${feed.active.length}`;
  const on = feed.active.filter((value) => value > 0).length;
  const name = { relu: "max(0, xW₁ + b₁)", gelu: "GELU(xW₁ + b₁)", gelu_tanh: "GELU(xW₁ + b₁)", swish: "Swish(xW₁ + b₁)", swiglu: "Swish(xW) ⊗ xV" }[feed.activation];
  return [
    pre ? normStep({ name: "feed", moments: feed.moments, vector: feed.input }) : null,
    step("hidden", name, arrow(d, hidden), say("The hidden units of the feed-forward layer: {on} of {all} are on.", { on, all: feed.active.length }), show(name, feed.active, { letters: "d_ff" })),
    step("outer", "… W₂ + b₂", arrow(hidden, d), null, show("FFN(x)", feed.out, { letters: "d_model" })),
    step("feed-residual", "x + FFN(x)", arrow(`${d}, ${d}`, d), null, show("x + FFN(x)", feed.sum, { letters: "d_model" })),
    pre ? null : normStep({ name: "feed", moments: feed.moments, vector: feed.result }),
  ];
}

// The last layers lead to the prediction, or to the memory that every decoder layer reads.
function endStep(live, about, trace, d, tokens, show) {
  if (!trace.end && about.classes?.length) {
    return step("end", say("… the last layer"), arrow(d, d), say("After the last layer. The class is read from the first position alone."), show(say("state"), trace.memory, { letters: "d_model" }));
  }
  if (!trace.end) {
    return step("end", say("… the encoder's output"), arrow(d, d), say("After the last layer: the keys and values of every decoder layer are made from it."), show(say("memory"), trace.memory, { letters: "d_model" }));
  }
  const { state, vocabulary, likely } = trace.end;
  const bars = likely.map(({ id, logit, probability }) =>
    h("li", { class: live.values.pieces[id] === tokens.written[trace.position] ? "chosen" : "" }, tokenElement(live.values.pieces[id]), h("span", { class: "bar" }, h("span", { class: "fill", style: { width: `${100 * probability}%` } })), h("span", { class: "number" }, `${signed(logit, 1)} · ${percent(probability)}`)),
  );
  const classes = about.classes?.length;
  const told = classes
    ? say("After the last layer: a logit for each of the {count} classes, and softmax over all of them.", { count: vocabulary })
    : say("After the last layer: a logit for each of the {count} subwords, and softmax over all of them. These are the likeliest.", { count: vocabulary });
  const through = { words: "LayerNorm(GELU(xW + b)) → ", class: about.subwords ? "tanh(xW + b) → " : "" }[trace.end.head] ?? "";
  return step(
    "end",
    `${through}Linear → softmax`,
    arrow(d, `${classes ? "C" : "V"} = ${vocabulary}`),
    told,
    show(say("state"), state, { letters: "d_model" }),
    h("ol", { class: "bars logits" }, ...bars),
  );
}
