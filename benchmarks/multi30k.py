"""Train the shipped recipe on Multi30k English → German with one command, score it on test_2016, write the report.

    python benchmarks/multi30k.py [--out models/multi30k-en-de] [--report docs/multi30k-en-de.md] [--threads 1]

After a stop it resumes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CORPUS = Path(os.environ.get("UNDIVIDED_CORPORA", ROOT.parent / "shared" / "corpora")) / "multi30k"
RECIPE = "recipes/multi30k-en-de.yaml"


def run(*arguments: str) -> str:
    """Run one undivided command from the project's root; its stdout."""
    done = subprocess.run([sys.executable, "-m", "undivided", *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def shown(command: list[str]) -> str:
    """A command as a reader would type it, the corpus folder left to them."""
    return " ".join(["undivided", *command]).replace(str(CORPUS), "multi30k")


def validation_rows(log: Path) -> list[str]:
    """The validation lines of a training log as table rows."""
    rows = []
    for line in log.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        if entry["event"] in ("validation", "final"):
            name = "final" if entry["event"] == "final" else f"{entry['step']:,}"
            minutes = entry["seconds"] / 60
            rows.append(f"| {name} | {entry['epoch']} | {minutes:.1f} | {entry['perplexity']:.2f} | {entry['bleu']:.2f} |")
    return rows


def stops(log: Path) -> str:
    """Whether the run was stopped and resumed, in words."""
    entries = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    steps = [f"{entry['step']:,}" for entry in entries if entry["event"] == "resume"]
    return f" Stopped and resumed at step {', '.join(steps)}." if steps else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="models/multi30k-en-de")
    parser.add_argument("--report", default="docs/multi30k-en-de.md")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads of the training; 0 is all cores")
    options = parser.parse_args()
    if not CORPUS.is_dir():
        raise SystemExit(f"Multi30k is not there: {CORPUS} (set UNDIVIDED_CORPORA)")
    corpus = {part: [str(CORPUS / f"{part}.{lang}") for lang in ("en", "de")] for part in ("train", "val", "test_2016_flickr")}
    training = ["train", RECIPE, "--train", *corpus["train"], "--valid", *corpus["val"], "--out", options.out]
    if options.threads:
        training += ["--threads", str(options.threads)]
    scoring = ["score", "--model", options.out, "--moses", "de", *corpus["test_2016_flickr"]]
    run(*training)
    scores = run(*scoring)
    print(scores)
    facts = json.loads((ROOT / options.out / "config.json").read_text(encoding="utf-8"))["facts"]
    log = ROOT / options.out / "training" / "log.jsonl"
    text = [
        "# Multi30k English → German, one shipped recipe, one command",
        "",
        f"Written by `benchmarks/multi30k.py` on {date.today().isoformat()}: {facts['threads']} of {os.cpu_count()} CPU cores, "
        f"torch {facts['torch']}, "
        f"{facts['parameters']:,} parameters, {facts['steps']:,} steps, {facts['epochs']} passes over 29,000 pairs, "
        f"{facts['seconds'] / 60:.0f} minutes of training. Weights: {facts['weights']}.{stops(log)}",
        "",
        "```",
        shown(training),
        shown(scoring),
        "```",
        "",
        "On test_2016 (1,000 sentences), with how each figure was computed:",
        "",
        "```",
        scores.strip(),
        "```",
        "",
        "Published for this model, lowercased and Moses-tokenised: 41.02 (Wu et al., 2021). It compares with `BLEU-moses-lc` only.",
        "",
        "Validation during training (greedy, 1,000 sentences, cased sacreBLEU); minutes are those of training steps, whatever ran "
        "beside them:",
        "",
        "| step | epoch | minutes | perplexity | BLEU |",
        "|---|---|---|---|---|",
        *validation_rows(log),
        "",
        f"Every logged number: [{log.name}](multi30k-en-de.jsonl). The recipe: [{RECIPE}](../{RECIPE}).",
    ]
    report = ROOT / options.report
    report.write_text("\n".join(text) + "\n", encoding="utf-8")
    report.with_suffix(".jsonl").write_text(log.read_text(encoding="utf-8"), encoding="utf-8")


if __name__ == "__main__":
    main()
