"""Exports of one model that was trained for longer: whole programs with environments of their own, and weights of fewer bits."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from foreign import ENGINES, our_translations
from measure import MULTI30K_TEST, CannotRun, python_of, whole_multi30k

from undivided.artifact import load_artifact
from undivided.core.console import Console
from undivided.data.text_files import read_lines
from undivided.inference.score import bleu
from undivided.interop.export import export_model

MOST_ARGOS = 0.95
"""The share of sentences that Argos Translate must translate as we do: its search ends by a rule of its own."""
WORST_BLEU = 0.3
"""The most that int8 weights may cost."""


def by_programs(folder: Path, lines: list[str]) -> list[list[str]]:
    """The pipeline of transformers 4, and Argos Translate: text in, text out; the last cell says what differs."""
    artifact, rows = load_artifact(folder), []
    sources = artifact.tokenizer.source.encode(lines)
    with tempfile.TemporaryDirectory() as home:
        export_model(folder, Path(home) / "marian", "marian", Console(quiet=True))
        export_model(folder, Path(home) / "a.argosmodel", "argos", Console(quiet=True))
        named = {"XDG_DATA_HOME": home, "XDG_CONFIG_HOME": home, "XDG_CACHE_HOME": home}
        environment = os.environ | named | {"ARGOS_PACKAGES_DIR": str(Path(home) / "packages")}
        pipeline = ["with_pipeline.py", f"{home}/marian"]
        argos = ["with_argos.py", f"{home}/a.argosmodel", "en", "de"]
        programs = {
            'transformers 4, `pipeline("translation")`, greedy': ("transformers4", pipeline, 1, 1.0, 1.0),
            "Argos Translate, its own search (beam 4, length penalty 0.2)": ("argos", argos, 4, 0.2, MOST_ARGOS),
        }
        for name, (peer, command, beams, penalty, least) in programs.items():
            try:
                theirs = run_program(peer, command, lines, environment)
            except CannotRun as reason:
                rows.append([name, f"not run: {reason}", f"{name}: not run"])
                continue
            ours = artifact.tokenizer.target.decode(our_translations(artifact, sources, beams, penalty))
            same = sum(one == other for one, other in zip(ours, theirs, strict=True))
            failed = f"{name}: {same} of {len(lines)} the same" if same < len(lines) * least else ""
            rows.append([name, f"{same} of {len(lines)}", failed])
    return rows


def run_program(peer: str, command: list[str], lines: list[str], environment: dict[str, str]) -> list[str]:
    """What a program with an environment of its own writes for lines."""
    program = [str(python_of(peer)), str(Path(__file__).parent / "peers" / command[0]), *command[1:]]
    text = "".join(f"{line}\n" for line in lines)
    ran = subprocess.run(program, input=text, capture_output=True, text=True, check=False, env=environment)
    if ran.returncode:
        raise CannotRun(ran.stderr.strip().splitlines()[-1] if ran.stderr.strip() else f"exit code {ran.returncode}")
    return ran.stdout.splitlines()


def rounded(folder: Path, count: int) -> list[list[str]]:
    """BLEU with weights of other types in CTranslate2, beside ours; the last row is the signature."""
    artifact = load_artifact(folder)
    sources, targets = (read_lines(Path(name))[:count] for name in whole_multi30k()[MULTI30K_TEST])
    rows = artifact.tokenizer.source.encode(sources)
    decode = artifact.tokenizer.target.decode
    first = bleu(decode(our_translations(artifact, rows, 4, 0.0)), targets, "de")
    found = [["ours, float32", f"{first.score:.2f}", "", ""]]
    for weights in ("float32", "int16", "int8"):
        with tempfile.TemporaryDirectory() as home:
            export_model(folder, Path(home) / "out", "ctranslate2", Console(quiet=True), weights)
            engine = ENGINES["ctranslate2"](Path(home) / "out", artifact)
            score = bleu(decode(engine.translate(sources, rows, 4, artifact.recipe.search.max_extra)), targets, "de").score
        failed = f"{weights} costs {first.score - score:.2f} BLEU" if score < first.score - WORST_BLEU else ""
        found.append([f"CTranslate2, {weights}", f"{score:.2f}", f"{score - first.score:+.2f}", failed])
    return [*found, [f"`{first.signature}`", "", "", ""]]
