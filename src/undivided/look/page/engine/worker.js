// The model in a worker, so that the page never waits for it. Asked { id, ask, … }, it answers { id, part, value } or { id, error };
// the last part of an answer is "done". A new "look" cancels whatever is computed for the one before.

import { fromBase64, inflate, readTensors } from "./bytes.js";
import { measureHeads, measureSaliency } from "./effects.js";
import { attentionOf, logProbability, recordPass, spaceOf, stepsOf } from "./inside.js";
import { AS_TRAINED, Transformer } from "./model.js";
import { search } from "./search.js";
import { EOS, Subwords } from "./subwords.js";
import { traceHead, traceStream } from "./trace.js";

// Milliseconds of computing between looks at the mailbox.
const BETWEEN_PAUSES = 12;

class Cancelled extends Error {}

const engine = { about: null, model: null, tokenizer: null, version: 0, seen: null, baseline: { key: "", value: null } };

function pauseFor(version) {
  let last = performance.now();
  return async () => {
    if (performance.now() - last < BETWEEN_PAUSES) return;
    await new Promise((go) => setTimeout(go));
    last = performance.now();
    if (version !== engine.version) throw new Cancelled();
  };
}

function asRun({ off = [], mask = true, positions = true, scale = true }) {
  return { ...AS_TRAINED, off: new Set(off), mask, positions, scale };
}

const ASKS = {
  async load({ about, weights }) {
    const bytes = await inflate(fromBase64(weights));
    const source = new Subwords(about.subwords.source);
    engine.about = about;
    engine.tokenizer = { source, target: about.subwords.target ? new Subwords(about.subwords.target) : source };
    engine.model = new Transformer(about.model, readTensors(about.tensors, bytes));
  },

  // A text, search settings and changes → "translation", "baseline" where something is changed, and "look".
  async look({ text, settings, changes = {}, prefix = [] }, post) {
    const version = ++engine.version;
    const pause = pauseFor(version);
    const { model, tokenizer } = engine;
    const src = tokenizer.source.encode(text);
    if (!text.trim() || src.length > engine.about.longest) return post("refused", { reason: text.trim() ? "long" : "empty", tokens: src.length });
    const run = asRun(changes);
    const { best, branches } = await search(model, model.encode(src, run), src.length, settings, prefix, run, pause);
    const translation = tokenizer.target.decode(best.tokens);
    post("translation", { text: translation, ...best });
    post("baseline", await baseline(text, src, settings, pause));
    await pause();
    const tgt = best.finished ? [...best.tokens, EOS] : best.tokens;
    const pass = recordPass(model, src, tgt, run);
    engine.seen = { version, pass, run };
    await pause();
    const steps = stepsOf(model, pass, tokenizer.target, settings.temperature);
    await pause();
    return post("look", { text, translation, own: translation, ...best, log_probability: logProbability(steps), ...describe(pass, steps, branches) });
  },

  // How much the translation loses without each head, one "head" after the other.
  async heads(_, post) {
    const { version, pass, run } = engine.seen;
    await measureHeads(engine.model, pass, run, pauseFor(version), (found) => post("head", found));
  },

  async saliency(_, post) {
    const { version, pass, run } = engine.seen;
    post("saliency", await measureSaliency(engine.model, pass, run, pauseFor(version)));
  },

  trace: (which, post) => post("trace", traceHead(engine.model, engine.seen.pass, engine.seen.run, which)),
  stream: (which, post) => post("stream", traceStream(engine.model, engine.seen.pass, which)),
  // Everything that the last pass wrote down, by name.
  tensors: (_, post) => post("tensors", Object.fromEntries(engine.seen.pass.record)),
  encode: ({ texts, side = "source" }, post) => post("ids", texts.map((text) => engine.tokenizer[side].encode(text))),
  decode: ({ rows }, post) => post("texts", rows.map((row) => engine.tokenizer.target.decode(row))),

  // Many texts, translations alone.
  async translate({ texts, settings, changes = {} }, post) {
    const run = asRun(changes);
    for (const text of texts) {
      const src = engine.tokenizer.source.encode(text);
      const { best } = await search(engine.model, engine.model.encode(src, run), src.length, settings, [], run, async () => {});
      post("translated", { text: engine.tokenizer.target.decode(best.tokens), ...best });
    }
  },
};

// The translation without any change, for comparison; kept while only changes differ.
async function baseline(text, src, settings, pause) {
  const plain = { ...settings, temperature: 1, sample: false };
  const key = JSON.stringify([text, plain.beam_size]);
  if (engine.baseline.key !== key) {
    const { best } = await search(engine.model, engine.model.encode(src, AS_TRAINED), src.length, plain, [], AS_TRAINED, pause);
    engine.baseline = { key, value: { text: engine.tokenizer.target.decode(best.tokens), score: best.score, tokens: best.tokens } };
  }
  return engine.baseline.value;
}

function describe(pass, steps, branches) {
  const { model, tokenizer, about } = engine;
  const named = (subwords) => (id) => ({ id, piece: subwords.pieces[id], word: -1 });
  const empty = (rows, columns) => ({ shape: [rows, columns], data: new Float32Array(rows * columns) });
  return {
    forced: false,
    source: pass.src.map(named(tokenizer.source)),
    steps,
    encoder: attentionOf(model, pass, "encoder"),
    decoder: attentionOf(model, pass, "decoder"),
    cross: attentionOf(model, pass, "cross"),
    beam: branches.map((node) => ({ ...node, piece: tokenizer.target.pieces[node.id] })),
    saliency_source: empty(pass.tgt.length, pass.src.length),
    saliency_target: empty(pass.tgt.length, pass.tgt.length),
    space: spaceOf(model, pass, tokenizer),
    facts: about.facts,
    heads_off: [],
    alternatives: [],
    uses: about.uses,
    fates: about.fates,
    remark: "",
  };
}

self.onmessage = async ({ data: { id, ask, ...about } }) => {
  // The large arrays of a look are handed over, not copied: that would take the page longer.
  const post = (part, value) => self.postMessage({ id, part, value }, part === "look" ? ["encoder", "decoder", "cross"].map((use) => value[use].data.buffer) : []);
  try {
    await ASKS[ask](about, post);
    post("done");
  } catch (error) {
    if (error instanceof Cancelled) post("cancelled");
    else self.postMessage({ id, error: String(error.stack ?? error) });
  }
};
