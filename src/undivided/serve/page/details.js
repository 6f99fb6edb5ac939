// Below the translation: other words for the selected one, what it was read from, and other translations of its sentence.

import { isCancelled, look, Refusal, translate } from "./api.js";
import { openInside } from "./inside.js";
import { actualSource } from "./languages.js";
import { h, percent } from "./look/dom.js";
import { describeProblem, sayProblem } from "./problems.js";
import { say } from "./texts.js";
import { nBest } from "./translating.js";
import { isSegment, overlap, placeTokens, readFrom, splitWords, stepOfWord } from "./words.js";

const CHOICES = 6;
const LEAST_PROBABILITY = 0.0005;
// Smaller shares of attention are not worth a mark.
const LEAST_SHARE = 0.04;

export function detailsView(store) {
  const view = new Details(store, document.getElementById("details"));
  store.on(["parts", "selected", "tongue"], () => view.show());
  store.on(["hovered"], (values) => view.markHovered(values));
}

class Details {
  constructor(store, element) {
    Object.assign(this, { store, element, running: new AbortController(), shown: null });
    element.addEventListener("keydown", (event) => event.key === "Escape" && store.set({ selected: null }));
  }

  show() {
    const { parts, selected } = this.store.values;
    this.running.abort();
    this.running = new AbortController();
    this.store.set({ marks: [] });
    const segments = parts.filter((part) => isSegment(part) && part.place);
    if (selected) this.showWord(parts[selected.part], selected.word);
    else if (segments.length === 1) this.element.replaceChildren(...this.sentences(segments[0], segments[0].alternatives), this.hint());
    else this.element.replaceChildren(...(segments.length ? [this.hint()] : []));
  }

  hint() {
    const undo = this.store.values.parts.some((part) => part.before?.length);
    const back = h("button", { type: "button", class: "quiet", onclick: () => this.undo() }, say("undo"));
    return h("p", { class: "hint" }, say("wordHint"), undo ? back : null);
  }

  // Whole sentences, as the search ranked them.
  sentences(part, alternatives = []) {
    const others = [...new Set(alternatives.map(({ text }) => text))].filter((text) => text !== part.text);
    if (!others.length) return [];
    const rows = others.map((text) => {
      const changed = differsFrom(text, part.text);
      const pieces = [text.slice(0, changed[0]), h("b", {}, text.slice(...changed)), text.slice(changed[1])];
      return h("li", {}, h("button", { type: "button", onclick: () => this.replace(part, text, null) }, ...pieces));
    });
    const language = this.store.values.target;
    return [h("h3", {}, say("sentences")), h("ul", { class: "sentences", lang: language }, ...rows)];
  }

  async showWord(part, word) {
    const { signal } = this.running;
    const others = h("div", { class: "choices" }, h("p", { class: "loading" }, say("loading")));
    const read = h("div", { class: "read" });
    const more = h("div", {});
    const title = h("h3", {}, say("otherWords", { word: part.text.slice(...word) }));
    this.element.replaceChildren(h("section", { class: "word-card", "aria-label": title.textContent }, title, others, this.ownWords(part, word), read), more);
    try {
      const seen = await this.lookAt(part);
      if (signal.aborted) return;
      this.showRead(read, part, seen, word);
      const choices = await this.choicesFor(part, word, signal);
      if (signal.aborted) return;
      this.showChoices(others, part, word, choices);
      part.alternatives ??= (await translate({ q: part.source, ...this.pair(), n_best: nBest(this.store.values.settings) }, signal)).translations[0].alternatives;
      if (!signal.aborted) more.replaceChildren(...this.sentences(part, part.alternatives));
    } catch (error) {
      if (isCancelled(error) || signal.aborted) return;
      const problem = describeProblem(error instanceof Refusal ? error : new Refusal(undefined, ""));
      others.replaceChildren(h("p", { class: "loading", role: "alert" }, sayProblem(problem)));
    }
  }

  pair() {
    return { source: actualSource(this.store.values), target: this.store.values.target };
  }

  request(part) {
    return { q: part.source, ...this.pair() };
  }

  // The look at the translation of a segment as it stands; asked once for each.
  async lookAt(part) {
    if (part.look?.of !== part.text) {
      const answer = await look({ ...this.request(part), translation: part.text }, this.running.signal);
      part.look = {
        ...answer,
        of: part.text,
        targetPlaces: placeTokens(answer.steps, part.text, answer.words.target),
        sourcePlaces: placeTokens(answer.tokens, part.source, answer.words.source),
        sourceWords: splitWords(part.source, actualSource(this.store.values)),
      };
    }
    return part.look;
  }

  showRead(element, part, seen, word) {
    const open = h("button", { type: "button", class: "quiet", onclick: () => openInside(this.request(part), part.text) }, say("lookInside"));
    if (!seen.attention.length) return element.replaceChildren(h("p", { class: "hint" }, say("readNothing")));
    const { shares, rest } = readFrom(seen, word);
    const chips = shares.map((share, at) => ({ share, text: part.source.slice(...seen.sourceWords[at]) }));
    if (rest >= LEAST_SHARE) chips.push({ share: rest, text: say("end"), isEnd: true });
    const best = chips.filter(({ share }) => share >= LEAST_SHARE).sort((one, other) => other.share - one.share);
    const items = best.map(({ share, text, isEnd }) => {
      const item = h("li", { class: isEnd ? "end" : null }, h("bdi", {}, text), " ", h("small", {}, percent(share)));
      item.style.setProperty("--share", share.toFixed(3));
      return item;
    });
    element.replaceChildren(h("h3", {}, say("read")), h("ul", { class: "sources" }, ...items), open);
    this.mark(part, word);
  }

