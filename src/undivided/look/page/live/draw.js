// Something to draw on: with mouse, finger or pen, with the arrow keys, from an image file, or from samples that are drawn by code.

import { h } from "../dom.js";
import { say } from "../words.js";

// The smallest number of pixels of a side; the canvas is a multiple of the model's image, so that its pixels fall together.
const SMALLEST_SIDE = 200;

// The width of a line: a share of the image, and at least so many pixels of the model's image, since a thinner one would be grey there.
const THINNEST = 0.085;
const LEAST_PIXELS = 1.2;

// How large the sample digits are, against the numbers below.
const DIGIT_SIZE = 1.3;

// Milliseconds between two answers while a line is drawn.
const BETWEEN_ANSWERS = 90;

// Most pixels of the longer side of an image file.
const LARGEST_FILE = 1024;

// How the digits are written: lines through points, by number, in a square of 100. Half circles are points of their own.
const arc = (x, y, across, down, from, to) =>
  Array.from({ length: 17 }, (_, at) => {
    const angle = ((from + ((to - from) * at) / 16) * Math.PI) / 180;
    return [x + across * Math.cos(angle), y + down * Math.sin(angle)];
  });

const DIGITS = [
  [arc(50, 50, 19, 30, 0, 360)],
  [[[38, 32], [53, 20], [53, 80]]],
  [[...arc(50, 37, 17, 17, 190, 380), [33, 80], [69, 80]]],
  [[...arc(48, 36, 16, 15, 200, 440), ...arc(48, 65, 19, 15, 280, 500)]],
  [[[57, 80], [57, 20], [30, 60], [70, 60]]],
  [[[66, 21], [39, 21], [36, 46], ...arc(49, 60, 18, 19, 240, 490)]],
  [[[61, 20], ...arc(50, 62, 17, 18, 190, 560)]],
  [[[32, 21], [68, 21], [45, 80]]],
  [arc(50, 35, 15, 15, 90, 450), arc(50, 65, 18, 15, 270, 630)],
  [[...arc(50, 37, 16, 17, 360, 0), [66, 37], [60, 80]]],
];

export class Drawing {
  constructor(live, about) {
    const { image_height: height, image_width: width } = about.model;
    const scale = 2 ** Math.ceil(Math.log2(Math.max(1, SMALLEST_SIDE / Math.max(height, width))));
    Object.assign(this, { live, wide: width * scale, tall: height * scale, pen: [0.5, 0.5], down: false, last: 0 });
    this.line = Math.max(THINNEST, LEAST_PIXELS / Math.min(height, width)) * Math.min(this.wide, this.tall);
    this.canvas = h("canvas", {
      class: "drawing", width: this.wide, height: this.tall, tabindex: "0", role: "application",
      "aria-label": say("Drawing area: draw with the pointer; or move the pen with the arrow keys, and lower or lift it with the space bar"),
    });
    this.context = this.canvas.getContext("2d", { willReadFrequently: true });
    this.cursor = h("i", { class: "pen", hidden: true });
    this.listen();
    this.restore(live.values.image);
  }

  get element() {
    const digits = DIGITS.map((_, digit) => h("button", { type: "button", class: "small", "aria-label": say("draw the digit {digit}", { digit }), onclick: () => this.digit(digit) }, String(digit)));
    const file = h("input", { type: "file", accept: "image/*", class: "hidden", id: "image-file", onchange: () => this.open(file.files[0]) });
    const clear = h("button", { type: "button", class: "small", onclick: () => this.clear() }, say("clear"));
    this.problem = h("p", { class: "note", role: "status" });
    return h(
      "div",
      { class: "drawing-tools" },
      h("div", { class: "drawing-box" }, this.canvas, this.cursor),
      h("p", { class: "buttons" }, clear, " ", h("label", { class: "small file", for: "image-file" }, say("open an image")), file),
      h("div", { class: "buttons", role: "group", "aria-label": say("sample digits") }, ...digits),
      this.problem,
    );
  }

