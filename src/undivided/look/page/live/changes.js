// What may be changed in the model and in the search, and what becomes of the translation.

import { choice, h, percent, quoted, signed } from "../dom.js";
import { say } from "../words.js";

// The state of the page before anything is changed.
export function asTrained(search) {
  return { beam: search.beam_size, temperature: 1, sample: false, seed: 1, off: [], mask: true, positions: true, scale: true, prefix: [] };
}

export const CHANGE_KEYS = ["beam", "temperature", "sample", "seed", "off", "mask", "positions", "scale", "prefix"];

// Whether the model or the start of the translation was changed, so that the translation as trained is another one.
export function isChanged({ temperature, sample, off, mask, positions, scale, prefix }) {
  return temperature !== 1 || sample || off.length > 0 || !mask || !positions || !scale || prefix.length > 0;
}

export function searchSettings(about, { beam, temperature, sample, seed }) {
  return { ...about.search, beam_size: beam, temperature, sample, seed };
}

export function toggleHead(live, use, layer, head) {
  const name = `${use} ${layer} ${head}`;
  const { off } = live.values;
  live.set({ off: off.includes(name) ? off.filter((each) => each !== name) : [...off, name] });
}

export function slider(live, key, label, range, show = String) {
  const value = h("output", {});
  const input = h("input", { type: "range", ...range, oninput: () => live.set({ [key]: Number(input.value) }) });
  live.on([key], (values) => {
    input.value = String(values[key]);
    value.textContent = show(values[key]);
    input.setAttribute("aria-valuetext", show(values[key]));
  });
  return h("label", { class: "setting" }, h("span", {}, label), input, value);
}

export function tick(live, key, label) {
  const input = h("input", { type: "checkbox", onchange: () => live.set({ [key]: input.checked }) });
  live.on([key], (values) => (input.checked = values[key]));
  return h("label", { class: "tick" }, input, h("span", {}, label));
}

export function changesPanel(live, about, reset) {
  const again = h("button", { type: "button", class: "small", onclick: () => live.set({ seed: live.values.seed + 1 }) }, say("draw again"));
  const how = choice(say("Search"), [["beam", say("beam search")], ["sample", say("sampling")]], "beam", (value) => live.set({ sample: value === "sample" }));
  live.on(["sample"], ({ sample }) => {
    how.show(sample ? "sample" : "beam");
    again.hidden = !sample;
  });
  const search = h(
    "div",
    { class: "settings" },
    how.element,
    again,
    slider(live, "beam", say("beam size"), { min: 1, max: 10, step: 1 }),
    slider(live, "temperature", say("temperature"), { min: 0.2, max: 3, step: 0.1 }, (value) => value.toFixed(1)),
  );
  const parts = h(
    "fieldset",
    { class: "settings" },
    h("legend", {}, say("The model")),
    tick(live, "scale", say("divide by √d_k")),
    tick(live, "mask", say("mask later positions")),
    about.model.positions === "none" ? null : tick(live, "positions", say("position encoding")),
  );
  const undo = h("button", { type: "button", class: "small", onclick: reset }, say("as trained"));
  return h("div", { class: "changes" }, search, about.model.kind === "recurrent" ? null : parts, changedList(live, about), undo);
}

// The heads that are off and the words that are forced; a click takes one back.
export function changedList(live, about) {
  const list = h("p", { class: "flow changed", "aria-live": "polite" });
  live.on(["off", "prefix", "look"], ({ off, prefix, pieces }) => {
    const heads = off.map((name) => {
      const [use, layer, head] = name.split(" ");
      const label = say("{use}, layer {layer}, head {head}", { use: say(about.uses[use]), layer: Number(layer) + 1, head: Number(head) + 1 });
      const back = () => live.set({ off: live.values.off.filter((each) => each !== name) });
      return h("button", { type: "button", class: "chip", "aria-label": say("switch on: {what}", { what: label }), onclick: back }, `${label} ✕`);
    });
    const forced = prefix.length
      ? [h("button", { type: "button", class: "chip", "aria-label": say("force no words"), onclick: () => live.set({ prefix: [] }) }, ...prefix.map((id) => quoted(pieces[id])), " … ✕")]
      : [];
    const note = (text) => h("b", {}, `${text} `);
    list.replaceChildren(...(heads.length ? [note(say("Switched off:")), ...heads] : []), ...(forced.length ? [note(say("Begins with:")), ...forced] : []));
  });
  return list;
}

