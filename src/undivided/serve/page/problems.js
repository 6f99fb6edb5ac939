// What went wrong, as one clear sentence. A problem is { key, values }, so that it is said anew when the language changes.

import { say, sayNumber } from "./texts.js";

export function describeProblem({ status, message, wait }) {
  if (status === undefined) return { key: "failed", values: { message: "" } };
  if (status === 0) return { key: "offline" };
  if (status === 403) return { key: "keyWrong", needsKey: true };
  if (status === 413) return { key: "tooLarge" };
  if (status === 408 || status === 504) return { key: "slow" };
  if (status === 429 || status === 503) {
    if (wait > 90) return { key: "busyLong", values: { minutes: Math.ceil(wait / 60) } };
    return { key: "busy", values: { seconds: wait } };
  }
  if (status >= 500) return { key: "failed", values: { message: message || status } };
  return { key: "refused", values: { message: message || status } };
}

export function sayProblem({ key, values = {} }) {
  const shown = Object.entries(values).map(([name, value]) => [name, typeof value === "number" ? sayNumber(value) : value]);
  return say(key, Object.fromEntries(shown));
}

export function problemView(store) {
  const element = document.getElementById("problem");
  store.on(["problem", "tongue"], ({ problem }) => {
    const text = problem ? sayProblem(problem) : "";
    if (element.textContent !== text) element.textContent = text;
  });
}
