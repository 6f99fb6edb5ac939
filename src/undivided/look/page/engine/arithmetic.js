// Products, norms and non-linearities over rows of numbers. Sums are kept in 64 bits, results in 32.

// Rows of x times a weight of shape [out, in], plus a bias.
export function linear(x, rows, weight, bias) {
  const [out, width] = weight.shape;
  const result = new Float32Array(rows * out);
  let row = 0;
  for (; row + 4 <= rows; row += 4) fourRows(x, row, weight.data, width, out, result);
  for (; row < rows; row++) oneRow(x, row, weight.data, width, out, result);
  if (bias) for (let at = 0; at < result.length; at++) result[at] += bias.data[at % out];
  return result;
}

// Four rows and two outputs at a time: a number that was read serves several sums.
function fourRows(x, row, weight, width, out, result) {
  const a = row * width;
  const b = a + width;
  const c = b + width;
  const d = c + width;
  for (let to = 0; to < out; to += 2) {
    const first = to * width;
    // The last of an odd number of outputs is computed twice.
    const second = to + 1 < out ? first + width : first;
    let a1 = 0, b1 = 0, c1 = 0, d1 = 0, a2 = 0, b2 = 0, c2 = 0, d2 = 0;
    for (let at = 0; at < width; at++) {
      const one = weight[first + at];
      const two = weight[second + at];
      const xa = x[a + at];
      const xb = x[b + at];
      const xc = x[c + at];
      const xd = x[d + at];
      a1 += one * xa;
      b1 += one * xb;
      c1 += one * xc;
      d1 += one * xd;
      a2 += two * xa;
      b2 += two * xb;
      c2 += two * xc;
      d2 += two * xd;
    }
    store(result, row * out + to, out, a1, b1, c1, d1);
    if (second > first) store(result, row * out + to + 1, out, a2, b2, c2, d2);
  }
}

function store(result, place, out, a, b, c, d) {
  result[place] = a;
  result[place + out] = b;
  result[place + 2 * out] = c;
  result[place + 3 * out] = d;
}

// One row and four outputs at a time.
function oneRow(x, row, weight, width, out, result) {
  const begin = row * width;
  let to = 0;
  for (; to + 4 <= out; to += 4) {
    const start = to * width;
    let a = 0, b = 0, c = 0, d = 0;
    for (let at = 0; at < width; at++) {
      const each = x[begin + at];
      a += weight[start + at] * each;
      b += weight[start + width + at] * each;
      c += weight[start + 2 * width + at] * each;
      d += weight[start + 3 * width + at] * each;
    }
    store(result, row * out + to, 1, a, b, c, d);
  }
  for (; to < out; to++) {
    let sum = 0;
    for (let at = 0; at < width; at++) sum += weight[to * width + at] * x[begin + at];
    result[row * out + to] = sum;
  }
}

export function add(left, right) {
  const result = new Float32Array(left.length);
  for (let at = 0; at < result.length; at++) result[at] = left[at] + right[at];
  return result;
}

export const NORM_EPSILON = 1e-5;

// Mean and standard deviation of one row, as LayerNorm uses them.
export function moments(x, start, width) {
  let mean = 0;
  for (let at = 0; at < width; at++) mean += x[start + at] / width;
  let variance = 0;
  for (let at = 0; at < width; at++) variance += (x[start + at] - mean) ** 2 / width;
  return { mean, deviation: Math.sqrt(variance + NORM_EPSILON) };
}

export function layerNorm(x, { weight, bias }) {
  const width = weight.data.length;
  const result = new Float32Array(x.length);
  for (let start = 0; start < x.length; start += width) {
    const { mean, deviation } = moments(x, start, width);
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

const swish = (x) => x / (1 + Math.exp(-x));

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
