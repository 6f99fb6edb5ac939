// Position encodings and embeddings, before any attention.

import { css, paint } from "./colour.js";
import { matrix } from "./data.js";
import { card, choice, h, quoted, short, signed, svg, tokenElement, trackCell } from "./dom.js";
import { heatMap } from "./heat.js";
import { say, sayParts } from "./words.js";

export function positionsSection(store, data) {
  const table = data.space.positions;
  if (!table) return card(say("No positions"), say("This model has no position encoding."));
  const [count, width] = table.shape;
  const values = matrix(table);
  const largest = Math.max(...table.data.map(Math.abs), 1e-9);
  const status = h("p", { class: "status", "aria-live": "polite" });
  const picture = raster(say("encoding of each position"), (row, column) => row >= 0 && store.set({ dimension: column, position: row }));
  const similarityRaster = raster(say("similarity of positions"), (row, column) => {
    if (row >= 0) pairStatus.textContent = say("positions {one} and {other}: {value}", { one: row + 1, other: column + 1, value: short(similar.data[row * count + column]) || "0" });
  });
  const pairStatus = h("p", { class: "status" }, say("Cosine similarity of each pair of positions: nearby positions are similar, wherever they are."));
  const similar = similarities(values);
  const slider = h("input", { type: "range", min: "1", max: String(width), oninput: () => store.set({ dimension: Number(slider.value) - 1 }) });
  const curve = svg("svg", { class: "curve", viewBox: "0 0 400 90", preserveAspectRatio: "none", role: "img", "aria-label": say("the chosen dimension over the positions") });

  store.on(["palette"], ({ palette }) => {
    paint(picture.canvas, values, (value) => palette.signed(value / largest));
    paint(similarityRaster.canvas, similar, palette.signed);
  });
  store.on(["dimension", "position"], ({ dimension, position }) => {
    slider.value = String(dimension + 1);
    const here = Array.from({ length: count }, (_, row) => values.data[row * width + dimension]);
    status.textContent = say("Dimension {dimension} of {width}: {value} at position {position}", { dimension: dimension + 1, width, value: signed(here[position]), position: position + 1 });
    const points = here.map((value, row) => `${(400 * row) / Math.max(1, count - 1)},${45 - (40 * value) / largest}`);
    curve.replaceChildren(svg("path", { class: "axis", d: "M0,45 H400" }), svg("polyline", { points: points.join(" ") }));
  });
  const note = say("Positions 1 to {count} from top to bottom, dimensions 1 to {width} from left to right; blue is positive, orange negative.", { count, width });
  return h(
    "div",
    { class: "columns wide-left" },
    card(say("Position encoding"), note, picture.element, h("label", { class: "dimension" }, `${say("dimension")} `, slider), status, curve),
    card(say("Similarity of positions"), null, similarityRaster.element, pairStatus),
  );
}

// A stretched canvas with one pixel per number; `onCell` is told which number is pointed at or chosen with the arrow keys.
function raster(label, onCell) {
  const canvas = h("canvas", { class: "raster", role: "img", tabindex: "0", "aria-label": say("{label}; move with the arrow keys", { label }) });
  const cellAt = (x, y) => [Math.floor((y / canvas.clientHeight) * canvas.height), Math.floor((x / canvas.clientWidth) * canvas.width)];
  trackCell(canvas, cellAt, () => [canvas.height, canvas.width], onCell);
  return { canvas, element: canvas };
}

function similarities({ rows, columns, data }) {
  const norms = Array.from({ length: rows }, (_, row) => Math.hypot(...data.subarray(row * columns, (row + 1) * columns)) || 1);
  const result = new Float32Array(rows * rows);
  for (let left = 0; left < rows; left++) {
    for (let right = 0; right < rows; right++) {
      let sum = 0;
      for (let at = 0; at < columns; at++) sum += data[left * columns + at] * data[right * columns + at];
      result[left * rows + right] = sum / norms[left] / norms[right];
    }
  }
  return { rows, columns: rows, data: result };
}

export function embeddingsSection(store, data) {
  const kinds = {
    source: [say("Source tokens"), data.sourcePieces, data.sourcePieces],
    memory: [say("Encoder output"), data.sourcePieces, data.sourcePieces],
    target: [say("Target tokens"), data.written, data.written],
    across: [say("Target × source"), data.written, data.sourcePieces],
  };
  const offered = Object.keys(kinds).filter((kind) => data.space[kind]);
  const strip = choice(say("Compare"), offered.map((kind) => [kind, kinds[kind][0]]), "source", (compared) => store.set({ compared }));
  const heat = heatMap(store, say("cosine similarity of embeddings"), (row, column) => {
    const side = store.values.compared === "target" || store.values.compared === "across" ? "target" : "source";
    if (row >= 0) store.set({ neighbour: { side, index: row } });
    else if (column >= 0 && store.values.compared !== "across") store.set({ neighbour: { side, index: column } });
  });
  store.on(["compared", "palette"], ({ compared, palette }) => {
    const [, rows, columns] = kinds[compared];
    heat.show(rows, columns, matrix(data.space[compared]), palette.signed, palette);
  });
  const note = data.single
    ? say("Cosine similarity of each pair, before any layer; 1 is the same direction.")
    : say("Cosine similarity of each pair; 1 is the same direction. In the encoder output a token has taken in its context.");
  return h("div", { class: "columns wide-left embeddings" }, card(say("Similarity of tokens"), note, offered.length > 1 ? strip.element : null, heat.element), neighboursCard(store, data));
}

function neighboursCard(store, data) {
  const sides = { source: data.sourcePieces, target: data.written };
  const chips = (side) =>
    h("p", { class: "flow positions", hidden: !sides[side].length }, h("b", { hidden: Boolean(data.single) }, `${say(side)} `), ...sides[side].map((piece, index) => h("button", { type: "button", class: "chip", onclick: () => store.set({ neighbour: { side, index } }) }, tokenElement(piece))));
  const rows = { source: chips("source"), target: chips("target") };
  const list = h("ol", { class: "bars" });
  const name = h("h4", {});
  store.on(["neighbour"], ({ neighbour: { side, index } }) => {
    for (const [each, row] of Object.entries(rows)) {
      [...row.querySelectorAll("button")].forEach((button, at) => button.setAttribute("aria-pressed", String(each === side && at === index)));
    }
    name.replaceChildren(...sayParts("Nearest to {token}", { token: quoted(sides[side][index]) }));
    const near = data.space[`${side}_neighbours`][index];
    list.replaceChildren(
      ...near.map((each) =>
        h("li", {}, tokenElement(each.piece), h("span", { class: "bar" }, h("span", { class: "fill", style: { width: `${100 * Math.max(0, each.cosine)}%` } })), h("span", { class: "number" }, short(each.cosine) || "0")),
      ),
    );
  });
  return card(say("Neighbours in the vocabulary"), say("Tokens whose embeddings point in nearly the same direction."), rows.source, rows.target, name, list);
}
