// The Transformer of Figure 1, over whole sequences and step by step. Names and letters are those of the paper.

import { activate, add, layerNorm, linear } from "./arithmetic.js";

// What a pass may differ in from the model as trained, and where it is written down.
// `off` holds heads as "use layer head"; `scaled` changes one embedding: { side, place, factor }.
export const AS_TRAINED = { off: new Set(), mask: true, positions: true, scale: true, scaled: null, record: null };

export class Transformer {
  uses = ["cross", "decoder", "encoder"];

  constructor(config, tensors) {
    Object.assign(this, { config, tensors, width: config.d_model, keyWidth: config.key_width, valueWidth: config.value_width });
    this.sinusoids = new Float32Array(0);
  }

  // A linear map by the name of its weights.
  apply(name, x) {
    const weight = this.tensors[`${name}.weight`];
    return linear(x, x.length / weight.shape[1], weight, this.tensors[`${name}.bias`]);
  }

  norm(name, x) {
    const weight = this.tensors[`${name}.weight`];
    return weight ? layerNorm(x, { weight, bias: this.tensors[`${name}.bias`] }, this.config.norm_epsilon) : x;
  }

  // Embeddings × √d_model + positions, `T D`. [paper 3.4, 3.5]
  embed(side, ids, start, run) {
    const weight = this.tensors[`${side}_embedding.weight`].data;
    const scale = this.config.scale_embeddings ? Math.sqrt(this.width) : 1;
    const words = new Float32Array(ids.length * this.width);
    ids.forEach((id, place) => {
      const changed = run.scaled && run.scaled.side === side && run.scaled.place === start + place;
      const by = changed ? scale * run.scaled.factor : scale;
      for (let at = 0; at < this.width; at++) words[place * this.width + at] = weight[id * this.width + at] * by;
    });
    run.record?.(`${side}.words`, words);
    const result = this.config.positions === "none" || !run.positions ? words : this.place(words, start);
    run.record?.(`${side}.embedded`, result);
    return result;
  }

  place(words, start) {
    const count = words.length / this.width;
    const here = this.positionRows(start + count).subarray(start * this.width, (start + count) * this.width);
    const project = this.tensors["source_embedding.positions.project.weight"];
    if (!project) return add(words, here);
    const both = new Float32Array(2 * words.length);
    for (let row = 0; row < count; row++) {
      both.set(words.subarray(row * this.width, (row + 1) * this.width), 2 * row * this.width);
      both.set(here.subarray(row * this.width, (row + 1) * this.width), (2 * row + 1) * this.width);
    }
    return linear(both, count, project);
  }

  // Encodings of the first places, `T D`. [paper 3.5]
  positionRows(length) {
    const learned = this.tensors["source_embedding.positions.learned"];
    if (learned) return learned.data.subarray(0, length * this.width);
    if (this.sinusoids.length < length * this.width) this.sinusoids = fixedPositions(2 * length, this.width, this.config.positions);
    return this.sinusoids.subarray(0, length * this.width);
  }

  // How many layers and heads attend in one use.
  attentionShape(use) {
    const layers = use === "encoder" ? this.config.encoder_layers : this.config.decoder_layers;
    return [this.uses.includes(use) ? layers : 0, this.config.n_heads];
  }

  // What is read and written for a text: source ids, ids that the search must begin with, and the length that its limit follows from.
  begin(ids, prefix) {
    return { src: ids, forced: prefix, length: ids.length };
  }

  // The output of the encoder, `S D`.
  encode(ids, run) {
    let x = this.embed("source", ids, 0, run);
    const allowed = this.selfMask(false, run);
    for (let layer = 0; layer < this.config.encoder_layers; layer++) {
      const here = `encoder.${layer}`;
      x = this.residual(here, "self", 0, x, (input) => this.attendSelf(`${here}.self_attention`, ["encoder", layer], input, allowed, run), run);
      x = this.residual(here, "feed", 1, x, (input) => this.feedForward(here, input, run), run);
    }
    const memory = this.norm("encoder_norm", x);
    run.record?.("memory", memory);
    return memory;
  }

  // Teacher-forced: target ids shifted right → the output of every layer and the final states, `T D`.
  decode(memory, ids, run) {
    let x = this.embed("target", ids, 0, run);
    const allowed = this.selfMask(true, run);
    const layers = [];
    for (let layer = 0; layer < this.config.decoder_layers; layer++) {
      const here = `decoder.${layer}`;
      const across = (input) => this.attendAcross(`${here}.cross_attention`, layer, input, this.readMemory(layer, memory), run);
      x = this.residual(here, "self", 0, x, (input) => this.attendSelf(`${here}.self_attention`, ["decoder", layer], input, allowed, run), run);
      x = this.residual(here, "cross", 1, x, across, run);
      x = this.residual(here, "feed", 2, x, (input) => this.feedForward(here, input, run), run);
      layers.push(x);
    }
    const states = this.norm("decoder_norm", x);
    run.record?.("states", states);
    return { layers, states };
  }

  // LayerNorm(x + Sublayer(x)), or x + Sublayer(LayerNorm(x)). [paper 3.1, 5.4]
  residual(here, name, number, x, sublayer, run) {
    const norm = `${here}.residuals.${number}.norm`;
    const pre = this.config.norm === "pre";
    const input = pre ? this.norm(norm, x) : x;
    const out = sublayer(input);
    const sum = add(x, out);
    const result = pre ? sum : this.norm(norm, sum);
    if (run.record) Object.entries({ x, input, out, sum, result }).forEach(([part, value]) => run.record(`${here}.${name}.${part}`, value));
    return result;
  }

