// Helpers: elements, numbers as text, canvases.

import { isSpecial, readablePiece } from "./data.js";

export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "style") Object.assign(element.style, value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export function svg(tag, properties = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(properties)) if (value !== null) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

// A subword, isolated from the text direction around it.
export function tokenElement(piece) {
  return h("bdi", { class: isSpecial(piece) ? "token special" : "token", title: piece }, readablePiece(piece));
}

// The same in quotation marks, inside a sentence.
export function quoted(piece) {
  return h("q", {}, tokenElement(piece));
}

export function card(title, note, ...children) {
  return h("section", { class: "card" }, h("h3", {}, title), note ? h("p", { class: "note" }, note) : null, ...children);
}

// Exclusive choices as a row of radio buttons.
let choices = 0;
export function choice(label, options, chosen, choose) {
  const name = `look-choice-${++choices}`;
  const inputs = options.map(([value, text]) => {
    const input = h("input", { type: "radio", name, value: String(value), onchange: () => choose(value) });
    input.checked = value === chosen;
    return { value, input, element: h("label", {}, input, h("span", {}, text)) };
  });
  const element = h("fieldset", { class: "choice" }, h("legend", {}, label), ...inputs.map((each) => each.element));
  return {
    element,
    show: (value) => inputs.forEach((each) => (each.input.checked = each.value === value)),
    limit: (count) => inputs.forEach((each, at) => (each.element.hidden = at >= count)),
  };
}

export function percent(value) {
  if (value >= 0.0995) return `${Math.round(100 * value)} %`;
  if (value >= 0.00095) return `${(100 * value).toFixed(1)} %`;
  return value > 0 ? "< 0.1 %" : "0 %";
}

export function signed(value, digits = 2) {
  const text = value.toFixed(digits);
  return Number(text) === 0 ? text.replace("-", "") : text.replace("-", "−");
}

// `.62`, `1`, `−.07`; an empty text instead of `.00`.
export function short(value) {
  const text = Math.abs(value).toFixed(2);
  if (text === "0.00") return "";
  return (value < 0 ? "−" : "") + (text === "1.00" ? "1" : text.replace(/^0/, ""));
}

// Calls `onCell(row, column)` for the cell of a canvas under the pointer, or chosen with the arrow keys; (-1, -1) on leaving.
// `cellAt(x, y)` is the [row, column] at a point, `size()` the number of rows and columns.
export function trackCell(canvas, cellAt, size, onCell) {
  let [row, column] = [0, 0];
  let current = "";
  function go(newRow, newColumn) {
    const [rows, columns] = size();
    if (newRow < 0 || newColumn < 0 || newRow >= rows || newColumn >= columns || current === `${newRow} ${newColumn}`) return;
    [row, column, current] = [newRow, newColumn, `${newRow} ${newColumn}`];
    onCell(row, column);
  }
  function leave() {
    current = "";
    onCell(-1, -1);
  }
  canvas.addEventListener("pointermove", (event) => go(...cellAt(event.offsetX, event.offsetY)));
  canvas.addEventListener("pointerleave", leave);
  canvas.addEventListener("blur", leave);
  canvas.addEventListener("keydown", (event) => {
    const [down, right] = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[event.key] ?? [0, 0];
    if (!down && !right) return;
    event.preventDefault();
    go(row + down, column + right);
  });
}

// Scroll to an element. What lies before it may only be laid out as it comes near, and its height is a guess until then.
export function bringToTop(element, frames = 12) {
  element.scrollIntoView({ block: "start" });
  if (frames) requestAnimationFrame(() => bringToTop(element, frames - 1));
}

// A function that scrolls a part of the page. Where that is not on the screen it is scrolled once it comes there, since
// to ask for its size would lay it out at once.
export function scrollWhenShown(store, element, scroll) {
  let waits = false;
  const observer = new IntersectionObserver((entries) => {
    if (waits && entries.at(-1).isIntersecting) scroll();
    waits = waits && !entries.at(-1).isIntersecting;
  });
  observer.observe(element);
  store.cleanups.push(() => observer.disconnect());
  return () => {
    waits = !element.checkVisibility({ contentVisibilityAuto: true });
    if (!waits) scroll();
  };
}

// Clear a canvas and give it a size in CSS pixels, sharp on every screen.
export function fitCanvas(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const size = [width, height].map((length) => Math.max(1, Math.round(length * ratio)));
  if (canvas.width !== size[0] || canvas.height !== size[1]) {
    [canvas.width, canvas.height] = size;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}
