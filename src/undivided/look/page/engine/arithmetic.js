// Products, norms and non-linearities over rows of numbers. Sums are kept in 64 bits, results in 32.

// Rows of x times a weight of shape [out, in], plus a bias.
export function linear(x, rows, weight, bias) {
  const [out, width] = weight.shape;
  const packed = (weight.packed ??= packOutputs(weight));
  // Four rows at a time: the last rows of the result may be of padding.
  const result = new Float32Array(4 * Math.ceil(rows / 4) * out);
  const four = new Float64Array(4 * width);
  for (let row = 0; row < rows; row += 4) {
    if (row + 1 === rows) oneRow(x, row, packed, width, out, result);
    else fourRows(interleaveRows(x, row, Math.min(4, rows - row), width, four), packed, width, out, row * out, result);
  }
  if (bias) addBias(result, bias.data, rows, out);
  return result.subarray(0, rows * out);
}

// The order in which products read a weight: for every four outputs, the four numbers of the first input, of the second, …
function packOutputs({ data, shape: [out, width] }) {
  const packed = new Float32Array(4 * Math.ceil(out / 4) * width);
  for (let to = 0; to < out; to++) {
    const block = (to - (to % 4)) * width + (to % 4);
    for (let at = 0; at < width; at++) packed[block + 4 * at] = data[to * width + at];
  }
  return packed;
}

// The same for up to four rows of x; the others are 0.
function interleaveRows(x, row, count, width, four) {
  four.fill(0);
  for (let each = 0; each < count; each++) for (let at = 0; at < width; at++) four[4 * at + each] = x[(row + each) * width + at];
  return four;
}

// Four rows and four outputs at a time: sixteen sums, and each number that was read serves four of them.
function fourRows(four, packed, width, out, place, result) {
  let next = 0;
  for (let to = 0; to < out; to += 4) {
    let a1 = 0, a2 = 0, a3 = 0, a4 = 0, b1 = 0, b2 = 0, b3 = 0, b4 = 0;
    let c1 = 0, c2 = 0, c3 = 0, c4 = 0, d1 = 0, d2 = 0, d3 = 0, d4 = 0;
    for (let at = 0; at < 4 * width; at += 4) {
      const w1 = packed[next];
      const w2 = packed[next + 1];
      const w3 = packed[next + 2];
      const w4 = packed[next + 3];
      next += 4;
      const a = four[at];
      a1 += a * w1;
      a2 += a * w2;
      a3 += a * w3;
      a4 += a * w4;
      const b = four[at + 1];
      b1 += b * w1;
      b2 += b * w2;
      b3 += b * w3;
      b4 += b * w4;
      const c = four[at + 2];
      c1 += c * w1;
      c2 += c * w2;
      c3 += c * w3;
      c4 += c * w4;
      const d = four[at + 3];
      d1 += d * w1;
      d2 += d * w2;
      d3 += d * w3;
      d4 += d * w4;
    }
    const here = place + to;
    const left = out - to;
    store(result, here, left, a1, a2, a3, a4);
    store(result, here + out, left, b1, b2, b3, b4);
    store(result, here + 2 * out, left, c1, c2, c3, c4);
    store(result, here + 3 * out, left, d1, d2, d3, d4);
  }
}

// One row and four outputs at a time.
function oneRow(x, row, packed, width, out, result) {
  let next = 0;
  for (let to = 0; to < out; to += 4) {
    let a = 0, b = 0, c = 0, d = 0;
    for (let at = row * width; at < (row + 1) * width; at++) {
      const each = x[at];
      a += each * packed[next];
      b += each * packed[next + 1];
      c += each * packed[next + 2];
      d += each * packed[next + 3];
      next += 4;
    }
    store(result, row * out + to, out - to, a, b, c, d);
  }
}

// Four outputs of a row, or as many as are left of it.
function store(result, place, left, a, b, c, d) {
  result[place] = a;
  if (left > 1) result[place + 1] = b;
  if (left > 2) result[place + 2] = c;
  if (left > 3) result[place + 3] = d;
}

function addBias(result, bias, rows, out) {
  for (let row = 0; row < rows; row++) for (let to = 0; to < out; to++) result[row * out + to] += bias[to];
}

