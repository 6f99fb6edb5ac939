// The residual stream of one position: what enters a stack, and the sum after every sub-layer.

import { h, signed } from "../dom.js";
import { say } from "../words.js";
import { largestSize, smallStrip } from "./strip.js";

const NAMES = { embedding: "embedding + position", self: "self-attention", cross: "encoder-decoder attention", feed: "feed-forward" };

export function streamSection(live, ask) {
  const body = h("tbody", {});
  const title = h("h3", {});
  let asked = 0;
  live.on(["look", "focus", "palette"], ({ look, focus, palette }) => {
    if (!look) return;
    const mine = ++asked;
    const stack = focus.use === "encoder" ? "encoder" : "decoder";
    const position = Math.min(focus.position, (stack === "encoder" ? look.source : look.steps).length - 1);
    ask("stream", { stack, position }, (_, stream) => {
      if (mine !== asked) return;
      title.textContent = say(stack === "encoder" ? "Encoder, position {place}" : "Decoder, position {place}", { place: position + 1 });
      body.replaceChildren(...streamRows(stream, palette));
    });
  });
  const columns = [say("layer"), say("after"), say("the stream, d_model numbers"), "|x|", say("|added|"), say("cosine to the row above")];
  const table = h("table", { class: "plain stream" }, h("thead", {}, h("tr", {}, ...columns.map((name) => h("th", { scope: "col" }, name)))), body);
  const note = say("One vector passes through all layers, and every sub-layer adds to it. Where a row looks like the one above, that sub-layer changed little.");
  return h("section", { class: "card" }, title, h("p", { class: "note" }, note), h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": say("the vectors of the residual stream") }, table));
}

function streamRows({ points }, palette) {
  const most = largestSize(...points.map((point) => point.vector));
  return points.map(({ name, layer, vector, added }, at) =>
    h(
      "tr",
      {},
      h("td", {}, layer < 0 ? "" : String(layer + 1)),
      h("th", { scope: "row" }, say(NAMES[name])),
      h("td", { class: "wide" }, smallStrip(vector, most, palette)),
      h("td", { class: "number" }, signed(lengthOf(vector), 1)),
      h("td", { class: "number" }, added ? signed(lengthOf(added), 1) : ""),
      h("td", { class: "number" }, at ? signed(cosineOf(vector, points[at - 1].vector)) : ""),
    ),
  );
}

const inner = (left, right) => left.reduce((sum, value, at) => sum + value * right[at], 0);
const lengthOf = (vector) => Math.sqrt(inner(vector, vector));
const cosineOf = (left, right) => inner(left, right) / (lengthOf(left) * lengthOf(right) || 1);
