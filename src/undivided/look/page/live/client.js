// The worker with the model, made from the text of the page, so that the page is one file.

export function startEngine(code) {
  const worker = new Worker(URL.createObjectURL(new Blob([code], { type: "text/javascript" })));
  const waiting = new Map();
  let asked = 0;
  worker.onmessage = ({ data: { id, part, value, error } }) => {
    const { onPart, finish, fail } = waiting.get(id);
    if (error) fail(new Error(error));
    else if (part === "done" || part === "cancelled") finish(part === "done");
    else onPart(part, value);
    if (error || part === "done" || part === "cancelled") waiting.delete(id);
  };
  // Asks the model for something: `onPart(part, value)` is called as parts of the answer come; whether it was finished.
  return function ask(name, about = {}, onPart = () => {}) {
    const id = ++asked;
    return new Promise((finish, fail) => {
      waiting.set(id, { onPart, finish, fail });
      worker.postMessage({ id, ask: name, ...about });
    });
  };
}