  feedForward(here, input, run) {
    const hidden = this.apply(`${here}.feed_forward.inner`, input);
    const active = activate(hidden, this.config.activation, this.config.d_ff);
    run.record?.(`${here}.feed.hidden`, hidden);
    run.record?.(`${here}.feed.active`, active);
    return this.apply(`${here}.feed_forward.outer`, active);
  }

  // Which column a row may attend to within a sequence. [paper 3.1, 3.2.3, 4]
  selfMask(causal, run) {
    const reach = this.config.window ? Math.floor(this.config.window / 2) : Infinity;
    return (row, column) => (!causal || !run.mask || column <= row) && Math.abs(row - column) <= reach;
  }

  attendSelf(name, [use, layer], input, allowed, run) {
    const { queries, keys, values } = this.project(name, input);
    return this.heads(name, `${use}.${layer}.self`, [use, layer], queries, keys, values, allowed, run);
  }

  attendAcross(name, layer, input, { keys, values }, run) {
    const queries = rowsOf(this.apply(`${name}.query`, input), this.config.n_heads * this.keyWidth);
    return this.heads(name, `decoder.${layer}.cross`, ["cross", layer], queries, keys, values, () => true, run);
  }

  project(name, input) {
    const widths = [this.keyWidth, this.keyWidth, this.valueWidth].map((each) => each * this.config.n_heads);
    const [queries, keys, values] = splitRows(this.apply(`${name}.qkv`, input), widths);
    return { queries, keys, values };
  }

  // Keys and values of the encoder's output for one decoder layer.
  readMemory(layer, memory) {
    const widths = [this.keyWidth, this.valueWidth].map((each) => each * this.config.n_heads);
    const [keys, values] = splitRows(this.apply(`decoder.${layer}.cross_attention.key_value`, memory), widths);
    return { keys, values };
  }

  // Concat(head_1, …, head_h) W^O over whole sequences. [paper 3.2.2]
  heads(name, here, which, queries, keys, values, allowed, run) {
    const all = new Float32Array(queries.length * this.config.n_heads * this.valueWidth);
    const weights = new Float32Array(this.config.n_heads * queries.length * keys.length);
    queries.forEach((query, row) => {
      const seen = [...keys.keys()].filter((column) => allowed(row, column));
      const context = all.subarray(row * this.config.n_heads * this.valueWidth, (row + 1) * this.config.n_heads * this.valueWidth);
      const put = (head, column, weight) => (weights[(head * queries.length + row) * keys.length + column] = weight);
      this.attend(which, query, keys, values, seen, context, put, run);
    });
    if (run.record) Object.entries({ queries, keys, values, weights, context: all }).forEach(([part, value]) => run.record(`${here}.${part}`, value));
    return this.apply(`${name}.output`, all);
  }

  // softmax(qKᵀ/√d_k)V of one query, every head by itself, into `context`. [paper 3.2.1, Eq. 1]
  attend([use, layer], query, keys, values, seen, context, put, run) {
    const { keyWidth, valueWidth } = this;
    const scale = run.scale ? keyWidth ** -0.5 : 1;
    const scores = new Float64Array(seen.length);
    for (let head = 0; head < this.config.n_heads; head++) {
      const on = run.off.has(`${use} ${layer} ${head}`) ? 0 : 1;
      let [most, sum] = [-Infinity, 0];
      for (let at = 0; at < scores.length; at++) {
        scores[at] = scale * dotOf(query, keys[seen[at]], head * keyWidth, (head + 1) * keyWidth);
        if (scores[at] > most) most = scores[at];
      }
      for (let at = 0; at < scores.length; at++) sum += scores[at] = Math.exp(scores[at] - most);
      for (let at = 0; at < scores.length; at++) {
        const weight = (scores[at] * on) / sum;
        put?.(head, seen[at], weight);
        addTimes(context, weight, values[seen[at]], head * valueWidth, (head + 1) * valueWidth);
      }
    }
  }

  // What would be predicted if a layer, whose output this is, were the last.
  lens(layer) {
    return this.logits(this.norm("decoder_norm", layer));
  }

  // States `T D` → logits `T V`. [paper 3.4]
  logits(states) {
    return linear(states, states.length / this.width, this.tensors.output_weight, this.tensors.output_bias);
  }
}

function dotOf(left, right, start, end) {
  let sum = 0;
  for (let at = start; at < end; at++) sum += left[at] * right[at];
  return sum;
}

function addTimes(into, weight, values, start, end) {
  for (let at = start; at < end; at++) into[at] += weight * values[at];
}

// A matrix as views of its rows.
export function rowsOf(matrix, width) {
  return Array.from({ length: matrix.length / width }, (_, row) => matrix.subarray(row * width, (row + 1) * width));
}

// Rows of several parts side by side → the rows of each part.
function splitRows(matrix, widths) {
  const whole = widths.reduce((sum, width) => sum + width, 0);
  let start = 0;
  return widths.map((width) => {
    const first = start;
    start += width;
    return Array.from({ length: matrix.length / whole }, (_, row) => matrix.subarray(row * whole + first, row * whole + first + width));
  });
}

function fixedPositions(length, width, kind) {
  const table = new Float32Array(length * width);
  for (let place = 0; place < length; place++) {
    for (let at = 0; at < width; at++) {
      const halves = kind === "halves" || kind === "marian";
      const pair = halves ? at % (width / 2) : Math.floor(at / 2);
      const angle = place * 10000 ** (-pair / (kind === "marian" ? Math.max(1, width / 2 - 1) : width / 2));
      const sine = halves ? at < width / 2 : at % 2 === 0;
      table[place * width + at] = kind === "index" ? place : sine ? Math.sin(angle) : Math.cos(angle);
    }
  }
  return table;
}
