// Small tools to make elements, and numbers for people.

import { isSpecial, readable } from "./data.js";

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

// A subword, kept apart from the direction of the text around it.
export function word(piece) {
  return h("bdi", { class: isSpecial(piece) ? "token special" : "token", title: piece }, readable(piece));
}

// The same within a sentence.
export function quoted(piece) {
  return h("q", {}, word(piece));
}

export function card(title, note, ...children) {
  return h("section", { class: "card" }, h("h3", {}, title), note ? h("p", { class: "note" }, note) : null, ...children);
}

// Exclusive choices as radio buttons that look like one strip.
let strips = 0;
export function choice(label, options, chosen, choose) {
  const name = `look-choice-${++strips}`;
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

// `.62`, `1`, `−.07`; nothing where it would read `.00`.
export function short(value) {
  const text = Math.abs(value).toFixed(2);
  if (text === "0.00") return "";
  return (value < 0 ? "−" : "") + (text === "1.00" ? "1" : text.replace(/^0/, ""));
}

// Tells which cell of a canvas is pointed at, or walked to with the arrow keys; (-1, -1) when it is left.
// `cellAt(x, y)` and `count()` are [row, column] and how many there are of both.
export function walk(canvas, cellAt, count, point) {
  let [row, column] = [0, 0];
  let told = "";
  function go(newRow, newColumn) {
    const [rows, columns] = count();
    if (newRow < 0 || newColumn < 0 || newRow >= rows || newColumn >= columns || told === `${newRow} ${newColumn}`) return;
    [row, column, told] = [newRow, newColumn, `${newRow} ${newColumn}`];
    point(row, column);
  }
  function leave() {
    told = "";
    point(-1, -1);
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

// An empty canvas of so many pixels of the page, sharp on every screen.
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
