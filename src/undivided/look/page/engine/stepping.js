// One cached step of the decoder for every beam. A beam owns lists of the keys and values of its past; branching copies lists of views.

import { add } from "./arithmetic.js";
import { BOS } from "./subwords.js";

// What every beam of a sentence shares; a decoder without an encoder has no memory.
function startDecoding(model, memory) {
  const layers = memory && Array.from({ length: model.config.decoder_layers }, (_, layer) => model.readMemory(layer, memory));
  return { memory, layers };
}

function firstBeam(model) {
  return { tokens: [], past: Array.from({ length: model.config.decoder_layers }, () => ({ keys: [], values: [] })) };
}

function branch(beam, token) {
  return { tokens: [...beam.tokens, token], past: beam.past.map(({ keys, values }) => ({ keys: [...keys], values: [...values] })) };
}

// The logits of the next token after each beam: a list of rows `V`. All beams have the same length.
function stepBeams(model, shared, beams, run) {
  if (!run.mask) return beams.map((beam) => unmaskedLogits(model, shared.memory, [BOS, ...beam.tokens], run));
  const { width } = model;
  let x = new Float32Array(beams.length * width);
  beams.forEach(({ tokens }, row) => x.set(model.embed("target", [tokens.at(-1) ?? BOS], tokens.length, run), row * width));
  for (let layer = 0; layer < model.config.decoder_layers; layer++) {
    const here = `decoder.${layer}`;
    x = sublayer(model, `${here}.residuals.0.norm`, x, (input) => stepSelf(model, layer, beams, input, run));
    if (shared.layers) x = sublayer(model, `${here}.residuals.1.norm`, x, (input) => model.attendAcross(`${here}.cross_attention`, layer, input, shared.layers[layer], run));
    x = sublayer(model, `${here}.residuals.${shared.layers ? 2 : 1}.norm`, x, (input) => model.feedForward(here, input, run));
  }
  const logits = model.logits(model.norm("decoder_norm", x));
  const size = logits.length / beams.length;
  return beams.map((_, row) => logits.subarray(row * size, (row + 1) * size));
}

function sublayer(model, norm, x, compute) {
  return model.config.norm === "pre" ? add(x, compute(model.norm(norm, x))) : model.norm(norm, add(x, compute(x)));
}

function stepSelf(model, layer, beams, input, run) {
  const name = `decoder.${layer}.self_attention`;
  const { queries, keys, values } = model.project(name, input);
  const width = model.config.n_heads * model.valueWidth;
  const all = new Float32Array(beams.length * width);
  beams.forEach((beam, row) => {
    const past = beam.past[layer];
    past.keys.push(keys[row]);
    past.values.push(values[row]);
    const first = model.config.window ? Math.max(0, past.keys.length - Math.floor(model.config.window / 2) - 1) : 0;
    const seen = Array.from({ length: past.keys.length - first }, (_, at) => first + at);
    model.attend(["decoder", layer], queries[row], past.keys, past.values, seen, all.subarray(row * width, (row + 1) * width), null, run);
  });
  return model.apply(`${name}.output`, all);
}

// Without the mask earlier positions read later ones, so nothing of the past can be kept: everything is computed again.
function unmaskedLogits(model, memory, tokens, run) {
  const { states } = model.decode(memory, tokens, run);
  return model.logits(states.subarray(states.length - model.width));
}

// How search steps through a model: any other model brings its own.
export const CACHED = { start: startDecoding, first: firstBeam, branch, step: stepBeams };
