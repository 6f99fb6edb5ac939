// The page of an encoder (BERT): words are hidden by a click, and the model says what they may be; or what class a text has.

import { attentionSection } from "../attention.js";
import { readablePiece } from "../data.js";
import { candidates, lensCard } from "../decoding.js";
import { card, h, percent, quoted } from "../dom.js";
import { embeddingsSection, positionsSection } from "../space.js";
import { part } from "../view.js";
import { say, sayParts } from "../words.js";
import { lookSections, mountLive } from "./app.js";
import { asTrained } from "./changes.js";
import { classCard, modelPanel, stackChanges, stackFacts, stackFigure, stackFocus, stackHeader, stackSections, textInput, tokenChips } from "./single.js";

const ENCODER_VIEWS = [["Attention", attentionSection], ["Positions", positionsSection], ["Embeddings", embeddingsSection]];

const HIDDEN_VIEWS = [["Hidden words", hiddenWords], ...ENCODER_VIEWS];

const ENCODER = {
  focus: stackFocus,
  // The second word is hidden at first, so that there is something to see.
  first: (about) => ({ hidden: about.classes.length ? [] : [1] }),
  keys: ["text", "hidden", "off", "positions", "scale"],
  question: ({ text, hidden, ...values }) => ({ text, hidden, changes: stackChanges(values) }),
  facts: stackFacts,
  figure: stackFigure,
  parts: encoderParts,
};

export function mountMasked(element) {
  mountLive(element, ENCODER);
}

function encoderParts(page, rebuild) {
  const { live, about } = page;
  const classes = about.classes.length > 0;
  const views = classes ? ENCODER_VIEWS : HIDDEN_VIEWS;
  const shown = lookSections(page, views);
  const found = classes ? part(say("Classes"), classCard(live)) : shown[0];
  const [attention, positions, embeddings] = shown.slice(-3);
  const [oneHead, stream, whatIf] = stackSections(page, { decoding: found, positions, embeddings });
  const tryIt = part(say("Try it"), modelPanel(live, about, () => live.set(asTrained(about.search))));
  return { header: encoderHeader(page, rebuild), sections: [found, attention, oneHead, stream, tryIt, whatIf(), positions, embeddings] };
}

function encoderHeader(page, rebuild) {
  const { live, about } = page;
  const classes = about.classes.length > 0;
  const row = h("p", { class: "flow words-to-hide", role: "group", "aria-label": say("words; click one to hide it") });
  live.on(["look"], ({ look }) => look && !classes && fillWords(row, live, look));
  const done = ({ look }) => (classes ? classText(look) : hiddenText(look));
  return stackHeader(
    page,
    rebuild,
    { empty: classes ? say("Type a text; its class is found as you type.") : say("Type a sentence, then click a word to hide it."), done },
    textInput(page, say("text")),
    classes ? null : h("p", { class: "note" }, say("Click a word to hide it, or to show it again: the model guesses what stands there from both sides.")),
    classes ? null : row,
  );
}

// A button for each word; a hidden one shows what training puts in its place.
function fillWords(row, live, look) {
  const focused = [...row.children].indexOf(document.activeElement);
  row.replaceChildren(
    ...look.words.map((places, word) => {
      const text = places.map((place) => look.tokens[place].piece).join("").replaceAll("\u2581", " ").trim() || "␣";
      const hidden = live.values.hidden.includes(word);
      const toggle = () => {
        // The candidates of a word that is hidden now are what one wants to see next.
        if (!hidden) live.values.view?.set({ step: places[0] });
        live.set({ hidden: hidden ? live.values.hidden.filter((each) => each !== word) : [...live.values.hidden, word] });
      };
      return h("button", { type: "button", class: "chip", "aria-pressed": String(hidden), "aria-label": hidden ? say("[MASK], hidden: {word}", { word: text }) : text, title: text, onclick: toggle }, hidden ? "[MASK]" : text);
    }),
  );
  row.children[focused]?.focus();
}

function classText(look) {
  const best = look.classes.reduce((one, other) => (other.probability > one.probability ? other : one));
  return say("Class: {name}, {probability}", { name: best.name, probability: percent(best.probability) });
}

function hiddenText(look) {
  if (!look.hidden.length) return say("No word is hidden.");
  const right = look.hidden.filter((place) => look.steps[place].rank === 1).length;
  return say("Hidden subwords: {count}, guessed right: {right}", { count: look.hidden.length, right });
}

// The candidates at a position, by the model and by each of its layers.
function hiddenWords(store, data) {
  const chips = h("p", { class: "flow positions" });
  const title = h("h3", {});
  if (data.hidden.length && !data.hidden.includes(store.values.step)) store.set({ step: data.hidden[0] });
  store.on(["step"], ({ step }) => {
    const focused = chips.contains(document.activeElement);
    chips.replaceChildren(...tokenChips(data.sourcePieces, step, (at) => store.set({ step: at })));
    if (focused) chips.children[step]?.focus();
    const now = data.steps[step];
    title.replaceChildren(...sayParts("Position {place}: {token} has {probability}", { place: String(step + 1), token: quoted(now.written.piece), probability: percent(now.probability) }));
  });
  const note = say("The likeliest subwords at the chosen position; the one that stands there in the text is bold. Of a hidden word the model sees the mask alone.");
  const guesses = h("section", { class: "card" }, title, h("p", { class: "note" }, note), candidates(store, data));
  const summary = data.hidden.length ? card(say("Best guesses"), null, guessList(data)) : null;
  return h("div", {}, chips, h("div", { class: "columns" }, h("div", { class: "stacked" }, guesses, summary), lensCard(store, data)));
}

function guessList(data) {
  const items = data.hidden.map((place) => {
    const { written, candidates: [best] } = data.steps[place];
    const verdict = best.id === written.id ? "✓" : `≠ ${readablePiece(written.piece)}`;
    return h("li", {}, quoted(best.piece), ` ${percent(best.probability)} ${verdict}`);
  });
  return h("ol", { class: "guesses" }, ...items);
}
