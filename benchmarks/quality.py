"""Time to BLEU on Multi30k English → German: ours with its recipe, fairseq with the recipe published for the same model.

    python benchmarks/quality.py [--minutes 60] [--sides undivided fairseq] [--lowercased] [--out models/quality]

The clock of a side runs from its first command: subwords, tokenising, training, its own validation by real decoding, checkpoints.
After a stop, the same command resumes, and so do the clocks. The two sides train one after the other, alone on the machine.
At the end each translates test_2016 with a beam of five.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import measure
from measure import CORES, MULTI30K_TEST, ROOT, plot, table

from undivided.core.files import write_atomic

RECIPE = ROOT / "recipes" / "multi30k-en-de.yaml"
MENDED = ROOT / "benchmarks" / "peers" / "mended_fairseq.py"
FLAGS = ["--train.ema", "0.999", "--train.validate_every", "1000", "--train.max_steps", "100000"]
"""Of ours, beside its recipe: a running average is validated, and often; the clock ends the training."""
THRESHOLDS = [20, 25, 30, *range(32, 46)]

FAIRSEQ = [
    "--arch", "transformer", "--share-all-embeddings", "--encoder-layers", "4", "--decoder-layers", "4",
    "--encoder-embed-dim", "128", "--decoder-embed-dim", "128", "--encoder-ffn-embed-dim", "256", "--decoder-ffn-embed-dim", "256",
    "--encoder-attention-heads", "4", "--decoder-attention-heads", "4", "--dropout", "0.3",
    "--optimizer", "adam", "--adam-betas", "(0.9, 0.98)", "--clip-norm", "0.0", "--lr", "0.005", "--lr-scheduler", "inverse_sqrt",
    "--warmup-updates", "2000", "--warmup-init-lr", "1e-07", "--criterion", "label_smoothed_cross_entropy",
    "--label-smoothing", "0.1", "--max-tokens", "4096", "--weight-decay", "0.0", "--update-freq", "1",
]  # fmt: skip
"""The tiny model of Wu et al. (2021) as they trained it with fairseq. The checkpoint with the best validation translates."""


class Clock:
    """What a side has spent so far and what it had reached when, kept in a file through stops."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = json.loads(path.read_text()) if path.exists() else {}
        self.seconds: float = kept.get("seconds", 0.0)
        self.points: list[tuple[float, float]] = [tuple(point) for point in kept.get("points", [])]
        self.result: dict[str, Any] = kept.get("result", {})
        self._mark = time.monotonic()

    def tick(self) -> float:
        now = time.monotonic()
        self.seconds += now - self._mark
        self._mark = now
        kept = {"seconds": self.seconds, "points": self.points, "result": self.result}
        write_atomic(self.path, json.dumps(kept))
        return self.seconds

    def start(self) -> None:
        self._mark = time.monotonic()


def watched(command: Sequence[str], clock: Clock, limit: float, notice: Callable[[], float | None], log: Path) -> None:
    """Run a command until it ends or its time is over; note each new BLEU that `notice` finds.

    It is stopped by SIGTERM: a shell that starts this script in the background has its children ignore SIGINT.
    """
    with log.open("a") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=stream, env=measure.our_environment())
        stopped = False
        try:
            while process.poll() is None:
                time.sleep(1)
                while (found := notice()) is not None:
                    clock.points.append((clock.seconds, found))
                if clock.tick() >= limit and not stopped:
                    process.send_signal(signal.SIGTERM)
                    stopped = True
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait()
    if process.returncode and not stopped:
        raise SystemExit(f"{' '.join(command[:4])} … failed; see {log}")


def new_lines(path: Path, seen: int, pattern: str) -> Callable[[], float | None]:
    """The BLEU of each further line that matches, one at a time; those seen before are passed over."""
    place = [seen]

    def notice() -> float | None:
        lines = re.findall(pattern, path.read_text(encoding="utf-8", errors="replace")) if path.exists() else []
        if len(lines) <= place[0]:
            return None
        place[0] += 1
        return float(lines[place[0] - 1])

    return notice


