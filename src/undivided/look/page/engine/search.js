// Beam search (greedy with one beam) and sampling over one sentence: undivided.inference.search in JavaScript. [paper 6.1]

import { logSoftmax } from "./arithmetic.js";
import { CACHED } from "./stepping.js";
import { BOS, EOS, PAD, UNK } from "./subwords.js";
import { BeamTree, lengthPenalty } from "./tree.js";

// The best translation { tokens, log_probability, score, finished } and the tree of the search.
// `settings` are those of SearchConfig; `prefix` is how the translation begins; `pause` is awaited between steps.
export async function search(model, memory, sourceLength, settings, prefix, run, pause) {
  const most = Math.min(model.config.position_limit ?? Infinity, settings.longest ?? Infinity);
  const steps = model.stepping ?? CACHED;
  const limit = Math.max(Math.min(sourceLength - 1 + settings.max_extra, most), prefix.length ? prefix.length + 1 : 0);
  const job = { model, settings, prefix, run, pause, limit, steps, shared: steps.start(model, memory), tree: new BeamTree() };
  const best = settings.sample ? await drawOne(job) : (await beamSearch(job))[0];
  return { best, branches: job.tree.finish(best, limit, settings) };
}

async function beamSearch(job) {
  const { settings, tree, limit, steps } = job;
  const finished = [];
  let beams = [{ ...steps.first(job.model, job.shared), total: 0 }];
  while (beams.length) {
    await job.pause();
    const length = beams[0].tokens.length + 1;
    const candidates = bestCandidates(job, beams, 2 * settings.beam_size);
    candidates.forEach((each, place) => (each.ended = each.token === EOS && place < settings.beam_size));
    for (const each of candidates.filter(({ ended }) => ended)) addHypothesis(finished, beams[each.parent].tokens, each.total, length, true, settings);
    const kept = [...candidates.keys()].filter((place) => candidates[place].token !== EOS).slice(0, settings.beam_size);
    tree.add(candidates, kept);
    const before = beams;
    beams = kept.map((place) => ({ ...steps.branch(before[candidates[place].parent], candidates[place].token), total: candidates[place].total }));
    if (!beams.length || isDecided(finished, beams[0].total, length, limit, settings)) break;
    if (length >= limit) {
      for (const beam of beams) if (!finished.length) addHypothesis(finished, beam.tokens, beam.total, length, false, settings);
      break;
    }
  }
  return finished;
}

// The best continuations of all beams, best first: { parent, token, total }.
function bestCandidates({ model, steps, shared, settings, prefix, run }, beams, count) {
  const found = [];
  const logits = steps.step(model, shared, beams, run);
  for (const [parent, { total: before, tokens }] of beams.entries()) {
    const scores = allowedScores(logits[parent], settings, prefix, tokens);
    // What a candidate must exceed; most tokens do not.
    let bound = found.length === count ? found[count - 1].total : -Infinity;
    for (let token = 0; token < scores.length; token++) {
      const total = before + scores[token];
      if (!(total > bound)) continue;
      let place = Math.min(found.length, count - 1);
      for (; place > 0 && total > found[place - 1].total; place--) found[place] = found[place - 1];
      found[place] = { parent, token, total };
      if (found.length === count) bound = found[count - 1].total;
    }
  }
  return found;
}

// Log-probability of each next token; −∞ for what may not come: special ids, other than a forced token, repeated n-grams.
function allowedScores(logits, settings, prefix, tokens) {
  const scores = logSoftmax(logits, settings.temperature);
  for (const id of [PAD, UNK, BOS]) scores[id] = -Infinity;
  const forced = prefix[tokens.length];
  if (forced !== undefined) {
    const only = scores[forced];
    scores.fill(-Infinity)[forced] = only;
  }
  const size = settings.no_repeat_ngram;
  const last = size > 1 ? tokens.slice(tokens.length - size + 1).join() : "";
  for (let at = 0; size && at + size <= tokens.length; at++) {
    const next = tokens[at + size - 1];
    if (tokens.slice(at, at + size - 1).join() === last && next !== EOS) scores[next] = -Infinity;
  }
  return scores;
}

function addHypothesis(finished, tokens, total, length, ended, settings) {
  finished.push({ tokens, log_probability: total, score: total / lengthPenalty(length, settings), finished: ended });
  finished.sort((a, b) => b.finished - a.finished || b.score - a.score);
}

// Whether unfinished hypotheses can be dropped: they cannot win at full length, or a whole beam ended and they are behind.
function isDecided(finished, best, length, limit, settings) {
  if (!finished.length) return false;
  const [asItStands, atMost] = [length, limit].map((tokens) => best / lengthPenalty(tokens, settings));
  const beam = settings.beam_size;
  if (settings.length_norm === "length") return finished.length >= beam && asItStands <= finished[beam - 1].score;
  return (finished.length >= beam && asItStands <= finished[0].score) || atMost <= finished[0].score;
}

// One translation drawn at random; the same seed draws the same.
async function drawOne({ model, steps, shared, settings, prefix, run, limit, tree, pause }) {
  const random = randomNumbers(settings.seed);
  let beam = steps.first(model, shared);
  let total = 0;
  for (let length = 1; ; length++) {
    await pause();
    const scores = allowedScores(steps.step(model, shared, [beam], run)[0], settings, prefix, beam.tokens);
    const token = drawToken(scores, random());
    total += scores[token];
    tree.add([{ parent: 0, token, total, ended: token === EOS }], token === EOS ? [] : [0]);
    if (token !== EOS) beam = steps.branch(beam, token);
    if (token === EOS || length >= limit) {
      const finished = token === EOS;
      return { tokens: beam.tokens, log_probability: total, score: total / lengthPenalty(length, settings), finished };
    }
  }
}

function drawToken(scores, chance) {
  let [sum, last] = [0, 0];
  const whole = scores.reduce((all, score) => all + Math.exp(score), 0);
  for (let token = 0; token < scores.length; token++) {
    if (scores[token] === -Infinity) continue;
    sum += Math.exp(scores[token]) / whole;
    last = token;
    if (sum > chance) return token;
  }
  return last;
}

// Numbers from 0 to 1: a 32-bit counter whose bits are mixed (splitmix32).
function randomNumbers(seed) {
  let state = seed | 0;
  return () => {
    state = (state + 0x9e3779b9) | 0;
    let mixed = state ^ (state >>> 16);
    mixed = Math.imul(mixed, 0x21f0aaad);
    mixed ^= mixed >>> 15;
    mixed = Math.imul(mixed, 0x735a2d97);
    return ((mixed ^ (mixed >>> 15)) >>> 0) / 2 ** 32;
  };
}
