// The worker of a page with a recurrent translator: RNN, LSTM or GRU, with attention to the source or without.

import { linear, sigmoid, softmax } from "./arithmetic.js";
import { engine, serve } from "./mailbox.js";
import { rowsOf, Transformer } from "./model.js";
import { BOS } from "./subwords.js";
import { writingAsks } from "./writing.js";

// The gates of a cell in the order of its weights, and how many vectors it remembers.
const CELLS = { rnn: { gates: ["h"], parts: 1 }, lstm: { gates: ["i", "f", "g", "o"], parts: 2 }, gru: { gates: ["r", "z", "n"], parts: 1 } };

// One step of a cell for some rows: what comes of W x and of U h, both with biases → the next state, and its gates by name.
const STEPS = {
  // h' = tanh(W x + U h)
  rnn(ofX, ofH) {
    return { h: ofX.map((value, at) => Math.tanh(value + ofH[at])) };
  },
  // c' = f c + i g, h' = o tanh(c')
  lstm(ofX, ofH, { c }, width) {
    const part = (number, squash) => c.map((_, at) => squash(both(at, number)));
    const both = (at, number) => {
      const place = (Math.floor(at / width) * 4 + number) * width + (at % width);
      return ofX[place] + ofH[place];
    };
    const [i, f, g, o] = [part(0, sigmoid), part(1, sigmoid), part(2, Math.tanh), part(3, sigmoid)];
    const next = c.map((value, at) => f[at] * value + i[at] * g[at]);
    return { i, f, g, o, c: next, h: next.map((value, at) => o[at] * Math.tanh(value)) };
  },
  // h' = z h + (1 − z) n with n = tanh(W x + r (U h))
  gru(ofX, ofH, { h }, width) {
    const place = (at, number) => (Math.floor(at / width) * 3 + number) * width + (at % width);
    const r = h.map((_, at) => sigmoid(ofX[place(at, 0)] + ofH[place(at, 0)]));
    const z = h.map((_, at) => sigmoid(ofX[place(at, 1)] + ofH[place(at, 1)]));
    const n = h.map((_, at) => Math.tanh(ofX[place(at, 2)] + r[at] * ofH[place(at, 2)]));
    return { r, z, n, h: h.map((value, at) => z[at] * value + (1 - z[at]) * n[at]) };
  },
};

class Recurrent extends Transformer {
  stepping = STEPPING;

  constructor(config, tensors) {
    super(config, tensors);
    this.hidden = this.memoryWidth = config.hidden_width;
    this.fixed = config.attention === "none";
    this.uses = this.fixed ? [] : ["cross"];
    this.cell = CELLS[config.cell];
  }

  attentionShape(use) {
    return this.uses.includes(use) ? [1, 1] : [0, 0];
  }

  // There is nothing that tells where a token stands.
  positionRows = null;

  lens(layer) {
    return this.logits(layer);
  }

  // One step of a layer for some rows; the new state with its gates.
  advanceCell(name, x, state, rows, width) {
    const map = (of, values) => linear(values, rows, this.tensors[`${name}.fused.weight_${of}_l0`], this.tensors[`${name}.fused.bias_${of}_l0`]);
    return STEPS[this.config.cell](map("ih", x), map("hh", state.h), state, width);
  }

  // A layer along a whole sequence → outputs `T width`.
  along(name, x, count, width, state, record) {
    const result = new Float32Array(count * width);
    const each = x.length / count;
    for (let at = 0; at < count; at++) {
      state = this.advanceCell(name, x.subarray(at * each, (at + 1) * each), state, 1, width);
      record?.(at, state);
      result.set(state.h, at * width);
    }
    return result;
  }

  zero(width) {
    return this.cell.parts > 1 ? { h: new Float32Array(width), c: new Float32Array(width) } : { h: new Float32Array(width) };
  }

  // The states of the top layer, `S hidden`.
  encode(ids, run) {
    let x = this.embed("source", ids, 0, { ...run, positions: false });
    for (let layer = 0; layer < this.config.encoder_layers; layer++) x = this.encodeLayer(`encoder.${layer}`, x, ids.length, run);
    run.record?.("memory", x);
    return x;
  }

