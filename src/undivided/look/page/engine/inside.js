// One sentence and its translation followed through the model: what undivided.look.capture records, as the page shows it.

import { largest, logSoftmax } from "./arithmetic.js";
import { rowsOf } from "./model.js";
import { BOS, EOS } from "./subwords.js";

const CANDIDATES = 10;
const LENS = 5;
const NEIGHBOURS = 6;
const MIN_POSITIONS = 32;

// One teacher-forced pass with everything written down: { record: Map, ids… }.
export function recordPass(model, src, tgt, run) {
  const record = new Map();
  const recording = { ...run, record: (name, value) => record.set(name, value) };
  const memory = model.encode(src, recording);
  const tgtIn = [BOS, ...tgt.slice(0, -1)];
  const { layers, states } = model.decode(memory, tgtIn, recording);
  record.set("logits", model.logits(states));
  return { record, src, tgtIn, tgt, layers, memory };
}

// The weights of one use, `L H rows columns`.
export function attentionOf(model, pass, use) {
  const [layers, heads] = model.attentionShape(use);
  const [rows, columns] = { encoder: [pass.src, pass.src], decoder: [pass.tgtIn, pass.tgtIn], cross: [pass.tgtIn, pass.src] }[use];
  const shape = [layers, heads, rows.length, columns.length];
  const data = new Float32Array(shape.reduce((product, size) => product * size, 1));
  const name = { encoder: ["encoder", "self"], decoder: ["decoder", "self"], cross: ["decoder", "cross"] }[use];
  for (let layer = 0; layer < layers; layer++) data.set(pass.record.get(`${name[0]}.${layer}.${name[1]}.weights`), (layer * data.length) / layers);
  return { shape, data };
}

const token = (subwords, id) => ({ id, piece: subwords.pieces[id], word: -1 });

// What is read, written and predicted at each position, by the model and by each of its layers (logit lens).
export function stepsOf(model, pass, subwords, temperature) {
  const lenses = pass.layers.slice(0, -1).map((layer) => predictions(model, model.lens(layer), temperature));
  const last = predictions(model, pass.record.get("logits"), temperature);
  return pass.tgt.map((written, place) => {
    const scores = last[place];
    let rank = 1;
    for (const score of scores) if (score > scores[written]) rank++;
    return {
      read: token(subwords, pass.tgtIn[place]),
      written: token(subwords, written),
      probability: Math.exp(scores[written]),
      rank,
      candidates: candidatesOf(scores, CANDIDATES, subwords),
      lens: [...lenses, last].map((layer) => ({ probability: Math.exp(layer[place][written]), candidates: candidatesOf(layer[place], LENS, subwords) })),
    };
  });
}

function predictions(model, logits, temperature) {
  return rowsOf(logits, model.tensors.output_weight.shape[0]).map((row) => logSoftmax(row, temperature));
}

function candidatesOf(scores, count, subwords) {
  return largest(scores, Math.min(count, scores.length)).map((id) => ({ id, piece: subwords.pieces[id], probability: Math.exp(scores[id]) }));
}

export function logProbability(steps) {
  return steps.reduce((sum, step) => sum + Math.log(step.probability), 0);
}

// Similarities and neighbours of the tokens, before and after the encoder. [paper 3.4, 3.5]
export function spaceOf(model, pass, tokenizer) {
  const longest = Math.max(pass.src.length, pass.tgt.length, MIN_POSITIONS);
  if (model.single) return ownSpace(model, pass, tokenizer.source, positionTable(model, longest));
  const [source, target] = ["source", "target"].map((side) => model.tensors[`${side}_embedding.weight`]);
  const pick = (weight, ids) => unitRows(ids.map((id) => weight.data.subarray(id * model.width, (id + 1) * model.width)));
  const [here, there] = [pick(source, pass.src), pick(target, pass.tgt)];
  const memory = unitRows(rowsOf(pass.memory, model.memoryWidth ?? model.width));
  return {
    positions: positionTable(model, longest),
    source: cosines(here, here),
    target: cosines(there, there),
    across: source === target ? cosines(there, here) : null,
    memory: cosines(memory, memory),
    source_neighbours: neighbours(here, pass.src, source, tokenizer.source),
    target_neighbours: neighbours(there, pass.tgt, target, tokenizer.target),
  };
}

// The same of a single stack: what its tokens are as they enter it.
function ownSpace(model, pass, subwords, positions) {
  const weight = model.tensors["source_embedding.weight"];
  const ids = pass.src.length ? pass.src : pass.tgt;
  const own = unitRows(ids.map((id) => weight.data.subarray(id * model.width, (id + 1) * model.width)));
  return { positions, source: cosines(own, own), source_neighbours: neighbours(own, ids, weight, subwords), target: null, across: null, memory: null, target_neighbours: [] };
}

function positionTable(model, wanted) {
  if (model.config.positions === "none" || !model.positionRows) return null;
  const rows = Math.min(wanted, model.config.position_limit ?? wanted);
  return { shape: [rows, model.width], data: model.positionRows(rows).slice() };
}

function unitRows(rows) {
  return rows.map((row) => {
    const length = Math.sqrt(row.reduce((sum, value) => sum + value * value, 0)) || 1;
    return row.map((value) => value / length);
  });
}

function dot(left, right) {
  let sum = 0;
  for (let at = 0; at < left.length; at++) sum += left[at] * right[at];
  return sum;
}

function cosines(left, right) {
  return { shape: [left.length, right.length], data: Float32Array.from(left.flatMap((row) => right.map((column) => dot(row, column)))) };
}

const norms = new WeakMap();

function rowLengths(weight) {
  if (!norms.has(weight)) norms.set(weight, Float32Array.from(rowsOf(weight.data, weight.shape[1]), (row) => Math.sqrt(dot(row, row)) || 1));
  return norms.get(weight);
}

function neighbours(vectors, ids, weight, subwords) {
  const rows = rowsOf(weight.data, weight.shape[1]);
  const lengths = rowLengths(weight);
  const known = new Map();
  return vectors.map((vector, place) => {
    const own = ids[place];
    if (!known.has(own)) {
      const near = Float32Array.from(rows, (row, id) => (id <= EOS || id === own ? -1 : dot(vector, row) / lengths[id]));
      known.set(own, largest(near, NEIGHBOURS).map((id) => ({ piece: subwords.pieces[id], cosine: near[id] })));
    }
    return known.get(own);
  });
}
