// The data of a look, prepared for drawing: arrays unpacked, tokens readable, masks known.

// Nested lists, or { shape, low, high, levels } with 16 bits per number → { shape, data }; that itself stays.
export function tensor(value) {
  if (value === null || value === undefined || value.data) return value ?? null;
  if (Array.isArray(value)) {
    const shape = [];
    for (let part = value; Array.isArray(part); part = part[0]) shape.push(part.length);
    return { shape, data: Float32Array.from(value.flat(Infinity)) };
  }
  const bytes = Uint8Array.from(atob(value.levels), (letter) => letter.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  const data = new Float32Array(bytes.length / 2);
  const scale = (value.high - value.low) / 65534;
  for (let at = 0; at < data.length; at++) data[at] = value.low + view.getUint16(2 * at, true) * scale;
  return { shape: value.shape, data };
}

// The matrix of the last two dimensions, at some index of the others, as { rows, columns, data }.
export function matrix(array, ...indices) {
  const [rows, columns] = array.shape.slice(-2);
  let at = 0;
  indices.forEach((index, dimension) => (at = at * array.shape[dimension] + index));
  return { rows, columns, data: array.data.subarray(at * rows * columns, (at + 1) * rows * columns) };
}

export function meanMatrix(parts) {
  const { rows, columns } = parts[0];
  const data = new Float32Array(rows * columns);
  for (const part of parts) for (let at = 0; at < data.length; at++) data[at] += part.data[at] / parts.length;
  return { rows, columns, data };
}

const SPECIAL = ["<s>", "</s>", "<unk>", "<pad>", "<class>", "[MASK]"];

// A subword for people: without ▁ at the start of a word, with · before it inside a word; punctuation as it is.
export function readablePiece(piece) {
  if (piece.startsWith("\u2581")) return piece.slice(1) || "␣";
  return /^[\p{L}\p{M}\p{N}]/u.test(piece) ? `·${piece}` : piece;
}

export function isSpecial(piece) {
  return SPECIAL.includes(piece);
}

export function prepare(data) {
  const attention = {};
  for (const use of Object.keys(data.uses)) attention[use] = tensor(data[use]);
  const source = data.source.map((token) => token.piece);
  const read = data.steps.map((step) => step.read.piece);
  const written = data.steps.map((step) => step.written.piece);
  const space = { ...data.space };
  for (const key of ["positions", "source", "target", "across", "memory"]) space[key] = tensor(data.space[key]);
  return {
    ...data,
    attention,
    space,
    sourcePieces: source,
    read,
    written,
    saliencySource: tensor(data.saliency_source),
    saliencyTarget: tensor(data.saliency_target),
    useNames: Object.keys(data.uses).filter((use) => attention[use].shape[0] > 0),
    rows: (use) => ({ encoder: source, decoder: read, cross: written })[use],
    columns: (use) => (use === "decoder" ? read : source),
    masked(use, row, column) {
      const reach = Math.floor(data.facts.window / 2);
      const far = use !== "cross" && data.facts.window > 0 && Math.abs(row - column) > reach;
      return far || (use === "decoder" && column > row);
    },
  };
}
