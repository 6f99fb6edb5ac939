// What the pages of single-stack models share: the header with a text, the picture of the stack, and what may be changed in it.

import { card, h, percent, svg, tokenElement } from "../dom.js";
import { languageChoice, part } from "../view.js";
import { say } from "../words.js";
import { oneHeadView, statusText, storedAs, whenSeen } from "./app.js";
import { changedList, headSwitches, tick } from "./changes.js";
import { boxElement, positionLink } from "./figure.js";
import { streamSection } from "./stream.js";

const KIND_NAMES = { decoder_only: "GPT", encoder_only: "BERT", vision: "ViT" };

export const onlyUse = (about) => Object.keys(about.uses)[0];

export const stackDepth = (about) => about.model[`${onlyUse(about)}_layers`];

export function stackFocus(about) {
  return { use: onlyUse(about), layer: stackDepth(about) - 1, head: 0, position: 0 };
}

export function stackFacts(about) {
  const { facts, model } = about;
  return say("The model is in this file: {kind}, {layers} layers, {heads} heads, d_model {width}, {size} M parameters as {stored}. Nothing is sent anywhere.", {
    kind: KIND_NAMES[model.kind], layers: stackDepth(about), heads: model.n_heads, width: facts.d_model, size: (facts.parameters / 1e6).toFixed(1), stored: storedAs(about),
  });
}

// The top of a page: its title, `content`, what the model is doing, and what it is.
export function stackHeader({ live, about }, rebuild, status, ...content) {
  const line = h("p", { class: "note status", role: "status" });
  live.on(["state", "translation", "look"], (values) => (line.textContent = stateText(values, about, status)));
  return h(
    "header",
    {},
    h("div", { class: "top-line" }, h("h1", {}, say("A look inside, live")), languageChoice(rebuild)),
    ...content,
    line,
    h("p", { class: "note" }, stackFacts(about)),
  );
}

function stateText(values, about, { empty, done }) {
  if (values.state === "empty") return empty;
  if (["loading", "long", "failed"].includes(values.state)) return statusText(values, about);
  return values.look ? done(values) : say("computing …");
}

export function textInput({ live, about }, label) {
  const input = h("textarea", { id: "live-text", rows: "2", lang: about.facts.source_lang || null, spellcheck: "false", oninput: () => live.set({ text: input.value.replaceAll("\n", " ") }) });
  input.value = live.values.text;
  return h("p", { class: "sentence source" }, h("label", { class: "language", for: "live-text" }, label), input);
}

// What may be changed in a model that reads: nothing is searched for, so there are no settings of a search.
export function modelPanel(live, about, reset) {
  const parts = h(
    "fieldset",
    { class: "settings" },
    h("legend", {}, say("The model")),
    tick(live, "scale", say("divide by √d_k")),
    about.model.positions === "none" ? null : tick(live, "positions", say("position encoding")),
  );
  return h("div", { class: "changes" }, parts, changedList(live, about), h("button", { type: "button", class: "small", onclick: reset }, say("as trained")));
}

export const stackChanges = ({ off, mask, positions, scale }) => ({ off, mask, positions, scale });

// Classes and their probabilities, likeliest first.
export function classBars(live, count) {
  const list = h("ol", { class: "bars classes" });
  live.on(["look"], ({ look }) => {
    if (!look) return;
    const sorted = [...look.classes].sort((one, other) => other.probability - one.probability).slice(0, count);
    list.replaceChildren(
      ...sorted.map(({ name, probability }, at) => {
        const fill = h("span", { class: "fill", style: { width: `${100 * probability}%` } });
        return h("li", { class: at ? "" : "chosen" }, h("bdi", { class: "token", title: name }, name), h("span", { class: "bar" }, fill), h("span", { class: "number" }, percent(probability)));
      }),
    );
  });
  return list;
}

// The sections that every stack has: one head, the residual stream, heads to switch off.
export function stackSections(page, places) {
  const { live, about } = page;
  const oneHead = part(say("One head, step by step"), oneHeadView(page, places));
  const stream = part(say("Residual stream"), streamSection(live, page.ask));
  return [oneHead, stream, (...more) => part(say("What if"), h("div", { class: "columns" }, headSwitches(live, about, (element) => whenSeen(page, element)), ...more))];
}

const FIGURE_TEXTS = {
  decoder_only: () => [say("subword embedding"), say("prompt and what follows"), say("next subword")],
  encoder_only: (about) => [say("subword embedding"), about.classes?.length ? say("text") : say("text with hidden words"), about.classes?.length ? say("class") : say("hidden words")],
  vision: () => [say("patches × W"), say("image"), say("class")],
};

// The stack as a picture after Figure 1 of the paper; `open(name)` is called with the box that was chosen.
export function stackFigure(live, about, open) {
  const { model } = about;
  const use = onlyUse(about);
  const norm = model.norm === "pre" ? say("LayerNorm first, then add") : say("Add & LayerNorm");
  const [embedding, input, output] = FIGURE_TEXTS[model.kind](about);
  const boxes = [
    ["source", "embed", 520, 34, 30, embedding],
    [use, "attention", 396, 40, 30, use === "decoder" ? say("masked self-attention") : say("multi-head self-attention")],
    [`${use}-norm`, "norm", 370, 22, 30, norm],
    [`${use}-feed`, "feed", 310, 34, 30, say("feed-forward")],
    [`${use}-feed-norm`, "norm", 284, 22, 30, norm],
    ["linear", "linear", 206, 30, 30, say("linear")],
    ["softmax", "softmax", 160, 30, 30, "softmax"],
  ].map((box) => boxElement(box, open));
  const wires = ["M111,520 V436", "M111,396 V392", "M111,370 V344", "M111,284 V236", "M111,206 V190", "M111,160 V138", "M111,456 H22 V381 H30", "M111,354 H22 V295 H30"];
  const tip = svg("marker", { id: "figure-tip", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, svg("path", { d: "M0,0 L8,4 L0,8 z" }));
  const label = (y, text) => svg("text", { x: 111, y, "text-anchor": "middle" }, text);
  const plus = [svg("circle", { cx: 111, cy: 492, r: 11 }), svg("path", { class: "plus", d: "M105,492 H117 M111,486 V498" }), positionLink(111, "source", open)];
  const picture = svg(
    "svg",
    { class: "figure-one narrow", viewBox: "0 112 222 480", role: "group", "aria-label": say("the model as a picture; every box leads to its numbers") },
    svg("defs", {}, tip),
    svg("rect", { class: "stack", x: 14, y: 272, width: 184, height: 192, rx: 10 }),
    ...wires.map((d) => svg("path", { class: "wire", d, "marker-end": "url(#figure-tip)" })),
    svg("text", { x: 20, y: 264, class: "times" }, `${stackDepth(about)} ×`),
    ...(model.positions === "none" ? [] : plus),
    ...boxes,
    label(580, input),
    label(130, output),
  );
  live.on(["focus"], ({ focus }) => picture.querySelectorAll(".box").forEach((box) => box.setAttribute("aria-pressed", String(box.dataset.name === focus.use))));
  return picture;
}

// A row of tokens to choose from.
export function tokenChips(pieces, chosen, choose) {
  return pieces.map((piece, at) => h("button", { type: "button", class: "chip", "aria-pressed": String(at === chosen), onclick: () => choose(at) }, tokenElement(piece)));
}

export function classCard(live) {
  return card(say("Classes"), say("The likeliest classes, by softmax over all of them."), classBars(live, 10));
}
