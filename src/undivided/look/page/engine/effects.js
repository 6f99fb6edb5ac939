// What a head or an embedding does to the translation: passes with one thing changed, a few at a time.

import { logSoftmax } from "./arithmetic.js";
import { rowsOf } from "./model.js";

// How far an embedding is scaled up and down to measure a derivative: small for a straight line, large for 32-bit numbers.
const SMALL = 0.01;

// The log-probability of each written token, `T`, or of what else the model found; a memory that was computed before saves the encoder.
function writtenScores(model, pass, run, memory = null) {
  if (model.scoreShown) return model.scoreShown(pass, run);
  const { states } = model.decode(memory ?? model.encode(pass.src, run), pass.tgtIn, run);
  const rows = rowsOf(model.logits(states), model.tensors.output_weight.shape[0]);
  return rows.map((row, place) => logSoftmax(row)[pass.tgt[place]]);
}

const total = (scores) => scores.reduce((sum, score) => sum + score, 0);

// How much the log-probability of the translation falls without each head: calls `found` with { use, layer, head, lost }.
export async function measureHeads(model, pass, run, pause, found) {
  const before = total(writtenScores(model, pass, run, pass.memory));
  for (const use of model.uses) {
    const [layers, heads] = model.attentionShape(use);
    for (let layer = 0; layer < layers; layer++) {
      for (let head = 0; head < heads; head++) {
        await pause();
        const without = { ...run, off: new Set([...run.off, `${use} ${layer} ${head}`]) };
        const after = total(writtenScores(model, pass, without, use === "encoder" ? null : pass.memory));
        found({ use, layer, head, lost: before - after });
      }
    }
  }
}

// Gradient × input: the derivative of each written token's log-probability as one embedding is scaled, `T S` and `T T`.
export async function measureSaliency(model, pass, run, pause) {
  const sides = { source: pass.src.length, target: pass.tgtIn.length };
  const result = {};
  for (const [side, columns] of Object.entries(sides)) {
    const data = new Float32Array(pass.tgt.length * columns);
    for (let place = 0; place < columns; place++) {
      const scores = [];
      for (const factor of [1 + SMALL, 1 - SMALL]) {
        await pause();
        scores.push(writtenScores(model, pass, { ...run, scaled: { side, place, factor } }, side === "target" ? pass.memory : null));
      }
      pass.tgt.forEach((_, row) => (data[row * columns + place] = (scores[0][row] - scores[1][row]) / (2 * SMALL)));
    }
    result[side] = { shape: [pass.tgt.length, columns], data };
  }
  return result;
}