  encodeLayer(here, x, count, run) {
    const width = this.config.bidirectional ? this.hidden / 2 : this.hidden;
    const ahead = this.along(`${here}.ahead`, x, count, width, this.zero(width), gateRecorder(run, `${here}.ahead`, count, width));
    if (!this.config.bidirectional) return ahead;
    // The gates of the way back are written down at the tokens that they read.
    const recorded = gateRecorder(run, `${here}.back`, count, width);
    const mirror = (values) => reverseRows(values, count);
    const back = mirror(this.along(`${here}.back`, mirror(x), count, width, this.zero(width), recorded && ((at, state) => recorded(count - 1 - at, state))));
    return joinRows(ahead, back, count);
  }

  // What decoding needs of the memory: the final state, and keys and values if it attends.
  readAll(memory) {
    const [count, half] = [memory.length / this.hidden, this.hidden / 2];
    const final = memory.slice((count - 1) * this.hidden);
    if (this.config.bidirectional) final.set(memory.subarray(half, this.hidden), half);
    if (this.fixed) return { final };
    return { final, keys: rowsOf(this.apply("alignment.key", memory), this.hidden), values: rowsOf(memory, this.hidden) };
  }

  // The states of the decoder's layers before the first token.
  firstStates({ final }) {
    const parts = rowsOf(this.apply("bridge", final).map(Math.tanh), this.hidden);
    return Array.from({ length: this.config.decoder_layers }, (_, layer) => {
      const [h, c] = parts.slice(layer * this.cell.parts);
      return this.cell.parts > 1 ? { h, c } : { h };
    });
  }

  // Teacher-forced → what every layer would give if it were the last, and the final states, `T D`.
  decode(memory, ids, run) {
    const words = this.embed("target", ids, 0, { ...run, positions: false });
    const reading = this.readAll(memory);
    const weights = new Float32Array(ids.length * (reading.keys?.length ?? 0));
    const recorders = Array.from({ length: this.config.decoder_layers }, (_, layer) => gateRecorder(run, `decoder.${layer}`, ids.length, this.hidden));
    const layers = recorders.map(() => new Float32Array(ids.length * this.width));
    let beam = { layers: this.firstStates(reading), fed: new Float32Array(this.width) };
    ids.forEach((_, at) => {
      beam = this.advance(reading, beam, words.subarray(at * this.width, (at + 1) * this.width), 1, run);
      beam.layers.forEach((state, layer) => {
        recorders[layer]?.(at, state);
        const last = layer === layers.length - 1;
        layers[layer].set(last ? beam.fed : run.record ? this.output(state.h, reading, 1, run).states : [], at * this.width);
      });
      weights.set(beam.weights, at * (reading.keys?.length ?? 0));
    });
    const states = layers.at(-1);
    if (reading.keys) run.record?.("decoder.0.cross.weights", weights);
    run.record?.("states", states);
    return { layers, states };
  }

  // One more token for some rows → the new states of all layers, what goes out, and attention weights.
  advance(reading, { layers, fed }, words, rows, run) {
    const beside = this.fixed ? repeatRow(reading.final, rows) : this.config.input_feeding ? fed : null;
    let x = beside ? joinRows(words, beside, rows) : words;
    const next = layers.map((state, layer) => {
      const after = this.advanceCell(`decoder.${layer}`, x, state, rows, this.hidden);
      x = after.h;
      return after;
    });
    const { states, weights } = this.output(x, reading, rows, run);
    return { layers: next, fed: states, weights };
  }

  // tanh(W [context; h]) of some rows, and the weights of their attention.
  output(h, reading, rows, run) {
    const { context, weights } = this.fixed ? { context: repeatRow(reading.final, rows), weights: [] } : this.align(h, reading, rows, run);
    return { states: this.apply("readout", joinRows(context, h, rows)).map(Math.tanh), weights };
  }

