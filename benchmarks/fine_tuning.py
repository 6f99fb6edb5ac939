"""`make prove-fine-tuning`: a model of one domain learns another from 5,000 pairs, and back: what is gained and what is lost.

    python benchmarks/fine_tuning.py [--steps 400] [--base-steps 2000] [--base MODEL] [--reverse] [--out models/fine-tuning]

Office help, then captions; with --reverse captions, then office help. The first model is trained here unless --base names one.
Every run is one `undivided train --from`. Budgets are steps, because minutes depend on what else the machine does; the report
says how many seconds of training they took. It is written after every run; after a stop the same command resumes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from measure import CORPORA, ROOT, table, undivided, write_report

from undivided.data.text_files import read_lines
from undivided.inference.score import bleu
from undivided.inference.translator import Translator

REPORT = ROOT / "docs" / "fine-tuning.md"
PAIRS, BATCH, SCORED = 5_000, 2_048, 500
LANGUAGES = ("en", "de")


class Domain(NamedTuple):
    name: str
    folder: str
    test: str


OFFICE = Domain("office help", "libreoffice-help/en-de", "test")
CAPTIONS = Domain("captions", "multi30k", "test_2016_flickr")


class Tuning(NamedTuple):
    """One fine-tuning: the model it starts from, whether it learns the other domain, and its options."""

    start: str
    learns_new: bool
    options: list[str]


RUNS = {
    "new": Tuning("base", True, []),
    "new-mixed": Tuning("base", True, ["--mix", "0.5"]),
    "back": Tuning("new", False, []),
    "new-pulled": Tuning("base", True, ["--pull", "100"]),
    "new-ewc": Tuning("base", True, ["--ewc", "100"]),
    "back-mixed": Tuning("new", False, ["--mix", "0.5"]),
}


def files(domain: Domain, part: str) -> list[str]:
    return [str(CORPORA / domain.folder / f"{part}.{language}") for language in LANGUAGES]


def first_pairs(domain: Domain, home: Path) -> list[str]:
    """The first 5,000 pairs of a domain, each side a file."""
    home.mkdir(parents=True, exist_ok=True)
    found = []
    for path in map(Path, files(domain, "train")):
        part = home / f"{domain.name.replace(' ', '-')}{path.suffix}"
        part.write_text("".join(f"{line}\n" for line in read_lines(path)[:PAIRS]), encoding="utf-8")
        found.append(str(part))
    return found


def train(out: Path, *arguments: str) -> None:
    """One training, unless it is finished."""
    if (out / "finished").exists():
        return
    languages = ["--source-lang", "en", "--target-lang", "de"]
    undivided("train", *languages, "--batch-tokens", str(BATCH), "--out", str(out), *arguments)
    (out / "finished").touch()


def measure(folder: Path) -> dict[str, Any]:
    """BLEU on both domains, and the cost of the training; kept beside the model."""
    kept = folder / "measured.json"
    if not kept.exists():
        facts = json.loads((folder / "config.json").read_text(encoding="utf-8"))["facts"]
        found: dict[str, Any] = {"steps": facts["steps"], "seconds": facts["seconds"]}
        translator = Translator(folder)
        for domain in (OFFICE, CAPTIONS):
            source, target = (read_lines(Path(path))[:SCORED] for path in files(domain, domain.test))
            score = bleu(translator.translate(source), target, "de")
            found |= {domain.name: score.score, "signature": score.signature}
        kept.write_text(json.dumps(found), encoding="utf-8")
    return dict(json.loads(kept.read_text(encoding="utf-8")))


def row(name: str, found: dict[str, Any], results: dict[str, dict[str, Any]], domains: tuple[Domain, Domain]) -> list[str]:
    tuning = RUNS.get(name)
    cells = []
    for domain in domains:
        gap = f" ({found[domain.name] - results[tuning.start][domain.name]:+.2f})" if tuning else ""
        cells.append(f"{found[domain.name]:.2f}{gap}")
    what = "trained on it" if tuning is None else f"`{tuning.start}` → {domains[tuning.learns_new].name}"
    options = " ".join(tuning.options) if tuning else ""
    return [f"`{name}`", what, f"`{options}`" if options else "", *cells, f"{found['steps']:,}", f"{found['seconds']:.0f}"]


def report(path: Path, results: dict[str, dict[str, Any]], domains: tuple[Domain, Domain], steps: int) -> None:
    old, new = domains
    body = [
        f"A model of {old.name} (English → German; `base`) is fine-tuned with the first {PAIRS:,} training pairs of {new.name} "
        f"(`new`), and from there back with the first {PAIRS:,} pairs of {old.name} (`back`): each at most {steps:,} steps of "
        f"{BATCH:,} tokens. Everything else is the default of `undivided train --from MODEL --train SOURCE TARGET`.",
        "",
        *table(
            ["model", "how", "options", f"BLEU on {old.name}", f"BLEU on {new.name}", "steps", "seconds of training"],
            [row(name, found, results, domains) for name, found in results.items()],
        ),
        "",
        f"In brackets: the difference to the model that it was fine-tuned from. Scored on the first {SCORED} sentences of each "
        f"test set, which no run has read, as `undivided translate` does by default. BLEU: `{results['base']['signature']}`. "
        "Seconds are those of training steps, on a machine that did other work too.",
    ]
    write_report(path, "Fine-tuning: what is gained, what is lost", "fine_tuning.py", sys.argv[1:], body)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--base-steps", type=int, default=2_000)
    parser.add_argument("--base", type=Path)
    parser.add_argument("--reverse", action="store_true")
    parser.add_argument("--out", type=Path, default=ROOT / "models" / "fine-tuning")
    parser.add_argument("--report", type=Path, default=REPORT)
    options = parser.parse_args()
    domains = (CAPTIONS, OFFICE) if options.reverse else (OFFICE, CAPTIONS)
    home: Path = options.out
    if options.base and not (home / "base").exists():
        shutil.copytree(options.base, home / "base")
    elif not options.base:
        train(home / "base", "--train", *files(domains[0], "train"), "--max-steps", str(options.base_steps))
    results = {"base": measure(home / "base")}
    began = time.monotonic()
    for number, (name, tuning) in enumerate(RUNS.items()):
        left = (time.monotonic() - began) / max(1, number) * (len(RUNS) - number)
        print(f"run {number + 1} of {len(RUNS)}: {name}" + (f", about {left / 60:.0f} min left" if number else ""), file=sys.stderr)
        new = first_pairs(domains[tuning.learns_new], home)
        start = str(home / tuning.start)
        train(home / name, "--from", start, "--train", *new, "--max-steps", str(options.steps), *tuning.options)
        results[name] = measure(home / name)
        report(options.report, results, domains, options.steps)


if __name__ == "__main__":
    main()
