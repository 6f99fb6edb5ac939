"""What one decoder layer costs and brings: the `base` preset, and `fast` taught by it, on Multi30k English → German.

    python benchmarks/distilled.py [--minutes 75] [--start] [--originals 1] [--student-minutes 40] [--out models/distilled]

The base model is trained for some minutes, translates the training text with its beam, and `undivided distill` trains the student
on that. After a stop, the same command resumes. Then both translate test_2016, raw text to raw text, in interleaved rounds.
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
from measure import CORES, MULTI30K_TEST, ROOT, Piece, table, undivided

from undivided.core.console import Console
from undivided.inference.translator import Translator

RECIPE = ROOT / "recipes" / "multi30k-base.yaml"


def trained(options: argparse.Namespace, corpus: dict[str, list[str]]) -> dict[str, Path]:
    """Both model folders."""
    folders = {"base": options.out / "base", "fast": options.out / "fast"}
    text = ["--train", *corpus["train"], "--valid", *corpus["val"]]
    undivided("train", str(RECIPE), *text, "--minutes", str(options.minutes), "--out", str(folders["base"]))
    # What a recipe says of training holds for both; what a model is comes from the preset.
    student = [str(RECIPE), "--preset", "fast", *text, "--originals", str(options.originals), "--out", str(folders["fast"])]
    student += ["--minutes", str(options.student_minutes or options.minutes)]
    student += ["--from", str(folders["base"])] if options.start else []
    undivided("distill", str(folders["base"]), *student)
    return folders


def speeds(folders: dict[str, Path], lines: list[str], rounds: int) -> dict[str, measure.Series]:
    """Sentences per second of both, by the engine that `auto` takes."""
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
    parser.add_argument("--minutes", type=float, default=75, help="of training steps")
    parser.add_argument("--student-minutes", type=float, help="of training steps, for the student, if not as many")
    parser.add_argument("--start", action="store_true", help="the student begins with the teacher's layers")
    parser.add_argument("--originals", type=float, default=0, help="how often the pairs themselves count beside the teacher's")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=ROOT / "models" / "distilled")
    parser.add_argument("--report", type=Path, default=ROOT / "docs" / "benchmarks" / "distilled.md")
    options = parser.parse_args()
    corpus = measure.whole_multi30k()
    folders = trained(options, corpus)
    scores = {
        name: undivided("score", "--model", str(folder), "--moses", "de", *corpus[MULTI30K_TEST])
        for name, folder in folders.items()
    }
    lines = Path(corpus[MULTI30K_TEST][0]).read_text(encoding="utf-8").splitlines()
    series = speeds(folders, lines, options.rounds)
    ratios = [one / other for one, other in zip(series["fast"].rates, series["base"].rates, strict=True)]
    rows = []
    for name, folder in folders.items():
        facts = facts_of(folder)
        bleu = next(line.split()[1] for line in scores[name].splitlines() if line.startswith("BLEU "))
        rows.append(
            [name, f"{facts['parameters'] / 1e6:.1f} M", f"{facts['seconds'] / 60:.0f}", str(facts["epochs"]), bleu,
             f"{series[name].rate:.1f}"]
        )  # fmt: skip
    start = " begins with the layers that both have and" if options.start else ""
    also = f" and from the pairs themselves ({options.originals:g} to 1)" if options.originals else ""
    body = [
        f"{CORES} cores. `base` learns from the pairs for {options.minutes:g} minutes; `fast`{start} learns from the translations "
        f"of `base`{also} for {options.student_minutes or options.minutes:g}. BLEU is "
        "cased sacreBLEU on test_2016, beam 4, by the engine that `auto` takes; sentences/s are raw text to raw text, medians of "
        f"{options.rounds} interleaved rounds. `fast` is {statistics.median(ratios):.2f} times as fast "
        f"({min(ratios):.2f} to {max(ratios):.2f}).",
        "",
        *table(["preset", "parameters", "minutes", "passes", "BLEU", "sentences/s"], rows),
        "",
    ]
    for name in folders:
        body += [f"## {name}", "", "```", scores[name].strip(), "```", ""]
    measure.write_report(options.report, "One decoder layer", "distilled.py", sys.argv[1:], body)


if __name__ == "__main__":
    main()
