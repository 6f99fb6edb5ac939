// All heads of all layers of one use as small pictures. A click selects one.

import { paint } from "./colour.js";
import { matrix } from "./data.js";
import { h } from "./dom.js";

export function multiplesView(store, data) {
  const element = h("div", { class: "multiples", role: "group", "aria-label": "all heads of all layers" });
  let buttons = [];

  function build({ use }) {
    const [layers, heads] = data.attention[use].shape;
    element.style.setProperty("--heads", heads);
    buttons = [];
    const cells = [h("span", {}), ...Array.from({ length: heads }, (_, head) => h("span", { class: "top" }, `${head + 1}`))];
    for (let layer = 0; layer < layers; layer++) {
      cells.push(h("span", { class: "side" }, `${layer + 1}`));
      for (let head = 0; head < heads; head++) cells.push(cell(layer, head));
    }
    element.replaceChildren(...cells);
  }

  function cell(layer, head) {
    const canvas = h("canvas", { "aria-hidden": "true" });
    const name = `layer ${layer + 1}, head ${head + 1}`;
    const first = layer === 0 && head === 0;
    const place = buttons.length;
    const button = h(
      "button",
      {
        type: "button",
        "aria-label": name,
        title: name,
        tabindex: first ? "0" : "-1",
        onclick: () => store.set({ layer, heads: [head] }),
        onkeydown: (event) => move(event, place),
      },
      canvas,
    );
    buttons.push({ layer, head, canvas, button });
    return button;
  }

  function move(event, place) {
    const heads = data.attention[store.values.use].shape[1];
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: heads, ArrowUp: -heads };
    const next = buttons[place + (steps[event.key] ?? NaN)];
    if (!next) return;
    event.preventDefault();
    for (const { button } of buttons) button.tabIndex = button === next.button ? 0 : -1;
    next.button.focus();
  }

  function draw({ use, palette }) {
    for (const { layer, head, canvas } of buttons) paint(canvas, matrix(data.attention[use], layer, head), palette.weight);
  }

  function mark({ layer, heads, palette }) {
    for (const each of buttons) {
      const on = each.layer === layer && heads.includes(each.head);
      each.button.setAttribute("aria-pressed", String(on));
      each.button.style.outlineColor = on ? palette.head(each.head) : "";
    }
  }

  store.on(["use"], build);
  store.on(["use", "palette"], draw);
  store.on(["use", "layer", "heads", "palette"], mark);
  return element;
}
