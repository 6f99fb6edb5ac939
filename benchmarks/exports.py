"""`make prove-export`: models of every kind go out to every format, and there their own engines must write what we write.

    python benchmarks/exports.py [--lines 500] [--steps 200] [--quality-steps 800] [--report docs/exports.md]

One process for each core, each with one thread. Models are trained once and kept under .venv/exports, with the rows that were found
by the same code: after a stop it resumes. What differs is named, and ends the script with exit code 1.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from export_programs import WORST_BLEU, by_programs, rounded
from foreign import ENGINES, Rows, by_source_length, first_difference, our_search, our_translations
from measure import CORES, ROOT, code_digest, table, whole_multi30k, write_report

from undivided.artifact import Artifact, load_artifact, save_artifact
from undivided.core.console import Console
from undivided.core.errors import InputError
from undivided.core.files import write_atomic
from undivided.core.ids import BOS, EOS, PAD, UNK
from undivided.data.text_files import read_lines
from undivided.inference.search import forced_scores
from undivided.interop.export import export_model
from undivided.models import make_model
from undivided.training.loop import train

Cells = list[list[str]]
"""Rows of a table; the last cell of each says what failed."""
HOME = ROOT / ".venv" / "exports"
SMALL = {"d_model": 64, "d_ff": 128, "n_heads": 4, "encoder_layers": 2, "decoder_layers": 2, "norm": "post"}
QUALITY = {"d_model": 128, "d_ff": 256}
LEARNED = {"positions": "learned", "max_positions": 512}
SEPARATE = {"tie": "target", "joint": False}
KINDS: dict[str, dict[str, Any]] = {
    "post-norm, tied, sinusoids (the paper)": {},
    "post-norm, tied, sinusoids in halves": {"positions": "halves"},
    "post-norm, tied, learned positions": LEARNED,
    "post-norm, untied": {"tie": "none"},
    "post-norm, two vocabularies": SEPARATE,
    "pre-norm, tied, sinusoids": {"norm": "pre"},
    "pre-norm, tied, sinusoids in halves": {"norm": "pre", "positions": "halves"},
    "pre-norm, tied, learned positions": {"norm": "pre", **LEARNED},
    "pre-norm, untied": {"norm": "pre", "tie": "none"},
    "pre-norm, two vocabularies": {"norm": "pre", **SEPARATE},
}
LOGITS = 1e-4
"""The largest difference of a logit."""
FEW = 5000
"""Pairs that the small models learn from."""
QUALITY_PART = "one model, trained for longer"
NEVER = -30.0
"""A bias that leaves a token no probability."""


def few_pairs() -> list[str]:
    """The beginning of the corpus, as files of its own."""
    names = []
    for name in map(Path, whole_multi30k()["train"]):
        names.append(str(HOME / f"first-{FEW}{name.suffix}"))
        if not Path(names[-1]).exists():
            write_atomic(Path(names[-1]), "".join(f"{line}\n" for line in read_lines(name)[:FEW]).encode())
    return names


def trained(name: str, settings: dict[str, Any], steps: int) -> Path:
    """The folder of a model that was trained on Multi30k English → German, on one core."""
    folder = HOME / f"{name}-{steps}".replace(" ", "-").replace(",", "")
    corpus = whole_multi30k()["train"] if name == "quality" else few_pairs()
    model = SMALL | {key: value for key, value in settings.items() if key != "joint"}
    recipe = {
        "data": {"train": [corpus], "valid": [], "hold_out": 0, "source_lang": "en", "target_lang": "de"},
        "tokens": {"vocab_size": 4000, "joint": settings.get("joint", True)},
        "batches": {"tokens": 3000},
        "model": model,
        "train": {
            "out": str(folder), "max_steps": steps, "schedule": "cosine", "warmup_steps": steps // 8, "rate": 0.003, "threads": 1,
        },
    }  # fmt: skip
    if not (folder / "config.json").exists():
        train(recipe, Console(quiet=True))
        torch.set_num_threads(1)
    return folder


def randomised(folder: Path, like: Artifact, lines: list[str]) -> Path:
    """A model with the settings and subwords of another and random weights.

    A bias makes it end half of its translations, and keeps it from what no search may write: CTranslate2 takes that out before the
    softmax, the others behind it, which is the same only where it has no probability.
    """
    torch.manual_seed(7)
    recipe = replace(like.recipe, model=replace(like.recipe.model, output_bias=True))
    model = make_model(recipe.model, len(like.tokenizer.source), len(like.tokenizer.target)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
        model.output_bias[[PAD, UNK, BOS]] = NEVER
    artifact, sources = Artifact(recipe, like.tokenizer, model), like.tokenizer.source.encode(lines[:60])
    for _ in range(100):
        if 2 * sum(each.finished for each in our_search(artifact, sources, 1, 0.0)) >= len(sources):
            break
        with torch.no_grad():
            model.output_bias[EOS] += 0.25
    save_artifact(artifact, folder)
    return folder


def largest_difference(engine: Any, artifact: Artifact, sources: list[list[int]]) -> float:
    """Of logits, along our greedy translations."""
    worst, model = 0.0, artifact.model
    for source, found in zip(sources, our_translations(artifact, sources, 1, 0.0), strict=True):
        read = [BOS, *found]
        with torch.inference_mode():
            ours = model.logits(model.decode(model.encode(torch.tensor([source]), None), torch.tensor([read])))[0]
        worst = max(worst, engine.differences(source, read, ours))
    return worst


def is_tie(artifact: Artifact, source: list[int], ours: list[int], theirs: list[int], penalty: float | None) -> bool:
    """Whether our model itself finds two translations equally good; with no penalty, up to the first token that differs."""
    rows = [[*ours, EOS], [*theirs, EOS]]
    if penalty is None:
        step = next(place for place, both in enumerate(zip(*rows, strict=False)) if both[0] != both[1])
        rows = [row[: step + 1] for row in rows]
    found = forced_scores(artifact.model, [source, source], rows, torch.device("cpu"))
    first, second = (sum(scores) / len(scores) ** (penalty or 0.0) for scores in found)
    return abs(first - second) <= LOGITS


def compare(name: str, artifact: Artifact, folder: Path, to: str, lines: list[str]) -> list[str]:
    """One row of the table: a model in one format, run by its engine; its last cell says what differs."""
    with tempfile.TemporaryDirectory() as home:
        out = Path(home) / "out"
        try:
            export_model(folder, out, to, Console(quiet=True))
        except InputError as reason:
            return [name, to, f"refused: {reason}", "", "", ""]
        engine = ENGINES[to](out, artifact)
        sources = artifact.tokenizer.source.encode(lines)
        worst = largest_difference(engine, artifact, sources[:: max(1, len(sources) // 50)])
        failed = [] if worst <= LOGITS else [f"{name}, {engine.name}: {engine.measure} differ by {worst:.3g}"]
        # A random model goes on for ever where length is rewarded, and engines differ in what they do with that at the limit.
        penalty = engine.penalty = engine.penalty if name.endswith("trained") else 0.0
        cells = [f"{worst:.1e}"]
        for beams in (1, 4):
            ours, theirs = both_searches(engine, artifact, lines, sources, beams)
            pairs = [both for both in zip(sources, ours, theirs, strict=True) if both[1] != both[2]]
            ties = sum(is_tie(artifact, *both, penalty if beams > 1 else None) for both in pairs)
            cells.append(f"{len(ours) - len(pairs)} of {len(ours)}" + (f", and {ties} ties" if ties else ""))
            if ties < len(pairs):
                failed.append(f"{name}, {engine.name}, beam {beams}: {len(pairs) - ties} differ; {first_difference(ours, theirs)}")
        return [name, f"{to}: {engine.name}", *cells, "; ".join(failed)]


def both_searches(engine: Any, artifact: Artifact, lines: list[str], sources: Rows, beams: int) -> tuple[Rows, Rows]:
    """Our translations and those of an engine."""
    found, extra = our_search(artifact, sources, beams, engine.penalty), artifact.recipe.search.max_extra
    theirs = engine.translate(lines, sources, beams, extra)
    cut = [place for place, each in enumerate(found) if not each.finished]
    # Cut at its limit; in a batch of theirs the limit is that of the longest sentence.
    for places in by_source_length([sources[place] for place in cut]):
        again = [cut[place] for place in places]
        texts = [lines[place] for place in again], [sources[place] for place in again]
        for place, row in zip(again, engine.translate(*texts, beams, extra), strict=True):
            theirs[place] = row
    return [each.tokens for each in found], theirs


def compare_kind(kind: str, lines: list[str], steps: int) -> Cells:
    """The rows of one kind of model, trained and random, in every engine."""
    rows, folder = [], trained(kind, KINDS[kind], steps)
    with tempfile.TemporaryDirectory() as home:
        folders = {"trained": folder, "random": randomised(Path(home) / "random", load_artifact(folder), lines)}
        for name, each in folders.items():
            artifact = load_artifact(each)
            rows += [compare(f"{kind}; {name}", artifact, each, to, lines) for to in ENGINES]
    return rows


def run_part(part: str, lines: list[str], options: argparse.Namespace) -> dict[str, Cells]:
    """A kind of model in every engine, or what is tried with one model that was trained for longer."""
    torch.set_num_threads(1)
    if part != QUALITY_PART:
        return {"rows": compare_kind(part, lines, options.steps)}
    folder = trained("quality", QUALITY, options.quality_steps)
    return {"programs": by_programs(folder, lines), "rounded": rounded(folder, 2 * len(lines))}


def run_parts(parts: list[str], lines: list[str], options: argparse.Namespace) -> dict[str, dict[str, Cells]]:
    """All parts, side by side; those that the same code has run before are read."""
    kept = HOME / f"rows-{code_digest()}-{options.lines}-{options.steps}-{options.quality_steps}.json"
    known = json.loads(kept.read_text()) if kept.exists() else {}
    known = {part: tables for part, tables in known.items() if not any(row[-1] for rows in tables.values() for row in rows)}
    waiting, began = [part for part in parts if part not in known], time.monotonic()
    # The spawned processes read it when they start: more threads than that would only wait for each other.
    os.environ["OMP_NUM_THREADS"] = "1"
    with ProcessPoolExecutor(CORES, multiprocessing.get_context("spawn")) as pool:
        started = {pool.submit(run_part, part, lines, options): part for part in waiting}
        for done, each in enumerate(as_completed(started), 1):
            known[started[each]] = each.result()
            kept.write_text(json.dumps(known))
            left = (time.monotonic() - began) / done * (len(waiting) - done) / 60
            print(f"{done} of {len(waiting)} parts ({started[each]}), about {left:.0f} min left", file=sys.stderr, flush=True)
    return {part: known[part] for part in parts}


def report(
    count: int, failures: list[str], rows: list[list[str]], programs: list[list[str]], rounded: list[list[str]]
) -> list[str]:
    return [
        "**Nothing differed.**" if not failures else "**What differed:**",
        *(f"- {each}" for each in failures),
        "",
        f"Each model was exported in float32 and run by the engine that the format is for, through its own API, on {count} English "
        "sentences of Multi30k. The trained models learned English → German for a moment; the random ones have random weights. The "
        "same means: every token of the translation. A tie: our own model finds both translations equally good, to 10⁻⁴. In "
        "onnxruntime, greedy search is the loop that is exported, and beam search is ours over its steps.",
        "",
        *table(
            ["model", "to", "largest difference of a logit", "greedy, the same", "beam 4, the same"], (row[:-1] for row in rows)
        ),
        "",
        "Logits: along our greedy translations of 50 of the sentences; of CTranslate2, which shows none, the log-probabilities of "
        "the tokens. Beam search divides log-probabilities by the length (CTranslate2: by nothing, since its search ends as soon "
        "as four hypotheses have ended, also where another would win by its length; random models: by nothing, since they would "
        "never end).",
        "",
        "## Whole programs",
        "",
        f"A model that was trained for longer, the {count} sentences as text in, text out, compared with our own search.",
        "",
        *table(["program", "the same text"], (row[:-1] for row in programs)),
        "",
        "Argos ends its search as CTranslate2 does, so a few sentences may differ. Every line was given to it as one sentence.",
        "",
        "## Rounded weights",
        "",
        f"The same model on test_2016 of Multi30k ({2 * count} sentences, beam 4); int8 may cost {WORST_BLEU} BLEU.",
        "",
        *table(["weights", "BLEU", "beside ours"], (row[:-1] for row in rounded[:-1])),
        "",
        f"BLEU: {rounded[-1][0]}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=500)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--quality-steps", type=int, default=800)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), help="parts of their names")
    parser.add_argument("--report", type=Path, default=ROOT / "docs" / "exports.md")
    options = parser.parse_args()
    HOME.mkdir(parents=True, exist_ok=True)
    lines = read_lines(Path(whole_multi30k()["val"][0]))[: options.lines]
    kinds = [kind for kind in KINDS if any(part in kind for part in options.kinds)]
    found = run_parts([QUALITY_PART, *kinds], lines, options)
    best, rows = found[QUALITY_PART], [row for kind in kinds for row in found[kind]["rows"]]
    failures = [row[-1] for row in [*rows, *best["programs"], *best["rounded"]] if row[-1]]
    title, body = "Exports: the same translations in other engines", report(len(lines), failures, rows, **best)
    write_report(options.report, title, "exports.py", sys.argv[1:], body)
    if failures:
        raise SystemExit("\n".join(failures))


if __name__ == "__main__":
    main()
