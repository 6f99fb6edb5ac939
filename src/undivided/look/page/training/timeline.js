// The slider over the frames of a training, and what plays them.

import { h } from "../dom.js";
import { say } from "../words.js";

// Milliseconds that a frame is shown.
const PER_FRAME = 700;

export function timeline(store, raw) {
  const last = raw.frames.length - 1;
  const go = (frame) => store.set({ frame: Math.max(0, Math.min(last, frame)) });
  const slider = h("input", { type: "range", min: "0", max: String(last), "aria-label": say("step of training"), oninput: () => { stop(); go(Number(slider.value)); } });
  const move = (label, by, text) => h("button", { type: "button", "aria-label": label, onclick: () => { stop(); go(store.values.frame + by); } }, text);
  const previous = move(say("earlier"), -1, "‹");
  const next = move(say("later"), 1, "›");
  const play = h("button", { type: "button", class: "play", onclick: () => (store.values.playing ? stop() : start()) });
  const now = h("output", {});
  let timer = 0;
  function stop() {
    clearInterval(timer);
    store.set({ playing: false });
  }
  // From the beginning again, where it has ended.
  function start() {
    if (store.values.frame === last) go(0);
    store.set({ playing: true });
    timer = setInterval(() => {
      go(store.values.frame + 1);
      if (store.values.frame === last) stop();
    }, PER_FRAME);
  }
  store.cleanups.push(() => clearInterval(timer));
  store.on(["playing"], ({ playing }) => (play.textContent = playing ? say("pause") : say("play")));
  store.on(["frame"], ({ frame }) => {
    const text = say("step {step} of {last}", { step: raw.frames[frame].step.toLocaleString("en"), last: raw.frames[last].step.toLocaleString("en") });
    slider.value = String(frame);
    slider.setAttribute("aria-valuetext", text);
    now.textContent = text;
    [previous.disabled, next.disabled] = [frame === 0, frame === last];
  });
  return h("div", { class: "timeline stepper", role: "group", "aria-label": say("step of training") }, play, previous, slider, next, now);
}
