// The page of a vision model (ViT): draw something, see what it is taken for and which patches attend to which.

import { css, paint } from "../colour.js";
import { choice, h, percent, trackCell } from "../dom.js";
import { part } from "../view.js";
import { say } from "../words.js";
import { mountLive } from "./app.js";
import { asTrained } from "./changes.js";
import { Drawing } from "./draw.js";
import { classCard, modelPanel, stackChanges, stackDepth, stackFacts, stackFigure, stackFocus, stackHeader, stackSections } from "./single.js";

const VISION = {
  focus: stackFocus,
  // A query is a position: 0 is that of the class, patches follow row by row. A head of −1 is the mean of all.
  first: (about) => ({ image: null, drawn: 0, query: 0, seenLayer: stackDepth(about) - 1, seenHead: -1 }),
  keys: ["drawn", "off", "positions", "scale"],
  question: ({ image, ...values }) => ({ image: { pixels: image.pixels, channels: image.channels, height: image.height, width: image.width }, changes: stackChanges(values) }),
  facts: stackFacts,
  figure: stackFigure,
  parts: visionParts,
};

export function mountVision(element) {
  mountLive(element, VISION);
}

function visionParts(page, rebuild) {
  const { live, about } = page;
  const drawing = new Drawing(live, about);
  const tools = h("section", { class: "card" }, h("h3", {}, say("Draw here")), h("p", { class: "note" }, say("White on black. The image is made {width} × {height} pixels large, as in training.", { width: about.model.image_width, height: about.model.image_height })), drawing.element);
  const draw = part(say("Draw"), h("div", { class: "columns draw-beside" }, tools, classCard(live)));
  const patches = part(say("Patches attend"), patchesView(live, about));
  const [oneHead, stream, whatIf] = stackSections(page, { decoding: draw, positions: patches, embeddings: patches });
  const tryIt = part(say("Try it"), modelPanel(live, about, () => live.set(asTrained(about.search))));
  const done = ({ look }) => {
    const best = look.classes.reduce((one, other) => (other.probability > one.probability ? other : one));
    return say("Class: {name}, {probability}", { name: best.name, probability: percent(best.probability) });
  };
  return { header: stackHeader(page, rebuild, { empty: "", done }), sections: [draw, patches, oneHead, stream, tryIt, whatIf()] };
}

// The weights of one query over all positions, of one head or the mean of all.
function weightsFrom({ shape: [, heads, rows], data }, layer, head, query) {
  const row = (each) => data.subarray(((layer * heads + each) * rows + query) * rows, ((layer * heads + each) * rows + query + 1) * rows);
  if (head >= 0) return row(head);
  const mean = new Float32Array(rows);
  for (let each = 0; each < heads; each++) row(each).forEach((weight, at) => (mean[at] += weight / heads));
  return mean;
}

function patchesView(live, about) {
  const { model } = about;
  const heads = [[-1, say("mean")], ...Array.from({ length: model.n_heads }, (_, head) => [head, String(head + 1)])];
  const layers = Array.from({ length: stackDepth(about) }, (_, layer) => [layer, String(layer + 1)]);
  const layerChoice = choice(say("Layer"), layers, live.values.seenLayer, (seenLayer) => live.set({ seenLayer }));
  const headChoice = choice(say("Head"), heads, live.values.seenHead, (seenHead) => live.set({ seenHead }));
  const classButton = h("button", { type: "button", class: "chip", onclick: () => live.set({ query: 0 }) }, say("the class position"));
  live.on(["seenLayer", "seenHead", "query"], ({ seenLayer, seenHead, query }) => {
    layerChoice.show(seenLayer);
    headChoice.show(seenHead);
    classButton.setAttribute("aria-pressed", String(query === 0));
  });
  const who = h("p", { class: "flow" }, h("b", {}, `${say("Who attends")} `), classButton, h("b", {}, ` ${say("or click a patch")}`));
  return h(
    "div",
    {},
    h("div", { class: "controls" }, layerChoice.element, headChoice.element, who),
    h(
      "div",
      { class: "columns" },
      h("section", { class: "card" }, h("h3", {}, say("What it attends to")), h("p", { class: "note" }, say("The image as the model sees it, darker where less weight falls. The framed patch attends; the number is the weight of the patch under the pointer.")), overlay(live, about)),
      h("section", { class: "card" }, h("h3", {}, say("All heads")), h("p", { class: "note" }, say("One row per layer, one column per head: the weights of the chosen position over the patches. Click one to show it alone.")), allHeads(live, about)),
    ),
  );
}