export function add(left, right) {
  const result = new Float32Array(left.length);
  for (let at = 0; at < result.length; at++) result[at] = left[at] + right[at];
  return result;
}

export const NORM_EPSILON = 1e-5;

// Mean and standard deviation of one row, as LayerNorm uses them.
export function moments(x, start, width, epsilon = NORM_EPSILON) {
  let mean = 0;
  for (let at = 0; at < width; at++) mean += x[start + at] / width;
  let variance = 0;
  for (let at = 0; at < width; at++) variance += (x[start + at] - mean) ** 2 / width;
  return { mean, deviation: Math.sqrt(variance + epsilon) };
}

export function layerNorm(x, { weight, bias }, epsilon = NORM_EPSILON) {
  const width = weight.data.length;
  const result = new Float32Array(x.length);
  for (let start = 0; start < x.length; start += width) {
    const { mean, deviation } = moments(x, start, width, epsilon);
    for (let at = 0; at < width; at++) result[start + at] = ((x[start + at] - mean) / deviation) * weight.data[at] + bias.data[at];
  }
  return result;
}

function highest(scores) {
  let most = -Infinity;
  for (let at = 0; at < scores.length; at++) if (scores[at] > most) most = scores[at];
  return most;
}

export function softmax(scores, temperature = 1) {
  const most = highest(scores);
  const result = new Float32Array(scores.length);
  let sum = 0;
  for (let at = 0; at < result.length; at++) sum += result[at] = Math.exp((scores[at] - most) / temperature);
  for (let at = 0; at < result.length; at++) result[at] /= sum;
  return result;
}

export function logSoftmax(scores, temperature = 1) {
  const most = highest(scores);
  let sum = 0;
  for (let at = 0; at < scores.length; at++) sum += Math.exp((scores[at] - most) / temperature);
  const shift = Math.log(sum);
  const result = new Float32Array(scores.length);
  for (let at = 0; at < result.length; at++) result[at] = (scores[at] - most) / temperature - shift;
  return result;
}

// The error function to 1.2e-7 would not do for 32 bits: a series where it converges fast, a continued fraction elsewhere.
function errorFunction(x) {
  const size = Math.abs(x);
  if (size < 2.5) {
    let [sum, term] = [size, size];
    for (let n = 1; Math.abs(term) > 1e-17 * sum && n < 100; n++) {
      term *= (-size * size) / n;
      sum += term / (2 * n + 1);
    }
    return (Math.sign(x) * 2 * sum) / Math.sqrt(Math.PI);
  }
  let fraction = 0;
  for (let n = 60; n > 0; n--) fraction = n / 2 / (size + fraction);
  return Math.sign(x) * (1 - Math.exp(-size * size) / Math.sqrt(Math.PI) / (size + fraction));
}

export const sigmoid = (x) => 1 / (1 + Math.exp(-x));

const swish = (x) => x * sigmoid(x);

const ACTIVATIONS = {
  relu: (x) => Math.max(0, x),
  gelu: (x) => 0.5 * x * (1 + errorFunction(x / Math.SQRT2)),
  gelu_tanh: (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))),
  swish,
};

// The hidden units of a feed-forward layer after its non-linearity; swiglu has gates beside them, twice as wide.
export function activate(hidden, kind, width) {
  if (kind !== "swiglu") return hidden.map(ACTIVATIONS[kind]);
  const result = new Float32Array(hidden.length / 2);
  for (let at = 0; at < result.length; at++) {
    const start = Math.floor(at / width) * 2 * width + (at % width);
    result[at] = swish(hidden[start]) * hidden[start + width];
  }
  return result;
}

// The places of the largest numbers, largest first.
export function largest(values, count) {
  const found = [];
  for (let at = 0; at < values.length; at++) {
    if (found.length === count && !(values[at] > values[found[count - 1]])) continue;
    let place = Math.min(found.length, count - 1);
    while (place > 0 && values[at] > values[found[place - 1]]) {
      found[place] = found[place - 1];
      place--;
    }
    found[place] = at;
  }
  return found;
}