  // Additive or multiplicative attention. [paper 3.2.1]
  align(h, { keys, values }, rows, run) {
    const additive = this.config.attention === "additive";
    const queries = rowsOf(additive ? this.apply("alignment.query", h) : h, this.hidden);
    const energy = this.tensors["alignment.energy.weight"]?.data;
    const context = new Float32Array(rows * this.hidden);
    const weights = new Float32Array(rows * keys.length);
    queries.forEach((query, row) => {
      const scores = keys.map((key) => {
        let sum = 0;
        for (let at = 0; at < this.hidden; at++) sum += additive ? energy[at] * Math.tanh(query[at] + key[at]) : query[at] * key[at];
        return sum;
      });
      const shares = run.off.has("cross 0 0") ? scores.fill(0) : softmax(scores);
      weights.set(shares, row * keys.length);
      values.forEach((value, column) => {
        for (let at = 0; at < this.hidden; at++) context[row * this.hidden + at] += shares[column] * value[at];
      });
    });
    return { context, weights };
  }
}

// How search steps: a beam owns the state of every layer, which a step replaces by another.
const STEPPING = {
  start: (model, memory) => model.readAll(memory),
  first: (model, reading) => ({ tokens: [], layers: model.firstStates(reading), fed: new Float32Array(model.width) }),
  branch: ({ tokens, layers, fed }, token) => ({ tokens: [...tokens, token], layers, fed }),
  step(model, reading, beams, run) {
    const words = gather(beams, (beam) => model.embed("target", [beam.tokens.at(-1) ?? BOS], beam.tokens.length, { ...run, positions: false }));
    const fed = gather(beams, (beam) => beam.fed);
    const layers = beams[0].layers.map((state, layer) =>
      Object.fromEntries(["h", "c"].filter((part) => state[part]).map((part) => [part, gather(beams, (beam) => beam.layers[layer][part])])),
    );
    const after = model.advance(reading, { layers, fed }, words, beams.length, run);
    beams.forEach((beam, row) => {
      const own = (values) => values.subarray((row * values.length) / beams.length, ((row + 1) * values.length) / beams.length);
      beam.layers = after.layers.map(({ h, c }) => (c ? { h: own(h), c: own(c) } : { h: own(h) }));
      beam.fed = own(after.fed);
    });
    const logits = model.logits(after.fed);
    return rowsOf(logits, logits.length / beams.length);
  },
};

function gather(beams, read) {
  const rows = beams.map(read);
  const result = new Float32Array(rows.length * rows[0].length);
  rows.forEach((row, at) => result.set(row, at * row.length));
  return result;
}

function reverseRows(values, rows) {
  return gather(rowsOf(values, values.length / rows).reverse(), (row) => row);
}

function repeatRow(row, rows) {
  return gather(Array.from({ length: rows }), () => row);
}

// Two matrices side by side.
function joinRows(left, right, rows) {
  const [one, other] = [left.length / rows, right.length / rows];
  const result = new Float32Array(left.length + right.length);
  for (let row = 0; row < rows; row++) {
    result.set(left.subarray(row * one, (row + 1) * one), row * (one + other));
    result.set(right.subarray(row * other, (row + 1) * other), row * (one + other) + one);
  }
  return result;
}

// Writes down the gates and states of a layer, `T width` each.
function gateRecorder(run, here, count, width) {
  if (!run.record) return null;
  const tables = {};
  return (at, state) => {
    for (const [name, values] of Object.entries(state)) {
      if (!tables[name]) run.record(`${here}.${name}`, (tables[name] = new Float32Array(count * width)));
      tables[name].set(values, at * width);
    }
  };
}

serve({
  ...writingAsks(Recurrent),

  // The gates and states of one layer: { width, tables: { name: `T width` } }.
  gates({ place }, post) {
    const { config, hidden } = engine.model;
    const width = place.startsWith("encoder") && config.bidirectional ? hidden / 2 : hidden;
    const names = [...new Set([...CELLS[config.cell].gates, ...(config.cell === "lstm" ? ["c"] : []), "h"])];
    post("gates", { width, tables: Object.fromEntries(names.map((name) => [name, engine.seen.pass.record.get(`${place}.${name}`)])) });
  },
});