  listen() {
    const place = (event) => [event.offsetX / this.canvas.clientWidth, event.offsetY / this.canvas.clientHeight];
    this.canvas.addEventListener("pointerdown", (event) => {
      this.canvas.setPointerCapture(event.pointerId);
      this.pen = place(event);
      this.down = true;
      this.stroke(this.pen);
    });
    this.canvas.addEventListener("pointermove", (event) => event.buttons && this.down && event.pointerId && this.stroke(place(event)));
    const lift = () => {
      if (this.down) this.tell(true);
      this.down = false;
    };
    ["pointerup", "pointercancel"].forEach((name) => this.canvas.addEventListener(name, lift));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("blur", () => {
      this.cursor.hidden = true;
      lift();
    });
  }

  key(event) {
    const [across, downward] = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key] ?? [0, 0];
    if (event.key === " ") this.down = !this.down;
    else if (!across && !downward) return;
    event.preventDefault();
    const to = [this.pen[0] + across * 0.04, this.pen[1] + downward * 0.04].map((part) => Math.max(0, Math.min(1, part)));
    if (this.down) this.stroke(to);
    this.pen = to;
    this.cursor.hidden = false;
    this.cursor.classList.toggle("lowered", this.down);
    Object.assign(this.cursor.style, { left: `${100 * to[0]}%`, top: `${100 * to[1]}%` });
  }

  stroke(to) {
    this.path([this.pen, to].map(([x, y]) => [x * this.wide, y * this.tall]));
    this.pen = to;
    this.tell(false);
  }

  path(points) {
    const { context } = this;
    Object.assign(context, { lineWidth: this.line, lineCap: "round", lineJoin: "round", strokeStyle: "#fff" });
    context.beginPath();
    points.forEach(([x, y], at) => (at ? context.lineTo(x, y) : context.moveTo(x, y)));
    context.stroke();
  }

  blank() {
    this.context.fillStyle = "#000";
    this.context.fillRect(0, 0, this.wide, this.tall);
    this.source = null;
  }

  clear() {
    this.blank();
    this.tell(true);
  }

  digit(number) {
    this.blank();
    const size = (DIGIT_SIZE * Math.min(this.wide, this.tall)) / 100;
    const [left, top] = [(this.wide - 100 * size) / 2, (this.tall - 100 * size) / 2];
    for (const points of DIGITS[number]) this.path(points.map(([x, y]) => [left + x * size, top + y * size]));
    this.tell(true);
  }

  // An image file: the model gets its own pixels, in its own size.
  async open(file) {
    if (!file) return;
    try {
      const bitmap = await createImageBitmap(file);
      const shrink = Math.min(1, LARGEST_FILE / Math.max(bitmap.width, bitmap.height));
      const size = [bitmap.width, bitmap.height].map((side) => Math.max(1, Math.round(side * shrink)));
      const own = h("canvas", { width: size[0], height: size[1] });
      const context = own.getContext("2d");
      context.drawImage(bitmap, 0, 0, ...size);
      this.blank();
      this.context.drawImage(bitmap, 0, 0, this.wide, this.tall);
      this.source = context.getImageData(0, 0, ...size);
      this.problem.textContent = "";
      this.tell(true);
    } catch {
      this.problem.textContent = say("This file is not an image that the browser can read.");
    }
  }

  restore(image) {
    this.blank();
    if (image?.shown) this.context.putImageData(image.shown, 0, 0);
    else this.digit(3);
  }

  // Give the pixels to the page: at once, or now and then while a line is being drawn.
  tell(now) {
    const time = performance.now();
    clearTimeout(this.timer);
    if (!now && time - this.last < BETWEEN_ANSWERS) return void (this.timer = setTimeout(() => this.tell(true), BETWEEN_ANSWERS));
    this.last = time;
    if (!now) this.source = null;
    const shown = this.context.getImageData(0, 0, this.wide, this.tall);
    this.live.set({ image: { ...planes(this.source ?? shown), shown }, drawn: (this.live.values.drawn ?? 0) + 1 });
    return undefined;
  }
}

// Pixels as bytes `C Y X`: grey where all are.
function planes({ data, width, height }) {
  const size = width * height;
  const pixels = new Uint8Array(3 * size);
  let grey = true;
  for (let at = 0; at < size; at++) {
    for (let channel = 0; channel < 3; channel++) pixels[channel * size + at] = data[4 * at + channel];
    grey &&= data[4 * at] === data[4 * at + 1] && data[4 * at] === data[4 * at + 2];
  }
  return grey ? { pixels: pixels.slice(0, size), channels: 1, height, width } : { pixels, channels: 3, height, width };
}
