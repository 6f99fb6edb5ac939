// All heads of all layers of one use as small pictures. A click selects one.

import { paint } from "./colour.js";
import { matrix } from "./data.js";
import { h } from "./dom.js";
import { say } from "./words.js";

export function multiplesView(store, data) {
  return new MultiplesView(store, data).element;
}

class MultiplesView {
  constructor(store, data) {
    Object.assign(this, { store, data, buttons: [] });
    this.element = h("div", { class: "multiples", role: "group", "aria-label": say("all heads of all layers") });
    store.on(["use"], (values) => this.build(values));
    store.on(["use", "palette"], (values) => this.draw(values));
    store.on(["use", "layer", "heads", "palette"], (values) => this.markSelected(values));
  }

  build({ use }) {
    const [layers, heads] = this.data.attention[use].shape;
    this.element.style.setProperty("--heads", heads);
    this.buttons = [];
    const cells = [h("span", {}), ...Array.from({ length: heads }, (_, head) => h("span", { class: "top" }, `${head + 1}`))];
    for (let layer = 0; layer < layers; layer++) {
      cells.push(h("span", { class: "side" }, `${layer + 1}`));
      for (let head = 0; head < heads; head++) cells.push(this.cell(layer, head));
    }
    this.element.replaceChildren(...cells);
  }

  cell(layer, head) {
    const canvas = h("canvas", { "aria-hidden": "true" });
    const name = say("layer {layer}, head {head}", { layer: layer + 1, head: head + 1 });
    const index = this.buttons.length;
    const button = h(
      "button",
      {
        type: "button",
        "aria-label": name,
        title: name,
        tabindex: index === 0 ? "0" : "-1",
        onclick: () => this.store.set({ layer, heads: [head] }),
        onkeydown: (event) => this.moveFocus(event, index),
      },
      canvas,
    );
    this.buttons.push({ layer, head, canvas, button });
    return button;
  }

  moveFocus(event, index) {
    const heads = this.data.attention[this.store.values.use].shape[1];
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: heads, ArrowUp: -heads };
    const next = this.buttons[index + (steps[event.key] ?? NaN)];
    if (!next) return;
    event.preventDefault();
    for (const { button } of this.buttons) button.tabIndex = button === next.button ? 0 : -1;
    next.button.focus();
  }

  draw({ use, palette }) {
    for (const { layer, head, canvas } of this.buttons) paint(canvas, matrix(this.data.attention[use], layer, head), palette.weight);
  }

  markSelected({ layer, heads, palette }) {
    for (const each of this.buttons) {
      const selected = each.layer === layer && heads.includes(each.head);
      each.button.setAttribute("aria-pressed", String(selected));
      each.button.style.outlineColor = selected ? palette.head(each.head) : "";
    }
  }
}
