// Translates lines from stdin with Bergamot's WASM worker in node: node bergamot.mjs WORKER FOLDER < in.txt
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Worker } from "node:worker_threads";

const [worker, folder] = [new Worker(process.argv[2]), process.argv[3]];
const waiting = [];
worker.on("message", ({ result, error }) => {
    const { resolve, reject } = waiting.shift();
    if (error) reject(new Error(error.message));
    else resolve(result);
});

function call(name, ...args) {
    worker.postMessage({ id: 1, name, args });
    return new Promise((resolve, reject) => waiting.push({ resolve, reject }));
}

function read(name) {
    const bytes = readFileSync(join(folder, name));
    return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
}

const pair = { from: "source", to: "target" };
const files = { model: read("model.intgemm8.bin"), shortlist: read("lex.bin"), vocabs: [read("vocab.spm")] };
const texts = readFileSync(0, "utf-8").split("\n").slice(0, -1).map((text) => ({ text, html: false, qualityScores: false }));
await call("initialize", { cacheSize: 0 });
await call("loadTranslationModel", pair, files);
for (const each of await call("translate", { models: [pair], texts })) console.log(each.target.text);
process.exit(0);
