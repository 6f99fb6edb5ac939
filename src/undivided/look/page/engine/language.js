// The worker of a page with a language model (GPT): a decoder without an encoder continues a prompt.

import { serve } from "./mailbox.js";
import { SingleStack } from "./stack.js";
import { writingAsks } from "./writing.js";

class LanguageModel extends SingleStack {
  constructor(config, tensors) {
    super(config, tensors, "decoder");
    this.tensors["target_embedding.weight"] = this.tensors["source_embedding.weight"];
  }

  // A prompt is what the search must begin with, unless other words are forced.
  begin(ids, prefix) {
    return { src: [], forced: prefix.length ? prefix : ids.slice(0, -1), length: ids.length };
  }

  encode() {
    return null;
  }

  decode(_, ids, run) {
    const { layers, states } = this.stack(this.embed("target", ids, 0, run), run);
    run.record?.("states", states);
    return { layers, states };
  }
}

serve(writingAsks(LanguageModel));
