// Beam search as a tree, and what happened to each branch: undivided.look.beam in JavaScript.

import { EOS } from "./subwords.js";

export function lengthPenalty(length, { length_penalty: alpha, length_norm: norm }) {
  return norm === "length" ? length ** alpha : ((5 + length) / 6) ** alpha;
}

export class BeamTree {
  constructor() {
    this.nodes = [];
    // The node of each beam; −1 before the first token.
    this.beams = [-1];
  }

  // One step: `candidates` best first, each { parent, token, total, ended }, and the places of those that become the next beams.
  add(candidates, kept) {
    const places = candidates.map(({ parent, token, total, ended }, place) => {
      const origin = this.beams[parent];
      const fate = ended ? "ended" : kept.includes(place) ? "continued" : token === EOS ? "ended too low" : "fell out";
      const step = origin >= 0 ? this.nodes[origin].step + 1 : 1;
      return this.nodes.push({ parent: origin, step, id: token, total, fate, best: false }) - 1;
    });
    this.beams = kept.map((place) => places[place]);
  }

  // The branches, once it is known which unfinished ones were overtaken and which led to the chosen translation.
  finish(chosen, limit, settings) {
    for (const node of this.nodes) node.score = node.total / lengthPenalty(node.step, settings);
    const ended = Math.max(-Infinity, ...this.nodes.filter((node) => node.fate === "ended").map((node) => node.score));
    for (const number of this.beams.filter((each) => each >= 0)) {
      const node = this.nodes[number];
      node.fate = node.step >= limit && node.score > ended ? "length limit" : "overtaken";
    }
    const parents = new Set(this.nodes.filter(({ fate }) => fate !== "fell out" && fate !== "ended too low").map((node) => node.parent));
    this.nodes.forEach((node, number) => {
      if (node.fate === "continued" && !parents.has(number)) node.fate = "crowded out";
    });
    this.markBest(chosen);
    return this.nodes;
  }

  markBest({ tokens, finished }) {
    const wanted = finished ? [...tokens, EOS] : tokens;
    const last = finished ? ["ended"] : ["length limit", "overtaken"];
    const found = this.nodes.findIndex((node, number) => last.includes(node.fate) && node.step === wanted.length && this.spells(number, wanted));
    if (found < 0) return;
    this.nodes[found].fate = "chosen";
    for (let number = found; number >= 0; number = this.nodes[number].parent) this.nodes[number].best = true;
  }

  spells(number, wanted) {
    for (let at = wanted.length - 1; at >= 0; at--) {
      if (this.nodes[number].id !== wanted[at]) return false;
      number = this.nodes[number].parent;
    }
    return true;
  }
}
