// Numbers with colours. They are drawn on one canvas, since a table of so many cells is slow to update; for screen readers
// and spreadsheets there is also a table, which is filled once it is opened.

import { css } from "./colour.js";
import { fitCanvas, h, short, tokenElement, trackCell } from "./dom.js";
import { say } from "./words.js";

const ROW_HEIGHT = 24;

export function heatMap(store, label, onHover = () => {}) {
  return new HeatMap(store, label, onHover);
}

class HeatMap {
  constructor(store, label, onHover) {
    Object.assign(this, { label, shown: null, marked: [], size: { all: 0, wide: 0, tall: 0 } });
    this.canvas = h("canvas", { role: "img", tabindex: "0", "aria-label": say("{label}; move with the arrow keys", { label }) });
    this.frame = h("div", { class: "frame", hidden: true });
    this.top = h("div", { class: "names top" });
    this.side = h("div", { class: "names side" });
    this.cells = h("div", { class: "cells" }, this.canvas, this.frame);
    this.scroll = this.region(h("div", { class: "heat" }, h("div", { class: "corner" }), this.top, this.side, this.cells));
    this.table = h("table", { class: "numbers" });
    this.details = h("details", { ontoggle: () => this.fillTable() }, h("summary", {}, say("Show as a table")), this.region(this.table));
    this.element = h("div", {}, this.scroll, this.details);
    this.listen(onHover);
    const observer = new ResizeObserver(() => this.resize());
    [this.scroll, this.cells].forEach((each) => observer.observe(each));
    store.cleanups.push(() => observer.disconnect());
  }

  region(content) {
    return h("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": this.label }, content);
  }

  listen(onHover) {
    for (const [kind, names] of [["column", this.top], ["row", this.side]]) {
      names.addEventListener("pointerover", (event) => {
        const name = event.target.closest(`[data-${kind}]`);
        if (name) onHover(Number(name.dataset.row ?? -1), Number(name.dataset.column ?? -1));
      });
      names.addEventListener("pointerleave", () => onHover(-1, -1));
    }
    const size = () => [this.shown.values.rows, this.shown.values.columns];
    const cellAt = (x, y) => [Math.floor((y + this.scroll.scrollTop) / ROW_HEIGHT), Math.floor(((x + this.scroll.scrollLeft) / this.size.all) * size()[1])];
    trackCell(this.canvas, cellAt, size, onHover);
    this.canvas.addEventListener("keydown", () => this.marked.forEach((name) => name.scrollIntoView({ block: "nearest", inline: "nearest" })));
    this.scroll.addEventListener("scroll", () => this.draw());
  }

  resize() {
    this.size.all = this.cells.clientWidth;
    this.size.wide = Math.min(this.size.all, this.scroll.clientWidth - this.side.offsetWidth);
    this.size.tall = Math.min(this.cells.clientHeight, this.scroll.clientHeight - this.top.offsetHeight);
    // In a task of its own, once for all changes of a frame.
    clearTimeout(this.drawing);
    this.drawing = setTimeout(() => this.draw());
  }

  // `values` is { rows, columns, data }; cells where `masked(row, column)` are hatched and have no number.
  show(rows, columns, values, colour, palette, masked = () => false) {
    const before = JSON.stringify([this.shown?.rows, this.shown?.columns]);
    this.shown = { rows, columns, values, colour, palette, masked };
    if (before !== JSON.stringify([rows, columns])) this.buildNames(rows, columns);
    this.draw();
    this.fillTable();
  }

  buildNames(rows, columns) {
    this.top.replaceChildren(...columns.map((piece, column) => h("div", { "data-column": column }, tokenElement(piece))));
    this.side.replaceChildren(...rows.map((piece, row) => h("div", { "data-row": row }, tokenElement(piece))));
    this.element.style.setProperty("--columns", columns.length);
    this.cells.style.height = `${ROW_HEIGHT * rows.length}px`;
  }

  // Only visible cells are drawn, however long the sentences are.
  draw() {
    if (!this.size.all) return;
    const { values } = this.shown;
    const context = fitCanvas(this.canvas, this.size.wide, this.size.tall);
    const width = this.size.all / values.columns;
    const { scrollLeft, scrollTop } = this.scroll;
    const style = getComputedStyle(this.cells);
    const hatch = hatchPattern(context, style.getPropertyValue("--hatch"));
    context.font = `12px ${style.fontFamily}`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    const last = { row: Math.min(values.rows, (scrollTop + this.size.tall) / ROW_HEIGHT), column: Math.min(values.columns, (scrollLeft + this.size.wide) / width) };
    for (let row = Math.floor(scrollTop / ROW_HEIGHT); row < last.row; row++) {
      for (let column = Math.floor(scrollLeft / width); column < last.column; column++) {
        this.drawCell(context, row, column, column * width - scrollLeft, row * ROW_HEIGHT - scrollTop, width, hatch);
      }
    }
  }

  drawCell(context, row, column, x, y, width, hatch) {
    const { values, colour, palette, masked } = this.shown;
    const hidden = masked(row, column);
    const value = values.data[row * values.columns + column];
    const shade = colour(value);
    context.fillStyle = hidden ? hatch : css(shade);
    context.fillRect(x, y, width - 1, ROW_HEIGHT - 1);
    const text = hidden ? "" : short(value);
    if (!text) return;
    context.fillStyle = palette.ink(shade);
    context.fillText(text, x + width / 2, y + ROW_HEIGHT / 2);
  }

  fillTable() {
    if (!this.details.open || !this.shown) return;
    const { rows, columns, values, masked } = this.shown;
    const cell = (row, column) => (masked(row, column) ? h("td", { class: "masked" }) : h("td", {}, short(values.data[row * values.columns + column])));
    const line = (piece, row) => h("tr", {}, h("th", { scope: "row" }, tokenElement(piece)), ...columns.map((_, column) => cell(row, column)));
    const names = columns.map((piece) => h("th", { scope: "col" }, tokenElement(piece)));
    this.table.replaceChildren(h("caption", { class: "hidden" }, this.label), h("thead", {}, h("tr", {}, h("td", {}), ...names)), h("tbody", {}, ...rows.map(line)));
  }

  mark(row, column) {
    for (const name of this.marked) name.classList.remove("marked");
    this.marked = [this.side.children[row], this.top.children[column]].filter(Boolean);
    for (const name of this.marked) name.classList.add("marked");
    this.frame.hidden = !this.side.children[row];
    this.frame.style.top = `${ROW_HEIGHT * row}px`;
  }
}

function hatchPattern(context, colour) {
  const tile = h("canvas", { width: 6, height: 6 });
  const line = tile.getContext("2d");
  line.strokeStyle = colour;
  line.stroke(new Path2D("M-1,1 L1,-1 M0,6 L6,0 M5,7 L7,5"));
  return context.createPattern(tile, "repeat");
}
