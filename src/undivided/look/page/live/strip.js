// A vector as a strip of colours: blue is positive, orange negative. Its numbers are shown on demand.

import { paint } from "../colour.js";
import { h, signed, trackCell } from "../dom.js";
import { say } from "../words.js";

export function largestSize(...vectors) {
  let most = 1e-9;
  for (const vector of vectors) for (const value of vector) most = Math.max(most, Math.abs(value));
  return most;
}

// A strip alone, for a table; `most` is the number with the darkest colour.
export function smallStrip(vector, most, palette) {
  const canvas = h("canvas", { class: "strip-small", "aria-hidden": "true" });
  paint(canvas, { rows: 1, columns: vector.length, data: vector }, (value) => palette.signed(value / most));
  return canvas;
}

// A strip with its name, its width, the number pointed at, and all numbers in a list that opens.
export function strip(name, vector, palette, options = {}) {
  const most = options.most ?? largestSize(vector);
  const size = (options.letters ? `${options.letters} = ` : "") + vector.length;
  const pointed = h("output", {});
  const label = say("{name}: {count} numbers from {low} to {high}; move with the arrow keys", {
    name, count: vector.length, low: signed(smallest(vector)), high: signed(biggest(vector)),
  });
  const canvas = h("canvas", { class: "strip", role: "img", tabindex: "0", "aria-label": label });
  paint(canvas, { rows: 1, columns: vector.length, data: vector }, (value) => palette.signed(value / most));
  const cellAt = (x) => [0, Math.floor((x / canvas.clientWidth) * vector.length)];
  trackCell(canvas, cellAt, () => [1, vector.length], (row, at) => (pointed.textContent = row < 0 ? "" : `${at + 1}: ${signed(vector[at], 4)}`));
  const list = h("p", { class: "strip-numbers" });
  const numbers = h("details", { ontoggle: () => (list.textContent = numbers.open ? Array.from(vector, (value) => signed(value, 3)).join("  ") : "") }, h("summary", {}, say("numbers")), list);
  const frame = options.frame ? h("i", { class: "strip-frame", style: { left: `${100 * options.frame[0]}%`, width: `${100 * options.frame[1]}%` } }) : null;
  return h("div", { class: "strip-line" }, h("div", { class: "strip-head" }, h("b", {}, name), h("small", {}, size), pointed, numbers), h("div", { class: "strip-box" }, canvas, frame));
}

function smallest(vector) {
  return vector.reduce((a, b) => Math.min(a, b), Infinity);
}

function biggest(vector) {
  return vector.reduce((a, b) => Math.max(a, b), -Infinity);
}
