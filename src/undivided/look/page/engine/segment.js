// A normalised text → subwords, as sentencepiece splits it: BPE or unigram. Each subword is [text, id]; −1 is unknown.

// Types of pieces in a sentencepiece model.
export const PIECE = { normal: 1, unknown: 2, control: 3, userDefined: 4, unused: 5, byte: 6 };

// Merge the pair with the best score, the leftmost of equals, until none is left.
export function segmentBpe(text, vocabulary) {
  const symbols = splitSymbols(text, vocabulary.userDefined);
  const merged = new Map();
  const agenda = new Heap((a, b) => a.score > b.score || (a.score === b.score && a.left < b.left));
  function add(left, right) {
    if (left < 0 || right < 0 || symbols[left].frozen || symbols[right].frozen) return;
    const whole = symbols[left].text + symbols[right].text;
    const id = vocabulary.ids.get(whole);
    if (id === undefined) return;
    agenda.push({ left, right, whole, score: vocabulary.scores[id] });
    if (vocabulary.types[id] === PIECE.unused) merged.set(whole, [symbols[left].text, symbols[right].text]);
  }
  for (let at = 1; at < symbols.length; at++) add(at - 1, at);
  for (let best = agenda.pop(); best; best = agenda.pop()) {
    const [left, right] = [symbols[best.left], symbols[best.right]];
    if (!left.text || !right.text || left.text + right.text !== best.whole) continue;
    left.text = best.whole;
    right.text = "";
    left.next = right.next;
    if (right.next >= 0) symbols[right.next].previous = best.left;
    add(left.previous, best.left);
    add(best.left, left.next);
  }
  return symbols.filter((each) => each.text).flatMap((each) => unmerge(each.text, vocabulary, merged));
}

// A piece that is not used falls into what it was merged from.
function unmerge(text, vocabulary, merged) {
  const id = vocabulary.ids.get(text) ?? -1;
  if (id < 0 || vocabulary.types[id] !== PIECE.unused || !merged.has(text)) return [[text, id]];
  return merged.get(text).flatMap((part) => unmerge(part, vocabulary, merged));
}

function splitSymbols(text, userDefined) {
  const symbols = [];
  for (let at = 0; at < text.length; ) {
    const symbol = userDefined.find((each) => text.startsWith(each, at));
    const piece = symbol ?? String.fromCodePoint(text.codePointAt(at));
    symbols.push({ text: piece, frozen: Boolean(symbol), previous: symbols.length - 1, next: symbols.length + 1 });
    at += piece.length;
  }
  if (symbols.length) symbols.at(-1).next = -1;
  return symbols;
}

const UNKNOWN_PENALTY = 10;

// The most likely sequence of pieces (Viterbi). Sums are rounded to 32 bits as sentencepiece rounds them, so that ties break alike.
export function segmentUnigram(text, vocabulary) {
  const characters = [...text];
  const { ids, types, scores, lowest, highest, longest } = vocabulary;
  const best = Array.from({ length: characters.length + 1 }, () => ({ start: -1, score: 0, id: -1 }));
  const reach = (end, start, score, id) => {
    if (best[end].start >= 0 && !(score > best[end].score)) return;
    best[end] = { start, score: Math.fround(score), id };
  };
  for (let start = 0; start < characters.length; start++) {
    const before = best[start].score;
    let single = false;
    let piece = "";
    for (let end = start + 1; end <= Math.min(characters.length, start + longest); end++) {
      piece += characters[end - 1];
      const id = ids.get(piece);
      if (id === undefined || types[id] === PIECE.unused) continue;
      const bonus = types[id] === PIECE.userDefined;
      reach(end, start, (bonus ? Math.fround(utf8Length(piece) * highest) - 0.1 : scores[id]) + before, id);
      single ||= end === start + 1;
    }
    if (!single) reach(start + 1, start, Math.fround(Math.fround(lowest - UNKNOWN_PENALTY) + before), -1);
  }
  const result = [];
  for (let end = characters.length; end > 0; end = best[end].start) {
    result.unshift([characters.slice(best[end].start, end).join(""), best[end].id]);
  }
  return result;
}

export function utf8Length(text) {
  return new TextEncoder().encode(text).length;
}

class Heap {
  constructor(before) {
    Object.assign(this, { before, items: [] });
  }

  push(item) {
    const { items, before } = this;
    let at = items.push(item) - 1;
    for (let up = (at - 1) >> 1; at > 0 && before(items[at], items[up]); up = (at - 1) >> 1) {
      [items[at], items[up]] = [items[up], items[at]];
      at = up;
    }
  }

  pop() {
    const { items, before } = this;
    const top = items[0];
    const last = items.pop();
    if (!items.length) return top;
    items[0] = last;
    for (let at = 0; ; ) {
      let first = at;
      for (const below of [2 * at + 1, 2 * at + 2]) if (below < items.length && before(items[below], items[first])) first = below;
      if (first === at) return top;
      [items[at], items[first]] = [items[first], items[at]];
      at = first;
    }
  }
}
