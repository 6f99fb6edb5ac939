// Texts in parts: segments and words with their places, and which words the subwords of a look belong to.
// Places are [start, end) in the units of JavaScript's strings, unless they come from the server, which counts code points.

const NO_SPACES = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}\p{Script=Khmer}\p{Script=Lao}\p{Script=Myanmar}]/u;

// A function from the server's places in a text to ours.
export function placesIn(text) {
  if (!/[\ud800-\udfff]/.test(text)) return ([start, end]) => [start, end];
  const offsets = [0];
  for (const letter of text) offsets.push(offsets.at(-1) + letter.length);
  const at = (point) => offsets[Math.min(point, offsets.length - 1)];
  return ([start, end]) => [at(start), at(end)];
}

// The words of a text as places; what stands between them is space.
export function splitWords(text, language) {
  const words = [];
  for (const found of text.matchAll(/\S+/g)) {
    const [start, end] = [found.index, found.index + found[0].length];
    if (NO_SPACES.test(found[0])) words.push(...segmentWords(found[0], language).map(([a, b]) => [start + a, start + b]));
    else words.push([start, end]);
  }
  return words;
}

// Words of a script without spaces; punctuation stays with the word before it.
function segmentWords(text, language) {
  if (!Intl.Segmenter) return [[0, text.length]];
  const words = [];
  for (const { segment, index, isWordLike } of segmenter(language).segment(text)) {
    if (isWordLike || !words.length) words.push([index, index + segment.length]);
    else words.at(-1)[1] = index + segment.length;
  }
  return words;
}

const segmenters = new Map();
function segmenter(language) {
  if (!segmenters.has(language)) {
    let made;
    try {
      made = new Intl.Segmenter(language, { granularity: "word" });
    } catch {
      made = new Intl.Segmenter(undefined, { granularity: "word" });
    }
    segmenters.set(language, made);
  }
  return segmenters.get(language);
}

// A translation as alternating gaps (strings) and segments: { source, text, place, verdict }. Where it went through another
// language, it is one segment without a place in the text.
export function readSegments(text, answer) {
  const inSource = placesIn(text);
  const inTarget = placesIn(answer.text);
  const parts = [];
  let end = 0;
  if (!answer.segments.length) return [{ source: null, text: answer.text, place: null, verdict: answer.verdict }];
  for (const each of answer.segments) {
    const place = inSource(each.source);
    const [from, to] = inTarget(each.target);
    if (from > end) parts.push(answer.text.slice(end, from));
    parts.push({ source: text.slice(...place), text: answer.text.slice(from, to), place, verdict: each.verdict });
    end = to;
  }
  if (end < answer.text.length) parts.push(answer.text.slice(end));
  return parts;
}

export const isSegment = (part) => typeof part !== "string";

export function joinParts(parts) {
  return parts.map((part) => (isSegment(part) ? part.text : part)).join("");
}

// Where the subwords of a look stand in its text: found one after the other, since `▁` is a space. Where the model's subwords
// are not the letters of the text, the place of their word, as the server says it; null for what has none.
export function placeTokens(tokens, text, words) {
  const toPlace = placesIn(text);
  let end = 0;
  return tokens.map(({ piece, word }) => {
    const letters = piece.replaceAll("▁", " ").trim();
    const start = letters ? text.indexOf(letters, end) : -1;
    if (start >= 0 && !text.slice(end, start).trim()) {
      end = start + letters.length;
      return [start, end];
    }
    const place = words?.[word] ? toPlace(words[word]) : null;
    if (place) end = Math.max(end, place[0]);
    return place;
  });
}

export const overlap = (one, other) => Math.max(0, Math.min(one[1], other[1]) - Math.max(one[0], other[0]));

// The step that begins a word of the translation; -1 where no step is there.
export function stepOfWord(places, word) {
  const begins = places.findIndex((place) => place && place[0] >= word[0] && place[0] < word[1]);
  return begins >= 0 ? begins : places.findIndex((place) => place && overlap(place, word) > 0);
}

// How much of the attention of a word each word of the source gets. What goes to no word, such as the end symbol, is `rest`.
export function readFrom(look, word) {
  const rows = look.steps.map((_, step) => step).filter((step) => look.targetPlaces[step] && overlap(look.targetPlaces[step], word));
  const shares = look.sourceWords.map(() => 0);
  let rest = 0;
  for (const row of rows) {
    (look.attention[row] ?? []).forEach((weight, column) => {
      const place = look.sourcePlaces[column];
      const at = place ? look.sourceWords.findIndex((each) => overlap(each, place)) : -1;
      if (at >= 0) shares[at] += weight / rows.length;
      else rest += weight / rows.length;
    });
  }
  return { shares, rest };
}
