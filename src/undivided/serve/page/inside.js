// The attention of every head for one sentence, in a dialog: the view of `undivided look`.

import { isCancelled, look } from "./api.js";
import { attentionSection } from "./look/attention.js";
import { palette } from "./look/colour.js";
import { tensor } from "./look/data.js";
import { h } from "./look/dom.js";
import { createStore } from "./look/store.js";
import { setLanguage } from "./look/words.js";
import { describeProblem, sayProblem } from "./problems.js";
import { say, tongue } from "./texts.js";
import { isDark } from "./top.js";

const USES = { encoder: "encoder self-attention", decoder: "decoder self-attention", cross: "encoder-decoder attention" };

export async function openInside(request, translation) {
  const dialog = document.getElementById("inside");
  const running = new AbortController();
  const content = h("div", {}, h("p", { class: "loading" }, say("loading")));
  const close = h("button", { type: "button", class: "plain", onclick: () => dialog.close() }, say("close"));
  dialog.replaceChildren(h("header", {}, h("h2", { id: "inside-title" }, say("insideTitle")), close), content);
  dialog.onclose = () => running.abort();
  dialog.showModal();
  try {
    const answer = await look({ ...request, translation, heads: true }, running.signal);
    setLanguage(tongue());
    const store = viewStore(answer);
    dialog.addEventListener("close", () => store.cleanups.forEach((cleanUp) => cleanUp()), { once: true });
    content.replaceChildren(h("div", { class: "look" }, attentionSection(store, store.data)));
  } catch (error) {
    if (!isCancelled(error)) content.replaceChildren(h("p", { role: "alert" }, sayProblem(describeProblem(error))));
  }
}

// What the view of `look` reads, made from an answer of the server.
function viewStore({ tokens, steps, heads, remark }) {
  const source = tokens.map(({ piece }) => piece);
  const written = steps.map(({ piece }) => piece);
  const read = ["<s>", ...written.slice(0, -1)];
  const attention = Object.fromEntries(Object.keys(USES).map((use) => [use, tensor(heads[use])]));
  const useNames = Object.keys(USES).filter((use) => attention[use].shape[0] > 0);
  const use = useNames.includes("cross") ? "cross" : (useNames[0] ?? null);
  const [layers, count] = use ? attention[use].shape : [1, 0];
  const store = createStore({
    use,
    layer: layers - 1,
    heads: Array.from({ length: count }, (_, head) => head),
    hover: null,
    pinned: null,
    step: 0,
    palette: palette(isDark()),
  });
  store.data = {
    uses: USES,
    useNames,
    attention,
    remark,
    written,
    rows: (name) => ({ encoder: source, decoder: read, cross: written })[name],
    columns: (name) => (name === "decoder" ? read : source),
    masked: (name, row, column) => name === "decoder" && column > row,
  };
  return store;
}
