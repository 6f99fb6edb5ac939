// The attention of one use: lines between tokens, all heads at a glance, and the weights as numbers.

import { css } from "./colour.js";
import { matrix, meanMatrix } from "./data.js";
import { card, choice, h } from "./dom.js";
import { heatMap } from "./heat.js";
import { linesView } from "./lines.js";
import { multiplesView } from "./multiples.js";
import { say } from "./words.js";

export function attentionSection(store, data) {
  if (!data.useNames.length) return card(say("No attention"), say(data.remark));
  let cachedFor = [];
  let mean = null;
  // The mean weights of the chosen heads.
  function selectedWeights() {
    const { use, layer, heads } = store.values;
    const selection = [data.attention[use], layer, heads];
    if (selection.some((each, at) => each !== cachedFor[at])) mean = meanMatrix(heads.map((head) => matrix(data.attention[use], layer, head)));
    cachedFor = selection;
    return mean;
  }

  const heat = heatMap(store, say("attention weights: rows attend to columns"), (row, column) => {
    store.set({ hover: row >= 0 ? { side: "row", index: row } : column >= 0 ? { side: "column", index: column } : null });
  });
  const title = h("h3", {});
  store.on(["use", "layer", "heads"], ({ use, layer, heads }) => {
    const which = headsName(heads);
    title.textContent = say("Weights: {use}, layer {layer}, {which}", { use: say(data.uses[use]), layer: layer + 1, which });
  });
  store.on(["use", "layer", "heads", "palette"], ({ use, palette }) => {
    const masked = (row, column) => data.masked(use, row, column);
    heat.show(data.rows(use), data.columns(use), selectedWeights(), palette.weight, palette, masked);
  });
  store.on(["hover", "pinned", "use"], ({ hover, pinned }) => {
    const focus = hover || pinned;
    heat.mark(focus?.side === "row" ? focus.index : -1, focus?.side === "column" ? focus.index : -1);
  });

  return h(
    "div",
    { class: "attention" },
    controls(store, data),
    data.remark ? h("p", { class: "note" }, say(data.remark)) : null,
    h(
      "div",
      { class: "columns" },
      card(say("Who attends to whom"), null, linesView(store, data, selectedWeights)),
      card(say("All heads"), say("One row per layer, one column per head. In each picture, rows attend to columns. Click one to show it alone."), multiplesView(store, data), legend(store)),
    ),
    h("section", { class: "card" }, title, h("p", { class: "note" }, say("Every row sums to 1. Hatched cells are masked.")), heat.element),
  );
}

// `head 3`, or `mean of 4 heads`.
export function headsName(heads) {
  return heads.length === 1 ? say("head {head}", { head: heads[0] + 1 }) : say("mean of {count} heads", { count: heads.length });
}

function controls(store, data) {
  const names = { encoder: say("Encoder self"), decoder: say("Decoder self"), cross: say("Encoder–decoder") };
  const uses = choice(say("Attention"), data.useNames.map((use) => [use, names[use]]), store.values.use, (use) => {
    const [layers, heads] = data.attention[use].shape;
    const { layer, heads: before } = store.values;
    const kept = before.filter((head) => head < heads);
    store.set({ use, layer: Math.min(layer, layers - 1), heads: kept.length ? kept : [0], hover: null, pinned: null });
  });
  const most = (dimension) => Math.max(...data.useNames.map((use) => data.attention[use].shape[dimension]));
  const options = Array.from({ length: most(0) }, (_, number) => [number, String(number + 1)]);
  const layers = choice(say("Layer"), options, store.values.layer, (layer) => store.set({ layer }));
  const heads = headChoice(store, data, most(1));
  store.on(["use"], ({ use }) => {
    uses.show(use);
    layers.limit(data.attention[use].shape[0]);
  });
  store.on(["layer"], ({ layer }) => layers.show(layer));
  uses.element.hidden = Boolean(data.single);
  return h("div", { class: "controls" }, uses.element, layers.element, heads);
}

// Any number of heads can be shown at once, at least one.
function headChoice(store, data, most) {
  const boxes = Array.from({ length: most }, (_, head) => {
    const input = h("input", { type: "checkbox", value: String(head), onchange: () => toggle(head) });
    return { head, input, element: h("label", {}, input, h("span", {}, h("i", { "aria-hidden": "true" }), String(head + 1))) };
  });
  const count = () => data.attention[store.values.use].shape[1];
  const chooseAll = () => store.set({ heads: Array.from({ length: count() }, (_, head) => head) });

  function toggle(head) {
    const { heads } = store.values;
    const next = heads.includes(head) ? heads.filter((each) => each !== head) : [...heads, head].sort((a, b) => a - b);
    store.set({ heads: next.length ? next : [head] });
    show(store.values);
  }

  function show({ heads, palette }) {
    for (const { head, input, element } of boxes) {
      input.checked = heads.includes(head);
      element.hidden = head >= count();
      element.style.setProperty("--colour", palette.head(head));
    }
  }
  store.on(["use", "heads", "palette"], show);
  const all = h("button", { type: "button", class: "small", onclick: chooseAll }, say("all"));
  return h("fieldset", { class: "choice heads" }, h("legend", {}, say("Heads")), ...boxes.map((box) => box.element), all);
}

function legend(store) {
  const steps = [0, 0.05, 0.1, 0.25, 0.5, 0.75, 1];
  const cells = steps.map((value) => h("span", {}, value === 0 ? "0" : value === 1 ? "1" : String(value).replace(/^0/, "")));
  store.on(["palette"], ({ palette }) => {
    cells.forEach((cell, at) => {
      const shade = palette.weight(steps[at]);
      cell.style.background = css(shade);
      cell.style.color = palette.ink(shade);
    });
  });
  return h("div", { class: "legend", role: "img", "aria-label": say("colour scale from weight 0 to 1") }, ...cells);
}