def train_ours(home: Path, clock: Clock, minutes: float, corpus: dict[str, list[str]], recipe: Path) -> str:
    """`undivided train` with a shipped recipe; the text of the test set."""
    out = home / "model"
    command = [sys.executable, "-m", "undivided", "train", str(recipe), "--train", *corpus["train"], "--valid", *corpus["val"]]
    # Its own minutes count steps alone: the rate falls to zero a little before the clock, which counts all, is over.
    command += ["--out", str(out), "--minutes", str(0.93 * minutes), *FLAGS]
    notice = new_lines(out / "training" / "log.jsonl", len(clock.points), r'"event": "(?:validation|final)".*?"bleu": ([0-9.]+)')
    watched(command, clock, minutes * 60 * 1.1, notice, home / "output.log")
    return measure.undivided("translate", str(out), corpus[MULTI30K_TEST][0], "--beam-size", "5", "--quiet")


def fairseq(*arguments: str) -> list[str]:
    return [str(measure.python_of("fairseq")), "-W", "ignore", str(MENDED), *arguments]


def prepare_fairseq(home: Path, corpus: dict[str, list[str]]) -> Path:
    """Subwords as ours learns them, and fairseq's binary data of them."""
    from undivided.config import build_recipe
    from undivided.data.subwords import Tokenizer

    data = home / "data"
    if (data / "dict.en.txt").exists():
        return data
    lines = [Path(name).read_text(encoding="utf-8").splitlines() for name in corpus["train"]]
    recipe = build_recipe({"tokens": {"vocab_size": 6000}})
    tokenizer = Tokenizer.learn(lambda: zip(*lines, strict=True), recipe.tokens, len(lines[0]), 1)
    for part, files in corpus.items():
        for name, side in zip(files, (tokenizer.source, tokenizer.target), strict=True):
            rows = side.encode(Path(name).read_text(encoding="utf-8").splitlines())
            text = "".join(" ".join(side.pieces(row[:-1])) + "\n" for row in rows)
            (home / f"{part}{Path(name).suffix}").write_text(text, encoding="utf-8")
    prefixes = ["--trainpref", str(home / "train"), "--validpref", str(home / "val"), "--testpref", str(home / MULTI30K_TEST)]
    command = fairseq("preprocess", "--source-lang", "en", "--target-lang", "de", "--joined-dictionary", "--destdir", str(data))
    subprocess.run([*command, *prefixes], check=True, capture_output=True)
    return data


def train_fairseq(home: Path, clock: Clock, minutes: float, corpus: dict[str, list[str]], _: Path) -> str:
    """fairseq-train with the published recipe, validation by greedy decoding; the text of the test set."""
    data = prepare_fairseq(home, corpus)
    clock.tick()
    save, log = home / "checkpoints", home / "output.log"
    command = fairseq("train", str(data), "--task", "translation", "-s", "en", "-t", "de", *FAIRSEQ, "--save-dir", str(save))
    command += ["--eval-bleu", "--eval-bleu-args", '{"beam": 1}', "--eval-bleu-remove-bpe", "sentencepiece", "--cpu"]
    command += ["--best-checkpoint-metric", "bleu", "--maximize-best-checkpoint-metric", "--keep-last-epochs", "10"]
    command += ["--log-format", "json", "--stop-time-hours", str(max(1.0, minutes * 60 - clock.seconds) / 3600)]
    notice = new_lines(log, len(clock.points), r'"valid_bleu": "?([0-9.]+)')
    if clock.seconds < minutes * 60:
        watched(command, clock, minutes * 60 * 1.1, notice, log)
    best = save / "checkpoint_best.pt"
    generate = fairseq("generate", str(data), "--path", str(best), "--beam", "5", "--remove-bpe", "sentencepiece", "--cpu")
    found = subprocess.run([*generate, "--max-tokens", "4000"], capture_output=True, text=True, check=True).stdout
    rows = dict(re.findall(r"^H-(\d+)\t[^\t]*\t(.*)$", found, re.MULTILINE))
    return "".join(rows[str(number)] + "\n" for number in range(len(rows)))


SIDES = {"undivided": train_ours, "fairseq": train_fairseq}


