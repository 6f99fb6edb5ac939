// A table of numbers coloured by their size: read by the eye, by a screen reader, and copied into a sheet.

import { css } from "./colour.js";
import { h, short, word } from "./dom.js";

export function heatTable(store, label, hover = () => {}) {
  const body = h("tbody", {});
  const head = h("thead", {});
  const table = h("table", { class: "heat" }, h("caption", { class: "hidden" }, label), head, body);
  const element = h("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": label }, table);
  let cells = [];
  let shape = "";
  let marked = [];
  let written = [];

  table.addEventListener("pointerover", (event) => {
    const cell = event.target.closest("td, th");
    if (cell?.dataset.row || cell?.dataset.column) hover(Number(cell.dataset.row ?? -1), Number(cell.dataset.column ?? -1));
  });
  table.addEventListener("pointerleave", () => hover(-1, -1));

  function build(rows, columns) {
    const names = columns.map((piece, column) => h("th", { scope: "col", "data-column": column }, h("span", {}, word(piece))));
    head.replaceChildren(h("tr", {}, h("th", { class: "corner" }), ...names));
    cells = [];
    written = [];
    const lines = rows.map((piece, row) => {
      const line = columns.map((_, column) => h("td", { "data-row": row, "data-column": column }, ""));
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
      const text = hidden ? "" : short(values.data[at]);
      const style = hidden ? "" : `background:${css(shade)};color:${palette.ink(shade)}`;
      const before = written[at];
      if (before?.style !== style) {
        cell.classList.toggle("masked", hidden);
        cell.style.cssText = style;
      }
      if (before?.text !== text) cell.firstChild.data = text;
      written[at] = { text, style };
    });
  }

  function mark(row, column) {
    for (const element of marked) element.classList.remove("marked");
    const line = row >= 0 ? body.children[row] : null;
    const name = column >= 0 ? head.firstChild?.children[column + 1] : null;
    marked = [line, line?.firstChild, name].filter(Boolean);
    for (const element of marked) element.classList.add("marked");
  }

  const observer = new ResizeObserver(() => element.classList.toggle("wide", element.scrollWidth > element.clientWidth));
  [element, table].forEach((each) => observer.observe(each));
  store.cleanups.push(() => observer.disconnect());
  return { element, show, mark };
}
