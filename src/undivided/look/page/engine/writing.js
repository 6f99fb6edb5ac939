// What a model that writes can be asked: a translator, or a language model that continues a prompt.

import { asRun, commonAsks, named } from "./asks.js";
import { measureSaliency } from "./effects.js";
import { attentionOf, logProbability, recordPass, spaceOf, stepsOf } from "./inside.js";
import { engine, pauseFor } from "./mailbox.js";
import { AS_TRAINED } from "./model.js";
import { search } from "./search.js";
import { EOS } from "./subwords.js";

export function writingAsks(Model) {
  return {
    ...commonAsks(Model),

    // A text, search settings and changes → "translation", "baseline" where something is changed, and "look".
    async look({ text, settings, changes = {}, prefix = [] }, post) {
      const version = ++engine.version;
      const pause = pauseFor(version);
      const { model, tokenizer, about } = engine;
      const ids = tokenizer.source.encode(text);
      const empty = !text.trim() && !model.single;
      if (empty || ids.length > about.longest) return post("refused", { reason: empty ? "empty" : "long", tokens: ids.length });
      const run = asRun(changes);
      const { src, best, branches } = await write(ids, settings, prefix, run, pause);
      const translation = tokenizer.target.decode(best.tokens);
      const given = model.single ? tokenizer.target.decode(ids.slice(0, -1)) : "";
      post("translation", { text: translation, given, ...best });
      if (isAsTrained(changes, settings, prefix)) keepBaseline(text, settings, best);
      post("baseline", await baseline(text, ids, settings, pause));
      await pause();
      const tgt = best.finished ? [...best.tokens, EOS] : best.tokens;
      const pass = recordPass(model, src, tgt, run);
      engine.seen = { version, pass, run };
      await pause();
      const steps = stepsOf(model, pass, tokenizer.target, settings.temperature);
      await pause();
      return post("look", { text, translation, own: translation, ...best, log_probability: logProbability(steps), ...describe(pass, steps, branches) });
    },

    async saliency(_, post) {
      const { version, pass, run } = engine.seen;
      post("saliency", await measureSaliency(engine.model, pass, run, pauseFor(version)));
    },

    // Many texts, what is written alone.
    async translate({ texts, settings, changes = {} }, post) {
      const run = asRun(changes);
      for (const text of texts) {
        const { best } = await write(engine.tokenizer.source.encode(text), settings, [], run, async () => {});
        post("translated", { text: engine.tokenizer.target.decode(best.tokens), ...best });
      }
    },
  };
}

async function write(ids, settings, prefix, run, pause) {
  const { model } = engine;
  const { src, forced, length } = model.begin(ids, prefix);
  const limits = model.single ? { ...settings, longest: engine.about.longest } : settings;
  return { src, ...(await search(model, model.encode(src, run), length, limits, forced, run, pause)) };
}

const isAsTrained = ({ off = [], mask = true, positions = true, scale = true }, { temperature, sample }, prefix) =>
  !off.length && mask && positions && scale && temperature === 1 && !sample && !prefix.length;

// What is written without any change, for comparison; kept while only changes differ.
async function baseline(text, ids, settings, pause) {
  if (engine.baseline.key !== baselineKey(text, settings)) {
    const plain = { ...settings, temperature: 1, sample: false };
    keepBaseline(text, plain, (await write(ids, plain, [], AS_TRAINED, pause)).best);
  }
  return engine.baseline.value;
}

function keepBaseline(text, settings, { tokens, score }) {
  engine.baseline = { key: baselineKey(text, settings), value: { text: engine.tokenizer.target.decode(tokens), score, tokens } };
}

const baselineKey = (text, { beam_size, max_extra }) => JSON.stringify([text, beam_size, max_extra]);

function describe(pass, steps, branches) {
  const { model, tokenizer, about } = engine;
  const empty = (rows, columns) => ({ shape: [rows, columns], data: new Float32Array(rows * columns) });
  return {
    forced: false,
    source: pass.src.map(named(tokenizer.source)),
    steps,
    ...Object.fromEntries(["encoder", "decoder", "cross"].map((use) => [use, attentionOf(model, pass, use)])),
    beam: (model.single ? [] : branches).map((node) => ({ ...node, piece: tokenizer.target.pieces[node.id] })),
    saliency_source: empty(pass.tgt.length, pass.src.length),
    saliency_target: empty(pass.tgt.length, pass.tgt.length),
    space: spaceOf(model, pass, tokenizer),
    facts: about.facts,
    heads_off: [],
    alternatives: [],
    uses: about.uses,
    fates: about.fates,
    remark: about.remark,
    single: Boolean(model.single),
  };
}
