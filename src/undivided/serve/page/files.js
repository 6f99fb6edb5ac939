// Documents: dropped or chosen, translated one after the other, and fetched back.

import { fetchFile, isCancelled, Refusal, translateFile } from "./api.js";
import { h } from "./look/dom.js";
import { describeProblem, sayProblem } from "./problems.js";
import { say, sayNumber } from "./texts.js";

const MOST_TRIES = 5;

export function filesView(store) {
  const view = new Files(store, document.getElementById("files"));
  store.on(["settings", "tongue"], () => view.build());
}

class Files {
  constructor(store, element) {
    Object.assign(this, { store, element, jobs: [], isRunning: false });
    this.list = h("ul", { class: "jobs", "aria-live": "polite" });
    this.input = h("input", { type: "file", id: "file", multiple: true, class: "unseen" });
    this.input.addEventListener("change", () => {
      this.add(this.input.files);
      this.input.value = "";
    });
    this.zone = h("div", { class: "zone" });
    this.listen();
  }

  // A file may be dropped anywhere on the page; a browser would show it instead.
  listen() {
    const hasFiles = (event) => this.isOn() && event.dataTransfer?.types.includes("Files");
    const show = (isOver) => this.zone.classList.toggle("is-over", isOver);
    document.addEventListener("dragover", (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      show(true);
    });
    document.addEventListener("dragleave", (event) => !event.relatedTarget && show(false));
    document.addEventListener("drop", (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      show(false);
      this.add(event.dataTransfer.files);
    });
  }

  isOn() {
    return this.store.values.settings.filesTranslation;
  }

  build() {
    const { supportedFilesFormat: formats } = this.store.values.settings;
    this.element.hidden = !this.isOn();
    this.input.accept = formats.join(",");
    const label = h("label", { for: "file", class: "plain" }, say("pick"));
    this.zone.replaceChildren(h("p", {}, say("drop")), this.input, label, h("p", { class: "hint" }, formats.join(" ")));
    this.element.replaceChildren(h("h2", { id: "files-title" }, say("filesTitle")), this.zone, this.list);
    this.show();
  }

  add(files) {
    const { source, target } = this.store.values;
    for (const file of files) {
      this.jobs.unshift({ file, source, target, state: "waiting", share: 0, stop: new AbortController(), element: h("li", {}) });
    }
    this.show();
    this.run();
  }

  // One at a time, the oldest first.
  async run() {
    if (this.isRunning) return;
    this.isRunning = true;
    for (let job = this.next(); job; job = this.next()) await this.work(job);
    this.isRunning = false;
  }

  next() {
    return this.jobs.findLast((job) => job.state === "waiting");
  }

  async work(job, tries = 1) {
    const onSent = (share) => this.change(job, share < 1 ? { state: "sending", share } : { state: "translating" });
    try {
      this.change(job, { state: "sending", share: 0 });
      const answer = await translateFile(job.file, job.source, job.target, onSent, job.stop.signal);
      const blob = await fetchFile(answer.translatedFileUrl, job.stop.signal);
      this.change(job, { state: "ready", answer, link: URL.createObjectURL(blob), name: savedName(job) });
    } catch (error) {
      if (isCancelled(error)) return this.change(job, { state: "cancelled" });
      const refusal = error instanceof Refusal ? error : new Refusal(undefined, "");
      this.change(job, { state: "failed", problem: describeProblem(refusal) });
      if (!refusal.wait || refusal.wait > 90 || tries >= MOST_TRIES) return;
      await new Promise((done) => setTimeout(done, 1000 * refusal.wait));
      if (job.state === "failed") await this.work(job, tries + 1);
    }
  }

  change(job, changes) {
    Object.assign(job, changes);
    this.showJob(job);
  }

  remove(job) {
    if (job.link) URL.revokeObjectURL(job.link);
    this.jobs = this.jobs.filter((each) => each !== job);
    job.state = "removed";
    this.show();
  }

  show() {
    this.jobs.forEach((job) => this.showJob(job));
    this.list.replaceChildren(...this.jobs.map((job) => job.element));
  }

  showJob(job) {
    const name = job.file.name;
    const isOver = !["waiting", "sending", "translating"].includes(job.state);
    const stop = () => (isOver ? this.remove(job) : this.cancel(job));
    const button = h("button", { type: "button", class: "icon", "aria-label": say(isOver ? "remove" : "cancel", { name }), onclick: stop }, "×");
    const head = h("div", { class: "job-head" }, h("bdi", { class: "file-name" }, name), h("span", { class: `state ${job.state}` }, this.sayState(job)), button);
    const bar = isOver ? null : h("progress", { max: "1", "aria-label": say("fileProgress", { name }) });
    if (bar && job.state !== "translating") bar.value = job.share;
    job.element.replaceChildren(head, ...(bar ? [bar] : []), ...this.result(job));
  }

  cancel(job) {
    if (job.state === "waiting") this.change(job, { state: "cancelled" });
    job.stop.abort();
  }

  sayState(job) {
    if (job.state === "failed") return sayProblem(job.problem);
    if (job.state === "ready") return say("ready", { translated: sayNumber(job.answer.translated), left: sayNumber(job.answer.left) });
    const key = { sending: "sending", translating: "translatingFile", cancelled: "cancelled" }[job.state] ?? "waiting";
    return say(key, { percent: Math.round(100 * job.share) });
  }

  result(job) {
    if (job.state !== "ready") return [];
    const link = h("a", { class: "plain", download: job.name, href: job.link }, say("download", { name: job.name }));
    const remarks = (job.answer.remarks ?? []).map((remark) => h("li", {}, remark));
    return [link, ...(remarks.length ? [h("ul", { class: "remarks" }, ...remarks)] : [])];
  }
}

// The name to save a translated document under: messages.po becomes messages.de.po.
function savedName({ file, target }) {
  const dot = file.name.lastIndexOf(".");
  return dot > 0 ? `${file.name.slice(0, dot)}.${target}${file.name.slice(dot)}` : `${file.name}.${target}`;
}
