// The pane to write in. Behind its text, the words that a word of the translation was read from are marked.

import { h } from "./look/dom.js";
import { say, sayNumber } from "./texts.js";

const LONG = 280;

export function writingView(store) {
  const area = document.getElementById("text");
  const behind = document.getElementById("behind");
  const count = document.getElementById("count");
  const clear = document.getElementById("clear");

  area.addEventListener("input", () => store.set({ text: area.value }));
  clear.addEventListener("click", () => {
    store.set({ text: "" });
    area.focus();
  });

  store.on(["text"], ({ text }) => {
    if (area.value !== text) area.value = text;
    clear.hidden = !text;
    document.getElementById("work").classList.toggle("is-long", text.length > LONG);
  });
  store.on(["text", "marks"], ({ text, marks }) => behind.replaceChildren(...markWords(text, marks), "\n"));
  store.on(["text", "settings", "tongue"], ({ text, settings }) => {
    const [number, limit] = [countCharacters(text), settings.charLimit];
    const values = { count: sayNumber(number), limit: sayNumber(limit) };
    count.textContent = say(limit > 0 ? "count" : "countAlone", values);
    count.title = limit > 0 ? say("countRead", values) : "";
    count.classList.toggle("is-over", limit > 0 && number > limit);
  });
  store.on(["tongue"], () => (area.placeholder = say("placeholder")));
}

// As the server counts them.
export function countCharacters(text) {
  let count = 0;
  for (const _ of text) count++;
  return count;
}

function markWords(text, marks) {
  const shown = [];
  let end = 0;
  for (const { place, share } of marks) {
    const mark = h("mark", {}, text.slice(...place));
    mark.style.setProperty("--share", share.toFixed(3));
    shown.push(text.slice(end, place[0]), mark);
    end = place[1];
  }
  return [...shown, text.slice(end)];
}
