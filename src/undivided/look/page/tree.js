// Beam search as a tree: one column per step, the most likely branch at the top.

import { isSpecial, readablePiece } from "./data.js";
import { h, scrollWhenShown, signed, svg, tokenElement } from "./dom.js";
import { say } from "./words.js";

const STEP_WIDTH = 122;
const BRANCH_HEIGHT = 26;
const BRANCH_WIDTH = 102;

// How a branch is marked, besides its colour.
const MARKS = { "fell out": "×", "ended too low": "×", "crowded out": "×", ended: "■", chosen: "✓", overtaken: "…", "length limit": "|" };

export function treeView(store, data) {
  return new TreeView(store, data).element;
}

class TreeView {
  constructor(store, data) {
    Object.assign(this, { store, data, branches: data.beam, rank: ranks(data.beam) });
    this.steps = Math.max(...this.branches.map((branch) => branch.step));
    this.band = svg("rect", { class: "band", y: 0, width: STEP_WIDTH, height: "100%" });
    const height = BRANCH_HEIGHT * (Math.max(...this.rank) + 1) + 8;
    const picture = svg(
      "svg",
      { width: STEP_WIDTH * this.steps + 12, height, role: "img", "aria-label": say("beam search as a tree; the table below lists the branches of the chosen step") },
      this.band,
      ...this.branches.map((branch, number) => this.edge(branch, number)),
      ...this.branches.map((branch, number) => this.node(branch, number)),
    );
    this.scroll = h("div", { class: "scroll tree", tabindex: "0", role: "region", "aria-label": say("beam tree") }, picture);
    const current = () => Math.min(store.values.step + 1, this.steps);
    this.centre = scrollWhenShown(store, this.scroll, () => this.scroll.scrollTo({ left: STEP_WIDTH * (current() - 0.5) - this.scroll.clientWidth / 2 }));
    this.rows = h("tbody", {});
    const head = h("tr", {}, ...["#", "so far", "log-prob.", "score", "outcome"].map((text) => h("th", { scope: "col" }, say(text))));
    const table = h("table", { class: "plain beam" }, h("thead", {}, head), this.rows);
    const region = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": say("branches of this step") }, table);
    this.element = h("div", {}, treeLegend(), this.scroll, region);
    store.on(["step", "branch"], (values) => this.show(values));
  }

  node(branch, number) {
    const [x, y] = this.corner(number);
    const kind = branch.best ? "best" : branch.fate.replaceAll(" ", "-");
    const full = readablePiece(branch.piece);
    const text = svg("text", { x: x + 6, y: y + 14, class: isSpecial(branch.piece) ? "special" : null }, [...full].length > 10 ? `${[...full].slice(0, 9).join("")}…` : full);
    const mark = svg("text", { x: x + BRANCH_WIDTH - 5, y: y + 14, class: "mark", "text-anchor": "end" }, MARKS[branch.fate] ?? "");
    const title = svg("title", {}, `${full}: ${signed(branch.total)}, ${say(this.data.fates[branch.fate])}`);
    const group = svg("g", { class: `node ${kind}` }, title, svg("rect", { x, y, width: BRANCH_WIDTH, height: 20, rx: 4 }), text, mark);
    group.addEventListener("click", () => this.store.set({ step: Math.min(branch.step, this.data.steps.length) - 1, branch: number }));
    return group;
  }

  // The upper left corner of a node.
  corner(number) {
    return [STEP_WIDTH * (this.branches[number].step - 1) + 10, BRANCH_HEIGHT * this.rank[number] + 6];
  }

  edge(branch, number) {
    if (branch.parent < 0) return svg("path", {});
    const [[fromX, fromY], [toX, toY]] = [this.corner(branch.parent), this.corner(number)];
    const [startX, startY, endX, endY] = [fromX + BRANCH_WIDTH, fromY + 10, toX, toY + 10];
    const middle = (startX + endX) / 2;
    const kind = branch.best ? "best" : ["continued", "chosen", "ended"].includes(branch.fate) ? "alive" : "dead";
    return svg("path", { class: `edge ${kind}`, d: `M${startX},${startY} C${middle},${startY} ${middle},${endY} ${endX},${endY}` });
  }

  show({ step, branch }) {
    const current = Math.min(step + 1, this.steps);
    this.band.setAttribute("x", STEP_WIDTH * (current - 1));
    const numbers = [...this.branches.keys()].filter((number) => this.branches[number].step === current);
    numbers.sort((a, b) => this.rank[a] - this.rank[b]);
    this.rows.replaceChildren(...numbers.map((number, place) => this.row(number, place, number === branch)));
    this.centre();
  }

  row(number, place, selected) {
    const branch = this.branches[number];
    const outcome = branch.best && branch.fate === "continued" ? say("leads to the translation") : say(this.data.fates[branch.fate]);
    return h(
      "tr",
      { class: [branch.best ? "best" : "", selected ? "marked" : ""].join(" ") },
      h("td", {}, String(place + 1)),
      this.tokensSoFar(number),
      h("td", { class: "number" }, signed(branch.total)),
      h("td", { class: "number" }, signed(branch.score)),
      h("td", {}, `${MARKS[branch.fate] ?? ""} ${outcome}`.trim()),
    );
  }

  tokensSoFar(number) {
    const pieces = [];
    for (let at = number; at >= 0; at = this.branches[at].parent) pieces.unshift(this.branches[at].piece);
    const text = pieces.slice(0, -1).map((piece, at) => (piece.startsWith("\u2581") ? (at ? " " : "") + piece.slice(1) : piece)).join("");
    return h("td", { class: "so-far" }, h("bdi", { class: "past" }, text), " ", tokenElement(pieces.at(-1)));
  }
}

function treeLegend() {
  const entries = [
    ["best", "✓", "the translation"],
    ["continued", "", "kept in the beam"],
    ["fell-out", "×", "pruned"],
    ["ended", "■", "finished, but another scored better"],
    ["overtaken", "…", "could no longer win"],
  ];
  return h("p", { class: "tree-legend" }, ...entries.map(([kind, mark, text]) => h("span", {}, h("i", { class: kind, "aria-hidden": "true" }, mark), say(text))));
}

// The rank of each branch among those of its step, by log-probability.
function ranks(branches) {
  const result = [];
  const steps = new Map();
  branches.forEach((branch, number) => steps.set(branch.step, [...(steps.get(branch.step) ?? []), number]));
  for (const numbers of steps.values()) {
    numbers.sort((a, b) => branches[b].total - branches[a].total).forEach((number, place) => (result[number] = place));
  }
  return result;
}
