// What if: a head is turned off, or another token is chosen. Everything was computed before; the page only shows it.

import { css } from "./colour.js";
import { card, h, percent, quoted, signed, tokenElement } from "./dom.js";
import { say, sayParts } from "./words.js";

export function whatIfSection(store, data) {
  if (!data.heads_off.length && !data.alternatives.length) {
    return card(say("Not computed"), say("This page was made without the what-if part. Leave out --fast on the command line, or use look(…, what_if=True) in Python."));
  }
  const off = data.heads_off.length ? headsOff(store, data) : card(say("Turn a head off"), say(data.remark));
  return h("div", { class: "columns" }, off, otherTokens(store, data));
}

function headsOff(store, data) {
  const results = new Map(data.heads_off.map((each) => [`${each.use} ${each.layer} ${each.head}`, each]));
  const worst = Math.max(...data.heads_off.map((each) => Math.abs(each.lost)), 1e-9);
  const grids = data.useNames.map((use) => headGrid(store, data, use, results, worst));
  const answer = h("div", { class: "answer", "aria-live": "polite" });
  store.on(["use", "layer", "heads"], ({ use, layer, heads }) => {
    const off = results.get(`${use} ${layer} ${heads[0]}`);
    const which = say("Without head {head} of layer {layer}, {use}:", { head: heads[0] + 1, layer: layer + 1, use: say(data.uses[use]) });
    answer.replaceChildren(h("p", {}, which), ...translationLines(data, off.translation, off.score), h("p", { class: "note" }, say("The log-probability of the shown translation falls by {lost}.", { lost: signed(off.lost) })));
  });
  const note = say("How much the log-probability of the translation falls without each head. Orange: the head was needed; blue: the translation is more likely without it. One row per layer, one column per head. Click one to see the translation without it.");
  return card(say("Turn a head off"), note, h("div", { class: "off-grids" }, ...grids), answer);
}

function headGrid(store, data, use, results, worst) {
  const [layers, heads] = data.attention[use].shape;
  const buttons = [];
  for (let layer = 0; layer < layers; layer++) {
    for (let head = 0; head < heads; head++) {
      const { lost } = results.get(`${use} ${layer} ${head}`);
      const name = `${say("{use}, layer {layer}, head {head}", { use: say(data.uses[use]), layer: layer + 1, head: head + 1 })}: `;
      const choose = () => store.set({ use, layer, heads: [head], hover: null, pinned: null });
      buttons.push({ layer, head, lost, element: h("button", { type: "button", "aria-label": name + signed(lost, 1), title: name + signed(lost), onclick: choose }, signed(lost, 1)) });
    }
  }
  const rows = Array.from({ length: layers }, (_, layer) => [h("span", { class: "side" }, `${layer + 1}`), ...buttons.filter((each) => each.layer === layer).map((each) => each.element)]);
  const tops = [h("span", {}), ...Array.from({ length: heads }, (_, head) => h("span", { class: "top" }, `${head + 1}`))];
  const grid = h("div", { class: "off-grid" }, ...tops, ...rows.flat());
  grid.style.setProperty("--heads", heads);
  store.on(["use", "layer", "heads", "palette"], ({ use: now, layer, heads: chosen, palette }) => {
    for (const each of buttons) {
      const shade = palette.signed(-each.lost / worst);
      each.element.style.background = css(shade);
      each.element.style.color = palette.ink(shade);
      each.element.setAttribute("aria-pressed", String(now === use && layer === each.layer && chosen[0] === each.head));
    }
  });
  return h("div", {}, h("h4", {}, say(data.uses[use])), grid);
}

function otherTokens(store, data) {
  const list = h("ul", { class: "others" });
  store.on(["step"], ({ step }) => {
    const now = data.steps[step];
    const here = data.alternatives.filter((each) => each.step === step);
    list.replaceChildren(
      ...here.map((each) =>
        h("li", {}, h("p", {}, ...sayParts("{other} ({probability}) instead of {written}:", { other: quoted(each.piece), probability: percent(each.probability), written: quoted(now.written.piece) })), ...translationLines(data, each.translation, each.score)),
      ),
    );
  });
  const positions = h("p", { class: "flow positions" }, ...data.written.map((piece, step) => h("button", { type: "button", class: "chip", onclick: () => store.set({ step }) }, tokenElement(piece))));
  store.on(["step"], ({ step }) => [...positions.children].forEach((each, at) => each.setAttribute("aria-pressed", String(at === step))));
  return card(say("Choose another token"), say("Choose a position: beam search continues after each of the other candidates."), positions, list);
}

// A translation with its differences from the shown one marked, and its score.
function translationLines(data, translation, score) {
  const same = translation === data.translation;
  const text = same ? [translation] : markChanges(data.translation.split(" "), translation.split(" "));
  const change = score - data.score;
  const scores = `${say("score {score}", { score: signed(score) })} (${change < 0 ? "" : "+"}${signed(change)})${same ? `, ${say("the same translation")}` : ""}`;
  return [h("p", { class: "translation" }, h("bdi", {}, ...text)), h("p", { class: "note" }, scores)];
}

// The words of `after` that are not in the longest common subsequence with `before` are marked.
function markChanges(before, after) {
  const common = Array.from({ length: before.length + 1 }, () => new Uint16Array(after.length + 1));
  for (let i = before.length - 1; i >= 0; i--) {
    for (let j = after.length - 1; j >= 0; j--) {
      common[i][j] = before[i] === after[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
    }
  }
  const words = [];
  for (let i = 0, j = 0; j < after.length; ) {
    if (i < before.length && before[i] === after[j]) [i, j] = [i + 1, pushWord(words, after[j], j)];
    else if (i < before.length && common[i + 1][j] >= common[i][j + 1]) i++;
    else j = pushWord(words, h("mark", {}, after[j]), j);
  }
  return words;
}

function pushWord(words, text, at) {
  if (at) words.push(" ");
  words.push(text);
  return at + 1;
}
