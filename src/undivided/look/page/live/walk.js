// A walk to learn the Transformer by: stations with a question each, whose answer is found by running the model of this page.

import { h, percent, signed } from "../dom.js";
import { readablePiece } from "../data.js";
import { interfaceLanguage } from "../words.js";

const OF_HEAD_1 = { use: "encoder", layer: 0, head: 0, position: 0 };

function once(page, name, about = {}) {
  let found = null;
  return page.ask(name, about, (_, value) => (found = value)).then(() => found);
}

const largest = (values) => values.reduce((best, value, at) => (value > values[best] ? at : best), 0);
const between = (value, ...limits) => limits.filter((limit) => value >= limit).length;

function softmaxOf(scores) {
  const top = Math.max(...scores);
  const powers = scores.map((score) => Math.exp(score - top));
  const sum = powers.reduce((one, other) => one + other, 0);
  return powers.map((power) => power / sum);
}

function cosine(one, other) {
  const dot = (a, b) => a.reduce((sum, value, at) => sum + value * b[at], 0);
  return dot(one, other) / Math.sqrt(dot(one, one) * dot(other, other));
}

// One number of the attention weights `L H rows columns` of a use.
function weightOf({ shape, data }, layer, head, row, column) {
  return data[((layer * shape[1] + head) * shape[2] + row) * shape[3] + column];
}

const translated = (page, changes, beam) =>
  once(page, "translate", { texts: [page.live.values.text], settings: { ...page.about.search, temperature: 1, beam_size: beam }, changes });

// Each finds { right, value }: the number of the right choice, and what the explanation says.
export const CHECKS = {
  reads_first: async ({ live }) => {
    const { encoder } = live.values.look;
    const [, heads, rows] = encoder.shape;
    const value = Math.max(...Array.from({ length: heads }, (_, head) => weightOf(encoder, 0, head, rows - 1, 0)));
    return { right: value > 0 ? 0 : 1, value: percent(value) };
  },
  kept_by_stream: async (page) => {
    const { points } = await once(page, "stream", { stack: "encoder", position: 0 });
    const value = cosine(Array.from(points[0].vector), Array.from(points.at(-1).vector));
    return { right: between(value, 0.3, 0.7), value: signed(value) };
  },
  vectors_of_memory: async ({ live }) => ({ right: 1, value: String(live.values.look.source.length) }),
  most_read_source: async ({ live }) => {
    const { cross } = live.values.look;
    const [layers, heads, , columns] = cross.shape;
    const means = Array.from({ length: columns }, (_, column) => {
      const weights = Array.from({ length: heads }, (__, head) => weightOf(cross, layers - 1, head, 0, column));
      return weights.reduce((sum, weight) => sum + weight, 0) / heads;
    });
    const right = largest(means);
    return { right, value: percent(means[right]) };
  },
  best_key: async (page) => {
    const { dots } = await once(page, "trace", OF_HEAD_1);
    const right = largest(Array.from(dots));
    return { right, value: signed(dots[right]) };
  },
  weight_without_scale: async (page) => {
    const { dots, keyWidth } = await once(page, "trace", OF_HEAD_1);
    const [divided, whole] = [Math.sqrt(keyWidth), 1].map((by) => Math.max(...softmaxOf(Array.from(dots, (dot) => dot / by))));
    const change = whole - divided;
    return { right: change > 1e-6 ? 0 : change < -1e-6 ? 2 : 1, value: `${percent(divided)} → ${percent(whole)}` };
  },
  without_positions: async (page) => {
    const beam = page.about.search.beam_size;
    const [with_, without] = [await translated(page, {}, beam), await translated(page, { positions: false }, beam)];
    return { right: with_.text === without.text ? 1 : 0, value: without.text };
  },
  dearest_head: async (page) => {
    const last = page.about.model.decoder_layers - 1;
    const lost = new Array(page.about.model.n_heads).fill(-Infinity);
    await page.ask("heads", {}, (_, { use, layer, head, lost: value }) => {
      if (use === "cross" && layer === last) lost[head] = value;
    });
    const right = largest(lost);
    return { right, value: signed(lost[right]) };
  },
  weight_on_future: async ({ live }) => {
    const { decoder } = live.values.look;
    const [layers, heads, rows] = decoder.shape;
    let sum = 0;
    for (let layer = 0; layer < layers; layer++)
      for (let head = 0; head < heads; head++) for (let row = 0; row < rows; row++) for (let column = row + 1; column < rows; column++) sum += weightOf(decoder, layer, head, row, column);
    return { right: sum === 0 ? 0 : between(sum, 1) + 1, value: sum === 0 ? "0" : signed(sum) };
  },
  spread_before_norm: async (page) => {
    const { pre, x, sum } = await once(page, "trace", OF_HEAD_1);
    const normed = Array.from(pre ? x : sum);
    const mean = normed.reduce((one, other) => one + other, 0) / normed.length;
    const value = Math.sqrt(normed.reduce((total, each) => total + (each - mean) ** 2, 0) / normed.length);
    return { right: between(value, 0.5, 2), value: signed(value) };
  },
  units_on: async (page) => {
    const { feed } = await once(page, "trace", OF_HEAD_1);
    const value = Array.from(feed.active).filter((unit) => unit > 0).length / feed.active.length;
    return { right: between(value, 0.25, 0.5), value: percent(value) };
  },
  first_read: async ({ live }) => {
    const { read } = live.values.look.steps[0];
    return { right: read.piece === "<s>" ? 0 : 2, value: readablePiece(read.piece) };
  },
  greedy_or_beam: async (page) => {
    const [greedy, beam] = [await translated(page, {}, 1), await translated(page, {}, 4)];
    return { right: greedy.text === beam.text ? 0 : 1, value: greedy.text };
  },
  share_of_cross: async ({ about }) => {
    const size = ({ shape }) => shape.reduce((product, length) => product * length, 1);
    const total = (entries) => entries.reduce((sum, entry) => sum + size(entry), 0);
    const value = total(about.tensors.filter(({ name }) => name.includes("cross_attention"))) / about.facts.parameters;
    return { right: between(value, 0.1, 0.25), value: percent(value) };
  },
};

