// Text ↔ ids with a sentencepiece model (unigram, BPE or whole words), read from its .spm file.

const NORMAL = 1, USER_DEFINED = 4, UNUSED = 5, BYTE = 6;
const SPACE = "\u2581";
const STAND_IN = "\u{10fffd}"; // of a ▁ that stands in the text itself, where spaces are written so

export class Subwords {
  constructor(bytes) {
    const sections = { 2: new Map(), 3: new Map() };
    this.pieces = [];
    for (const [field, value] of fields(bytes)) {
      if (field === 1) this.pieces.push(readPiece(new Map(fields(value))));
      if (field in sections) sections[field] = new Map([...sections[field], ...fields(value)]);
    }
    const trainer = sections[2], normalizer = sections[3];
    this.kind = trainer.get(3) ?? 1; // 1 unigram, 2 BPE, 3 words
    if (this.kind > 3) throw new Error(`subword models of kind ${this.kind} are not supported`);
    this.unk = trainer.get(40) ?? 0;
    this.spellsBytes = Boolean(trainer.get(35));
    this.charsMap = readCharsMap(normalizer.get(2));
    this.addPrefix = normalizer.get(3) ?? 1;
    this.trimsSpaces = normalizer.get(4) ?? 1;
    this.index();
  }

  index() {
    this.ids = new Map();
    this.bytes = new Map();
    this.symbols = [];
    this.longest = 1;
    let [least, most] = [Infinity, -Infinity];
    this.pieces.forEach(({ text, score, type }, id) => {
      if (type === BYTE) this.bytes.set(parseInt(text.slice(3, 5), 16), id);
      if (type === NORMAL) [least, most] = [Math.min(least, score), Math.max(most, score)];
      if (![NORMAL, USER_DEFINED, UNUSED].includes(type)) return;
      this.ids.set(text, id);
      this.longest = Math.max(this.longest, [...text].length);
      if (type === USER_DEFINED) this.symbols.push(text);
    });
    this.symbols.sort((one, other) => other.length - one.length);
    [this.unknownScore, this.bestScore] = [Math.fround(least - 10), most];
  }

  // Ids of a text, without the end. A text may begin with the language to translate into, as in >>deu<<.
  encode(line) {
    const code = /^>>[^<]+<</.exec(line)?.[0];
    if (code && this.ids.has(code)) return [this.ids.get(code), ...this.encode(line.slice(code.length))];
    const symbols = this.normalize(this.spellsBytes ? line.replaceAll(SPACE, STAND_IN) : line);
    const split = [, this.splitUnigram, this.splitBpe, this.splitWords][this.kind].call(this, symbols);
    const found = [];
    // Viterbi considers no unused pieces; BPE leaves one that it cannot take apart as it is.
    const isKnown = (piece) => this.ids.has(piece) && (this.kind === 2 || this.pieces[this.ids.get(piece)].type !== UNUSED);
    for (let place = 0; place < split.length; place++) {
      let piece = split[place];
      if (isKnown(piece)) found.push(this.ids.get(piece));
      else if (this.spellsBytes) {
        found.push(...new TextEncoder().encode(piece.replaceAll(STAND_IN, SPACE)).map((byte) => this.bytes.get(byte)));
      } else {
        // Unknown neighbours are one; the vocabulary may know them by name.
        while (place + 1 < split.length && !isKnown(split[place + 1])) piece += split[++place];
        found.push(this.ids.get(piece) ?? this.unk);
      }
    }
    return found;
  }

  decode(ids) {
    const found = [];
    for (const id of ids) {
      const { text, type } = this.pieces[id] ?? {};
      if (type === BYTE) found.push(parseInt(text.slice(3, 5), 16));
      else if ([NORMAL, USER_DEFINED, UNUSED].includes(type)) found.push(...new TextEncoder().encode(text.replaceAll(SPACE, " ")));
    }
    const whole = new TextDecoder("utf-8", { ignoreBOM: true }).decode(new Uint8Array(found));
    return this.trimsSpaces ? whole.replace(/^ +/, "") : this.addPrefix ? whole.replace(/^ /, "") : whole;
  }

  // The symbols of a text: characters as the model wants them, spaces as ▁, and symbols that are never split.
  normalize(line) {
    const bytes = new TextEncoder().encode(line), found = [];
    for (let place = 0; place < bytes.length; ) {
      const symbol = this.symbols.find((each) => startsWith(bytes, place, new TextEncoder().encode(each)));
      const [length, normal] = symbol ? [new TextEncoder().encode(symbol).length, null] : this.charsMap(bytes, place);
      found.push(...(symbol ? [symbol] : normal));
      place += length;
    }
    const isDoubled = (place) => found[place] === " " && (place === 0 || found[place - 1] === " ");
    const kept = this.trimsSpaces ? found.filter((_, place) => !isDoubled(place)) : found;
    if (kept.length && this.addPrefix) kept.unshift(" ");
    const symbols = kept.map((each) => (each === " " ? SPACE : each));
    while (this.trimsSpaces && symbols.at(-1) === SPACE) symbols.pop();
    return symbols;
  }

