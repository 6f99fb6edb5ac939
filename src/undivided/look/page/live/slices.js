// Large changes of the page in slices, so that none of them keeps it from answering.

// The next task, after whatever the page has to answer.
export const nextTask = () => new Promise((go) => setTimeout(go));

// After the next frame; a page that is hidden has none.
export const nextFrame = () => Promise.race([new Promise((go) => requestAnimationFrame(() => setTimeout(go))), new Promise((go) => setTimeout(go, 100))]);

// When the page has nothing to do, or soon.
export const whenIdle = () => new Promise((go) => (window.requestIdleCallback ? requestIdleCallback(go, { timeout: 300 }) : setTimeout(go, 30)));

// Elements whose parts are put in place one by one.
const CONTAINERS = ".attention, .decoding, .columns";

function blocksOf(element) {
  return element.matches(CONTAINERS) ? [...element.children].flatMap(blocksOf) : [element];
}

// Put new content into a place, a block for each frame, in the place of its counterpart; whether it was finished.
// To lay a block out takes as long as to build it. `current` says whether the content is still wanted.
export async function replaceInSlices(place, content, current) {
  const before = place.firstElementChild ? blocksOf(place.firstElementChild) : [];
  const after = blocksOf(content);
  if (before.length !== after.length) {
    // Of another shape, or the first content: all blocks wait, and come one by one.
    after.forEach((block) => (block.hidden = true));
    place.replaceChildren(content);
  }
  for (const [at, block] of after.entries()) {
    await nextFrame();
    if (!current()) return false;
    if (before.length === after.length) before[at].replaceWith(block);
    else block.hidden = false;
  }
  return true;
}