// Every head as a switch, coloured by what the translation loses without it; and at every position the words that could come.
export function whatIfLive(live, about, watch) {
  return h("div", { class: "columns" }, headSwitches(live, about, watch), otherWords(live));
}

export function headSwitches(live, about, watch) {
  const grids = Object.entries(about.uses).map(([use, name]) => {
    const layers = use === "encoder" ? about.model.encoder_layers : about.model.decoder_layers;
    const heads = about.model.n_heads;
    const cells = [h("span", {}), ...Array.from({ length: heads }, (_, head) => h("span", { class: "top" }, `${head + 1}`))];
    for (let layer = 0; layer < layers; layer++) {
      cells.push(h("span", { class: "side" }, `${layer + 1}`));
      for (let head = 0; head < heads; head++) cells.push(headSwitch(live, say(name), use, layer, head));
    }
    const grid = h("div", { class: "off-grid", style: {} }, ...cells);
    grid.style.setProperty("--heads", heads);
    return h("div", {}, h("h4", {}, say(name)), grid);
  });
  const note = say("Click a head to switch it off or on again. The number is how much the log-probability of the translation falls without it. Orange: the head is needed; blue: the translation is more likely without it.");
  const element = h("section", { class: "card" }, h("h3", {}, say("Switch heads off")), h("p", { class: "note" }, note), h("div", { class: "off-grids" }, ...grids));
  watch(element);
  return element;
}

function headSwitch(live, name, use, layer, head) {
  const key = `${use} ${layer} ${head}`;
  const label = say("{use}, layer {layer}, head {head}", { use: name, layer: layer + 1, head: head + 1 });
  const button = h("button", { type: "button", onclick: () => toggleHead(live, use, layer, head) }, "·");
  live.on(["off"], ({ off }) => button.setAttribute("aria-pressed", String(off.includes(key))));
  live.on(["lost", "off", "palette"], ({ lost, off, palette, worst }) => {
    const value = lost.get(key);
    const shown = off.includes(key) ? "✕" : value === undefined ? "·" : signed(value, 1);
    button.textContent = shown;
    const state = off.includes(key) ? say("switched off") : value === undefined ? "" : signed(value);
    const named = (value) => `${label}${value ? `: ${value}` : ""}`;
    button.title = named(state);
    // The name holds what is shown, to the letter.
    button.setAttribute("aria-label", named(value === undefined || off.includes(key) ? state : shown));
    const shade = palette.signed(value === undefined || off.includes(key) ? 0 : -value / worst);
    button.style.background = `rgb(${shade})`;
    button.style.color = palette.ink(shade);
  });
  return button;
}

export function otherWords(live) {
  const positions = h("p", { class: "flow positions" });
  const list = h("ul", { class: "others bars" });
  let place = 0;
  const choose = (step) => {
    place = step;
    show(live.values);
  };
  function show({ look }) {
    if (!look) return;
    place = Math.min(place, look.steps.length - 1);
    const written = look.steps.map((step) => step.written.id);
    const focused = positions.contains(document.activeElement);
    positions.replaceChildren(...look.steps.map((step, at) => h("button", { type: "button", class: "chip", "aria-pressed": String(at === place), onclick: () => choose(at) }, quoted(step.written.piece).firstChild)));
    if (focused) positions.children[place]?.focus();
    const force = (id) => () => live.set({ prefix: [...written.slice(0, place), id] });
    list.replaceChildren(
      ...look.steps[place].candidates.filter(({ id }) => id > 2).map(({ id, piece, probability }) => {
        const bar = h("span", { class: "bar" }, h("span", { class: "fill", style: { width: `${100 * probability}%` } }));
        const button = h("button", { type: "button", class: "chip", disabled: id === written[place], onclick: force(id) }, quoted(piece).firstChild);
        return h("li", { class: id === written[place] ? "chosen" : "" }, h("span", {}, button), bar, h("span", { class: "number" }, percent(probability)));
      }),
    );
  }
  live.on(["look"], show);
  const note = say("Choose a position and then another word: the search continues after it.");
  return h("section", { class: "card" }, h("h3", {}, say("Force a word")), h("p", { class: "note" }, note), positions, list);
}
