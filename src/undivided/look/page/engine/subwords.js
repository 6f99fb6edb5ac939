// Text ↔ ids, as sentencepiece and undivided.data.subwords do it.

import { fromBase64 } from "./bytes.js";
import { Normalizer, SPACE_MARK } from "./normalize.js";
import { PIECE, segmentBpe, segmentUnigram, utf8Length } from "./segment.js";

export const [PAD, UNK, BOS, EOS] = [0, 1, 2, 3];

export class Subwords {
  constructor(about) {
    const types = Uint8Array.from(about.types, Number);
    const ofType = (...wanted) => about.pieces.filter((_, id) => wanted.includes(types[id]));
    const userDefined = ofType(PIECE.userDefined).sort((a, b) => b.length - a.length);
    const scores = new Float32Array(fromBase64(about.scores).buffer);
    const normal = scores.filter((_, id) => types[id] === PIECE.normal);
    Object.assign(this, { pieces: about.pieces, types, kind: about.kind, byteFallback: about.byteFallback });
    this.rules = about.rules;
    this.normalizer = new Normalizer(about.rules, userDefined);
    this.bytes = new Map();
    const ids = new Map();
    about.pieces.forEach((piece, id) => {
      if (types[id] === PIECE.byte) this.bytes.set(parseInt(piece.slice(3, 5), 16), id);
      else if ([PIECE.normal, PIECE.userDefined, PIECE.unused].includes(types[id])) ids.set(piece, id);
    });
    const longest = Math.max(1, ...[...ids.keys()].map((piece) => [...piece].length));
    const lowest = normal.reduce((a, b) => Math.min(a, b), Infinity);
    const highest = normal.reduce((a, b) => Math.max(a, b), 2 ** -126);
    this.vocabulary = { ids, types, scores, userDefined, longest, lowest, highest };
    this.languageCodes = new Map(about.pieces.map((piece, id) => [piece, id]).filter(([piece]) => /^>>.+<<$/s.test(piece)));
  }

  get size() {
    return this.pieces.length;
  }

  // Ids that end with </s>.
  encode(text) {
    if (this.byteFallback && text.includes(SPACE_MARK)) return [...this.encodeWithMarks(text), EOS];
    if (this.languageCodes.size && text.startsWith(">>")) {
      const end = text.indexOf("<<");
      const code = end < 0 ? undefined : this.languageCodes.get(text.slice(0, end + 2));
      if (code !== undefined) return [code, ...this.split(text.slice(end + 2)), EOS];
    }
    return [...this.split(text), EOS];
  }

  split(text) {
    const segment = this.kind === "bpe" ? segmentBpe : segmentUnigram;
    const ids = [];
    let afterUnknown = false;
    for (const [piece, id] of segment(this.normalizer.normalize(text), this.vocabulary)) {
      if (id >= 0) ids.push(id);
      else if (this.byteFallback) ids.push(...this.spell(piece));
      else if (!afterUnknown) ids.push(UNK);
      afterUnknown = id < 0;
    }
    return ids;
  }

  spell(text) {
    return [...new TextEncoder().encode(text)].map((byte) => this.bytes.get(byte));
  }

  // A ▁ of the text itself becomes its three bytes, by way of a character that occurs in neither text nor vocabulary.
  encodeWithMarks(text) {
    let code = 0x10fffd;
    while (text.includes(String.fromCodePoint(code)) || this.vocabulary.ids.has(String.fromCodePoint(code))) code--;
    const standIn = this.spell(String.fromCodePoint(code));
    const mark = this.spell(SPACE_MARK);
    const result = [];
    for (const id of this.split(text.replaceAll(SPACE_MARK, String.fromCodePoint(code)))) {
      result.push(id);
      if (standIn.every((each, at) => result.at(at - 4) === each)) result.splice(-4, 4, ...mark);
    }
    return result;
  }

  decode(ids) {
    let text = "";
    let spelled = [];
    let sawSpace = false;
    const flush = () => {
      if (spelled.length) text += decodeUtf8(spelled);
      spelled = [];
    };
    for (const id of ids.filter((each) => each > EOS)) {
      if (this.types[id] === PIECE.byte) {
        spelled.push(parseInt(this.pieces[id].slice(3, 5), 16));
        continue;
      }
      flush();
      let piece = this.pieces[id];
      if (this.types[id] === PIECE.control) continue;
      const first = !sawSpace && !text;
      sawSpace = false;
      if (first && (this.rules.dummyPrefix || this.rules.removeExtra) && piece.startsWith(SPACE_MARK)) {
        piece = piece.slice(1);
        sawSpace = !this.rules.removeExtra;
      }
      text += piece.replaceAll(SPACE_MARK, " ");
    }
    flush();
    return text.replace(/[\r\n]+/g, " ");
  }
}

// Every byte that is no UTF-8 becomes one replacement character.
function decodeUtf8(bytes) {
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  let text = "";
  for (let at = 0; at < bytes.length; ) {
    let length = 4;
    for (; length > 0; length--) {
      try {
        const character = decoder.decode(Uint8Array.from(bytes.slice(at, at + length)));
        if ([...character].length !== 1 || utf8Length(character) !== length) continue;
        text += character;
        break;
      } catch {
        // A shorter one may be valid.
      }
    }
    if (!length) text += "\ufffd";
    at += Math.max(1, length);
  }
  return text;
}
