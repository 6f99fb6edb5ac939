// Translation as one types: a moment after the last key, and what is not wanted any more is cancelled.

import { apiKey, isCancelled, Refusal, translate } from "./api.js";
import { describeProblem } from "./problems.js";
import { addToHistory } from "./kept.js";
import { actualSource } from "./languages.js";
import { say } from "./texts.js";
import { joinParts, readSegments } from "./words.js";
import { countCharacters } from "./writing.js";

const SETTLED = 1600;
const MOST_ALTERNATIVES = 3;

// How many translations to ask for: the best, and as many others as the server allows.
export function nBest({ alternativesLimit: limit }) {
  return 1 + (limit < 0 ? MOST_ALTERNATIVES : Math.min(MOST_ALTERNATIVES, limit));
}

export function startTranslating(store) {
  const heard = document.getElementById("heard");
  let running = new AbortController();
  let [timer, notBefore, settled] = [0, 0, 0];

  function schedule(pause) {
    clearTimeout(timer);
    running.abort();
    const { text, target, settings } = store.values;
    if (!text.trim() || !target) return empty();
    if (settings.keyRequired && !apiKey()) return store.set({ problem: { key: "keyNeeded" } });
    if (isTooLong(text)) return;
    store.set({ isBusy: true, selected: null });
    timer = setTimeout(run, Math.max(pause, notBefore - Date.now()));
  }

  function empty() {
    store.set({ parts: [], translated: "", via: null, detected: null, isBusy: false, selected: null });
    if (!store.values.text.trim() && store.values.languages.length) store.set({ problem: null });
  }

  function isTooLong(text) {
    const [count, limit] = [countCharacters(text), store.values.settings.charLimit];
    const isOver = limit > 0 && count > limit;
    if (isOver) store.set({ problem: { key: "tooLong", values: { count, limit } }, isBusy: false, selected: null });
    return isOver;
  }

  async function run() {
    const { text, source, target, settings } = store.values;
    running = new AbortController();
    const { signal } = running;
    try {
      const answer = await translate({ q: text, source, target, n_best: nBest(settings) }, signal);
      if (!signal.aborted) show(text, answer);
    } catch (error) {
      if (!isCancelled(error) && !signal.aborted) fail(error);
    }
  }

  function show(text, answer) {
    const [best] = answer.translations;
    const parts = readSegments(text, best);
    const segments = parts.filter((part) => typeof part !== "string");
    if (segments.length === 1) segments[0].alternatives = best.alternatives;
    const detected = answer.detected?.language ?? null;
    store.set({ parts, translated: text, via: answer.via, detected, isBusy: false, problem: null, selected: null });
    heard.textContent = best.text;
  }

  // A text that nobody writes on any more is kept.
  function remember() {
    const { text, translated, target, parts } = store.values;
    if (text !== translated || !parts.length) return;
    store.set({ history: addToHistory({ source: actualSource(store.values), target, text, translation: joinParts(parts) }) });
  }

  function fail(error) {
    const refusal = error instanceof Refusal ? error : new Refusal(undefined, String(error));
    store.set({ problem: describeProblem(refusal), isBusy: false });
    if (refusal.wait && refusal.wait <= 90) countDown(refusal.wait);
  }

  // Say how long to wait, second by second, and then try again.
  function countDown(seconds) {
    notBefore = Date.now() + 1000 * seconds;
    const text = store.values.text;
    const tick = () => {
      const left = Math.ceil((notBefore - Date.now()) / 1000);
      if (store.values.text !== text || store.values.problem?.key !== "busy") return;
      if (left <= 0) return schedule(0);
      store.set({ problem: { key: "busy", values: { seconds: left } } });
      timer = setTimeout(tick, 500);
    };
    timer = setTimeout(tick, 500);
  }

  store.on(["text", "source", "target", "languages"], ({ settings }) => schedule(settings.frontendTimeout));
  store.on(["parts"], () => {
    clearTimeout(settled);
    settled = setTimeout(remember, SETTLED);
  });
  // An API key was given: what was refused is asked again.
  store.on(["translated"], ({ translated }) => translated === null && schedule(0));
  document.getElementById("text").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      schedule(0);
    }
  });
  store.on(["isBusy", "tongue"], ({ isBusy }) => {
    const spinner = document.getElementById("working");
    spinner.classList.toggle("is-on", isBusy);
    spinner.title = say("working");
  });
}
