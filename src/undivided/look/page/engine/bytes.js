// The numbers of a model out of the text of a page: base64, base 85, zlib, and three ways to store a weight.

export function fromBase64(text) {
  const binary = atob(text.trim());
  const bytes = new Uint8Array(binary.length);
  for (let at = 0; at < bytes.length; at++) bytes[at] = binary.charCodeAt(at);
  return bytes;
}

const DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%,()*+-;.=:?@^_`{|}~";

// Five digits are four bytes; as many digits are missing at the end as bytes.
export function fromBase85(text) {
  const values = new Uint8Array(128).fill(84);
  for (let at = 0; at < 85; at++) values[DIGITS.charCodeAt(at)] = at;
  const missing = (5 - (text.length % 5)) % 5;
  const whole = text + "~".repeat(missing);
  const bytes = new Uint8Array((whole.length / 5) * 4);
  const view = new DataView(bytes.buffer);
  for (let at = 0; at < whole.length; at += 5) {
    let word = 0;
    for (let digit = at; digit < at + 5; digit++) word = 85 * word + values[whole.charCodeAt(digit)];
    view.setUint32((at / 5) * 4, word);
  }
  return bytes.subarray(0, bytes.length - missing);
}

export async function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// The tensors that the header lists: { name: { shape, data } }. Tied weights have several names and one array.
export function readTensors(entries, bytes) {
  const known = new Map();
  const tensors = {};
  for (const { name, shape, stored, offset } of entries) {
    if (!known.has(offset)) known.set(offset, { shape, data: READERS[stored](bytes, offset, shape) });
    tensors[name] = known.get(offset);
  }
  return tensors;
}

const count = (shape) => shape.reduce((product, size) => product * size, 1);

const READERS = {
  float32(bytes, offset, shape) {
    return new Float32Array(bytes.slice(offset, offset + 4 * count(shape)).buffer);
  },
  float16(bytes, offset, shape) {
    const halves = new Uint16Array(bytes.slice(offset, offset + 2 * count(shape)).buffer);
    return Float32Array.from(halves, fromHalf);
  },
  // One scale for each row, all scales first.
  int8(bytes, offset, shape) {
    const [rows, columns] = shape;
    const scales = new Float32Array(bytes.slice(offset, offset + 4 * rows).buffer);
    const levels = new Int8Array(bytes.buffer, bytes.byteOffset + offset + 4 * rows, rows * columns);
    const data = new Float32Array(rows * columns);
    for (let row = 0; row < rows; row++) {
      for (let at = row * columns; at < (row + 1) * columns; at++) data[at] = levels[at] * scales[row];
    }
    return data;
  },
};

function fromHalf(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  return exponent === 0 ? sign * fraction * 2 ** -24 : sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}