// The image with the weights over it.
function overlay(live, about) {
  const { model } = about;
  const [rows, columns] = [model.image_height / model.patch, model.image_width / model.patch];
  const canvas = h("canvas", { class: "raster overlay", role: "img", tabindex: "0", "aria-label": say("{label}; move with the arrow keys", { label: say("weights over the patches; Enter lets the patch attend") }) });
  const frame = h("i", { class: "patch-frame", hidden: true });
  const status = h("p", { class: "status", "aria-live": "polite" });
  let at = [0, 0];
  const cellAt = (x, y) => [Math.floor((y / canvas.clientHeight) * rows), Math.floor((x / canvas.clientWidth) * columns)];
  const show = ({ look, seenLayer, seenHead, query }) => {
    if (!look) return;
    const weights = weightsFrom(look.encoder, seenLayer, seenHead, query);
    paintOverlay(canvas, look.pixels, weights.subarray(1), model);
    frame.hidden = query === 0;
    const [row, column] = [Math.floor((query - 1) / columns), (query - 1) % columns];
    Object.assign(frame.style, { left: `${(100 * column) / columns}%`, top: `${(100 * row) / rows}%`, width: `${100 / columns}%`, height: `${100 / rows}%` });
    status.textContent = say("The class position gets {share} of the weight, the patches the rest.", { share: percent(weights[0]) });
  };
  live.on(["look", "seenLayer", "seenHead", "query", "palette"], show);
  trackCell(canvas, cellAt, () => [rows, columns], (row, column) => {
    if (row < 0) return show(live.values);
    at = [row, column];
    if (!live.values.look) return undefined;
    const { look, seenLayer, seenHead, query } = live.values;
    const weight = weightsFrom(look.encoder, seenLayer, seenHead, query)[1 + row * columns + column];
    status.textContent = say("patch {row}, {column}: {weight}", { row: row + 1, column: column + 1, weight: percent(weight) });
    return undefined;
  });
  const choose = ([row, column]) => live.set({ query: 1 + row * columns + column });
  canvas.addEventListener("click", (event) => choose(cellAt(event.offsetX, event.offsetY)));
  canvas.addEventListener("keydown", (event) => event.key === "Enter" && choose(at));
  return h("div", {}, h("div", { class: "overlay-box", style: { aspectRatio: `${model.image_width} / ${model.image_height}` } }, canvas, frame), status, weightTable(live, rows, columns));
}

// The pixels, darker where less weight falls, with the colour of a weight over them.
function paintOverlay(canvas, pixels, weights, { image_height: height, image_width: width, channels, patch }) {
  const most = weights.reduce((one, other) => Math.max(one, other), 1e-9);
  const columns = width / patch;
  const size = height * width;
  const cells = Float32Array.from({ length: size }, (_, at) => at);
  paint(canvas, { rows: height, columns: width, data: cells }, (at) => {
    const share = weights[Math.floor(Math.floor(at / width) / patch) * columns + Math.floor((at % width) / patch)] / most;
    const light = 0.35 + 0.65 * share;
    const glow = [0.15 * share, 0.45 * share, 0.75 * share];
    return glow.map((extra, channel) => Math.min(255, pixels[(channels === 3 ? channel * size : 0) + at] * light * (1 - extra / 2) + 255 * extra * 0.6));
  });
}

function weightTable(live, rows, columns) {
  const table = h("table", { class: "numbers" });
  const fill = ({ look, seenLayer, seenHead, query, palette }) => {
    if (!look || !details.open) return;
    const weights = weightsFrom(look.encoder, seenLayer, seenHead, query).subarray(1);
    const most = weights.reduce((one, other) => Math.max(one, other), 1e-9);
    const cell = (weight) => {
      const shade = palette.weight(weight / most);
      return h("td", { style: { background: css(shade), color: palette.ink(shade) } }, weight >= 0.0005 ? weight.toFixed(3).replace(/^0/, "") : "0");
    };
    const line = (_, row) => h("tr", {}, h("th", { scope: "row" }, String(row + 1)), ...Array.from(weights.subarray(row * columns, (row + 1) * columns), cell));
    const head = h("tr", {}, h("td", {}), ...Array.from({ length: columns }, (_, column) => h("th", { scope: "col" }, String(column + 1))));
    table.replaceChildren(h("caption", { class: "hidden" }, say("weights over the patches")), h("thead", {}, head), h("tbody", {}, ...Array.from({ length: rows }, line)));
  };
  const details = h("details", { ontoggle: () => fill(live.values) }, h("summary", {}, say("Show as a table")), h("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": say("weights over the patches") }, table));
  live.on(["look", "seenLayer", "seenHead", "query", "palette"], fill);
  return details;
}

function allHeads(live, about) {
  const { model } = about;
  const [rows, columns] = [model.image_height / model.patch, model.image_width / model.patch];
  const cells = [];
  const grid = [h("span", {}), ...Array.from({ length: model.n_heads }, (_, head) => h("span", { class: "top" }, `${head + 1}`))];
  for (let layer = 0; layer < stackDepth(about); layer++) {
    grid.push(h("span", { class: "side" }, `${layer + 1}`));
    for (let head = 0; head < model.n_heads; head++) {
      const name = say("layer {layer}, head {head}", { layer: layer + 1, head: head + 1 });
      const canvas = h("canvas", { "aria-hidden": "true" });
      const button = h("button", { type: "button", "aria-label": name, title: name, onclick: () => live.set({ seenLayer: layer, seenHead: head }) }, canvas);
      cells.push({ layer, head, canvas, button });
      grid.push(button);
    }
  }
  const element = h("div", { class: "multiples", role: "group", "aria-label": say("all heads of all layers") }, ...grid);
  element.style.setProperty("--heads", model.n_heads);
  live.on(["look", "query", "palette"], ({ look, query, palette }) => {
    for (const { layer, head, canvas } of look ? cells : []) {
      const data = weightsFrom(look.encoder, layer, head, query).subarray(1);
      const most = data.reduce((one, other) => Math.max(one, other), 1e-9);
      paint(canvas, { rows, columns, data }, (weight) => palette.weight(weight / most));
    }
  });
  live.on(["seenLayer", "seenHead", "palette"], ({ seenLayer, seenHead, palette }) => {
    for (const { layer, head, button } of cells) {
      const chosen = layer === seenLayer && head === seenHead;
      button.setAttribute("aria-pressed", String(chosen));
      button.style.outlineColor = chosen ? palette.head(head) : "";
    }
  });
  return element;
}
