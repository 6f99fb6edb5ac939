// The page: one store, and the parts that read and change it.

import { fetchLanguages, fetchModels, fetchSettings } from "./api.js";
import { detailsView } from "./details.js";
import { filesView } from "./files.js";
import { historyView } from "./history.js";
import { keep, readHistory, readKept } from "./kept.js";
import { languagesView } from "./languages.js";
import { createStore } from "./look/store.js";
import { outputView } from "./output.js";
import { describeProblem, problemView } from "./problems.js";
import { say, setTongue, TONGUES } from "./texts.js";
import { topView } from "./top.js";
import { startTranslating } from "./translating.js";
import { writingView } from "./writing.js";

const kept = readKept("languages", null) ?? {};
const store = createStore({
  tongue: firstTongue(),
  languages: [],
  models: [],
  settings: { charLimit: -1, frontendTimeout: 500, alternativesLimit: 0, filesTranslation: false, supportedFilesFormat: [], keyRequired: false },
  source: typeof kept.source === "string" ? kept.source : "auto",
  target: typeof kept.target === "string" ? kept.target : "",
  // The code of the language that was detected, where `source` is "auto".
  detected: null,
  text: "",
  // The translation in parts (words.js), the text it is of, and the language that was gone through.
  parts: [],
  translated: "",
  via: null,
  isBusy: false,
  // The word that is looked at: { part, word }, the index of a segment and a place in its text.
  selected: null,
  // The word under the pointer, of the same shape.
  hovered: null,
  // Shares of attention for words of the text: [{ place, share }].
  marks: [],
  // Where the focus goes after a change: { part, place }.
  focus: null,
  history: readHistory(),
  problem: null,
});

function firstTongue() {
  const wanted = [readKept("tongue", null), ...navigator.languages.map((each) => each.slice(0, 2))];
  return wanted.find((each) => each in TONGUES) ?? "en";
}

async function load() {
  try {
    const [languages, settings, models] = await Promise.all([fetchLanguages(), fetchSettings(), fetchModels()]);
    const { source, target } = settings.language;
    if (!kept.target) store.set({ source: source.code, target: target.code });
    store.set({ languages, settings, models, problem: languages.length ? null : { key: "noModels" } });
  } catch (error) {
    store.set({ problem: describeProblem(error) });
  }
}

store.on(["tongue"], ({ tongue }) => setTongue(tongue));
store.on(["source", "target", "languages"], ({ source, target, languages }) => languages.length && keep("languages", { source, target }));
store.on(["models", "tongue"], ({ models }) => {
  document.getElementById("models").textContent = models.length ? say("models", { models: models.join(", ") }) : "";
});
topView(store);
languagesView(store);
writingView(store);
outputView(store);
detailsView(store);
filesView(store);
historyView(store);
problemView(store);
startTranslating(store);
load();
