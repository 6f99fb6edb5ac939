// The worker of a page with an encoder (BERT): which word is hidden, or the class of a text.

import { activate, logSoftmax } from "./arithmetic.js";
import { asRun, commonAsks, named } from "./asks.js";
import { attentionOf, spaceOf, stepsOf } from "./inside.js";
import { engine, pauseFor, serve } from "./mailbox.js";
import { SPACE_MARK } from "./normalize.js";
import { rowsOf } from "./model.js";
import { SingleStack } from "./stack.js";
import { BOS, EOS, UNK } from "./subwords.js";

// What training puts in the place of a hidden word.
const HIDDEN = UNK;
const MASK_NAME = "[MASK]";

class Encoder extends SingleStack {
  constructor(config, tensors, { classes }) {
    super(config, tensors, "encoder");
    this.head = classes.length ? "class" : "words";
    this.tensors.output_weight = classes.length ? this.tensors["head.output.weight"] : this.tensors["source_embedding.weight"];
    this.tensors.output_bias = classes.length ? this.tensors["head.output.bias"] : this.tensors["head.bias"];
  }

  // Tokens, positions and the first segment, then LayerNorm: what enters the stack.
  enter(ids, run) {
    const embedded = this.embed("source", ids, 0, run);
    const segment = this.tensors.segments.data.subarray(0, this.width);
    const result = this.norm("embedding_norm", embedded.map((value, at) => value + segment[at % this.width]));
    run.record?.("source.embedded", result);
    return result;
  }

  // Ids → the output of every layer, and the states that logits are made of: of every position, or of the first for a class.
  read(ids, run) {
    const { layers, states: memory } = this.stack(this.enter(ids, run), run);
    run.record?.("memory", memory);
    const states = this.throughHead(memory);
    run.record?.("states", states);
    const logits = this.logits(states);
    run.record?.("logits", logits);
    return { layers, memory, logits };
  }

  throughHead(states) {
    if (this.head === "class") return this.apply("head.pool", states.slice(0, this.width)).map(Math.tanh);
    return this.norm("head.norm", activate(this.apply("head.transform", states), "gelu", this.width));
  }

  lens(layer) {
    return this.logits(this.throughHead(this.norm("encoder_norm", layer)));
  }

  // The log-probability of each hidden token, or of the class that was found.
  scoreShown(pass, run) {
    const { logits } = this.read(pass.src, run);
    if (this.head === "class") return [logSoftmax(logits)[pass.best]];
    const rows = rowsOf(logits, this.tensors.output_weight.shape[0]);
    return pass.hidden.map((place) => logSoftmax(rows[place])[pass.tgt[place]]);
  }
}

// The places of each word; pieces of a word follow one that begins with a space. What has no letters of its own is no word.
function groupWords(ids, pieces) {
  const words = [];
  ids.forEach((id, place) => {
    if (id === BOS || id === EOS) return;
    if (pieces[id].startsWith(SPACE_MARK) || !words.length) words.push([place]);
    else words.at(-1).push(place);
  });
  return words;
}

serve({
  ...commonAsks(Encoder),

  // A text and the numbers of its hidden words → "look".
  async look({ text, hidden = [], changes = {} }, post) {
    const version = ++engine.version;
    const pause = pauseFor(version);
    const { model, tokenizer, about } = engine;
    const subwords = tokenizer.source;
    const ids = subwords.encode(text);
    if (!text.trim() || ids.length > about.longest) return post("refused", { reason: text.trim() ? "long" : "empty", tokens: ids.length });
    const tgt = [BOS, ...ids];
    const words = groupWords(tgt, subwords.pieces);
    const places = hidden.filter((word) => word < words.length).flatMap((word) => words[word]);
    const src = tgt.map((id, place) => (places.includes(place) ? HIDDEN : id));
    const run = asRun(changes);
    await pause();
    const record = new Map();
    const { layers, memory, logits } = model.read(src, { ...run, record: (name, value) => record.set(name, value) });
    const pass = { record, src, tgtIn: src, tgt, layers, memory, hidden: places };
    const scores = model.head === "class" ? logSoftmax(logits) : null;
    if (scores) pass.best = scores.indexOf(scores.reduce((one, other) => Math.max(one, other)));
    engine.seen = { version, pass, run };
    await pause();
    const steps = scores ? [] : stepsOf(model, pass, subwords, 1);
    const source = src.map(named(subwords));
    places.forEach((place) => (source[place].piece = MASK_NAME));
    steps.forEach((step, place) => (step.read = source[place]));
    await pause();
    return post("look", {
      text,
      source,
      tokens: tgt.map(named(subwords)),
      words,
      hidden: places,
      steps,
      classes: scores && about.classes.map((name, at) => ({ name, probability: Math.exp(scores[at]) })),
      encoder: attentionOf(model, pass, "encoder"),
      space: spaceOf(model, pass, tokenizer),
      facts: about.facts,
      uses: about.uses,
      remark: "",
      single: true,
    });
  },
});
