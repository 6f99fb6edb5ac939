// Tokens on the left attend to tokens on the right: a line for every weight, a colour for every head.

import { css } from "./colour.js";
import { matrix, readablePiece } from "./data.js";
import { fitCanvas, h, percent, quoted, tokenElement } from "./dom.js";

const TOKEN_HEIGHT = 24;

// Smaller weights get no line, with one head shown and with several.
const MIN_WEIGHT_ONE_HEAD = 0.02;
const MIN_WEIGHT_MANY_HEADS = 0.05;

// Smaller weights do not colour the token at the other end.
const MIN_WEIGHT_COLOURED = 0.005;

export function linesView(store, data, selectedWeights) {
  const left = h("div", { class: "words left", role: "group", "aria-label": "tokens that attend" });
  const right = h("div", { class: "words right", role: "group", "aria-label": "tokens attended to" });
  const canvas = h("canvas", { "aria-hidden": "true" });
  const between = h("div", { class: "between" }, canvas);
  const heads = h("div", { class: "lines-heads" }, h("span", {}, ""), h("span", {}, ""));
  const status = h("p", { class: "status", "aria-live": "polite" });
  const element = h("div", { class: "lines" }, heads, h("div", { class: "lines-body" }, left, between, right), status);
  // All lines together are drawn when they change, not whenever the pointer leaves a token.
  const overview = h("canvas");
  let drawn = [];
  let tinted = [];
  let width = 0;

  function tokenButton(side, piece, index, extra) {
    const focus = { side, index };
    return h(
      "button",
      {
        type: "button",
        tabindex: index === 0 ? "0" : "-1",
        onpointerenter: (event) => event.pointerType !== "touch" && store.set({ hover: focus }),
        onpointerleave: () => store.set({ hover: null }),
        onfocus: (event) => event.target.matches(":focus-visible") && store.set({ hover: focus }),
        onblur: () => store.set({ hover: null }),
        onclick: () => pin(focus),
        onkeydown: (event) => move(event, side, index),
      },
      tokenElement(piece),
      extra ? h("small", {}, extra) : null,
    );
  }

  function pin(focus) {
    const now = store.values.pinned;
    const same = now && now.side === focus.side && now.index === focus.index;
    store.set({ pinned: same ? null : focus });
    if (!same && focus.side === "row" && store.values.use !== "encoder") store.set({ step: focus.index });
  }

  // Arrow keys move through the tokens; Tab leaves the column.
  function move(event, side, index) {
    const list = [...(side === "row" ? left : right).children];
    const places = { ArrowDown: index + 1, ArrowUp: index - 1, Home: 0, End: list.length - 1 };
    const other = side === "row" ? right : left;
    let next = list[places[event.key]];
    if (event.key === "ArrowRight" || event.key === "ArrowLeft") next = other.children[Math.min(index, other.children.length - 1)];
    if (!next) return;
    event.preventDefault();
    for (const button of [...left.children, ...right.children]) button.tabIndex = button === next ? 0 : -1;
    next.focus();
  }

  function build({ use }) {
    const writes = (index) => (use === "decoder" ? `→ ${readablePiece(data.written[index])}` : null);
    left.replaceChildren(...data.rows(use).map((piece, index) => tokenButton("row", piece, index, writes(index))));
    right.replaceChildren(...data.columns(use).map((piece, index) => tokenButton("column", piece, index)));
    const sides = {
      encoder: ["source token attends …", "… to source tokens"],
      decoder: ["input token (→ output token) attends …", "… to input tokens"],
      cross: ["output token attends …", "… to source tokens"],
    };
    sides[use].forEach((text, side) => (heads.children[side].textContent = text));
    between.style.height = `${TOKEN_HEIGHT * Math.max(left.children.length, right.children.length)}px`;
  }

  function focusNow({ hover, pinned }) {
    const focus = hover || pinned;
    const list = focus && (focus.side === "row" ? left : right).children;
    return focus && focus.index < list.length ? focus : null;
  }

  function draw(values) {
    const focus = focusNow(values);
    const height = TOKEN_HEIGHT * Math.max(left.children.length, right.children.length);
    const context = fitCanvas(canvas, width, height);
    if (focus) strokes(context, values, focus);
    else context.drawImage(everything(values, height), 0, 0, width || 1, height);
    tint(values, focus);
  }

  function everything(values, height) {
    const { use, layer, heads: shown, palette } = values;
    const wanted = [use, layer, shown, palette, width, height, window.devicePixelRatio];
    if (wanted.some((each, at) => each !== drawn[at])) strokes(fitCanvas(overview, width, height), values, null);
    drawn = wanted;
    return overview;
  }

  function strokes(context, { use, layer, heads: shown, palette }, focus) {
    const least = shown.length === 1 ? MIN_WEIGHT_ONE_HEAD : MIN_WEIGHT_MANY_HEADS;
    shown.forEach((head, order) => {
      const weights = matrix(data.attention[use], layer, head);
      const shift = (order - (shown.length - 1) / 2) * Math.min(2.5, 14 / shown.length);
      context.strokeStyle = palette.head(head);
      // From the ninth head on, colours repeat with dashed lines.
      context.setLineDash(head >= 8 ? [5, 3] : []);
      eachLine(weights, focus, least, (row, column, weight) => {
        context.globalAlpha = Math.min(1, focus ? 0.15 + 0.85 * weight : weight * (shown.length > 1 ? 0.75 : 0.95));
        context.lineWidth = focus ? 1 + 3 * weight : 0.75 + 1.5 * weight;
        const [from, to] = [TOKEN_HEIGHT * (row + 0.5) + shift, TOKEN_HEIGHT * (column + 0.5) + shift];
        context.beginPath();
        context.moveTo(0, from);
        context.bezierCurveTo(width * 0.4, from, width * 0.6, to, width, to);
        context.stroke();
      });
    });
    context.globalAlpha = 1;
  }

  function eachLine(weights, focus, least, visit) {
    for (let row = 0; row < weights.rows; row++) {
      if (focus?.side === "row" && focus.index !== row) continue;
      for (let column = 0; column < weights.columns; column++) {
        if (focus?.side === "column" && focus.index !== column) continue;
        const weight = weights.data[row * weights.columns + column];
        if (weight >= least) visit(row, column, weight);
      }
    }
  }

  // Colour the tokens at the other end of the lines by their weight, and say the same in the sentence below.
  function tint({ palette }, focus) {
    for (const button of tinted) {
      button.classList.remove("tinted", "focus");
      button.style.cssText = "";
    }
    tinted = [];
    const mean = selectedWeights();
    if (focus) {
      const [own, far] = focus.side === "row" ? [left, right] : [right, left];
      tinted = [own.children[focus.index]];
      tinted[0].classList.add("focus");
      weightsOf(mean, focus).forEach((weight, index) => {
        if (weight < MIN_WEIGHT_COLOURED) return;
        const [button, shade] = [far.children[index], palette.weight(weight)];
        button.style.cssText = `background:${css(shade)};color:${palette.ink(shade)}`;
        button.classList.add("tinted");
        tinted.push(button);
      });
    }
    status.replaceChildren(...sentence(mean, focus));
  }

  // The weights between a token and each token on the other side.
  function weightsOf(mean, { side, index }) {
    const count = side === "row" ? mean.columns : mean.rows;
    return Array.from({ length: count }, (_, at) => mean.data[side === "row" ? index * mean.columns + at : at * mean.columns + index]);
  }

  function press({ pinned }) {
    for (const [side, list] of [["row", left], ["column", right]]) {
      [...list.children].forEach((button, index) => button.setAttribute("aria-pressed", String(pinned?.side === side && pinned.index === index)));
    }
  }

  function sentence(mean, focus) {
    const { use } = store.values;
    if (!focus) return ["Point at a token, or use the arrow keys, to see what it attends to; click to pin it."];
    const [own, others] = focus.side === "row" ? [data.rows(use), data.columns(use)] : [data.columns(use), data.rows(use)];
    const pairs = weightsOf(mean, focus).map((weight, index) => [others[index], weight]);
    const best = pairs.sort((a, b) => b[1] - a[1]).slice(0, 5).filter(([, weight]) => weight >= 0.005);
    const listed = best.flatMap(([piece, weight], at) => [at ? ", " : " ", quoted(piece), ` ${percent(weight)}`]);
    return [quoted(own[focus.index]), focus.side === "row" ? " attends to" : " is attended to by", ...(best.length ? listed : [" nothing in particular"])];
  }

  const observer = new ResizeObserver(() => {
    width = between.clientWidth;
    draw(store.values);
  });
  observer.observe(between);
  store.cleanups.push(() => observer.disconnect());
  store.on(["use"], build);
  store.on(["use", "pinned"], press);
  store.on(["use", "layer", "heads", "hover", "pinned", "palette"], draw);
  return element;
}
