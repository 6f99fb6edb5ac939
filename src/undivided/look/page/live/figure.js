// The whole model as one picture, after Figure 1 of the paper: every box leads to its numbers.

import { svg } from "../dom.js";
import { say } from "../words.js";

const WIDE = 162;
const LEFT = 30;
const RIGHT = 248;

// Boxes from bottom to top: [name, kind, y, height, side, text]. Kinds are colours.
function figureBoxes(model) {
  const pre = model.norm === "pre";
  const attention = (use, y, text) => [use, "attention", y, 40, use === "encoder" ? LEFT : RIGHT, text];
  const norm = (name, x, y) => [name, "norm", y, 22, x, pre ? say("LayerNorm first, then add") : say("Add & LayerNorm")];
  return [
    ["source", "embed", 520, 34, LEFT, say("source embedding")],
    ["target", "embed", 520, 34, RIGHT, say("target embedding")],
    attention("encoder", 396, say("multi-head self-attention")),
    norm("encoder-norm", LEFT, 370),
    ["encoder-feed", "feed", 310, 34, LEFT, say("feed-forward")],
    norm("encoder-feed-norm", LEFT, 284),
    attention("decoder", 396, say("masked self-attention")),
    norm("decoder-norm", RIGHT, 370),
    attention("cross", 304, say("encoder-decoder attention")),
    norm("cross-norm", RIGHT, 278),
    ["decoder-feed", "feed", 222, 34, RIGHT, say("feed-forward")],
    norm("decoder-feed-norm", RIGHT, 196),
    ["linear", "linear", 112, 30, RIGHT, say("linear")],
    ["softmax", "softmax", 66, 30, RIGHT, "softmax"],
  ];
}

// `open(name)` is called with the box that was chosen.
export function figureOne(live, about, open) {
  const { model } = about;
  const boxes = figureBoxes(model).map((box) => boxElement(box, open));
  const lines = [
    "M111,520 V436", "M111,370 V344", "M111,284 V206 H222 V324 H248", "M329,520 V436", "M329,370 V344", "M329,278 V256", "M329,196 V142", "M329,112 V96", "M329,66 V44",
  ];
  const around = ["M111,456 H22 V381 H30", "M111,354 H22 V295 H30", "M329,456 H418 V381 H410", "M329,354 H418 V289 H410", "M329,266 H418 V207 H410"];
  const mark = svg("marker", { id: "figure-tip", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, svg("path", { d: "M0,0 L8,4 L0,8 z" }));
  const label = (x, y, text, more = {}) => svg("text", { x, y, ...more }, text);
  const plus = (x, name) => [svg("circle", { cx: x, cy: 492, r: 11 }), svg("path", { class: "plus", d: `M${x - 6},492 H${x + 6} M${x},486 V498` }), positionLink(x, name, open)];
  const picture = svg(
    "svg",
    { class: "figure-one", viewBox: "0 0 440 600", role: "group", "aria-label": say("the model as a picture; every box leads to its numbers") },
    svg("defs", {}, mark),
    svg("rect", { class: "stack", x: 14, y: 272, width: 184, height: 192, rx: 10 }),
    svg("rect", { class: "stack", x: 242, y: 184, width: 184, height: 280, rx: 10 }),
    ...[...lines, ...around].map((d) => svg("path", { class: "wire", d, "marker-end": "url(#figure-tip)" })),
    label(20, 264, `${model.encoder_layers} ×`, { class: "times" }),
    label(420, 176, `${model.decoder_layers} ×`, { class: "times", "text-anchor": "end" }),
    ...(model.positions === "none" ? [] : [...plus(111, "source"), ...plus(329, "target")]),
    ...boxes,
    label(111, 580, say("source"), { "text-anchor": "middle" }),
    label(329, 580, say("output so far, shifted right"), { "text-anchor": "middle" }),
    label(329, 36, say("next subword"), { "text-anchor": "middle" }),
  );
  live.on(["focus"], ({ focus }) => picture.querySelectorAll(".box").forEach((box) => box.setAttribute("aria-pressed", String(box.dataset.name === focus.use))));
  return picture;
}

function pressable(element, name, label, open) {
  Object.entries({ role: "button", tabindex: "0", "aria-label": label }).forEach(([key, value]) => element.setAttribute(key, value));
  element.dataset.name = name;
  element.addEventListener("click", () => open(name));
  element.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    open(name);
  });
  return element;
}

export function boxElement([name, kind, y, height, x, text], open) {
  const words = svg("text", { x: x + WIDE / 2, y: y + height / 2 + 4, "text-anchor": "middle", class: height < 30 ? "thin" : null }, text);
  return pressable(svg("g", { class: `box ${kind}` }, svg("rect", { x, y, width: WIDE, height, rx: 5 }), words), name, text, open);
}

export function positionLink(x, name, open) {
  const beside = x < 200 ? x - 20 : x + 20;
  const words = svg("text", { x: beside, y: 496, "text-anchor": x < 200 ? "end" : "start" }, say("positions"));
  return pressable(svg("g", { class: "box link" }, svg("rect", { x: x < 200 ? beside - 68 : beside - 4, y: 480, width: 72, height: 24, rx: 5 }), words), `${name}-positions`, say("positions"), open);
}
