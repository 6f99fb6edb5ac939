// What every model with layers of attention or of cells can be asked once a look is recorded.

import { fromBase85, inflate, readTensors } from "./bytes.js";
import { measureHeads } from "./effects.js";
import { engine, pauseFor } from "./mailbox.js";
import { AS_TRAINED } from "./model.js";
import { Subwords } from "./subwords.js";
import { traceHead, traceStream } from "./trace.js";

export function asRun({ off = [], mask = true, positions = true, scale = true }) {
  return { ...AS_TRAINED, off: new Set(off), mask, positions, scale };
}

// A subword as the page knows it.
export const named = (subwords) => (id) => ({ id, piece: subwords.pieces[id], word: -1 });

// The questions that are the same for all kinds; `Model` is made of a config, its tensors and what else is known of it.
export function commonAsks(Model) {
  return {
    async load({ about, weights }) {
      const bytes = await inflate(fromBase85(weights.trim()));
      engine.about = about;
      if (about.subwords) {
        const source = new Subwords(about.subwords.source);
        engine.tokenizer = { source, target: about.subwords.target ? new Subwords(about.subwords.target) : source };
      }
      engine.model = new Model(about.model, readTensors(about.tensors, bytes), about);
    },

    // How much is lost without each head, one "head" after the other.
    async heads(_, post) {
      const { version, pass, run } = engine.seen;
      await measureHeads(engine.model, pass, run, pauseFor(version), (found) => post("head", found));
    },

    trace: (which, post) => post("trace", traceHead(engine.model, engine.seen.pass, engine.seen.run, which)),
    stream: (which, post) => post("stream", traceStream(engine.model, engine.seen.pass, which)),
    // Everything that the last pass wrote down, by name.
    tensors: (_, post) => post("tensors", Object.fromEntries(engine.seen.pass.record)),
    encode: ({ texts, side = "source" }, post) => post("ids", texts.map((text) => engine.tokenizer?.[side].encode(text) ?? [])),
    decode: ({ rows }, post) => post("texts", rows.map((row) => engine.tokenizer.target.decode(row))),
  };
}
