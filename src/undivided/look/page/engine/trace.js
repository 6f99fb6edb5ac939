// Every number of one head at one position, and of the residual stream: read from a recorded pass.

import { largest, moments, softmax } from "./arithmetic.js";

const LIKELY = 12;

const PLACES = { encoder: ["encoder", "self"], decoder: ["decoder", "self"], cross: ["decoder", "cross"] };

function rowOf(pass, name, place, width) {
  return pass.record.get(name).slice(place * width, (place + 1) * width);
}

// x → q, k, v → q·k → ÷√d_k → mask → softmax → Σ weights·v → concat → W^O → add → norm → feed-forward → … [paper 3.1–3.3]
export function traceHead(model, pass, run, { use, layer, head, position }) {
  const [stack, name] = PLACES[use];
  const here = `${stack}.${layer}.${name}`;
  const { keyWidth, valueWidth } = model;
  const cut = (row, width) => row.slice(head * width, (head + 1) * width);
  const query = cut(pass.record.get(`${here}.queries`)[position], keyWidth);
  const keys = pass.record.get(`${here}.keys`).map((row) => cut(row, keyWidth));
  const values = pass.record.get(`${here}.values`).map((row) => cut(row, valueWidth));
  const dots = keys.map((key) => query.reduce((sum, q, at) => sum + q * key[at], 0));
  const allowed = use === "cross" ? () => true : model.selfMask(use === "decoder", run);
  const columns = keys.length;
  const rows = use === "encoder" ? pass.src.length : pass.tgtIn.length;
  const context = rowOf(pass, `${here}.context`, position, model.config.n_heads * valueWidth);
  return {
    use, layer, head, position, keyWidth, valueWidth,
    heads: model.config.n_heads,
    width: model.width,
    pre: model.config.norm === "pre",
    scaled: run.scale,
    off: run.off.has(`${use} ${layer} ${head}`),
    query, keys, values, dots,
    scores: dots.map((each) => (run.scale ? each / Math.sqrt(keyWidth) : each)),
    allowed: keys.map((_, column) => allowed(position, column)),
    weights: pass.record.get(`${here}.weights`).slice((head * rows + position) * columns, (head * rows + position + 1) * columns),
    context,
    headOut: cut(context, valueWidth),
    ...sublayerRow(model, pass, here, position),
    feed: feedRow(model, pass, `${stack}.${layer}.feed`, position),
    end: isPredicted(model, pass, stack, position) ? predictionRow(model, pass, position) : null,
    memory: stack === "encoder" ? rowOf(pass, "memory", position, model.width) : null,
  };
}

// x, the sub-layer's input and output, their sum and the result, with what LayerNorm takes the mean and deviation of.
function sublayerRow(model, pass, here, position) {
  const parts = {};
  for (const part of ["x", "input", "out", "sum", "result"]) parts[part] = rowOf(pass, `${here}.${part}`, position, model.width);
  const normed = model.config.norm === "pre" ? parts.x : parts.sum;
  return { ...parts, moments: moments(normed, 0, model.width, model.config.norm_epsilon) };
}

function feedRow(model, pass, here, position) {
  const inner = pass.record.get(`${here}.hidden`).length / pass.record.get(`${here}.x`).length;
  return {
    ...sublayerRow(model, pass, here, position),
    hidden: rowOf(pass, `${here}.hidden`, position, inner * model.width),
    active: rowOf(pass, `${here}.active`, position, model.config.d_ff),
    activation: model.config.activation,
  };
}

// Every position of a decoder leads to a prediction; of a single stack that reads, those that its head reads.
function isPredicted(model, pass, stack, position) {
  return stack === "decoder" || (model.single && position * model.width < pass.record.get("states").length);
}

function predictionRow(model, pass, position) {
  const size = model.tensors.output_weight.shape[0];
  const logits = rowOf(pass, "logits", position, size);
  const chances = softmax(logits);
  const likely = largest(logits, Math.min(LIKELY, size)).map((id) => ({ id, logit: logits[id], probability: chances[id] }));
  return { state: rowOf(pass, "states", position, model.width), vocabulary: size, likely, head: model.head ?? null };
}

// The residual stream of one position: what enters, and after every sub-layer the sum so far with what was added.
export function traceStream(model, pass, { stack, position }) {
  const side = stack === "encoder" ? "source" : "target";
  const first = rowOf(pass, `${side}.embedded`, position, model.width);
  const points = [{ name: "embedding", layer: -1, vector: first, added: null }];
  const names = ["self", "cross", "feed"].filter((name) => pass.record.has(`${stack}.0.${name}.out`));
  for (let layer = 0; layer < model.config[`${stack}_layers`]; layer++) {
    for (const name of names) {
      const here = `${stack}.${layer}.${name}`;
      points.push({ name, layer, vector: rowOf(pass, `${here}.result`, position, model.width), added: rowOf(pass, `${here}.out`, position, model.width) });
    }
  }
  const words = rowOf(pass, `${side}.words`, position, model.width);
  return { stack, position, points, words, final: rowOf(pass, stack === "encoder" ? "memory" : "states", position, model.width) };
}
