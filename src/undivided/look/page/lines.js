// Tokens on the left attend to tokens on the right: a line for every weight, a colour for every head.

import { css } from "./colour.js";
import { matrix, readablePiece } from "./data.js";
import { fitCanvas, h, percent, quoted, tokenElement } from "./dom.js";
import { say, sayParts } from "./words.js";

const TOKEN_HEIGHT = 24;

// Smaller weights get no line, with one head shown and with several.
const MIN_WEIGHT_ONE_HEAD = 0.02;
const MIN_WEIGHT_MANY_HEADS = 0.05;

// Smaller weights do not colour the token at the other end.
const MIN_WEIGHT_COLOURED = 0.005;

const COLUMN_TITLES = {
  encoder: ["source token attends …", "… to source tokens"],
  decoder: ["input token (→ output token) attends …", "… to input tokens"],
  cross: ["output token attends …", "… to source tokens"],
  single: ["token attends …", "… to tokens"],
};

export function linesView(store, data, selectedWeights) {
  return new LinesView(store, data, selectedWeights).element;
}

class LinesView {
  constructor(store, data, selectedWeights) {
    Object.assign(this, { store, data, selectedWeights });
    this.left = h("div", { class: "words left", role: "group", "aria-label": say("tokens that attend") });
    this.right = h("div", { class: "words right", role: "group", "aria-label": say("tokens attended to") });
    this.canvas = h("canvas", { "aria-hidden": "true" });
    this.between = h("div", { class: "between" }, this.canvas);
    this.titles = h("div", { class: "lines-heads" }, h("span", {}, ""), h("span", {}, ""));
    this.status = h("p", { class: "status", "aria-live": "polite" });
    this.element = h("div", { class: "lines" }, this.titles, h("div", { class: "lines-body" }, this.left, this.between, this.right), this.status);
    // All lines together are drawn when they change, not whenever the pointer leaves a token.
    this.overview = h("canvas");
    this.overviewOf = [];
    this.tinted = [];
    this.width = 0;
    const observer = new ResizeObserver(() => {
      this.width = this.between.clientWidth;
      // In a task of its own: to draw all lines of several heads takes as long as a frame.
      clearTimeout(this.drawing);
      this.drawing = setTimeout(() => this.draw(store.values));
    });
    observer.observe(this.between);
    store.cleanups.push(() => observer.disconnect());
    store.on(["use"], (values) => this.build(values));
    store.on(["use", "pinned"], (values) => this.showPinned(values));
    store.on(["use", "layer", "heads", "hover", "pinned", "palette"], (values) => this.draw(values));
  }

  build({ use }) {
    const writes = (index) => (use === "decoder" ? `→ ${readablePiece(this.data.written[index])}` : null);
    this.left.replaceChildren(...this.data.rows(use).map((piece, index) => this.tokenButton("row", piece, index, writes(index))));
    this.right.replaceChildren(...this.data.columns(use).map((piece, index) => this.tokenButton("column", piece, index)));
    COLUMN_TITLES[this.data.single && use === "encoder" ? "single" : use].forEach((text, side) => (this.titles.children[side].textContent = say(text)));
    this.between.style.height = `${this.height()}px`;
  }

  height() {
    return TOKEN_HEIGHT * Math.max(this.left.children.length, this.right.children.length);
  }

  tokenButton(side, piece, index, extra) {
    const focus = { side, index };
    return h(
      "button",
      {
        type: "button",
        tabindex: index === 0 ? "0" : "-1",
        onpointerenter: (event) => event.pointerType !== "touch" && this.store.set({ hover: focus }),
        onpointerleave: () => this.store.set({ hover: null }),
        onfocus: (event) => event.target.matches(":focus-visible") && this.store.set({ hover: focus }),
        onblur: () => this.store.set({ hover: null }),
        onclick: () => this.pin(focus),
        onkeydown: (event) => this.moveFocus(event, side, index),
      },
      tokenElement(piece),
      extra ? h("small", {}, extra) : null,
    );
  }

  pin(focus) {
    const { pinned, use } = this.store.values;
    const same = pinned && pinned.side === focus.side && pinned.index === focus.index;
    this.store.set({ pinned: same ? null : focus });
    if (!same && focus.side === "row" && use !== "encoder") this.store.set({ step: focus.index });
  }

  // Arrow keys move through the tokens; Tab leaves the column.
  moveFocus(event, side, index) {
    const [own, other] = side === "row" ? [this.left, this.right] : [this.right, this.left];
    const targets = { ArrowDown: index + 1, ArrowUp: index - 1, Home: 0, End: own.children.length - 1 };
    let next = own.children[targets[event.key]];
    if (event.key === "ArrowRight" || event.key === "ArrowLeft") next = other.children[Math.min(index, other.children.length - 1)];
    if (!next) return;
    event.preventDefault();
    for (const button of [...this.left.children, ...this.right.children]) button.tabIndex = button === next ? 0 : -1;
    next.focus();
  }

