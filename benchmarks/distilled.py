"""What small models cost and bring: the `base` preset, and `fast` and `student` taught by it, by speed and BLEU.

    python benchmarks/distilled.py [--corpus multi30k] [--students fast student] [--minutes 75] [--student-minutes 40] [--start]

The base model is trained for some minutes, translates the training text with its beam, and `undivided distill` trains each student
on that. After a stop, the same command resumes. Then all translate the test part, raw text to raw text, in interleaved rounds.
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import measure
from measure import CORES, CORPORA, MULTI30K_TEST, ROOT, Piece, table, undivided

from undivided.core.console import Console
from undivided.inference.translator import Translator

RECIPES = {name: ROOT / "recipes" / f"{file}.yaml" for name, file in {"fast": "multi30k-base", "student": "student"}.items()}
TEACHER = "base"
PARTS = {
    "multi30k": ("multi30k", "train", "val", MULTI30K_TEST),
    "office": ("libreoffice-help/en-de", "train", "valid", "test"),
}
"""Of each corpus, English → German: its folder, and what is learned from, validated on and tested on."""


def corpus_files(name: str) -> list[list[str]]:
    """The files of training, validation and test."""
    folder, *parts = PARTS[name]
    found = [[str(CORPORA / folder / f"{part}.{language}") for language in ("en", "de")] for part in parts]
    missing = [path for files in found for path in files if not Path(path).is_file()]
    if missing:
        raise SystemExit(f"{missing[0]} is missing (set UNDIVIDED_CORPORA)")
    return found


def train_all(options: argparse.Namespace, train: list[str], valid: list[str]) -> dict[str, Path]:
    """The folders of the teacher and its students."""
    home = options.out / options.corpus if options.corpus != "multi30k" else options.out
    teacher = options.teacher or home / TEACHER
    text = ["--train", *train, "--valid", *valid]
    if not options.teacher:
        recipe = str(ROOT / "recipes" / "multi30k-base.yaml")
        undivided("train", recipe, *text, "--minutes", str(options.minutes), "--out", str(teacher))
    folders = {TEACHER: teacher} | {name: home / name for name in options.students}
    for name in options.students:
        # What a recipe says of training holds for all; what a model is comes from the preset.
        given = [str(RECIPES[name]), "--preset", name, *text, "--originals", str(options.originals), "--out", str(folders[name])]
        given += ["--source-lang", "en", "--target-lang", "de", "--minutes", str(options.student_minutes or options.minutes)]
        given += ["--from", str(teacher)] if options.start and name == "fast" else []
        undivided("distill", str(teacher), *given)
    return folders


def describe(folder: Path) -> str:
    """The engine and the search that a folder is translated with."""
    translator = Translator(folder, console=Console(quiet=True, stream=io.StringIO()))
    beam = translator.search_config().beam_size
    return f"{translator.engine.name}, {'greedy' if beam == 1 else f'beam {beam}'}"


def speeds(folders: dict[str, Path], lines: list[str], rounds: int) -> dict[str, measure.Series]:
    """Sentences per second of all, each with its own search, by the engine that `auto` takes."""
    quiet = Console(quiet=True, stream=io.StringIO())
    translators = {name: Translator(folder, console=quiet) for name, folder in folders.items()}
    for translator in translators.values():
        translator.translate(lines[:8])

    def piece(name: str, number: int) -> Piece:
        began = time.perf_counter()
        translators[name].translate(lines)
        return Piece(time.perf_counter() - began, len(lines), 0.0)

    return measure.interleaved(translators, rounds, piece)


def facts_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text(encoding="utf-8"))["facts"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", choices=list(PARTS), default="multi30k")
    parser.add_argument("--students", nargs="+", choices=list(RECIPES), default=list(RECIPES))
    parser.add_argument("--teacher", type=Path, help="a trained folder, in the place of a base model that is trained here")
    parser.add_argument("--minutes", type=float, default=75, help="of training steps")
    parser.add_argument("--student-minutes", type=float, help="of training steps, for each student, if not as many")
    parser.add_argument("--start", action="store_true", help="the student `fast` begins with the teacher's layers")
    parser.add_argument("--originals", type=float, default=0, help="how often the pairs themselves count beside the teacher's")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=ROOT / "models" / "distilled")
    parser.add_argument("--report", type=Path, help="default: docs/benchmarks/distilled.md, or distilled-CORPUS.md")
    options = parser.parse_args()
    train, valid, test = corpus_files(options.corpus)
    folders = train_all(options, train, valid)
    moses = ["--moses", "de"] if options.corpus == "multi30k" else []
    scores = {name: undivided("score", "--model", str(folder), *moses, *test) for name, folder in folders.items()}
    lines = Path(test[0]).read_text(encoding="utf-8").splitlines()
    series = speeds(folders, lines, options.rounds)
    bleu = {name: next(line.split()[1] for line in text.splitlines() if line.startswith("BLEU ")) for name, text in scores.items()}
    rows = []
    for name, folder in folders.items():
        facts = facts_of(folder)
        ratios = [one / other for one, other in zip(series[name].rates, series[TEACHER].rates, strict=True)]
        rows.append(
            [
                name, f"{facts['parameters'] / 1e6:.1f} M", f"{facts['seconds'] / 60:.0f}", str(facts["epochs"]), describe(folder),
                bleu[name], f"{float(bleu[name]) - float(bleu[TEACHER]):+.2f}", f"{series[name].rate:.1f}",
                f"{statistics.median(ratios):.2f} × ({min(ratios):.2f}–{max(ratios):.2f})",
            ]
        )  # fmt: skip
    start = "; `fast` begins with the layers that both have" if options.start and "fast" in options.students else ""
    also = f" and from the pairs themselves ({options.originals:g} to 1)" if options.originals else ""
    body = [
        f"{CORES} cores. `{TEACHER}` learns from the pairs of {PARTS[options.corpus][0]}, its students from its translations of "
        f"their sources{also}{start}. BLEU is cased sacreBLEU on {Path(test[0]).stem}, by the engine that `auto` takes and each "
        f"model's own search; sentences/s are raw text to raw text, medians of {options.rounds} interleaved rounds, ratios those "
        "of each round.",
        "",
        *table(
            ["preset", "parameters", "minutes", "passes", "engine, search", "BLEU", "to the teacher", "sentences/s", "as fast"],
            rows,
        ),
        "",
    ]
    for name in folders:
        body += [f"## {name}", "", "```", scores[name].strip(), "```", ""]
    suffix = "" if options.corpus == "multi30k" else f"-{options.corpus}"
    report = options.report or ROOT / "docs" / "benchmarks" / f"distilled{suffix}.md"
    measure.write_report(report, "Students and their teacher", "distilled.py", sys.argv[1:], body)


if __name__ == "__main__":
    main()
