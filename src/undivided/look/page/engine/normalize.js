// The text as sentencepiece sees it before it is split: characters replaced by the rules in the model, spaces written as ▁.

import { fromBase64 } from "./bytes.js";

export const SPACE_MARK = "\u2581";

export class Normalizer {
  constructor(rules, userDefined) {
    this.rules = rules;
    this.charsmap = rules.charsmap ? new Charsmap(fromBase64(rules.charsmap)) : null;
    // Longest first: what the user defined is never changed.
    this.userDefined = [...userDefined].sort((a, b) => b.length - a.length);
  }

  normalize(text) {
    let parts = this.replaced(text);
    const { removeExtra, dummyPrefix } = this.rules;
    if (removeExtra) {
      const first = parts.findIndex((part) => part !== " ");
      parts = first < 0 ? [] : parts.slice(first);
    }
    if (!parts.length) return "";
    const kept = [dummyPrefix ? " " : ""];
    let afterSpace = removeExtra;
    for (const each of parts) {
      const part = afterSpace ? each.replace(/^ +/, "") : each;
      if (part) {
        kept.push(part);
        afterSpace = part.endsWith(" ");
      }
      if (!removeExtra) afterSpace = false;
    }
    let result = kept.join("").replaceAll(" ", SPACE_MARK);
    if (removeExtra) while (result.endsWith(SPACE_MARK)) result = result.slice(0, -1);
    return result;
  }

  // The text in parts, each replaced by itself.
  replaced(text) {
    if (!this.charsmap && !this.userDefined.length) return [...text];
    const parts = [];
    for (let at = 0; at < text.length; ) {
      const symbol = this.userDefined.find((each) => text.startsWith(each, at));
      const [length, part] = symbol ? [symbol.length, symbol] : (this.charsmap?.longest(text, at) ?? oneCharacter(text, at));
      parts.push(part);
      at += length;
    }
    return parts;
  }
}

function oneCharacter(text, at) {
  const character = String.fromCodePoint(text.codePointAt(at));
  return [character.length, character];
}

// Replacements as sentencepiece compiles them: a double-array trie over UTF-8 (Darts), then the replacements, each ended by a 0.
class Charsmap {
  constructor(bytes) {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const size = view.getUint32(0, true);
    this.units = new Uint32Array(bytes.slice(4, 4 + size).buffer);
    this.texts = bytes.subarray(4 + size);
    this.decoder = new TextDecoder("utf-8", { ignoreBOM: true });
    this.encoder = new TextEncoder();
  }

  // The longest text at a place that has a replacement: [its length in UTF-16, the replacement], or null.
  longest(text, at) {
    let node = offsetOf(this.units[0]);
    let found = null;
    for (let end = at; end < text.length; ) {
      const [length, character] = oneCharacter(text, end);
      end += length;
      for (const byte of this.encoder.encode(character)) {
        node ^= byte;
        const unit = this.units[node];
        if (((unit & 0x800000ff) >>> 0) !== byte) return found && this.withText(found);
        node ^= offsetOf(unit);
        if ((unit >>> 8) & 1) found = [end - at, this.units[node] & 0x7fffffff];
      }
    }
    return found && this.withText(found);
  }

  withText([length, start]) {
    return [length, this.decoder.decode(this.texts.subarray(start, this.texts.indexOf(0, start)))];
  }
}

function offsetOf(unit) {
  return (unit >>> 10) << ((unit & 0x200) >>> 6);
}
