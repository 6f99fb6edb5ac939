"""`make prove-fine-tuning`: office help → image captions with 5,000 pairs, and back: what is gained and what is lost.

    python benchmarks/fine_tuning.py [--steps 400] [--base-steps 2000] [--out models/fine-tuning]

Every run is one `undivided train --from`. Budgets are steps, because minutes depend on what else the machine does; the report
says how many seconds of training they took. After a stop the same command resumes, and what is finished is kept.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

from measure import CORPORA, ROOT, table, undivided, write_report

from undivided.data.text_files import read_lines
from undivided.inference.score import bleu
from undivided.inference.translator import Translator

REPORT = ROOT / "docs" / "fine-tuning.md"
PAIRS, BATCH = 5_000, 2_048
LANGUAGES = ("en", "de")


class Domain(NamedTuple):
    name: str
    folder: str
    test: str


OFFICE = Domain("office help", "libreoffice-help/en-de", "test")
CAPTIONS = Domain("captions", "multi30k", "test_2016_flickr")


class Tuning(NamedTuple):
    """One fine-tuning: the model it starts from, what it learns, and its options."""

    start: str
    learns: Domain
    options: list[str]


RUNS = {
    "captions": Tuning("office", CAPTIONS, []),
    "captions-mixed": Tuning("office", CAPTIONS, ["--mix", "0.5"]),
    "captions-pulled": Tuning("office", CAPTIONS, ["--pull", "100"]),
    "back": Tuning("captions", OFFICE, []),
    "back-mixed": Tuning("captions", OFFICE, ["--mix", "0.5"]),
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
        translator = Translator(folder, engine="torch")
        for domain in (OFFICE, CAPTIONS):
            source, target = (read_lines(Path(path)) for path in files(domain, domain.test))
            score = bleu(translator.translate(source), target, "de")
            found |= {domain.name: score.score, "signature": score.signature}
        kept.write_text(json.dumps(found), encoding="utf-8")
    return dict(json.loads(kept.read_text(encoding="utf-8")))


def rows_of(home: Path, results: dict[str, dict[str, Any]]) -> list[list[str]]:
    rows = []
    for name, found in results.items():
        tuning = RUNS.get(name)
        before = results[tuning.start] if tuning else None

        def cell(domain: Domain, found: dict[str, Any] = found, before: dict[str, Any] | None = before) -> str:
            gap = "" if before is None else f" ({found[domain.name] - before[domain.name]:+.2f})"
            return f"{found[domain.name]:.2f}{gap}"

        what = f"{tuning.start} → {tuning.learns.name} {' '.join(tuning.options)}".strip() if tuning else "trained on office help"
        rows.append([f"`{name}`", what, cell(OFFICE), cell(CAPTIONS), f"{found['steps']:,}", f"{found['seconds']:.0f}"])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--base-steps", type=int, default=2_000)
    parser.add_argument("--out", type=Path, default=ROOT / "models" / "fine-tuning")
    parser.add_argument("--report", type=Path, default=REPORT)
    options = parser.parse_args()
    home: Path = options.out
    train(home / "office", "--train", *files(OFFICE, "train"), "--max-steps", str(options.base_steps))
    results = {"office": measure(home / "office")}
    for name, tuning in RUNS.items():
        start, new = str(home / tuning.start), first_pairs(tuning.learns, home)
        train(home / name, "--from", start, "--train", *new, "--max-steps", str(options.steps), *tuning.options)
        results[name] = measure(home / name)
    body = [
        f"A model is trained on office help (English → German, 30,601 pairs, {options.base_steps:,} steps), fine-tuned with the "
        f"first {PAIRS:,} pairs of Multi30k, and from there fine-tuned back with the first {PAIRS:,} pairs of office help: each at "
        f"most {options.steps:,} steps of {BATCH:,} tokens. Everything else is the default of "
        "`undivided train --from MODEL --train SOURCE TARGET`.",
        "",
        *table(["model", "how", "BLEU on office help", "BLEU on captions", "steps", "seconds of training"], rows_of(home, results)),
        "",
        "In brackets: the difference to the model that it was fine-tuned from. Both test sets (500 sentences of office help, 1,000 "
        "captions of `test_2016_flickr`) are text that no run has read; beam search with the defaults. "
        f"BLEU: `{results['office']['signature']}`. Seconds are those of training steps, on a machine that did other work too.",
    ]
    write_report(options.report, "Fine-tuning: what is gained, what is lost", "fine_tuning.py", sys.argv[1:], body)


if __name__ == "__main__":
    main()
