// Curves of a training: the numbers of its log by step, with a line at the step that is shown.

import { choice, h, svg } from "../dom.js";
import { say } from "../words.js";

const CHART_WIDTH = 400;
const CHART_HEIGHT = 120;

// The name of a curve; numbers of a validation are named by their metric.
const NAMES = {
  loss: "loss", perplexity: "perplexity", "learning rate": "learning rate", "gradient norm": "gradient norm",
  "validation BLEU": "validation BLEU",
  "log-probability of the fixed translation": "log-probability of the fixed translation",
  "chrF of the translation": "chrF of the translation",
};

export function curvesSection(store, raw) {
  const own = [
    { name: "log-probability of the fixed translation", points: raw.frames.map((frame) => [frame.step, frame.log_probability]) },
    { name: "chrF of the translation", points: raw.frames.map((frame) => [frame.step, frame.chrf]) },
  ];
  const last = Math.max(1, raw.frames.at(-1).step, ...raw.curves.flatMap((curve) => curve.points.map(([step]) => step)));
  const charts = [...own, ...raw.curves].map((curve) => chart(store, raw, curve, last));
  const spacing = choice(say("Steps"), [["linear", say("linear")], ["logarithmic", say("logarithmic")]], store.values.spacing, (value) => store.set({ spacing: value }));
  const missing = raw.curves.length ? null : h("p", { class: "note" }, say("This run has no log: log.jsonl is missing or empty."));
  return h("div", {}, h("div", { class: "controls" }, spacing.element), missing, h("div", { class: "charts" }, ...charts));
}

// So few points are also drawn as dots.
const FEW = 30;

// Where a step lies between 0 and 1. On the logarithmic scale the first hundred steps are not stretched further.
export function placeOf(step, last, spacing) {
  return spacing === "linear" ? step / last : Math.log1p(step / 100) / Math.log1p(last / 100);
}

function chart(store, raw, { name, points, logarithmic }, last) {
  const values = points.map(([, value]) => (logarithmic ? Math.log(value) : value));
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const line = svg("polyline", {});
  const dots = svg("path", { class: "points" });
  const marker = svg("path", { class: "marker" });
  const picture = svg("svg", { class: "chart", viewBox: `0 0 ${CHART_WIDTH} ${CHART_HEIGHT}`, preserveAspectRatio: "none", role: "img" }, marker, line, dots);
  const now = h("output", {});
  const title = say(NAMES[name] ?? name);
  const y = (at) => CHART_HEIGHT - 6 - ((values[at] - low) / (high - low || 1)) * (CHART_HEIGHT - 12);
  store.on(["spacing"], ({ spacing }) => {
    const places = points.map(([step], at) => `${CHART_WIDTH * placeOf(step, last, spacing)},${y(at)}`);
    line.setAttribute("points", places.join(" "));
    dots.setAttribute("d", points.length > FEW ? "" : places.map((place) => `M${place} h0`).join(" "));
  });
  store.on(["spacing", "frame"], ({ spacing, frame }) => {
    const { step } = raw.frames[frame];
    const x = CHART_WIDTH * placeOf(step, last, spacing);
    const at = lastUpTo(points, step);
    marker.setAttribute("d", `M${x},0 V${CHART_HEIGHT}`);
    now.textContent = at < 0 ? "–" : shortNumber(points[at][1]);
    const label = at < 0 ? say("not measured yet at step {step}", { step }) : say("{value} at step {step}", { value: shortNumber(points[at][1]), step: points[at][0] });
    picture.setAttribute("aria-label", `${title}: ${label}`);
  });
  const ends = h("div", { class: "chart-ends" }, h("span", {}, "0"), h("span", {}, say("step {step}", { step: last.toLocaleString("en") })));
  const range = h("div", { class: "chart-range", "aria-hidden": "true" }, h("span", {}, shortNumber(logarithmic ? Math.exp(high) : high)), h("span", {}, shortNumber(logarithmic ? Math.exp(low) : low)));
  return h("section", { class: "card" }, h("h3", {}, title, " ", now), h("div", { class: "chart-box" }, range, picture), ends, numbersTable(title, points));
}

// The place of the last point that is not after a step; −1 where there is none.
function lastUpTo(points, step) {
  let found = -1;
  points.forEach(([each], at) => (found = each <= step ? at : found));
  return found;
}

export function shortNumber(value) {
  if (value !== 0 && (Math.abs(value) < 0.01 || Math.abs(value) >= 1e5)) return value.toExponential(2).replaceAll("-", "−");
  return value.toFixed(Math.abs(value) < 10 ? 3 : 1).replace("-", "−");
}

function numbersTable(title, points) {
  const body = h("tbody", {});
  const fill = () => body.replaceChildren(...points.map(([step, value]) => h("tr", {}, h("th", { scope: "row" }, String(step)), h("td", { class: "number" }, shortNumber(value)))));
  const table = h("table", { class: "plain" }, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, say("step of training")), h("th", { scope: "col" }, title))), body);
  return h("details", { ontoggle: fill }, h("summary", {}, say("Show as a table")), h("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": title }, table));
}
