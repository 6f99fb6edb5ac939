"""The best single model that Multi30k's pairs and its captions in one language give, English → German, by `undivided improve`.

    python benchmarks/improve.py [--minutes 300] [--rounds 2] [--alone] [--flags "--train.ema 0.999"] [--out models/improve]

With `--alone` from the pairs alone: no text in one language. Text is lowercased, as where 41.02 was published. After a stop, the
same command resumes. All choices are made on `val`; the test set is read once, at the end.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from pathlib import Path

import measure
from measure import CORES, CORPORA, MULTI30K_TEST, ROOT, table, undivided

from undivided.inference.score import score

RECIPE = ROOT / "recipes" / "multi30k-en-de.yaml"
RARE = 2
"""Words that training sources have at most so often are rare."""


def scores_of(model: Path, files: list[str], output: Path) -> dict[str, tuple[str, str]]:
    """Each metric with its figure and signature; the translations stay in `output`."""
    printed = undivided("score", "--model", str(model), "--moses", "de", "-o", str(output), *files).splitlines()
    return {name: (figure, signature) for name, figure, signature in (line.split(maxsplit=2) for line in printed)}


def rare_words(train: str, files: list[str], output: Path) -> list[list[str]]:
    """BLEU and chrF of the lines with rare words in their sources, and of all others."""
    known = Counter(re.findall(r"\w+", Path(train).read_text(encoding="utf-8").lower()))
    sources, references, outputs = (Path(path).read_text(encoding="utf-8").splitlines() for path in (*files, str(output)))
    is_rare = [any(known[word] <= RARE for word in re.findall(r"\w+", source.lower())) for source in sources]
    rows = []
    for name, wanted in (("with rare words", True), ("others", False)):
        chosen = [place for place, rare in enumerate(is_rare) if rare == wanted]
        bleu, chrf, _ = score([outputs[place] for place in chosen], [references[place] for place in chosen], target_lang="de")
        rows.append([name, f"{len(chosen):,}", f"{bleu.score:.2f}", f"{chrf.score:.2f}"])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=300, help="for everything but the scores")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--alone", action="store_true", help="from the pairs alone")
    parser.add_argument("--flags", default="--train.ema 0.999", help="of `undivided improve`, beside the recipe's")
    parser.add_argument("--out", type=Path, default=ROOT / "models" / "improve")
    parser.add_argument("--report", type=Path, default=ROOT / "docs" / "benchmarks" / "improve.md")
    options = parser.parse_args()
    mono = {} if options.alone else {"mono": [str(CORPORA / "multi30k" / f"mono.{language}") for language in ("en", "de")]}
    corpus = measure.lowercased(measure.whole_multi30k() | mono, options.out / "text")
    texts = [] if options.alone else ["--source-text", corpus["mono"][0], "--target-text", corpus["mono"][1]]
    limits = ["--minutes", f"{options.minutes:g}", "--rounds", str(options.rounds)]
    files = ["--train", *corpus["train"], "--valid", *corpus["val"], *texts]
    model = options.out / "model"
    stages = undivided("improve", str(RECIPE), *files, *limits, *options.flags.split(), "--out", str(model))
    scores = {part: scores_of(model, corpus[part], options.out / f"{part}.output") for part in ("val", MULTI30K_TEST)}
    names = list(scores["val"])
    rare = rare_words(corpus["train"][0], corpus[MULTI30K_TEST], options.out / f"{MULTI30K_TEST}.output")
    body = [
        f"{CORES} cores, {options.minutes:g} minutes for all stages, up to {options.rounds} rounds, "
        f"{'the pairs alone' if options.alone else 'the pairs and the captions in one language'}. Recipe: `recipes/{RECIPE.name}`"
        f" with `{options.flags}`. Text in small letters; beam 5.",
        "",
        "## What each stage brought, on `val`",
        "",
        *table(
            ["stage", "direction", "BLEU", "chrF2", "training"],
            [
                [cell.split()[-1] if cell.startswith(("BLEU", "chrF2")) else cell for cell in line.split("\t")]
                for line in stages.splitlines()
            ],
        ),
        "",
        "## The model",
        "",
        *table(["part", *names], [[part, *(figures[name][0] for name in names)] for part, figures in scores.items()]),
        "",
        f"## Sentences of {MULTI30K_TEST} with a word that training sources have at most {RARE} times",
        "",
        *table(["sentences", "number", "BLEU", "chrF2"], rare),
        "",
        *(f"`{name}`: `{signature}`\n" for name, (_, signature) in scores["val"].items()),
    ]
    measure.write_report(options.report, "The best from pairs and text in one language", "improve.py", sys.argv[1:], body)


if __name__ == "__main__":
    main()
