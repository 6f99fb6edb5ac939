"""A real corpus, minutes of training, a score and a few translations: what `make demo` runs."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from pathlib import Path

from undivided.cli.demo.corpus import TARGETS, UNSEEN, prepare_corpus
from undivided.config.settings import Values, suggest
from undivided.core.console import Console, Progress, plural, printable
from undivided.core.errors import InputError
from undivided.core.files import write_atomic
from undivided.data.text_files import read_lines
from undivided.formats import DocumentOptions, open_document
from undivided.inference.documents import judge_segment, translate_document
from undivided.inference.report import Tally
from undivided.inference.score import score
from undivided.inference.translator import Translator
from undivided.training.loop import Stopped, train


def demo(pair: str, minutes: float, out: Path, console: Console) -> None:
    """Get a corpus, train a translator on it for some minutes, score it and show translations; resumes after a stop."""
    known = [f"en-{target}" for target in TARGETS]
    if pair not in known:
        raise InputError(f"--pair: no demo for {pair!r}; choose one of {', '.join(known)}{suggest(pair, known)}")
    if not minutes > 0:
        raise InputError(f"--minutes: {minutes:g} leaves no time to train; give more than 0")
    home = out / pair
    prepare_corpus(pair, home / "corpus", console)
    train_for(pair, minutes, home, console)
    show(pair, home, console)


def train_for(pair: str, minutes: float, home: Path, console: Console) -> None:
    """Train or resume until the minutes are used up; do nothing once they are."""
    model = home / "model"
    spent = minutes_spent(model / "training" / "log.jsonl")
    if minutes <= spent:
        console.say(
            f"{model}: already trained for {spent:.3g} minutes (to train longer, raise --minutes; to start over, remove it)"
        )
        return
    try:
        train(make_recipe(pair, minutes, home), console)
    except Stopped as stop:
        raise Stopped(stop.exit_code - 128, f"{stop}, or run the demo again") from None


def minutes_spent(log: Path) -> float:
    """How long a finished training took; 0 for an unfinished one."""
    if not log.exists():
        return 0.0
    events = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
    return max((event["seconds"] / 60 for event in events if event["event"] == "final"), default=0.0)


def make_recipe(pair: str, minutes: float, home: Path) -> Values:
    """What the demo trains: files and minutes, and nothing that `undivided train` would not choose by itself."""
    source, target = pair.split("-")
    data = {part: [[str(home / "corpus" / f"{part}.{lang}") for lang in (source, target)]] for part in ("train", "valid")}
    place = {"out": str(home / "model"), "minutes": minutes}
    return {"data": {**data, "source_lang": source, "target_lang": target}, "train": place}


def show(pair: str, home: Path, console: Console) -> None:
    """Print the score on held-out sentences, some translations beside their references, and what to do next."""
    source, target = pair.split("-")
    sources, references = (read_lines(home / "corpus" / f"test.{lang}") for lang in (source, target))
    translator = Translator(home / "model", engine="torch")
    progress = Progress(console, "translated lines", len(sources))
    ours = [result.text for result in translator.stream(sources, advance=progress.advance)]
    console.clear()
    beam = translator.search_config().beam_size
    print(f"\nOn {plural(len(sources), 'held-out sentence')}, {pair}, beam {beam}:")
    for each in score(ours, references, target_lang=target)[:2]:
        print(f"  {each}")
    print("\nSome of them (not in the training data):")
    for place in pick_examples(sources):
        source_text, our_text, reference_text = (printable(texts[place]) for texts in (sources, ours, references))
        print(f"\n  source     {source_text}\n  ours       {our_text}\n  reference  {reference_text}")
    show_document(pair, home, translator)
    print("\n" + "\n".join(next_steps(pair, home)))


def show_document(pair: str, home: Path, translator: Translator) -> None:
    """Translate a whole document that was kept from training, and say what became of its segments."""
    for path in sorted((home / "corpus").glob(f"{UNSEEN}.*")):
        result = translate_document(translator, open_document(path, options=DocumentOptions(*pair.split("-"))), everything=True)
        if result is None:
            return
        out, tally = home / f"{UNSEEN}.{pair.partition('-')[2]}{path.suffix}", Tally()
        write_atomic(out, result.data)
        for each in result.results:
            tally.add(judge_segment(each, translator.usual))
        print(f"\nA document that it has not seen: {path} → {out}\n  {tally.summary()}")


def pick_examples(texts: list[str], count: int = 6) -> list[int]:
    """Indices of some texts, from short to long, always the same."""
    order = sorted(range(len(texts)), key=lambda place: (len(texts[place]), texts[place]))
    count = min(count, len(order))
    return [order[(2 * step + 1) * len(order) // (2 * count)] for step in range(count)]


def next_steps(pair: str, home: Path) -> list[str]:
    """Commands to try next, ready to paste."""
    beside = Path(sys.executable).with_name("undivided")
    command = "undivided" if shutil.which("undivided") or not beside.exists() else shlex.quote(os.path.relpath(beside))
    model = shlex.quote(str(home / "model"))
    source, target = pair.split("-")
    files = f"--train my.{source} my.{target} --source-lang {source} --target-lang {target} --out my-model"
    return [
        "What to do next:",
        f'  translate your own text:      echo "Open the file." | {command} translate {model}',
        f"  train on your own two files:  {command} train {files}",
        f'  look inside:                  {command} look {model} "Open the file." -o look.html',
        f"  see what else it can do:      {command} --help",
    ]
