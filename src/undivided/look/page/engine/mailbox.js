// The model in a worker, so that the page never waits for it. Asked { id, ask, … }, it answers { id, part, value } or { id, error };
// the last part of an answer is "done". A new "look" cancels whatever is computed for the one before.

// Milliseconds of computing between looks at the mailbox.
const BETWEEN_PAUSES = 12;

class Cancelled extends Error {}

// What the worker holds: the model and its subwords, the number of the newest look, and the pass that was recorded for it.
export const engine = { about: null, model: null, tokenizer: null, version: 0, seen: null, baseline: { key: "", value: null } };

// The end of this task: others, such as a new question, come first. A timer would wait for four milliseconds.
const channel = new MessageChannel();
const resuming = [];
channel.port1.onmessage = () => resuming.shift()();
const nextTask = () => new Promise((resume) => {
  resuming.push(resume);
  channel.port2.postMessage(null);
});

export function pauseFor(version) {
  let last = performance.now();
  return async () => {
    if (performance.now() - last < BETWEEN_PAUSES) return;
    await nextTask();
    last = performance.now();
    if (version !== engine.version) throw new Cancelled();
  };
}

// Answer questions with the functions of `asks`, by name.
export function serve(asks) {
  self.onmessage = async ({ data: { id, ask, ...about } }) => {
    // The large arrays of a look are handed over, not copied: that would take the page longer.
    const post = (part, value) => self.postMessage({ id, part, value }, part === "look" ? engine.model.uses.map((use) => value[use].data.buffer) : []);
    try {
      await asks[ask](about, post);
      post("done");
    } catch (error) {
      if (error instanceof Cancelled) post("cancelled");
      else self.postMessage({ id, error: String(error.stack ?? error) });
    }
  };
}
