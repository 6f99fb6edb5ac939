"""The best single model that Multi30k's 29,000 pairs alone have given so far, English → German.

    python benchmarks/best.py [--teachers 30] [--minutes 90] [--out models/best]

Pairs are rewritten by models of both directions, and one model is trained on all (data diversification; Nguyen et al., 2020).
Text is lowercased, as where 41.02 was published. After a stop, the same command resumes. The test set is read once,
at the end.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import measure
from measure import CORES, MULTI30K_TEST, ROOT, table, undivided

from undivided.core.files import write_atomic

RECIPE = ROOT / "recipes" / "multi30k-en-de.yaml"
AVERAGED = ["--train.ema", "0.999"]
DIRECTIONS = {"forward": ("en", "de"), "backward": ("de", "en")}


def taught(name: str, out: Path, minutes: float, pairs: list[list[str]], valid: list[str], flags: list[str]) -> Path:
    """A model of some direction from some pairs."""
    source, target = DIRECTIONS[name]
    corpora = [word for files in pairs for word in ("--train", *files)]
    languages = ["--source-lang", source, "--target-lang", target]
    limits = ["--minutes", str(minutes), "--train.max_steps", "100000", "--train.validate_every", "1000"]
    undivided("train", str(RECIPE), *corpora, "--valid", *valid, *languages, *limits, *flags, "--out", str(out))
    return out


def rewrite(model: Path, source: str, out: Path) -> str:
    """A file translated by a model, once."""
    if not out.exists():
        write_atomic(out, undivided("translate", str(model), source))
    return str(out)


def diversified(options: argparse.Namespace, corpus: dict[str, list[str]]) -> list[list[str]]:
    """The training pairs, and versions of them with one side rewritten by a model."""
    pairs = [corpus["train"]]
    sides, valid = ({Path(file).suffix[1:]: file for file in corpus[part]} for part in ("train", "val"))
    for seed in range(1, options.seeds + 1):
        for name, (source, target) in DIRECTIONS.items():
            model = options.forward if (name, seed) == ("forward", 1) else None
            if model is None:
                files, held_out = ([of[source], of[target]] for of in (sides, valid))
                flags = [*AVERAGED, "--seed", str(seed)]
                model = taught(name, options.out / f"{name}-{seed}", options.teachers, [files], held_out, flags)
            new = {target: rewrite(model, sides[source], options.out / f"{name}-{seed}.{target}")}
            pairs.append([(sides | new)[language] for language in ("en", "de")])
    return pairs


def score(model: Path, files: list[str]) -> tuple[str, str]:
    """BLEU as published for this data, and its signature."""
    lines = undivided("score", "--model", str(model), "--moses", "de", *files).splitlines()
    _, bleu, signature = next(line for line in lines if line.startswith("BLEU-moses-lc ")).split(maxsplit=2)
    return bleu, signature


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teachers", type=float, default=30, help="minutes of training of each teacher")
    parser.add_argument("--forward", type=Path, help="a model of bench-quality --lowercased to take as the first teacher")
    parser.add_argument("--seeds", type=int, default=1, help="teachers of each direction")
    parser.add_argument("--minutes", type=float, default=90, help="of training of the model itself")
    parser.add_argument("--flags", default="", help="of its training, beside the recipe's")
    parser.add_argument("--out", type=Path, default=ROOT / "models" / "best")
    parser.add_argument("--report", type=Path, default=ROOT / "docs" / "benchmarks" / "best.md")
    options = parser.parse_args()
    corpus = measure.lowercased(measure.whole_multi30k(), options.out / "text")
    pairs = diversified(options, corpus)
    flags = [*AVERAGED, *options.flags.split()]
    model = taught("forward", options.out / "model", options.minutes, pairs, corpus["val"], flags)
    scores = {part: score(model, corpus[part]) for part in ("val", MULTI30K_TEST)}
    given = f" (the first from English is `{options.forward.parts[-3]}` of bench-quality)" if options.forward else ""
    body = [
        f"{CORES} cores. Models of each direction: {options.seeds}, with {options.teachers:g} minutes of training{given}; they "
        f"translated the training text. {options.minutes:g} minutes on all {len(pairs)} versions of the pairs"
        + (f" with `{options.flags}`" if options.flags else "")
        + f" gave the model. Recipe: `recipes/{RECIPE.name}`. Text in small letters; beam 5.",
        "",
        *table(["part", "BLEU"], [[part, bleu] for part, (bleu, _) in scores.items()]),
        "",
        f"`{scores['val'][1]}`",
    ]
    measure.write_report(options.report, "The best single model", "best.py", sys.argv[1:], body)


if __name__ == "__main__":
    main()
