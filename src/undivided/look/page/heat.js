// Numbers with colours. They are drawn on one canvas, since a table of so many cells is slow to update; for screen readers
// and spreadsheets there is also a table, which is filled once it is opened.

import { css } from "./colour.js";
import { fitCanvas, h, short, trackCell, tokenElement } from "./dom.js";

const HEIGHT = 24;

export function heatMap(store, label, hover = () => {}) {
  const canvas = h("canvas", { role: "img", tabindex: "0", "aria-label": `${label}; move with the arrow keys` });
  const frame = h("div", { class: "frame", hidden: true });
  const top = h("div", { class: "names top" });
  const side = h("div", { class: "names side" });
  const cells = h("div", { class: "cells" }, canvas, frame);
  const scroll = region(h("div", { class: "heat" }, h("div", { class: "corner" }), top, side, cells));
  const table = h("table", { class: "numbers" });
  const opened = h("details", { ontoggle: write }, h("summary", {}, "Show as a table"), region(table));
  const element = h("div", {}, scroll, opened);
  const size = { all: 0, wide: 0, tall: 0 };
  let shown = null;
  let marked = [];

  function region(content) {
    return h("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": label }, content);
  }

  for (const [kind, names] of [["column", top], ["row", side]]) {
    names.addEventListener("pointerover", (event) => {
      const name = event.target.closest(`[data-${kind}]`);
      if (name) hover(Number(name.dataset.row ?? -1), Number(name.dataset.column ?? -1));
    });
    names.addEventListener("pointerleave", () => hover(-1, -1));
  }
  const cellAt = (x, y) => [Math.floor((y + scroll.scrollTop) / HEIGHT), Math.floor(((x + scroll.scrollLeft) / size.all) * shown.values.columns)];
  trackCell(canvas, cellAt, () => [shown.values.rows, shown.values.columns], hover);
  canvas.addEventListener("keydown", () => marked.forEach((name) => name.scrollIntoView({ block: "nearest", inline: "nearest" })));

  function build(rows, columns) {
    top.replaceChildren(...columns.map((piece, column) => h("div", { "data-column": column }, tokenElement(piece))));
    side.replaceChildren(...rows.map((piece, row) => h("div", { "data-row": row }, tokenElement(piece))));
    element.style.setProperty("--columns", columns.length);
    cells.style.height = `${HEIGHT * rows.length}px`;
  }

  // `values` is { rows, columns, data }; `masked(row, column)` cells are hatched and have no number.
  function show(rows, columns, values, colour, palette, masked = () => false) {
    const before = JSON.stringify([shown?.rows, shown?.columns]);
    shown = { rows, columns, values, colour, palette, masked };
    if (before !== JSON.stringify([rows, columns])) build(rows, columns);
    draw();
    write();
  }

  // Only visible cells are drawn, however long the sentences are.
  function draw() {
    if (!size.all) return;
    const { values, colour, palette, masked } = shown;
    const context = fitCanvas(canvas, size.wide, size.tall);
    const width = size.all / values.columns;
    const { scrollLeft, scrollTop } = scroll;
    const style = getComputedStyle(cells);
    const hatch = hatched(context, style.getPropertyValue("--hatch"));
    context.font = `12px ${style.fontFamily}`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    const last = { row: Math.min(values.rows, (scrollTop + size.tall) / HEIGHT), column: Math.min(values.columns, (scrollLeft + size.wide) / width) };
    for (let row = Math.floor(scrollTop / HEIGHT); row < last.row; row++) {
      for (let column = Math.floor(scrollLeft / width); column < last.column; column++) {
        const hidden = masked(row, column);
        const value = values.data[row * values.columns + column];
        const shade = colour(value);
        const [x, y] = [column * width - scrollLeft, row * HEIGHT - scrollTop];
        context.fillStyle = hidden ? hatch : css(shade);
        context.fillRect(x, y, width - 1, HEIGHT - 1);
        const text = hidden ? "" : short(value);
        if (!text) continue;
        context.fillStyle = palette.ink(shade);
        context.fillText(text, x + width / 2, y + HEIGHT / 2);
      }
    }
  }

  function write() {
    if (!opened.open || !shown) return;
    const { rows, columns, values, masked } = shown;
    const cell = (row, column) => (masked(row, column) ? h("td", { class: "masked" }) : h("td", {}, short(values.data[row * values.columns + column])));
    const line = (piece, row) => h("tr", {}, h("th", { scope: "row" }, tokenElement(piece)), ...columns.map((_, column) => cell(row, column)));
    const names = columns.map((piece) => h("th", { scope: "col" }, tokenElement(piece)));
    table.replaceChildren(h("caption", { class: "hidden" }, label), h("thead", {}, h("tr", {}, h("td", {}), ...names)), h("tbody", {}, ...rows.map(line)));
  }

  function mark(row, column) {
    for (const name of marked) name.classList.remove("marked");
    marked = [side.children[row], top.children[column]].filter(Boolean);
    for (const name of marked) name.classList.add("marked");
    frame.hidden = !side.children[row];
    frame.style.top = `${HEIGHT * row}px`;
  }

  const observer = new ResizeObserver(() => {
    size.all = cells.clientWidth;
    size.wide = Math.min(size.all, scroll.clientWidth - side.offsetWidth);
    size.tall = Math.min(cells.clientHeight, scroll.clientHeight - top.offsetHeight);
    draw();
  });
  [scroll, cells].forEach((each) => observer.observe(each));
  store.cleanups.push(() => observer.disconnect());
  scroll.addEventListener("scroll", draw);
  return { element, show, mark };
}

function hatched(context, colour) {
  const tile = h("canvas", { width: 6, height: 6 });
  const line = tile.getContext("2d");
  line.strokeStyle = colour;
  line.stroke(new Path2D("M-1,1 L1,-1 M0,6 L6,0 M5,7 L7,5"));
  return context.createPattern(tile, "repeat");
}
