// A table of numbers coloured by their size: read by the eye, by a screen reader, and copied into a sheet.

import { css } from "./colour.js";
import { h, short, word } from "./dom.js";

export function heatTable(label, hover = () => {}) {
  const body = h("tbody", {});
  const head = h("thead", {});
  const table = h("table", { class: "heat" }, h("caption", { class: "hidden" }, label), head, body);
  const element = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, table);
  let cells = [];
  let shape = "";

  table.addEventListener("pointerover", (event) => {
    const cell = event.target.closest("td, th");
    if (cell?.dataset.row || cell?.dataset.column) hover(Number(cell.dataset.row ?? -1), Number(cell.dataset.column ?? -1));
  });
  table.addEventListener("pointerleave", () => hover(-1, -1));

  function build(rows, columns) {
    const names = columns.map((piece, column) => h("th", { scope: "col", "data-column": column }, h("span", {}, word(piece))));
    head.replaceChildren(h("tr", {}, h("th", { class: "corner" }), ...names));
    cells = [];
    const lines = rows.map((piece, row) => {
      const line = columns.map((_, column) => h("td", { "data-row": row, "data-column": column }));
      cells.push(...line);
      return h("tr", {}, h("th", { scope: "row", "data-row": row }, word(piece)), ...line);
    });
    body.replaceChildren(...lines);
    table.style.setProperty("--columns", columns.length);
  }

  // `values` is { rows, columns, data }; `masked(row, column)` cells are hatched and have no number.
  function show(rowPieces, columnPieces, values, colour, palette, masked = () => false) {
    const wanted = JSON.stringify([rowPieces, columnPieces]);
    if (wanted !== shape) build(rowPieces, columnPieces);
    shape = wanted;
    cells.forEach((cell, at) => {
      const hidden = masked(Math.floor(at / values.columns), at % values.columns);
      const shade = colour(values.data[at]);
      cell.className = hidden ? "masked" : "";
      cell.textContent = hidden ? "" : short(values.data[at]);
      cell.style.background = hidden ? "" : css(shade);
      cell.style.color = hidden ? "" : palette.ink(shade);
    });
  }

  function mark(row, column) {
    for (const cell of table.querySelectorAll("th.marked")) cell.classList.remove("marked");
    for (const line of body.querySelectorAll("tr.marked")) line.classList.remove("marked");
    if (row >= 0) body.children[row]?.classList.add("marked");
    if (row >= 0) body.children[row]?.firstChild.classList.add("marked");
    if (column >= 0) head.firstChild?.children[column + 1]?.classList.add("marked");
  }

  return { element, show, mark };
}
