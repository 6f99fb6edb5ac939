// One stack instead of encoder and decoder: what GPT, BERT and ViT are made of. A stack that writes stands where the Transformer has its
// decoder, one that reads where it has its encoder, so that every view of attention serves both.

import { Transformer } from "./model.js";

export class SingleStack extends Transformer {
  single = true;

  constructor(config, tensors, use) {
    super(config, renamed(tensors, use));
    Object.assign(this, { use, uses: [use] });
  }

  // Vectors `T D` through all layers → the output of every layer and the final states.
  stack(x, run) {
    const allowed = this.selfMask(this.use === "decoder", run);
    const layers = [];
    for (let layer = 0; layer < this.attentionShape(this.use)[0]; layer++) {
      const here = `${this.use}.${layer}`;
      x = this.residual(here, "self", 0, x, (input) => this.attendSelf(`${here}.self_attention`, [this.use, layer], input, allowed, run), run);
      x = this.residual(here, "feed", 1, x, (input) => this.feedForward(here, input, run), run);
      layers.push(x);
    }
    return { layers, states: this.norm(`${this.use}_norm`, x) };
  }
}

const NAMES = [
  [/^stack\.layers\./, (use) => `${use}.`],
  [/^stack\.norm\./, (use) => `${use}_norm.`],
  [/^embedding\./, () => "source_embedding."],
  [/^positions\./, () => "source_embedding.positions."],
];

// The tensors by the names that the Transformer has for them.
function renamed(tensors, use) {
  const result = {};
  for (const [name, value] of Object.entries(tensors)) {
    const rule = NAMES.find(([pattern]) => pattern.test(name));
    result[rule ? name.replace(rule[0], rule[1](use)) : name] = value;
  }
  return result;
}