def scored(text: str, reference: str, home: Path) -> dict[str, Any]:
    """BLEU of a translation, cased and as in older papers."""
    output = home / "test.out"
    output.write_text(text, encoding="utf-8")
    return {"score": measure.undivided("score", str(output), reference, "--moses", "de").strip()}


def reached(clock: Clock, bleu: float) -> str:
    """When a validation first had so much."""
    return next((f"{seconds / 60:.1f}" for seconds, found in clock.points if found >= bleu), "")


def flags_of(folder: Path) -> str:
    """What the flags of ours were when its model was trained."""
    recipe = json.loads((folder / "config.json").read_text(encoding="utf-8"))["recipe"]
    return " ".join(f"{flag} {recipe['train'][flag.rpartition('.')[2]]:g}" for flag in FLAGS[::2])


def report(options: argparse.Namespace, clocks: dict[str, Clock]) -> list[str]:
    rows = [[str(bleu), *(reached(clock, bleu) for clock in clocks.values())] for bleu in THRESHOLDS]
    rows = [row for row in rows if any(row[1:])]
    flags = flags_of(clocks["undivided"].path.parent / "model") if "undivided" in clocks else " ".join(FLAGS)
    body = [
        "Multi30k English → German, the tiny model of Wu et al. (2021). The clock counts everything a side does, also its own "
        f"validation by greedy decoding of `val`. Ours follows `recipes/{options.recipe.name}` with `{flags}`, fairseq "
        "the recipe published with the model (Adam, inverse square root from 0.005, 2,000 steps of warm-up, 4,096 tokens a batch)."
        + (" All text is in small letters, as where the model was published." if options.lowercased else ""),
        "",
        f"Minutes to a validation BLEU ({'lowercased' if options.lowercased else 'cased'} sacreBLEU, greedy):",
        "",
        *table(["BLEU", *clocks], rows),
        "",
        f"![BLEU over minutes]({options.report.stem}.svg)",
        "",
    ]
    curves = {name: ([at / 60 for at, _ in clock.points], [bleu for _, bleu in clock.points]) for name, clock in clocks.items()}
    plot(options.report.with_suffix(".svg"), "minutes", curves, "BLEU", straight=True)
    for name, clock in clocks.items():
        body += [
            f"## {name}",
            "",
            f"{clock.seconds / 60:.1f} minutes in all. test_2016, beam 5:",
            "",
            "```",
            clock.result.get("score", "not yet translated"),
            "```",
            "",
            *table(["minutes", "BLEU"], [[f"{seconds / 60:.1f}", f"{found:.2f}"] for seconds, found in clock.points]),
            "",
        ]
    return body


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60, help="for each side")
    parser.add_argument("--sides", nargs="+", default=list(SIDES), choices=list(SIDES))
    parser.add_argument("--lowercased", action="store_true", help="train and translate in small letters, as in the papers")
    parser.add_argument("--recipe", type=Path, default=RECIPE, help="of ours")
    parser.add_argument("--out", type=Path, default=ROOT / "models" / "quality")
    parser.add_argument("--report", type=Path, default=ROOT / "docs" / "benchmarks" / "quality.md")
    options = parser.parse_args()
    corpus = measure.whole_multi30k()
    home = options.out / f"{options.minutes:g}-minutes{'-lowercased' if options.lowercased else ''}"
    corpus = measure.lowercased(corpus, home / "text") if options.lowercased else corpus
    clocks = {}
    for name in options.sides:
        clocks[name] = clock = Clock(home / name / "clock.json")
        if not clock.result:
            if name != "undivided":
                measure.python_of(name)
            clock.start()
            text = SIDES[name](home / name, clock, options.minutes, corpus, options.recipe)
            clock.result = scored(text, corpus[MULTI30K_TEST][1], home / name)
            clock.start()  # the test is not on the clock
            clock.tick()
    body = [f"{CORES} cores, {options.minutes:g} minutes for each side.", "", *report(options, clocks)]
    measure.write_report(options.report, "Time to BLEU", "quality.py", sys.argv[1:], body)


if __name__ == "__main__":
    main()
