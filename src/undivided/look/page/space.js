// Before any attention: where positions and words lie.

import { css, paint } from "./colour.js";
import { matrix } from "./data.js";
import { card, choice, h, quoted, short, signed, svg, walk, word } from "./dom.js";
import { heatMap } from "./heat.js";

export function positionsSection(store, data) {
  const table = data.space.positions;
  if (!table) return card("No positions", "This model is given no encoding of positions.");
  const [places, width] = table.shape;
  const values = matrix(table);
  const largest = Math.max(...table.data.map(Math.abs), 1e-9);
  const said = h("p", { class: "said", "aria-live": "polite" });
  const picture = raster("encoding of each position", (row, column) => row >= 0 && store.set({ dimension: column, place: row }));
  const alike = raster("similarity of positions", (row, column) => {
    if (row >= 0) told.textContent = `positions ${row + 1} and ${column + 1}: ${short(similar.data[row * places + column]) || "0"}`;
  });
  const told = h("p", { class: "said" }, "The cosine of each pair of positions: near ones are alike, whatever the place.");
  const similar = similarities(values);
  const slider = h("input", { type: "range", min: "1", max: String(width), oninput: () => store.set({ dimension: Number(slider.value) - 1 }) });
  const curve = svg("svg", { class: "curve", viewBox: "0 0 400 90", preserveAspectRatio: "none", role: "img", "aria-label": "the chosen dimension over the positions" });

  store.on(["palette"], ({ palette }) => {
    paint(picture.canvas, values, (value) => palette.signed(value / largest));
    paint(alike.canvas, similar, palette.signed);
  });
  store.on(["dimension", "place"], ({ dimension, place }) => {
    slider.value = String(dimension + 1);
    const here = Array.from({ length: places }, (_, row) => values.data[row * width + dimension]);
    said.textContent = `Dimension ${dimension + 1} of ${width}: ${signed(here[place])} at position ${place + 1}`;
    const points = here.map((value, row) => `${(400 * row) / Math.max(1, places - 1)},${45 - (40 * value) / largest}`);
    curve.replaceChildren(svg("path", { class: "axis", d: "M0,45 H400" }), svg("polyline", { points: points.join(" ") }));
  });
  const note = `Positions 1 to ${places} from top to bottom, dimensions 1 to ${width} from left to right; blue is positive, orange negative.`;
  return h(
    "div",
    { class: "columns wide-left" },
    card("What is added for each position", note, picture.element, h("label", { class: "dimension" }, "dimension ", slider), said, curve),
    card("How alike positions are", null, alike.element, told),
  );
}

// A canvas of one pixel a number, stretched; tells which number is pointed at, or walked to with the arrow keys.
function raster(label, point) {
  const canvas = h("canvas", { class: "raster", role: "img", tabindex: "0", "aria-label": `${label}; arrow keys walk` });
  const cellAt = (x, y) => [Math.floor((y / canvas.clientHeight) * canvas.height), Math.floor((x / canvas.clientWidth) * canvas.width)];
  walk(canvas, cellAt, () => [canvas.height, canvas.width], point);
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
    source: ["Source words", data.sourcePieces, data.sourcePieces],
    memory: ["… behind the encoder", data.sourcePieces, data.sourcePieces],
    target: ["Target words", data.written, data.written],
    across: ["Target × source", data.written, data.sourcePieces],
  };
  const offered = Object.keys(kinds).filter((kind) => data.space[kind]);
  const strip = choice("Compared", offered.map((kind) => [kind, kinds[kind][0]]), "source", (compared) => store.set({ compared }));
  const heat = heatMap(store, "cosine of embeddings", (row, column) => {
    const side = store.values.compared === "target" || store.values.compared === "across" ? "target" : "source";
    if (row >= 0) store.set({ neighbour: { side, index: row } });
    else if (column >= 0 && store.values.compared !== "across") store.set({ neighbour: { side, index: column } });
  });
  store.on(["compared", "palette"], ({ compared, palette }) => {
    const [, rows, columns] = kinds[compared];
    heat.show(rows, columns, matrix(data.space[compared]), palette.signed, palette);
  });
  const note = "The cosine of each pair: 1 is the same direction. Behind the encoder a word has taken in the words around it.";
  return h("div", { class: "columns wide-left embeddings" }, card("How alike words are", note, strip.element, heat.element), neighboursCard(store, data));
}

function neighboursCard(store, data) {
  const sides = { source: data.sourcePieces, target: data.written };
  const chips = (side) =>
    h("p", { class: "flow places" }, h("b", {}, `${side} `), ...sides[side].map((piece, index) => h("button", { type: "button", class: "chip", onclick: () => store.set({ neighbour: { side, index } }) }, word(piece))));
  const rows = { source: chips("source"), target: chips("target") };
  const list = h("ol", { class: "bars" });
  const name = h("h4", {});
  store.on(["neighbour"], ({ neighbour: { side, index } }) => {
    for (const [each, row] of Object.entries(rows)) {
      [...row.querySelectorAll("button")].forEach((button, at) => button.setAttribute("aria-pressed", String(each === side && at === index)));
    }
    name.replaceChildren("Nearest to ", quoted(sides[side][index]));
    const near = data.space[`${side}_neighbours`][index];
    list.replaceChildren(
      ...near.map((each) =>
        h("li", {}, word(each.piece), h("span", { class: "bar" }, h("span", { class: "fill", style: { width: `${100 * Math.max(0, each.cosine)}%` } })), h("span", { class: "number" }, short(each.cosine) || "0")),
      ),
    );
  });
  return card("Neighbours in the vocabulary", "Words whose embeddings point in nearly the same direction.", rows.source, rows.target, name, list);
}
