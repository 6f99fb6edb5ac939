// Greedy translation with onnxruntime-web: in a page (index.html), or in Node.js: node translate.mjs < in.txt
import { Subwords } from "./subwords.mjs";

// `ort` is onnxruntime-web; `read` gives the bytes of a file of this folder.
export async function loadTranslator(ort, read) {
  const config = JSON.parse(new TextDecoder().decode(await read("config.json")));
  const [encoder, decoder] = await Promise.all(
    ["encoder.onnx", "decoder.onnx"].map(async (name) => ort.InferenceSession.create(await read(name))),
  );
  const [source, target] = await Promise.all(["source.spm", "target.spm"].map(async (name) => new Subwords(await read(name))));
  const ids = (row) => new ort.Tensor("int64", BigInt64Array.from(row, BigInt), [1, row.length]);

  async function translateIds(src) {
    const state = await encoder.run({ src: ids(src) });
    for (let layer = 0; layer < config.decoder_layers; layer++) {
      for (const [name, width] of [["key", config.d_k], ["value", config.d_v]]) {
        state[`past.${name}.${layer}`] = new ort.Tensor("float32", new Float32Array(0), [1, config.n_heads, 0, width]);
      }
    }
    const found = [];
    const most = Math.min(src.length - 1 + config.max_extra, config.positions);
    for (let last = config.start; found.length < most; found.push(last)) {
      const { logits, ...past } = await decoder.run({ ...state, tokens: ids([last]) });
      for (const name of Object.keys(past)) state[`past.${name}`] = past[name];
      last = -1;
      for (let token = 0; token < logits.data.length; token++) {
        if (!config.never.includes(token) && (last < 0 || logits.data[token] > logits.data[last])) last = token;
      }
      if (last === config.end) break;
    }
    return found;
  }

  const translate = async (text) => target.decode(await translateIds([...source.encode(text), config.end]));
  return { source, target, translateIds, translate };
}

if (typeof process !== "undefined" && import.meta.url === `file://${process.argv[1]}`) {
  const { readFile } = await import("node:fs/promises");
  const translator = await loadTranslator(await import("onnxruntime-web"), (name) => readFile(new URL(name, import.meta.url)));
  const lines = (await readFile("/dev/stdin", "utf8")).replace(/\n$/, "").split("\n");
  for (const line of lines) console.log(await translator.translate(line));
}
