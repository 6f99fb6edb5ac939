// The page of a language model (GPT): a prompt is continued as it is typed.

import { attentionSection } from "../attention.js";
import { decodingSection } from "../decoding.js";
import { h, signed } from "../dom.js";
import { embeddingsSection, positionsSection } from "../space.js";
import { part } from "../view.js";
import { say } from "../words.js";
import { lookSections, mountLive, writerQuestion } from "./app.js";
import { asTrained, CHANGE_KEYS, changesPanel, isChanged, otherWords, slider } from "./changes.js";
import { stackFacts, stackFigure, stackFocus, stackHeader, stackSections, textInput } from "./single.js";

// Subwords that are written at first, so that a page answers at the speed of typing.
const FIRST_EXTRA = 16;

const LANGUAGE_VIEWS = [["Attention", attentionSection], ["Decoding", decodingSection], ["Positions", positionsSection], ["Embeddings", ownEmbeddings]];

const LANGUAGE_MODEL = {
  focus: stackFocus,
  first: (about) => ({ beam: 1, extra: Math.min(FIRST_EXTRA, about.search.max_extra) }),
  keys: ["text", "extra", ...CHANGE_KEYS],
  question(values, about) {
    const asked = writerQuestion(values, about);
    return { ...asked, settings: { ...asked.settings, max_extra: values.extra } };
  },
  facts: stackFacts,
  figure: stackFigure,
  parts: languageParts,
};

// The tokens of the text itself, since there is no other side.
function ownEmbeddings(store, data) {
  return embeddingsSection(store, { ...data, sourcePieces: data.written, written: [] });
}

export function mountLanguage(element) {
  mountLive(element, LANGUAGE_MODEL);
}

function languageParts(page, rebuild) {
  const { live, about } = page;
  const reset = () => live.set({ ...asTrained(about.search), ...LANGUAGE_MODEL.first(about) });
  const panel = changesPanel(live, about, reset);
  panel.querySelector(".settings").append(slider(live, "extra", say("subwords to write"), { min: 1, max: Math.max(about.search.max_extra, FIRST_EXTRA), step: 1 }));
  const [attention, decoding, positions, embeddings] = lookSections(page, LANGUAGE_VIEWS);
  const [oneHead, stream, whatIf] = stackSections(page, { decoding, positions, embeddings });
  const sections = [part(say("Try it"), panel), decoding, attention, oneHead, stream, whatIf(otherWords(live)), positions, embeddings];
  return { header: promptHeader(page, rebuild), sections };
}

function promptHeader(page, rebuild) {
  const { live } = page;
  const written = () => h("bdi", {}, h("span", { class: "given" }), h("strong", {}));
  const result = written();
  const before = written();
  const compared = h("p", { class: "sentence own" }, h("span", { class: "language" }, say("as trained")), before);
  live.on(["translation"], ({ translation }) => fillWritten(result, translation?.text ?? "", translation?.given ?? ""));
  live.on(["baseline", ...CHANGE_KEYS], (values) => {
    fillWritten(before, values.baseline?.text ?? "", values.translation?.given ?? "");
    compared.hidden = !values.baseline || !isChanged(values);
  });
  const status = { empty: "", done: continuedText };
  return stackHeader(
    page,
    rebuild,
    status,
    textInput(page, say("prompt")),
    h("p", { class: "sentence target continued", "aria-live": "polite" }, h("span", { class: "language" }, say("continued")), result),
    compared,
  );
}

// The prompt as it was given, then what the model wrote.
function fillWritten(element, text, given) {
  const start = text.startsWith(given) ? given.length : 0;
  element.firstChild.textContent = text.slice(0, start);
  element.lastChild.textContent = text.slice(start);
}

function continuedText({ translation }) {
  if (!translation) return say("computing …");
  const scores = say("score {score}, log-probability {total}", { score: signed(translation.score), total: signed(translation.log_probability) });
  return translation.finished ? `${scores} · ${say("ended by itself")}` : `${scores} · ${say("cut at the length limit")}`;
}