  showPinned({ pinned }) {
    for (const [side, list] of [["row", this.left], ["column", this.right]]) {
      [...list.children].forEach((button, index) => button.setAttribute("aria-pressed", String(pinned?.side === side && pinned.index === index)));
    }
  }

  draw(values) {
    const focus = this.focused(values);
    const context = fitCanvas(this.canvas, this.width, this.height());
    if (focus) this.drawLines(context, values, focus);
    else context.drawImage(this.drawOverview(values), 0, 0, this.width || 1, this.height());
    this.showFocus(values, focus);
  }

  focused({ hover, pinned }) {
    const focus = hover || pinned;
    const list = focus && (focus.side === "row" ? this.left : this.right).children;
    return focus && focus.index < list.length ? focus : null;
  }

  drawOverview(values) {
    const { use, layer, heads, palette } = values;
    const wanted = [use, layer, heads, palette, this.width, this.height(), window.devicePixelRatio];
    if (wanted.some((each, at) => each !== this.overviewOf[at])) {
      this.drawLines(fitCanvas(this.overview, this.width, this.height()), values, null);
    }
    this.overviewOf = wanted;
    return this.overview;
  }

  drawLines(context, { use, layer, heads, palette }, focus) {
    const minimum = heads.length === 1 ? MIN_WEIGHT_ONE_HEAD : MIN_WEIGHT_MANY_HEADS;
    heads.forEach((head, order) => {
      const weights = matrix(this.data.attention[use], layer, head);
      const shift = (order - (heads.length - 1) / 2) * Math.min(2.5, 14 / heads.length);
      context.strokeStyle = palette.head(head);
      // From the ninth head on, colours repeat with dashed lines.
      context.setLineDash(head >= 8 ? [5, 3] : []);
      eachLine(weights, focus, minimum, (row, column, weight) => {
        context.globalAlpha = Math.min(1, focus ? 0.15 + 0.85 * weight : weight * (heads.length > 1 ? 0.75 : 0.95));
        context.lineWidth = focus ? 1 + 3 * weight : 0.75 + 1.5 * weight;
        const [from, to] = [TOKEN_HEIGHT * (row + 0.5) + shift, TOKEN_HEIGHT * (column + 0.5) + shift];
        context.beginPath();
        context.moveTo(0, from);
        context.bezierCurveTo(this.width * 0.4, from, this.width * 0.6, to, this.width, to);
        context.stroke();
      });
    });
    context.globalAlpha = 1;
  }

  // Colour the tokens at the other end of the lines by their weight, and say the same in the sentence below.
  showFocus({ use, palette }, focus) {
    for (const button of this.tinted) {
      button.classList.remove("tinted", "focus");
      button.style.cssText = "";
    }
    this.tinted = [];
    const mean = this.selectedWeights();
    if (focus) {
      const [own, other] = focus.side === "row" ? [this.left, this.right] : [this.right, this.left];
      this.tinted = [own.children[focus.index]];
      this.tinted[0].classList.add("focus");
      weightsOf(mean, focus).forEach((weight, index) => {
        if (weight >= MIN_WEIGHT_COLOURED) this.tint(other.children[index], palette.weight(weight), palette);
      });
    }
    this.status.replaceChildren(...this.sentence(use, mean, focus));
  }

  tint(button, shade, palette) {
    button.style.cssText = `background:${css(shade)};color:${palette.ink(shade)}`;
    button.classList.add("tinted");
    this.tinted.push(button);
  }

  sentence(use, mean, focus) {
    if (!focus) return [say("Point at a token, or use the arrow keys, to see what it attends to; click to pin it.")];
    const sides = [this.data.rows(use), this.data.columns(use)];
    const [own, others] = focus.side === "row" ? sides : sides.reverse();
    const pairs = weightsOf(mean, focus).map((weight, index) => [others[index], weight]);
    const best = pairs.sort((a, b) => b[1] - a[1]).slice(0, 5).filter(([, weight]) => weight >= 0.005);
    const named = h("span", {}, ...best.flatMap(([piece, weight], at) => [at ? ", " : "", quoted(piece), ` ${percent(weight)}`]));
    return sayParts(focus.side === "row" ? "{token} attends to {others}" : "{token} is attended to by {others}", { token: quoted(own[focus.index]), others: best.length ? named : say("nothing in particular") });
  }
}

function eachLine(weights, focus, minimum, visit) {
  for (let row = 0; row < weights.rows; row++) {
    if (focus?.side === "row" && focus.index !== row) continue;
    for (let column = 0; column < weights.columns; column++) {
      if (focus?.side === "column" && focus.index !== column) continue;
      const weight = weights.data[row * weights.columns + column];
      if (weight >= minimum) visit(row, column, weight);
    }
  }
}

// The weights between a token and each token on the other side.
function weightsOf(mean, { side, index }) {
  const count = side === "row" ? mean.columns : mean.rows;
  return Array.from({ length: count }, (_, at) => mean.data[side === "row" ? index * mean.columns + at : at * mean.columns + index]);
}
