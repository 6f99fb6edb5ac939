"""What `undivided train --minutes M` reaches with defaults only, on three corpora of some 15,000 to 30,000 pairs.

    python benchmarks/budget.py [--minutes 4 10 30] [--corpora office captions office-ko] [--threads N] [--out models/budget]

Every run is one command that names the training files, the languages and the minutes; it holds out validation pairs by itself.
Then the model is scored on text it has not seen: office help on its test split (500 sentences), captions on Multi30k's `val`,
lowercased and tokenised by Moses. The runs take turns; after a stop, the same command resumes, and what is finished is kept.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

from measure import CORPORA, ROOT, table, undivided, write_report

from undivided.core.files import write_atomic

REPORT = ROOT / "docs" / "benchmarks" / "budget.md"
RESULTS = REPORT.with_suffix(".json")
"""What was found so far. A run that is listed here is not repeated: remove its entry to repeat it."""


class Text(NamedTuple):
    """A corpus, the text it is scored on, and the BLEU that is asked for, by minutes."""

    what: str
    folder: str
    langs: tuple[str, str]
    scored_on: str
    moses: bool
    wanted: dict[float, float]


TEXTS = {
    "office": Text(
        "office help, English → German", "libreoffice-help/en-de", ("en", "de"), "test", False, {4: 20.0, 10: 30.0, 30: 36.0}
    ),
    "captions": Text("Multi30k, English → German", "multi30k", ("en", "de"), "val", True, {4: 28.0, 10: 35.0, 30: 39.0}),
    "office-ko": Text("office help, English → Korean", "libreoffice-help/en-ko", ("en", "ko"), "test", False, {}),
}


def files(text: Text, part: str) -> list[str]:
    """The two files of a part."""
    return [str(CORPORA / text.folder / f"{part}.{lang}") for lang in text.langs]


def run(name: str, minutes: float, threads: int, home: Path) -> dict[str, Any]:
    """Train and score, or what was found before."""
    text, key = TEXTS[name], f"{name}-{minutes:g}"
    known: dict[str, dict[str, Any]] = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    if key in known:
        return known[key]
    out = home / key
    langs = ["--source-lang", text.langs[0], "--target-lang", text.langs[1]]
    limit = ["--threads", str(threads)] if threads else []
    undivided("train", "--train", *files(text, "train"), *langs, "--minutes", f"{minutes:g}", "--out", str(out), *limit)
    moses = ["--moses", text.langs[1]] if text.moses else []
    scores = undivided("score", "--model", str(out), *moses, *files(text, text.scored_on))
    wanted = "BLEU-moses-lc" if text.moses else "BLEU"
    line = next(line for line in scores.splitlines() if line.split()[0] == wanted)
    config = json.loads((out / "config.json").read_text(encoding="utf-8"))
    facts, model = config["facts"], config["recipe"]["model"]
    result = {
        "bleu": float(re.findall(r"[\d.]+", line.split(" ", 1)[1])[0]),
        "signature": line.split(" ", 2)[2],
        "steps": facts["steps"],
        "epochs": facts["epochs"],
        "tokens": facts["target_tokens"],
        "seconds": facts["seconds"],
        "threads": facts["threads"],
        "shape": f"{model['encoder_layers']} + {model['decoder_layers']} × {model['d_model']}, {facts['vocabulary']:,} subwords",
        "dropout": model["dropout"],
    }
    write_atomic(RESULTS, json.dumps(known | {key: result}, indent=2) + "\n")
    return result


def row(name: str, minutes: float, result: dict[str, Any]) -> list[str]:
    """One line of the table."""
    wanted = TEXTS[name].wanted.get(minutes)
    return [
        TEXTS[name].what,
        f"{minutes:g}",
        f"{result['bleu']:.2f}",
        "" if wanted is None else f"≥ {wanted:g}{'' if result['bleu'] >= wanted else ' (missed)'}",
        f"{result['steps']:,}",
        f"{result['epochs']}",
        f"{result['tokens'] / result['seconds']:,.0f}",
        f"{result['threads']}",
        f"{result['shape']}, dropout {result['dropout']:g}",
    ]


def main() -> None:
    """Run what is missing and write the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, nargs="+", default=[4, 10, 30])
    parser.add_argument("--corpora", nargs="+", choices=list(TEXTS), default=list(TEXTS))
    parser.add_argument("--threads", type=int, default=0, help="CPU threads of a training; 0 = all cores")
    parser.add_argument("--out", type=Path, default=ROOT / "models" / "budget")
    parser.add_argument("--report", type=Path, default=REPORT)
    options = parser.parse_args()
    results = {
        (name, minutes): run(name, minutes, options.threads, options.out) for minutes in options.minutes for name in options.corpora
    }
    rows = [row(name, minutes, results[name, minutes]) for name in options.corpora for minutes in options.minutes]
    signatures = sorted({result["signature"] for result in results.values()})
    head = ["corpus", "--minutes", "BLEU", "asked for", "steps", "epochs", "target tokens/s", "threads", "model that was chosen"]
    body = [
        "Each row is one command, `undivided train --train SOURCE TARGET --source-lang S --target-lang T --minutes M --out DIR`, "
        "and one `undivided score`. Validation pairs were held out of the training data by the command itself; what is scored here "
        "it has never read. Minutes are those of training steps.",
        "",
        *table(head, rows),
        "",
        "Office help is scored on its 500 test sentences; Multi30k on `val`, lowercased and tokenised by Moses. Signatures:",
        "",
        *(f"- `{signature}`" for signature in signatures),
    ]
    write_report(options.report, "What a time budget reaches, with defaults only", "budget.py", sys.argv[1:], body)


if __name__ == "__main__":
    main()