const fill = (text, values) => text.replaceAll(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);

function choicesOf({ live, about }, choices) {
  if (choices === "source tokens") return live.values.look.source.map(({ piece }, at) => `${at + 1}: ${readablePiece(piece)}`);
  if (choices === "heads") return Array.from({ length: about.model.n_heads }, (_, head) => String(head + 1));
  const values = { n: live.values.look.source.length, d: about.model.d_model };
  return choices.map((choice) => fill(choice, values));
}

export function walkTitle(about) {
  return about.walk.labels[interfaceLanguage()].walk;
}

export function walkSection(page) {
  const { live, about } = page;
  const labels = about.walk.labels[interfaceLanguage()];
  const { stations } = about.walk;
  const content = h("div", { class: "station card" });
  const show = (at, focus) => {
    live.values.station = at;
    content.replaceChildren(...stationOf(page, labels, stations, at, show));
    if (focus) content.querySelector("h3").focus();
  };
  // Another sentence, another answer.
  live.on(["look"], () => show(live.values.station ?? 0, false));
  return content;
}

function stationOf(page, labels, stations, at, show) {
  const station = stations[at];
  const told = station[interfaceLanguage()];
  const move = (label, to) => h("button", { type: "button", class: "small", disabled: to < 0 || to >= stations.length, onclick: () => show(to, true) }, label);
  return [
    h("p", { class: "note" }, fill(labels.station, { number: at + 1, count: stations.length })),
    h("h3", { tabindex: "-1" }, told.title),
    h("p", {}, told.text),
    page.live.values.look ? questionOf(page, labels, station, told) : h("p", { class: "note" }, labels.first),
    h("p", { class: "note" }, `${fill(labels.sources, station)} `, h("code", {}, station.code), " · ", h("code", {}, `undivided paper faq --only ${station.faq}`)),
    h("p", { class: "buttons" }, move(labels.back, at - 1), " ", move(labels.next, at + 1)),
  ];
}

function questionOf(page, labels, station, told) {
  const choices = choicesOf(page, told.choices);
  const name = `walk-${station.name}`;
  const inputs = choices.map((_, at) => h("input", { type: "radio", name, value: String(at), onchange: () => (button.disabled = false) }));
  const result = h("p", { class: "note result", role: "status" });
  const button = h("button", { type: "button", class: "small", disabled: true, onclick: check }, labels.check);
  async function check() {
    result.textContent = labels.wait;
    const { right, value } = await CHECKS[station.check](page);
    const chosen = inputs.findIndex((input) => input.checked);
    const verdict = chosen === right ? labels.right : fill(labels.wrong, { answer: choices[right] });
    result.textContent = `${verdict} ${fill(told.why, { value })}`;
    result.dataset.right = String(chosen === right);
  }
  const options = choices.map((choice, at) => h("label", {}, inputs[at], h("span", {}, choice)));
  return h("div", {}, h("fieldset", { class: "choice" }, h("legend", {}, told.question), ...options), h("p", { class: "buttons" }, button), result);
}
