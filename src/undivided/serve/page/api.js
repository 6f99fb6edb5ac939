// The server, as docs/serving.md describes it. Every failure is a `Refusal`; what was cancelled is an AbortError.

import { readKept } from "./kept.js";

export class Refusal extends Error {
  // `status` is 0 where no answer came; `wait` are the seconds after which to try again.
  constructor(status, message, wait = 0) {
    super(message);
    Object.assign(this, { status, wait });
  }
}

export function isCancelled(error) {
  return error?.name === "AbortError";
}

export function apiKey() {
  const kept = readKept("key", null);
  return typeof kept === "string" ? kept : null;
}

const address = (path) => new URL(path, document.baseURI);

function refuse(status, body, retryAfter) {
  const message = typeof body?.error === "string" ? body.error : "";
  const wait = Math.min(86400, Math.max(1, Math.ceil(Number(retryAfter) || 1)));
  return new Refusal(status, message, status === 429 || status === 503 ? wait : 0);
}

async function ask(path, options) {
  let answer, body;
  try {
    answer = await fetch(address(path), { credentials: "omit", cache: "no-store", ...options });
    body = await answer.json().catch(() => null);
  } catch (error) {
    throw isCancelled(error) ? error : new Refusal(0, "");
  }
  if (!answer.ok || body === null) throw refuse(answer.ok ? 500 : answer.status, body, answer.headers.get("Retry-After"));
  return body;
}

function post(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  return ask(path, { method: "POST", headers, body: JSON.stringify({ ...body, api_key: apiKey() }), signal });
}

export const fetchLanguages = () => ask("languages", {});
export const fetchSettings = () => ask("frontend/settings", {});
export const fetchModels = async () => (await ask("ready", {})).models;
export const translate = (request, signal) => post("v1/translate", request, signal);
export const look = (request, signal) => post("v1/look", request, signal);

// Send a document. `fetch` does not tell how much is sent, XMLHttpRequest does: `onSent` gets shares from 0 to 1.
export function translateFile(file, source, target, onSent, signal) {
  const form = new FormData();
  const key = apiKey();
  for (const [name, value] of Object.entries({ source, target, ...(key ? { api_key: key } : {}) })) form.append(name, value);
  form.append("file", file);
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    signal.addEventListener("abort", () => request.abort());
    request.upload.addEventListener("progress", (event) => event.lengthComputable && onSent(event.loaded / event.total));
    request.upload.addEventListener("load", () => onSent(1));
    request.addEventListener("abort", () => reject(new DOMException("cancelled", "AbortError")));
    request.addEventListener("error", () => reject(new Refusal(0, "")));
    request.addEventListener("load", () => {
      const body = request.response;
      if (request.status === 200 && typeof body?.translatedFileUrl === "string") resolve(body);
      else reject(refuse(request.status, body, request.getResponseHeader("Retry-After")));
    });
    request.open("POST", address("translate_file"));
    request.responseType = "json";
    request.send(form);
  });
}

// The translated document. Behind a proxy the server may not know its own address, so only the end of its path is taken from it.
export async function fetchFile(link, signal) {
  const at = link.indexOf("download_file/");
  if (at < 0) throw new Refusal(500, "");
  let answer;
  try {
    answer = await fetch(address(link.slice(at)), { credentials: "omit", cache: "no-store", signal });
    if (answer.ok) return await answer.blob();
  } catch (error) {
    throw isCancelled(error) ? error : new Refusal(0, "");
  }
  throw refuse(answer.status, await answer.json().catch(() => null), answer.headers.get("Retry-After"));
}
