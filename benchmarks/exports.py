"""`make prove-export`: models of every kind go out to every format, and there their own engines must write what we write.

    python benchmarks/exports.py [--lines 500] [--steps 200] [--quality-steps 800] [--report docs/exports.md]

Models are trained once and kept under .venv/exports, with the rows of the table: after a stop it resumes. What differs is named,
and ends the script with exit code 1.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from foreign import ENGINES, first_difference
from measure import MULTI30K_TEST, ROOT, CannotRun, python_of, table, whole_multi30k, write_report

from undivided.artifact import Artifact, load_artifact, save_artifact
from undivided.config import SearchConfig
from undivided.core.console import Console
from undivided.core.errors import InputError
from undivided.core.ids import BOS, EOS
from undivided.data.text_files import read_lines
from undivided.inference.hypothesis import Hypothesis
from undivided.inference.score import bleu
from undivided.inference.search import forced_scores, search
from undivided.interop.export import export_model
from undivided.models import make_model
from undivided.training.loop import train

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
MOST_ARGOS = 0.95
"""The share of sentences that Argos Translate must translate as we do: its search ends by a rule of its own."""
WORST_BLEU = 0.3
"""The most that int8 weights may cost."""


def first_pairs(count: int) -> list[str]:
    """The beginning of the corpus, as files of its own."""
    names = []
    for name in map(Path, whole_multi30k()["train"]):
        names.append(str(HOME / f"first-{count}{name.suffix}"))
        Path(names[-1]).write_text("".join(f"{line}\n" for line in read_lines(name)[:count]), encoding="utf-8")
    return names


def trained(name: str, settings: dict[str, Any], steps: int) -> Path:
    """The folder of a model that was trained on Multi30k English → German."""
    folder = HOME / f"{name}-{steps}".replace(" ", "-").replace(",", "")
    corpus = whole_multi30k()["train"] if name == "quality" else first_pairs(5000)
    model = SMALL | {key: value for key, value in settings.items() if key != "joint"}
    recipe = {
        "data": {"train": [corpus], "valid": [], "hold_out": 0, "source_lang": "en", "target_lang": "de"},
        "tokens": {"vocab_size": 4000, "joint": settings.get("joint", True)},
        "batches": {"tokens": 3000},
        "model": model,
        "train": {"out": str(folder), "max_steps": steps, "schedule": "cosine", "warmup_steps": steps // 8, "rate": 0.003},
    }
    return folder if (folder / "config.json").exists() else train(recipe, Console(quiet=True))


def randomised(folder: Path, like: Artifact) -> Path:
    """A model with the settings and subwords of another and random weights; a bias makes about one token in 15 the end."""
    torch.manual_seed(7)
    recipe = replace(like.recipe, model=replace(like.recipe.model, output_bias=True))
    model = make_model(recipe.model, len(like.tokenizer.source), len(like.tokenizer.target)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
        words = torch.randint(EOS + 1, len(like.tokenizer.target), (64, 12))
        logits = model.logits(model.decode(model.encode(words % len(like.tokenizer.source), None), words))
        model.output_bias[EOS] += (logits.amax(dim=-1) - logits[..., EOS]).flatten().quantile(1 / 15)
    save_artifact(Artifact(recipe, like.tokenizer, model), folder)
    return folder


def our_search(artifact: Artifact, sources: list[list[int]], beams: int, penalty: float) -> list[Hypothesis]:
    config = SearchConfig(beam_size=beams, length_penalty=penalty, length_norm="length", max_extra=artifact.recipe.search.max_extra)
    order = sorted(range(len(sources)), key=lambda place: len(sources[place]))
    found: dict[int, Hypothesis] = {}
    for start in range(0, len(order), 64):
        places = order[start : start + 64]
        for place, best in zip(
            places, search(artifact.model, [sources[each] for each in places], config, torch.device("cpu")), strict=True
        ):
            found[place] = best[0]
    return [found[place] for place in range(len(sources))]


def our_translations(artifact: Artifact, sources: list[list[int]], beams: int, penalty: float) -> list[list[int]]:
    return [each.tokens for each in our_search(artifact, sources, beams, penalty)]


def known_rows(lines: int) -> dict[str, list[list[str]]]:
    """The rows of the table that were found before a stop."""
    path = HOME / f"rows-{lines}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def compare_kind(proof: Proof, kind: str, settings: dict[str, Any], name: str, steps: int) -> list[list[str]]:
    """The rows of one model, in every engine."""
    folder = trained(kind, settings, steps)
    if name == "random":
        folder = randomised(HOME / f"random-{os.getpid()}", load_artifact(folder))
    artifact = load_artifact(folder)
    rows = [proof.compare(f"{kind}; {name}", artifact, folder, to) for to in ENGINES]
    print(*rows, sep="\n", file=sys.stderr, flush=True)
    if name == "random":
        shutil.rmtree(folder)
    return rows


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


class Proof:
    """Compares, and remembers what failed."""

    def __init__(self, lines: list[str]) -> None:
        self.lines, self.failures = lines, list[str]()

    def compare(self, name: str, artifact: Artifact, folder: Path, to: str) -> list[str]:
        """One row of the report, a model in one foreign engine, and behind it what failed."""
        with tempfile.TemporaryDirectory() as home:
            out = Path(home) / "out"
            try:
                export_model(folder, out, to, Console(quiet=True))
            except InputError as reason:
                return [name, to, f"refused: {reason}", "", "", ""]
            engine = ENGINES[to](out, artifact)
            sources = artifact.tokenizer.source.encode(self.lines)
            worst = largest_difference(engine, artifact, sources[:: max(1, len(sources) // 50)])
            cells, failed = (
                [f"{worst:.1e}"],
                [] if worst <= LOGITS else [f"{name}, {engine.name}: {engine.measure} differ by {worst:.3g}"],
            )
            # A random model goes on for ever where length is rewarded, and engines differ in what they do with that at the limit.
            engine.penalty = engine.penalty if name.endswith("trained") else 0.0
            for beams in (1, 4):
                found, extra = our_search(artifact, sources, beams, engine.penalty), artifact.recipe.search.max_extra
                ours, theirs = [each.tokens for each in found], engine.translate(self.lines, sources, beams, extra)
                for place in (place for place, each in enumerate(found) if not each.finished):
                    # Cut at its limit; in a batch of theirs the limit is that of the longest sentence.
                    theirs[place] = engine.translate([self.lines[place]], [sources[place]], beams, extra)[0]
                pairs = [both for both in zip(sources, ours, theirs, strict=True) if both[1] != both[2]]
                ties = sum(is_tie(artifact, *both, engine.penalty if beams > 1 else None) for both in pairs)
                cells.append(f"{len(ours) - len(pairs)} of {len(ours)}" + (f", and {ties} ties" if ties else ""))
                if ties < len(pairs):
                    failed.append(
                        f"{name}, {engine.name}, beam {beams}: {len(pairs) - ties} differ; {first_difference(ours, theirs)}"
                    )
            return [name, f"{to}: {engine.name}", *cells, "; ".join(failed)]

    def rounded(self, folder: Path) -> list[list[str]]:
        """BLEU with weights of other types in CTranslate2, beside ours."""
        artifact = load_artifact(folder)
        files = whole_multi30k()[MULTI30K_TEST]
        sources, targets = (read_lines(Path(name))[: 2 * len(self.lines)] for name in files)
        rows = artifact.tokenizer.source.encode(sources)
        decode = artifact.tokenizer.target.decode
        first = bleu(decode(our_translations(artifact, rows, 4, 0.0)), targets, "de")
        found = [["ours, float32", f"{first.score:.2f}", ""]]
        for weights in ("float32", "int16", "int8"):
            with tempfile.TemporaryDirectory() as home:
                export_model(folder, Path(home) / "out", "ctranslate2", Console(quiet=True), weights)
                engine = ENGINES["ctranslate2"](Path(home) / "out", artifact)
                score = bleu(decode(engine.translate(sources, rows, 4, artifact.recipe.search.max_extra)), targets, "de")
            found.append([f"CTranslate2, {weights}", f"{score.score:.2f}", f"{score.score - first.score:+.2f}"])
            if score.score < first.score - WORST_BLEU:
                self.failures.append(f"{weights} costs {first.score - score.score:.2f} BLEU")
        return [*found, [f"`{first.signature}`", "", ""]]

    def by_programs(self, folder: Path) -> list[list[str]]:
        """Whole programs with environments of their own: the pipeline of transformers 4, Argos Translate."""
        artifact, lines, rows = load_artifact(folder), self.lines, []
        sources = artifact.tokenizer.source.encode(lines)
        decode = artifact.tokenizer.target.decode
        with tempfile.TemporaryDirectory() as home:
            export_model(folder, Path(home) / "marian", "marian", Console(quiet=True))
            export_model(folder, Path(home) / "a.argosmodel", "argos", Console(quiet=True))
            packages = {
                "ARGOS_PACKAGES_DIR": str(Path(home) / "packages"),
                "XDG_DATA_HOME": home,
                "XDG_CONFIG_HOME": home,
                "XDG_CACHE_HOME": home,
            }
            programs = {
                'transformers 4, `pipeline("translation")`, greedy': (
                    "transformers4",
                    ["with_pipeline.py", f"{home}/marian"],
                    1,
                    1.0,
                ),
                "Argos Translate, its own search (beam 4, length penalty 0.2)": (
                    "argos",
                    ["with_argos.py", f"{home}/a.argosmodel", "en", "de"],
                    4,
                    0.2,
                ),
            }
            for name, (peer, command, beams, penalty) in programs.items():
                try:
                    theirs = run_program(peer, command, lines, os.environ | packages)
                except CannotRun as reason:
                    rows.append([name, f"not run: {reason}"])
                    continue
                ours = decode(our_translations(artifact, sources, beams, penalty))
                same = sum(one == other for one, other in zip(ours, theirs, strict=True))
                rows.append([name, f"{same} of {len(lines)}"])
                if same < len(lines) * (MOST_ARGOS if peer == "argos" else 1):
                    self.failures.append(f"{name}: {same} of {len(lines)} the same")
        return rows


def run_program(peer: str, command: list[str], lines: list[str], environment: dict[str, str]) -> list[str]:
    """What a program with an environment of its own writes for lines."""
    program = [str(python_of(peer)), str(Path(__file__).parent / "peers" / command[0]), *command[1:]]
    text = "\n".join(lines) + "\n"
    ran = subprocess.run(program, input=text, capture_output=True, text=True, check=False, env=environment)
    if ran.returncode:
        raise SystemExit(f"{peer}: {ran.stderr[-2000:]}")
    return ran.stdout.splitlines()


def report(proof: Proof, rows: list[list[str]], programs: list[list[str]], rounded: list[list[str]]) -> list[str]:
    count = len(proof.lines)
    return [
        "**Nothing differed.**" if not proof.failures else "**What differed:**",
        *(f"- {each}" for each in proof.failures),
        "",
        f"Each model was exported in float32 and run by the engine that the format is for, through its own API, on {count} English "
        "sentences of Multi30k. The trained models learned English → German for a moment; the random ones have random weights. The "
        "same means: every token of the translation. A tie: our own model finds both translations equally good, to 10⁻⁴. In "
        "onnxruntime, greedy search is the loop that is exported, and beam search is ours over its steps.",
        "",
        *table(["model", "to", "largest difference of a logit", "greedy, the same", "beam 4, the same"], rows),
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
        *table(["program", "the same text"], programs),
        "",
        "Argos ends its search as CTranslate2 does, so a few sentences may differ. Every line was given to it as one sentence.",
        "",
        "## Rounded weights",
        "",
        f"The same model on test_2016 of Multi30k ({2 * count} sentences, beam 4); int8 may cost {WORST_BLEU} BLEU.",
        "",
        *table(["weights", "BLEU", "beside ours"], rounded[:-1]),
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
    torch.set_num_threads(1)
    proof = Proof(read_lines(Path(whole_multi30k()["val"][0]))[: options.lines])
    rows = known_rows(options.lines)
    chosen = [(kind, name) for kind in KINDS if any(part in kind for part in options.kinds) for name in ("trained", "random")]
    waiting, began = [(kind, name) for kind, name in chosen if f"{kind}; {name}" not in rows], time.monotonic()
    for done, (kind, name) in enumerate(waiting, 1):
        rows[f"{kind}; {name}"] = compare_kind(proof, kind, KINDS[kind], name, options.steps)
        (HOME / f"rows-{options.lines}.json").write_text(json.dumps(rows))
        left = (time.monotonic() - began) / done * (len(waiting) - done)
        print(f"{done} of {len(waiting)} models, about {left / 60:.0f} min left for the others", file=sys.stderr, flush=True)
    proof.failures += [row[-1] for each in rows.values() for row in each if row[-1]]
    best = trained("quality", QUALITY, options.quality_steps)
    programs, rounded = proof.by_programs(best), proof.rounded(best)
    write_report(
        options.report,
        "Exports: the same translations in other engines",
        "exports.py",
        sys.argv[1:],
        report(proof, rows, programs, rounded),
    )
    if proof.failures:
        raise SystemExit("\n".join(proof.failures))


if __name__ == "__main__":
    main()
