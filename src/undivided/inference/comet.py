"""COMET, measured by a Python of the user's own: its requirements do not fit beside ours, so it lives in another environment."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from undivided.core.errors import InputError, UndividedError
from undivided.inference.score import Score

MODEL = "Unbabel/wmt22-comet-da"
HOW = (
    "COMET needs an environment of its own: python3 -m venv comet-env && comet-env/bin/pip install unbabel-comet, then "
    "--comet-python comet-env/bin/python"
)
MARK = "undivided-comet:"

SCRIPT = f"""
import json, sys
given = json.load(sys.stdin)
try:
    from comet import download_model, load_from_checkpoint
except ImportError as error:
    print("{MARK}" + json.dumps({{"missing": str(error)}}))
    sys.exit(0)
model = load_from_checkpoint(download_model(given["model"]))
found = model.predict(given["rows"], batch_size=16, gpus=0, progress_bar=False)
print("{MARK}" + json.dumps({{"score": float(found.system_score)}}))
"""
"""What the other Python runs. It is isolated (`-I`): it imports nothing from the working directory."""


def comet_score(
    python: str, sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str], model: str = MODEL
) -> Score:
    """COMET of translations, times 100, by the Python of another environment."""
    rows = [{"src": s, "mt": h, "ref": r} for s, h, r in zip(sources, hypotheses, references, strict=True)]
    if not Path(python).is_file():
        raise InputError(f"--comet-python {python}: no such file. {HOW}")
    try:
        done = subprocess.run(
            [str(Path(python).absolute()), "-I", "-c", SCRIPT],
            input=json.dumps({"model": model, "rows": rows}),
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
        )
    except OSError as error:
        raise InputError(f"--comet-python {python}: cannot be run: {error.strerror or error}. {HOW}") from None
    lines = [line.removeprefix(MARK) for line in done.stdout.splitlines() if line.startswith(MARK)]
    answer = json.loads(lines[-1]) if lines else {}
    if "missing" in answer:
        raise InputError(f"--comet-python {python}: has no comet ({answer['missing']}). {HOW}")
    if "score" not in answer:
        last = (done.stderr.strip().splitlines() or ["it printed no score"])[-1]
        raise UndividedError(f"--comet-python {python}: COMET failed: {last}")
    return Score("COMET", 100 * float(answer["score"]), f"{model}|times:100")
