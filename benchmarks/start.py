"""Start-up: loading a model and translating one sentence from the shell.

    python benchmarks/start.py [--rounds 7] [--preset base] [--model FOLDER]

Without a trained model, one with random weights that never ends by itself: all that translate write as many tokens.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import measure
from measure import CORES, ROOT, table
from translate import learn_subwords, make_folder

from undivided.artifact import open_artifact
from undivided.core.console import Console
from undivided.inference.engines.ctranslate2_convert import convert

SENTENCE = "A dog runs on the beach.\n"
OURS = "undivided translate"
BY_HAND = """
import sys, ctranslate2, sentencepiece
subwords = sentencepiece.SentencePieceProcessor(sys.argv[1])
translator = ctranslate2.Translator(sys.argv[2], inter_threads=int(sys.argv[3]), intra_threads=1)
rows = [subwords.encode(line.strip(), out_type=str) for line in sys.stdin]
for found in translator.translate_batch(rows, beam_size=4, max_decoding_length=max(map(len, rows)) + 50):
    print(subwords.decode(found.hypotheses[0]))
"""
"""What one would write without us."""


def commands(folder: Path) -> dict[str, list[str]]:
    """What is timed, by what it is called."""
    converted = convert(open_artifact(folder, "cpu"), folder, Console(quiet=True))
    return {
        "python -c pass": ["-c", "pass"],
        "python -c 'import torch'": ["-c", "import torch"],
        OURS: ["-m", "undivided", "translate", str(folder)],
        f"{OURS} --engine torch": ["-m", "undivided", "translate", str(folder), "--engine", "torch"],
        "CTranslate2 and sentencepiece, by hand": ["-c", BY_HAND, str(folder / "subwords.model"), str(converted), str(CORES)],
    }


def timed(arguments: list[str]) -> float:
    """Seconds that one command takes."""
    began = time.perf_counter()
    command = [sys.executable, *arguments]
    done = subprocess.run(command, input=SENTENCE, text=True, capture_output=True, env=measure.our_environment(), check=False)
    if done.returncode:
        raise SystemExit(f"{arguments[:4]} failed: {done.stderr}")
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--model", type=Path, help="a trained model folder instead of random weights")
    parser.add_argument("--preset", default="base", help="size of the random model")
    parser.add_argument("--pairs", type=int, default=29_000, help="how much of the corpus the subwords are learned from")
    parser.add_argument("--vocabulary", type=int, default=6000)
    parser.add_argument("--report", type=Path, default=ROOT / "docs" / "benchmarks" / "start.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        folder = options.model or make_folder(home, options.preset, *learn_subwords(home, options), options)
        found: dict[str, list[float]] = {each: [] for each in commands(folder)}
        timed(commands(folder)[OURS])  # converts the model
        for _ in range(options.rounds + 1):
            for each, arguments in commands(folder).items():
                found[each].append(timed(arguments))
    rows = []
    for each, runs in found.items():
        ratio = statistics.median(one / other for one, other in zip(runs[1:], found[OURS][1:], strict=True))
        rows.append([each, f"{statistics.median(runs[1:]):.2f}", f"{ratio:.2f} ×"])
    body = [
        f"{CORES} cores, medians of {options.rounds} interleaved rounds after one that is not counted; "
        f"{options.model.name if options.model else f'the `{options.preset}` preset, random weights'}, converted before.",
        "",
        *table(["from the shell, one sentence", "seconds", "of ours"], rows),
    ]
    measure.write_report(options.report, "Start-up", "start.py", sys.argv[1:], body)


if __name__ == "__main__":
    main()
