// The translation: every word can be selected, and segments that somebody should check are marked.

import { h } from "./look/dom.js";
import { nameOf } from "./languages.js";
import { say, sayVerdict } from "./texts.js";
import { isSegment, joinParts, splitWords } from "./words.js";

export function outputView(store) {
  const view = new Output(store, document.getElementById("output"));
  store.on(["parts", "tongue", "target"], (values) => view.build(values));
  store.on(["parts", "selected"], (values) => view.showSelected(values));
  store.on(["focus"], ({ focus }) => view.focusAt(focus));
  store.on(["text", "translated", "source", "target", "problem"], ({ text, translated }) => {
    view.element.classList.toggle("is-old", translated !== text);
  });
  store.on(["via", "languages", "tongue"], ({ via, languages }) => {
    document.getElementById("model").textContent = via ? say("pivot", { language: nameOf(languages, via) }) : "";
  });
  copyView(store);
}

class Output {
  constructor(store, element) {
    Object.assign(this, { store, element, words: [] });
    element.addEventListener("click", (event) => this.choose(event.target.closest(".word")));
    element.addEventListener("keydown", (event) => this.press(event));
    element.addEventListener("pointerover", (event) => store.set({ hovered: this.find(event.target) }));
    element.addEventListener("pointerleave", () => store.set({ hovered: null }));
    element.addEventListener("focusin", (event) => store.set({ hovered: this.find(event.target) }));
  }

  build({ parts, target }) {
    this.words = [];
    this.element.setAttribute("aria-label", say("translation"));
    const shown = parts.map((part, index) => (isSegment(part) ? this.segment(part, index, target) : part));
    const notes = parts.flatMap((part, index) => note(part, index));
    const text = h("div", { class: "rows", lang: target || null, dir: "auto" }, ...shown);
    this.element.replaceChildren(parts.length ? text : h("p", { class: "nothing" }, say("nothing")), ...notes);
    if (this.words.length) this.words[0].element.tabIndex = 0;
  }

  segment(part, index, language) {
    const children = [];
    let end = 0;
    const words = part.place ? splitWords(part.text, language) : [];
    for (const word of words) {
      children.push(part.text.slice(end, word[0]), this.word(part, index, word));
      end = word[1];
    }
    const needsCheck = unsound(part);
    const marks = needsCheck ? { class: "segment check", "aria-describedby": `check-${index}` } : { class: "segment" };
    return h("span", marks, ...children, part.text.slice(end));
  }

  word(part, index, word) {
    const element = h("span", { class: "word", role: "button", tabindex: "-1", "aria-expanded": "false" }, part.text.slice(...word));
    this.words.push({ element, part: index, word });
    return element;
  }

  find(element) {
    return this.words.find((each) => each.element === element) ?? null;
  }

  choose(element) {
    const found = this.find(element);
    if (!found) return;
    const isSame = element.getAttribute("aria-expanded") === "true";
    this.store.set({ selected: isSame ? null : { part: found.part, word: found.word } });
    this.focus(element);
  }

  focus(element) {
    for (const each of this.words) each.element.tabIndex = each.element === element ? 0 : -1;
    element.focus();
  }

  // The word at a place of a segment, after that was changed.
  focusAt(focus) {
    const found = focus && this.words.find(({ part, word }) => part === focus.part && word[1] > focus.place);
    if (found) this.focus(found.element);
  }

  press(event) {
    const at = this.words.findIndex((each) => each.element === event.target);
    if (at < 0) return;
    if (event.key === "Enter" || event.key === " ") this.choose(event.target);
    else if (event.key === "Escape" && this.store.values.selected) this.store.set({ selected: null });
    else {
      const next = this.words[this.reach(event.key, at)]?.element;
      if (!next) return;
      this.focus(next);
    }
    event.preventDefault();
  }

  // Where an arrow key leads from a word: the next one, or the nearest of the line above or below.
  reach(key, at) {
    const steps = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: this.words.length - 1 };
    if (key in steps) return steps[key];
    const down = { ArrowDown: 1, ArrowUp: -1 }[key];
    if (!down) return -1;
    const box = (index) => this.words[index].element.getBoundingClientRect();
    const [here, far] = [box(at), (index) => Math.abs(box(index).left - box(at).left)];
    const beyond = this.words.map((_, index) => index).filter((index) => down * (box(index).top - here.top) > 4);
    const nearest = Math.min(...beyond.map((index) => Math.abs(box(index).top - here.top)));
    const line = beyond.filter((index) => Math.abs(box(index).top - here.top) < nearest + 4);
    return line.sort((one, other) => far(one) - far(other))[0] ?? -1;
  }

  showSelected({ selected }) {
    for (const { element, part, word } of this.words) {
      const isOpen = selected?.part === part && selected.word[0] === word[0];
      element.setAttribute("aria-expanded", String(isOpen));
    }
  }
}

function unsound(part) {
  return isSegment(part) && part.verdict && !part.verdict.is_sound && sayVerdict(part.verdict.name) !== null;
}

function note(part, index) {
  if (!unsound(part)) return [];
  const start = part.text.length > 34 ? `${part.text.slice(0, 32)}…` : part.text;
  const what = sayVerdict(part.verdict.name);
  return [h("p", { class: "note-check", id: `check-${index}`, title: part.verdict.reason || null }, say("check", { text: start, what }))];
}

function copyView(store) {
  const button = document.getElementById("copy");
  let timer = 0;
  store.on(["parts"], ({ parts }) => (button.hidden = !parts.length));
  button.addEventListener("click", async () => {
    const done = await copyText(joinParts(store.values.parts));
    button.textContent = say(done ? "copied" : "notCopied");
    document.getElementById("heard").textContent = button.textContent;
    clearTimeout(timer);
    timer = setTimeout(() => (button.textContent = say("copy")), 1800);
  });
}

// The clipboard of scripts exists only on https and on this machine; elsewhere the text is selected and copied as by hand.
async function copyText(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text).then(() => true, () => false);
  const area = h("textarea", { class: "unseen", readonly: true });
  area.value = text;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}