  // The split with the highest sum of scores (Viterbi).
  splitUnigram(symbols) {
    const best = [{ score: 0 }];
    for (let start = 0; start < symbols.length; start++) {
      const offer = (end, score) => {
        const total = Math.fround(best[start].score + score);
        if (!best[end] || total > best[end].score) best[end] = { score: total, start };
      };
      let known = false;
      for (let end = start + 1, piece = ""; end <= Math.min(start + this.longest, symbols.length); end++) {
        const id = this.ids.get((piece += symbols[end - 1]));
        if (id === undefined || this.pieces[id].type === UNUSED) continue;
        known ||= end === start + 1;
        const own = this.pieces[id].type === USER_DEFINED;
        offer(end, own ? new TextEncoder().encode(piece).length * this.bestScore - 0.1 : this.pieces[id].score);
      }
      if (!known) offer(start + 1, this.unknownScore);
    }
    const split = [];
    for (let end = symbols.length; end > 0; end = best[end].start) split.unshift(symbols.slice(best[end].start, end).join(""));
    return split;
  }

  // Neighbours are joined, the pair with the highest score first.
  splitBpe(symbols) {
    const parts = [...symbols], cameFrom = new Map();
    const score = (place) => {
      if (place < 0 || place + 1 >= parts.length || this.symbols.includes(parts[place]) || this.symbols.includes(parts[place + 1])) return -Infinity;
      const id = this.ids.get(parts[place] + parts[place + 1]);
      return id === undefined ? -Infinity : this.pieces[id].score;
    };
    const scores = parts.map((_, place) => score(place));
    for (;;) {
      let best = -1;
      for (let place = 0; place < scores.length; place++) {
        if (scores[place] > (best < 0 ? -Infinity : scores[best])) best = place;
      }
      if (best < 0) break;
      const joined = parts[best] + parts[best + 1];
      if (this.pieces[this.ids.get(joined)].type === UNUSED) cameFrom.set(joined, [parts[best], parts[best + 1]]);
      parts.splice(best, 2, joined);
      scores.splice(best, 2, score(best));
      if (best > 0) scores[best - 1] = score(best - 1);
    }
    const resolve = (part) => (cameFrom.has(part) ? cameFrom.get(part).flatMap(resolve) : [part]);
    return parts.flatMap(resolve);
  }

  splitWords(symbols) {
    const words = [];
    for (const each of symbols) {
      if (each === SPACE || !words.length) words.push(each);
      else words[words.length - 1] += each;
    }
    return words;
  }
}

// The fields of a protocol buffer message: number and value.
function* fields(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let place = 0;
  const varint = () => {
    for (let value = 0, factor = 1; ; factor *= 128) {
      const byte = view.getUint8(place++);
      value += (byte & 127) * factor;
      if (byte < 128) return value;
    }
  };
  while (place < bytes.length) {
    const key = varint(), wire = key & 7;
    if (wire === 0) yield [key >>> 3, varint()];
    else {
      const size = { 1: 8, 2: -1, 5: 4 }[wire];
      if (size === undefined) throw new Error("damaged: not a sentencepiece model");
      const length = size < 0 ? varint() : size;
      yield [key >>> 3, bytes.subarray(place, place + length)];
      place += length;
    }
  }
}

function readPiece(values) {
  const score = values.get(2);
  return { text: text(values.get(1)), score: score ? new DataView(score.buffer, score.byteOffset).getFloat32(0, true) : 0, type: values.get(3) ?? NORMAL };
}

function text(bytes) {
  return bytes ? new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes) : "";
}

function startsWith(bytes, place, wanted) {
  return wanted.every((byte, offset) => bytes[place + offset] === byte);
}

// A function of bytes and a place in them → how many bytes are replaced there, and by which characters. The model's table is a
// trie in a double array over bytes, then texts that end with 0.
function readCharsMap(blob) {
  const character = (bytes, place) => {
    const first = bytes[place], length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    return [length, [text(bytes.subarray(place, place + length))]];
  };
  if (!blob?.length) return character;
  const view = new DataView(blob.buffer, blob.byteOffset, blob.byteLength), size = view.getUint32(0, true);
  const unit = (node) => view.getUint32(4 + 4 * node, true);
  const offset = (value) => (value >>> 10) << ((value & 0x200) >>> 6);
  return (bytes, place) => {
    let node = offset(unit(0)), found = null;
    for (let end = place; end < bytes.length; end++) {
      node ^= bytes[end];
      const value = unit(node);
      if (((value & 0x800000ff) >>> 0) !== bytes[end]) break;
      node ^= offset(value);
      if ((value >>> 8) & 1) found = [end + 1 - place, (unit(node) & 0x7fffffff) >>> 0];
    }
    if (!found) return character(bytes, place);
    const start = 4 + size + found[1];
    return [found[0], [...text(blob.subarray(start, blob.indexOf(0, start)))]];
  };
}
