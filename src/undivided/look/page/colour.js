// Colours: one hue by lightness for weights, blue to orange for signed numbers, eight hues for heads. All are safe for
// colour-blind readers, on light and dark backgrounds.

const LIGHT = {
  weight: ["#ffffff", "#d9e8f5", "#9cc4e6", "#4d8fc9", "#17599c", "#062f5e"],
  minus: ["#ffffff", "#fbe0c4", "#f2ab64", "#cf6a13", "#7f3a00"],
  plus: ["#ffffff", "#d3e5f4", "#86b7df", "#2f76b5", "#0a3d73"],
  heads: ["#0072b2", "#d55e00", "#00795a", "#b6478b", "#8a6d00", "#3a94d0", "#6a3d9a", "#5b6066"],
};

const DARK = {
  weight: ["#171b21", "#1b3550", "#20568a", "#3580c4", "#7db8ee", "#e3f1ff"],
  minus: ["#171b21", "#4a2c12", "#8c4a12", "#d97f2c", "#ffd2a1"],
  plus: ["#171b21", "#1b3550", "#20629e", "#5aa5e0", "#cfe7ff"],
  heads: ["#56b4f5", "#ff9147", "#37cfa0", "#f0a0cf", "#e3bd3f", "#a5dcff", "#c79be6", "#c0c6cd"],
};

export function palette(dark) {
  const colours = dark ? DARK : LIGHT;
  const weight = ramp(colours.weight);
  const plus = ramp(colours.plus);
  const minus = ramp(colours.minus);
  return {
    head: (number) => colours.heads[number % colours.heads.length],
    // Most weights are small: with the power 0.6 they differ visibly from 0. The legend shows the same scale.
    weight: (value) => weight(Math.max(0, value) ** 0.6),
    signed: (value) => (value < 0 ? minus(-value) : plus(value)),
    // Black or white, whichever has more contrast; one of them always has 4.5 to 1.
    ink: (colour) => (luminance(...colour) > 0.179 ? "#000000" : "#ffffff"),
  };
}

export function css([red, green, blue]) {
  return `rgb(${red},${green},${blue})`;
}

// The RGB colour for a value from 0 to 1, from a table of 256.
function ramp(stops) {
  const colours = stops.map((stop) => [1, 3, 5].map((at) => parseInt(stop.slice(at, at + 2), 16)));
  const table = Array.from({ length: 256 }, (_, step) => {
    const place = (step / 255) * (colours.length - 1);
    const low = Math.min(Math.floor(place), colours.length - 2);
    return [0, 1, 2].map((part) => Math.round(colours[low][part] + (place - low) * (colours[low + 1][part] - colours[low][part])));
  });
  return (value) => table[Math.max(0, Math.min(255, Math.round(value * 255)))];
}

function luminance(...parts) {
  const linear = parts.map((part) => {
    const share = part / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
}

// Draw one pixel per number.
export function paint(canvas, { rows, columns, data }, colour) {
  if (canvas.width !== columns || canvas.height !== rows) [canvas.width, canvas.height] = [columns, rows];
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  const pixels = image.data;
  for (let at = 0; at < data.length; at++) {
    const shade = colour(data[at]);
    pixels[4 * at] = shade[0];
    pixels[4 * at + 1] = shade[1];
    pixels[4 * at + 2] = shade[2];
    pixels[4 * at + 3] = 255;
  }
  context.putImageData(image, 0, 0);
}
