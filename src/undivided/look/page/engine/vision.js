// The worker of a page with a vision model (ViT): patches of an image as tokens, and a token before them that learns what the image is.

import { linear, logSoftmax } from "./arithmetic.js";
import { asRun, commonAsks } from "./asks.js";
import { fitImage } from "./images.js";
import { attentionOf } from "./inside.js";
import { engine, pauseFor, serve } from "./mailbox.js";
import { SingleStack } from "./stack.js";

class Vision extends SingleStack {
  head = "class";

  constructor(config, tensors) {
    super(config, tensors, "encoder");
    this.tensors.output_weight = this.tensors["output.weight"];
    this.tensors.output_bias = this.tensors["output.bias"];
  }

  // Values `C Y X` → patches `N (C side side)`, row by row.
  cut(values) {
    const { channels, patch: side, image_height: height, image_width: width } = this.config;
    const patches = new Float32Array(values.length);
    let at = 0;
    for (let top = 0; top < height; top += side) {
      for (let left = 0; left < width; left += side) {
        for (let channel = 0; channel < channels; channel++) {
          for (let row = top; row < top + side; row++) {
            for (let column = left; column < left + side; column++) patches[at++] = values[(channel * height + row) * width + column];
          }
        }
      }
    }
    return patches;
  }

  // Values `C Y X` from 0 to 1 → logits of the classes.
  read(values, run) {
    const patches = this.cut(values);
    const weight = this.tensors["project.weight"];
    const projected = linear(patches, patches.length / weight.shape[1], weight, this.tensors["project.bias"]);
    const words = new Float32Array(projected.length + this.width);
    words.set(this.tensors.first.data);
    words.set(projected, this.width);
    const x = this.config.positions === "none" || !run.positions ? words : this.place(words, 0);
    const { states: memory } = this.stack(x, run);
    const states = memory.slice(0, this.width);
    const logits = this.logits(states);
    if (run.record) Object.entries({ patches, "source.words": words, "source.embedded": x, memory, states, logits }).forEach(([name, value]) => run.record(name, value));
    return logits;
  }

  scoreShown(pass, run) {
    return [logSoftmax(this.read(pass.values, run))[pass.best]];
  }
}

serve({
  ...commonAsks(Vision),

  // An image { pixels: bytes `C Y X`, channels, height, width } → "look".
  async look({ image, changes = {} }, post) {
    const version = ++engine.version;
    const pause = pauseFor(version);
    const { model, about } = engine;
    const { channels, image_height: height, image_width: width, patch } = model.config;
    const pixels = fitImage(image, { channels, height, width });
    await pause();
    const run = asRun(changes);
    const record = new Map();
    const values = Float32Array.from(pixels, (value) => value / 255);
    const scores = logSoftmax(model.read(values, { ...run, record: (name, value) => record.set(name, value) }));
    const columns = width / patch;
    const places = Array.from({ length: (height / patch) * columns }, (_, at) => `\u2581${Math.floor(at / columns) + 1},${(at % columns) + 1}`);
    const src = [-1, ...places.keys()];
    const best = scores.indexOf(scores.reduce((one, other) => Math.max(one, other)));
    const pass = { record, src, tgtIn: [], values, best };
    engine.seen = { version, pass, run };
    await pause();
    return post("look", {
      pixels,
      source: ["<class>", ...places].map((piece, id) => ({ id, piece, word: -1 })),
      steps: [],
      classes: about.classes.map((name, at) => ({ name, probability: Math.exp(scores[at]) })),
      encoder: attentionOf(model, pass, "encoder"),
    });
  },
});