  // What else might be written for a word: at its first subword or, after the same beginning, at one of the next.
  async choicesFor(part, word, signal) {
    const { steps, targetPlaces } = part.look;
    const first = stepOfWord(targetPlaces, word);
    const inWord = (step) => targetPlaces[step] && overlap(targetPlaces[step], word) > 0;
    const places = [0, 1, 2].map((more) => first + more).filter((step) => first >= 0 && step < steps.length && inWord(step));
    const answers = places.map(async (step) => {
      const before = steps.slice(first, step).reduce((product, { probability }) => product * probability, 1);
      const prefix = steps.slice(0, step).map(({ id }) => id);
      const { choices } = await look({ ...this.request(part), prefix, step, choices: CHOICES }, signal);
      return choices.map((each) => ({ ...each, probability: before * each.probability }));
    });
    return (await Promise.all(answers)).flat().sort((one, other) => other.probability - one.probability);
  }

  // Mark the words of the text that a word was read from, as far as its sentence was looked at.
  mark(part, word) {
    const seen = part?.look?.of === part?.text ? part?.look : null;
    const shares = seen?.attention.length ? readFrom(seen, word).shares : [];
    const marks = shares.map((share, at) => ({ share, place: seen.sourceWords[at].map((place) => place + part.place[0]) }));
    this.store.set({ marks: marks.filter(({ share }) => share >= LEAST_SHARE) });
  }

  // While the pointer is on another word, that one's sources are marked.
  markHovered({ hovered, selected, parts }) {
    const shown = selected && (hovered ?? selected);
    if (shown) this.mark(parts[shown.part], shown.word);
  }

  showChoices(element, part, [place, end], choices) {
    const written = part.text.slice(place, end);
    // A subword that would change the words before it is no choice for this one.
    const begin = part.text.slice(0, place);
    const isOther = ({ translation, word }) => translation !== part.text && translation.startsWith(begin) && word && word !== written;
    const likely = choices.filter((each) => isOther(each) && each.probability >= LEAST_PROBABILITY);
    const others = likely.filter(({ word }, at) => likely.findIndex((each) => each.word === word) === at).slice(0, CHOICES);
    if (!others.length) return element.replaceChildren(h("p", { class: "hint" }, say("noOthers")));
    const rows = others.map(({ word, probability, translation }) => {
      const bar = h("span", { class: "bar", "aria-hidden": "true" });
      bar.style.setProperty("--share", probability.toFixed(4));
      const content = [h("b", {}, word), bar, h("small", {}, percent(probability)), h("span", { class: "rest" }, (place ? "… " : "") + translation.slice(place))];
      return h("li", {}, h("button", { type: "button", onclick: () => this.replace(part, translation, word) }, ...content));
    });
    element.replaceChildren(h("ul", { lang: this.store.values.target }, ...rows));
  }

  // Words that the model did not think of: it continues after them.
  ownWords(part, word) {
    const input = h("input", { type: "text", autocomplete: "off", "aria-label": say("own"), placeholder: say("own"), lang: this.store.values.target });
    const form = h("form", { class: "own" }, input, h("button", { type: "submit", class: "plain" }, say("ownGo")));
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const given = input.value.trim();
      if (!given) return;
      const prefix = part.text.slice(0, word[0]) + given;
      try {
        const answer = await translate({ ...this.request(part), prefix }, this.running.signal);
        this.replace(part, answer.translations[0].text, given);
      } catch (error) {
        if (error instanceof Refusal) this.store.set({ problem: describeProblem(error) });
      }
    });
    return form;
  }

  // Another translation of a segment, chosen by a person: no verdict of the model's holds for it.
  replace(part, text, word) {
    const place = differsFrom(text, part.text)[0];
    const changed = { ...part, text, verdict: null, look: null, before: [...(part.before ?? []), part] };
    this.swap(part, changed, place);
    if (word !== null) document.getElementById("heard").textContent = `${say("chosen", { word })} ${text}`;
  }

  undo() {
    const last = this.store.values.parts.findLast((part) => part.before?.length);
    if (last) this.swap(last, last.before.at(-1), 0);
  }

  swap(part, other, place) {
    const { parts } = this.store.values;
    const at = parts.indexOf(part);
    if (at >= 0) this.store.set({ parts: parts.with(at, other), selected: null, focus: { part: at, place } });
  }
}

// Where a text differs from another: from the first word that does to the last.
function differsFrom(text, other) {
  const isSpace = (at) => at < 0 || at >= text.length || /\s/.test(text[at]);
  const most = Math.min(text.length, other.length);
  let start = 0;
  while (start < most && text[start] === other[start]) start++;
  let tail = 0;
  while (tail < most - start && text.at(-1 - tail) === other.at(-1 - tail)) tail++;
  let end = text.length - tail;
  while (start > 0 && !isSpace(start - 1)) start--;
  while (end < text.length && !isSpace(end)) end++;
  return [start, Math.max(start, end)];
}
