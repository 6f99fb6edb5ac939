"""`make prove-fine-tuning`: a model of one domain learns another from 5,000 pairs, and back: what is gained and what is lost.

    python benchmarks/fine_tuning.py [--minutes 5] [--base-minutes 10] [--more] [--lines 500] [--out models/fine-tuning]

Office help, on which the demo trains, then captions. The first model is trained as the demo trains its own. Every run is one
`undivided train --from`; with --more also those that pull back to the old weights. Minutes are those of a machine that does nothing
else. The report is written after every run; after a stop the same command resumes.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from measure import CORPORA, ROOT, table, undivided, write_report

from undivided.data.text_files import read_lines
from undivided.inference.score import bleu
from undivided.inference.translator import Translator

REPORT = ROOT / "docs" / "fine-tuning.md"
PAIRS = 5_000
LANGUAGES = ("en", "de")


class Domain(NamedTuple):
    name: str
    folder: str
    valid: str
    test: str


OFFICE = Domain("office help", "libreoffice-help/en-de", "valid", "test")
CAPTIONS = Domain("captions", "multi30k", "val", "test_2016_flickr")
DOMAINS = (OFFICE, CAPTIONS)


class Tuning(NamedTuple):
    """One fine-tuning: the model it starts from, whether it learns the other domain, and its options."""

    start: str
    learns_new: bool
    options: list[str]


RUNS = {
    "new": Tuning("base", True, []),
    "new-mixed": Tuning("base", True, ["--mix", "0.5"]),
    "back": Tuning("new", False, []),
    "back-mixed": Tuning("new", False, ["--mix", "0.5"]),
}
MORE = {
    "new-pulled": Tuning("base", True, ["--pull", "100"]),
    "new-ewc": Tuning("base", True, ["--ewc", "100"]),
}
"""Runs of --more."""


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
    undivided("train", "--source-lang", "en", "--target-lang", "de", "--out", str(out), *arguments)
    (out / "finished").touch()


def measure(folder: Path, lines: int) -> dict[str, Any]:
    """BLEU on both domains, and the cost of the training; kept beside the model."""
    kept = folder / "measured.json"
    if not kept.exists():
        facts = json.loads((folder / "config.json").read_text(encoding="utf-8"))["facts"]
        found: dict[str, Any] = {"steps": facts["steps"], "seconds": facts["seconds"]}
        translator = Translator(folder)
        for domain in DOMAINS:
            source, target = (read_lines(Path(path))[:lines] for path in files(domain, domain.test))
            score = bleu(translator.translate(source), target, "de")
            found |= {domain.name: score.score, "signature": score.signature}
        kept.write_text(json.dumps(found), encoding="utf-8")
    return dict(json.loads(kept.read_text(encoding="utf-8")))


def row(name: str, found: dict[str, Any], results: dict[str, dict[str, Any]]) -> list[str]:
    tuning = (RUNS | MORE).get(name)
    cells = []
    for domain in DOMAINS:
        gap = f" ({found[domain.name] - results[tuning.start][domain.name]:+.2f})" if tuning else ""
        cells.append(f"{found[domain.name]:.2f}{gap}")
    what = "trained on it" if tuning is None else f"`{tuning.start}` → {DOMAINS[tuning.learns_new].name}"
    options = " ".join(tuning.options) if tuning else ""
    return [f"`{name}`", what, f"`{options}`" if options else "", *cells, f"{found['steps']:,}", f"{found['seconds']:.0f}"]


def report(options: argparse.Namespace, results: dict[str, dict[str, Any]]) -> None:
    old, new = DOMAINS
    body = [
        f"A model of {old.name} (English → German; `base`) is fine-tuned with the first {PAIRS:,} training pairs of {new.name} "
        f"(`new`), and from there back with the first {PAIRS:,} pairs of {old.name} (`back`), each for at most {options.minutes:g} "
        f"minutes on all cores. The first was trained as the demo does, for {options.base_minutes:g} minutes. Everything else is "
        "the default of `undivided train`: fine-tuning ends before its minutes when three validations in a row were no better.",
        "",
        *table(
            ["model", "how", "options", f"BLEU on {old.name}", f"BLEU on {new.name}", "steps", "seconds of training"],
            [row(name, found, results) for name, found in results.items()],
        ),
        "",
        f"In brackets: the difference to the model that it was fine-tuned from. Scored on the first {options.lines} sentences of "
        f"each test set, which no run has read, as `undivided translate` does by default. BLEU: `{results['base']['signature']}`. "
        "Seconds are those of training.",
    ]
    write_report(options.report, "Fine-tuning: what is gained, what is lost", "fine_tuning.py", sys.argv[1:], body)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--base-minutes", type=float, default=10.0)
    parser.add_argument("--more", action="store_true")
    parser.add_argument("--lines", type=int, default=500, help="sentences of each test set")
    parser.add_argument("--out", type=Path, default=ROOT / "models" / "fine-tuning")
    parser.add_argument("--report", type=Path, default=REPORT)
    options = parser.parse_args()
    home: Path = options.out
    text = ["--train", *files(OFFICE, "train"), "--valid", *files(OFFICE, OFFICE.valid)]
    train(home / "base", *text, "--minutes", str(options.base_minutes))
    results = {"base": measure(home / "base", options.lines)}
    runs, began = RUNS | (MORE if options.more else {}), time.monotonic()
    for number, (name, tuning) in enumerate(runs.items()):
        left = (time.monotonic() - began) / max(1, number) * (len(runs) - number)
        print(f"run {number + 1} of {len(runs)}: {name}" + (f", about {left / 60:.0f} min left" if number else ""), file=sys.stderr)
        new = first_pairs(DOMAINS[tuning.learns_new], home)
        start = str(home / tuning.start)
        train(home / name, "--from", start, "--train", *new, "--minutes", str(options.minutes), *tuning.options)
        results[name] = measure(home / name, options.lines)
        report(options, results)


if __name__ == "__main__":
    main()
