// Beam search as a tree: one column per step, the most likely branch at the top.

import { isSpecial, readablePiece } from "./data.js";
import { h, signed, svg, tokenElement } from "./dom.js";

const STEP_WIDTH = 122;
const BRANCH_HEIGHT = 26;
const BRANCH_WIDTH = 102;

// How a branch is marked, besides its colour.
const MARKS = { "fell out": "×", "ended too low": "×", "crowded out": "×", ended: "■", chosen: "✓", overtaken: "…", "length limit": "|" };

export function treeView(store, data) {
  const branches = data.beam;
  const steps = Math.max(...branches.map((branch) => branch.step));
  const rank = ranks(branches);
  const band = svg("rect", { class: "band", y: 0, width: STEP_WIDTH, height: "100%" });
  const nodes = branches.map((branch, number) => node(branch, number));
  const height = BRANCH_HEIGHT * (Math.max(...rank) + 1) + 8;
  const picture = svg(
    "svg",
    { width: STEP_WIDTH * steps + 12, height, role: "img", "aria-label": "beam search as a tree; the table below lists the branches of the chosen step" },
    band,
    ...branches.map(edge),
    ...nodes,
  );
  const scroll = h("div", { class: "scroll tree", tabindex: "0", role: "region", "aria-label": "beam tree" }, picture);
  const rows = h("tbody", {});
  const head = h("tr", {}, ...["", "so far", "log-prob.", "score", "outcome"].map((text) => h("th", { scope: "col" }, text)));
  const table = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "branches of this step" }, h("table", { class: "plain beam" }, h("thead", {}, head), rows));

  function node(branch, number) {
    const [x, y] = place(number);
    const kind = branch.best ? "best" : branch.fate.replaceAll(" ", "-");
    const mark = MARKS[branch.fate] ?? "";
    const full = readablePiece(branch.piece);
    const text = svg("text", { x: x + 6, y: y + 14, class: isSpecial(branch.piece) ? "special" : null }, [...full].length > 10 ? `${[...full].slice(0, 9).join("")}…` : full);
    const sign = svg("text", { x: x + BRANCH_WIDTH - 5, y: y + 14, class: "mark", "text-anchor": "end" }, mark);
    const title = svg("title", {}, `${full}: ${signed(branch.total)}, ${data.fates[branch.fate]}`);
    const group = svg("g", { class: `node ${kind}` }, title, svg("rect", { x, y, width: BRANCH_WIDTH, height: 20, rx: 4 }), text, sign);
    group.addEventListener("click", () => store.set({ step: Math.min(branch.step, data.steps.length) - 1, branch: number }));
    return group;
  }

  function place(number) {
    return [STEP_WIDTH * (branches[number].step - 1) + 10, BRANCH_HEIGHT * rank[number] + 6];
  }

  function edge(branch, number) {
    if (branch.parent < 0) return svg("path", {});
    const [[fromX, fromY], [toX, toY]] = [place(branch.parent), place(number)];
    const [startX, startY, endX, endY] = [fromX + BRANCH_WIDTH, fromY + 10, toX, toY + 10];
    const middle = (startX + endX) / 2;
    const kind = branch.best ? "best" : ["continued", "chosen", "ended"].includes(branch.fate) ? "alive" : "dead";
    return svg("path", { class: `edge ${kind}`, d: `M${startX},${startY} C${middle},${startY} ${middle},${endY} ${endX},${endY}` });
  }

  function soFar(number) {
    const pieces = [];
    for (let at = number; at >= 0; at = branches[at].parent) pieces.unshift(branches[at].piece);
    const text = pieces.slice(0, -1).map((piece, at) => (piece.startsWith("\u2581") ? (at ? " " : "") + piece.slice(1) : piece)).join("");
    return h("td", { class: "so-far" }, h("bdi", { class: "past" }, text), " ", tokenElement(pieces.at(-1)));
  }

  function show({ step, branch }) {
    const now = Math.min(step + 1, steps);
    band.setAttribute("x", STEP_WIDTH * (now - 1));
    const here = branches.map((each, number) => [each, number]).filter(([each]) => each.step === now);
    here.sort((a, b) => rank[a[1]] - rank[b[1]]);
    rows.replaceChildren(
      ...here.map(([each, number], place) =>
        h(
          "tr",
          { class: [each.best ? "best" : "", number === branch ? "marked" : ""].join(" ") },
          h("td", {}, String(place + 1)),
          soFar(number),
          h("td", { class: "number" }, signed(each.total)),
          h("td", { class: "number" }, signed(each.score)),
          h("td", {}, `${MARKS[each.fate] ?? ""} ${each.best && each.fate === "continued" ? "leads to the translation" : data.fates[each.fate]}`.trim()),
        ),
      ),
    );
    scroll.scrollTo({ left: STEP_WIDTH * (now - 0.5) - scroll.clientWidth / 2 });
  }

  store.on(["step", "branch"], show);
  return h("div", {}, treeLegend(), scroll, table);
}

function treeLegend() {
  const entries = [
    ["best", "✓", "the translation"],
    ["continued", "", "kept in the beam"],
    ["fell-out", "×", "pruned"],
    ["ended", "■", "finished, but another scored better"],
    ["overtaken", "…", "could no longer win"],
  ];
  return h("p", { class: "tree-legend" }, ...entries.map(([kind, mark, text]) => h("span", {}, h("i", { class: kind, "aria-hidden": "true" }, mark), text)));
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
