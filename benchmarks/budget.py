"""What `undivided train --minutes M` reaches with defaults only, on three corpora of some 15,000 to 30,000 pairs.

    python benchmarks/budget.py [--minutes 4 10 30] [--corpora office captions office-ko] [--threads N] [--again]

Every run is one command that names the training files, the languages and the minutes; it holds out validation pairs by itself.
Then the model is scored on text it has not seen: office help on its test split (500 sentences), captions on Multi30k's `val`,
lowercased and tokenised by Moses. The runs take turns. After a stop, the same command resumes; the report is written anew after
every run, with all that was found before, and what was found with other rules of `training/` is marked there.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import resource
import sys
import time
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from measure import CORPORA, ROOT, table, undivided, write_report

from undivided.core.files import write_atomic

REPORT = ROOT / "docs" / "benchmarks" / "budget.md"
RULES = ("budget.py", "schedule.py", "speed.py")
"""What decides the settings of a run that has none but its minutes; see `rules_now`."""


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


def rules_now() -> str:
    """A digest of the code that chooses the settings: a result found with other code is not one of today's defaults."""
    texts = [(ROOT / "src" / "undivided" / "training" / name).read_bytes() for name in RULES]
    return hashlib.sha256(b"".join(texts)).hexdigest()[:12]


def busy_seconds() -> float:
    """CPU time of all commands that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def read_results(report: Path) -> dict[str, dict[str, Any]]:
    """What was found so far; only --again repeats it. To repeat a run with the same rules, remove its entry and its folder."""
    path = report.with_suffix(".json")
    found: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def run(name: str, minutes: float, threads: int, home: Path) -> dict[str, Any]:
    """Train, or resume that, and score."""
    text, key = TEXTS[name], f"{name}-{minutes:g}"
    out = home / f"{key}-{rules_now()}"
    langs = ["--source-lang", text.langs[0], "--target-lang", text.langs[1]]
    limit = ["--threads", str(threads)] if threads else []
    began, busy = time.monotonic(), busy_seconds()
    undivided("train", "--train", *files(text, "train"), *langs, "--minutes", f"{minutes:g}", "--out", str(out), *limit)
    whole = time.monotonic() - began
    cores = (busy_seconds() - busy) / whole
    moses = ["--moses", text.langs[1]] if text.moses else []
    scores = undivided("score", "--model", str(out), *moses, *files(text, text.scored_on))
    wanted = "BLEU-moses-lc" if text.moses else "BLEU"
    line = next(line for line in scores.splitlines() if line.split()[0] == wanted)
    config = json.loads((out / "config.json").read_text(encoding="utf-8"))
    facts, recipe = config["facts"], config["recipe"]
    model = recipe["model"]
    return {
        "bleu": float(re.findall(r"[\d.]+", line.split(" ", 1)[1])[0]),
        "signature": line.split(" ", 2)[2],
        "steps": facts["steps"],
        "epochs": facts["epochs"],
        "tokens": facts["target_tokens"],
        "seconds": facts["seconds"],
        "threads": facts["threads"],
        "shape": f"{model['encoder_layers']} + {model['decoder_layers']} × {model['d_model']}, {facts['vocabulary']:,} subwords",
        "dropout": model["dropout"],
        "batch": recipe["batches"]["tokens"],
        "whole_seconds": round(whole, 1),
        "cores": round(cores, 2),
        "date": date.today().isoformat(),
        "rules": rules_now(),
    }


def row(name: str, minutes: float, result: dict[str, Any]) -> list[str]:
    """One line of the table."""
    wanted = TEXTS[name].wanted.get(minutes)
    known = {field: result.get(field, "") for field in ("cores", "date", "batch")}
    whole = result.get("whole_seconds")
    return [
        TEXTS[name].what,
        f"{minutes:g}",
        f"{result['bleu']:.2f}{'' if result.get('rules') == rules_now() else ' *'}",
        "" if wanted is None else f"≥ {wanted:g}{'' if result['bleu'] >= wanted else ' (missed)'}",
        f"{result['steps']:,}",
        f"{result['epochs']}",
        f"{result['tokens'] / result['seconds']:,.0f}",
        f"{whole / 60:.1f}" if whole else "",
        f"{known['cores']} of {result['threads']}" if known["cores"] else f"? of {result['threads']}",
        f"{result['shape']}, dropout {result['dropout']:g}" + (f", batches of {known['batch']:,}" if known["batch"] else ""),
        str(known["date"]),
    ]


def body(results: dict[str, dict[str, Any]]) -> list[str]:
    """The report: all that was found, however many commands it took."""
    head = ["corpus", "--minutes", "BLEU", "asked for", "steps", "epochs", "target tokens/s", "whole command, min", "cores it got"]
    keys = [key.rpartition("-")[::2] for key in results]
    order = sorted(keys, key=lambda key: (list(TEXTS).index(key[0]), float(key[1])))
    signatures = sorted({result["signature"] for result in results.values()})
    is_mixed = any(result.get("rules") != rules_now() for result in results.values())
    return [
        "Each row is one command, `undivided train --train SOURCE TARGET --source-lang S --target-lang T --minutes M --out DIR`, "
        "and one `undivided score`. Validation pairs were held out of the training data by the command itself; what is scored here "
        "it has never read. Minutes are those of training steps; subwords, validation and the model folder come on top "
        "(“whole command”, of the last start where a run was stopped). “Cores it got” is CPU time over time, of the threads "
        "it used: well below them, something else was running, and the model saw less text.",
        "",
        *table(
            [*head, "model that was chosen", "date"],
            [row(name, float(minutes), results[f"{name}-{minutes}"]) for name, minutes in order],
        ),
        "",
        *(["* found with earlier rules for what is chosen, and not repeated since; `?`: not noted then.", ""] if is_mixed else []),
        "Office help is scored on its 500 test sentences; Multi30k on `val`, lowercased and tokenised by Moses. Signatures:",
        "",
        *(f"- `{signature}`" for signature in signatures),
    ]


def main() -> None:
    """Run what is missing and write the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, nargs="+", default=[4, 10, 30])
    parser.add_argument("--corpora", nargs="+", choices=list(TEXTS), default=list(TEXTS))
    parser.add_argument("--threads", type=int, default=0, help="CPU threads of a training; 0 = all cores")
    parser.add_argument("--out", type=Path, default=ROOT / "models" / "budget")
    parser.add_argument("--again", action="store_true", help="repeat what was found with earlier rules")
    parser.add_argument("--report", type=Path, default=REPORT)
    options = parser.parse_args()
    results = read_results(options.report)
    for minutes in options.minutes:
        for name in options.corpora:
            key = f"{name}-{minutes:g}"
            if key not in results or (options.again and results[key].get("rules") != rules_now()):
                results[key] = run(name, minutes, options.threads, options.out)
                write_atomic(options.report.with_suffix(".json"), json.dumps(results, indent=2) + "\n")
            write_report(options.report, "What a time budget reaches, with defaults only", "budget.py", sys.argv[1:], body(results))


if __name__ == "__main__":
    main()
