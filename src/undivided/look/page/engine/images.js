// Images as a model was trained on them: undivided.data.images in JavaScript.

// Shares of red, green and blue in what looks equally bright (ITU-R BT.601).
const GREY = [0.299, 0.587, 0.114];

// Bytes `C Y X` with so many channels and pixels: colours become grey or grey becomes colours, then the size changes.
export function fitImage({ pixels, channels, height, width }, wanted) {
  const size = height * width;
  let planes = Array.from({ length: channels }, (_, at) => Float64Array.from(pixels.slice(at * size, (at + 1) * size)));
  if (channels === 3 && wanted.channels === 1) planes = [planes[0].map((red, at) => toByte(red * GREY[0] + planes[1][at] * GREY[1] + planes[2][at] * GREY[2]))];
  if (channels === 1 && wanted.channels > 1) planes = Array.from({ length: wanted.channels }, () => planes[0]);
  const result = new Uint8Array(wanted.channels * wanted.height * wanted.width);
  planes.forEach((plane, at) => {
    const tall = resizeRows(plane, height, width, wanted.height);
    const turned = resizeRows(turn(tall, wanted.height, width), width, wanted.height, wanted.width);
    result.set(turn(turned, wanted.width, wanted.height), at * wanted.height * wanted.width);
  });
  return result;
}

// Change the number of rows: each new pixel is the mean of the old ones that it covers, weighted by how much of them.
function resizeRows(plane, rows, columns, wanted) {
  if (rows === wanted) return plane;
  const result = new Float64Array(wanted * columns);
  for (let to = 0; to < wanted; to++) {
    const [start, end] = [(to * rows) / wanted, ((to + 1) * rows) / wanted];
    for (let row = Math.floor(start); row < Math.min(rows, Math.ceil(end)); row++) {
      const share = (Math.min(end, row + 1) - Math.max(start, row)) * (wanted / rows);
      for (let column = 0; column < columns; column++) result[to * columns + column] += share * plane[row * columns + column];
    }
  }
  return result.map(toByte);
}

function turn(plane, rows, columns) {
  const result = new Float64Array(plane.length);
  for (let row = 0; row < rows; row++) for (let column = 0; column < columns; column++) result[column * rows + row] = plane[row * columns + column];
  return result;
}

// The nearest whole number, of two the even one.
function toByte(value) {
  const whole = Math.round(value);
  const even = Math.abs(value % 1) === 0.5 && whole % 2 ? whole - 1 : whole;
  return Math.max(0, Math.min(255, even));
}
