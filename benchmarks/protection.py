# ruff: noqa: E501  (a report is written as it is)
"""`make prove-protection`: a model that learned with protection beside one that did not, after equal steps, on held-out text.

    python benchmarks/protection.py [--steps 6000] [--jobs 2] [--only with|without] [--report docs/protection.md]

The two are trained side by side, with one thread each, and kept under `.venv/protection`: a stopped run resumes. The report is written
once both are trained; `--only` trains one of them and does nothing else.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

from measure import CORPORA, ROOT
from protection_data import HeldOut, Span, TaggedText, inject, split_corpus

from undivided.core.console import Console
from undivided.formats import Marked
from undivided.formats.markup import Link, Placed, place_tags
from undivided.inference import translator as translator_module
from undivided.inference.alignment import make_aligner
from undivided.inference.forcing import first_lost, force_lost
from undivided.inference.restoration import is_nested
from undivided.inference.score import bleu, compare
from undivided.inference.translation import Translation
from undivided.inference.translator import Translator
from undivided.training.loop import train

TAGGED, PLAIN, INJECTED = 500, 2000, 1000
CORPUS = CORPORA / "libreoffice-help" / "en-de"
MODELS = {"with": True, "without": False}


def settings(folder: Path, name: str, steps: int) -> dict[str, dict[str, Any]]:
    """What a model is trained with: what `undivided train` takes for so many steps. The two differ in `tokens.protect` alone."""
    return {
        "data": {
            "train": [[str(folder / "train.en"), str(folder / "train.de")]],
            "valid": [[str(CORPUS / "valid.en"), str(CORPUS / "valid.de")]],
            "source_lang": "en",
            "target_lang": "de",
        },
        "tokens": {"protect": MODELS[name]},
        "batches": {"tokens": 1024},
        "train": {"max_steps": steps, "threads": 1, "out": str(model_folder(folder, name, steps))},
    }


def model_folder(folder: Path, name: str, steps: int) -> Path:
    return folder / f"{name}-{steps}"


def train_one(folder: Path, name: str, steps: int) -> None:
    """Train a model, or resume its training; once it is finished, do nothing."""
    home = model_folder(folder, name, steps)
    if not (home / "finished").exists():
        train(settings(folder, name, steps), Console())
        (home / "finished").touch()


def train_all(folder: Path, steps: int, jobs: int) -> None:
    """Train both, each in a process of its own."""

    def run(name: str) -> None:
        with (folder / f"{name}-{steps}.log").open("ab") as log:
            command = [sys.executable, __file__, "--folder", str(folder), "--steps", str(steps), "--only", name]
            subprocess.run(command, stderr=log, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        print(f"trained {name} protection", flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(run, MODELS))


class Counting(Translator):
    """A translator that counts the lines which it decodes a second time because something was lost."""

    again = 0

    def _find_lost(self, requests, texts, lost, config):
        self.again += len(lost)
        return super()._find_lost(requests, texts, lost, config)


def count_forced(artifact, requests, texts, results, *given):
    """The second try of models without symbols, counted as well."""
    COUNTED["forced"] += sum(bool(first_lost(each.text, results[index].text)) for index, each in enumerate(requests))
    return force_lost(artifact, requests, texts, results, *given)


COUNTED = Counter[str]()
translator_module.force_lost = count_forced


def translate(translator: Translator, texts: Sequence[str]) -> list[Translation]:
    return list(translator.stream(texts))


def share(part: float, whole: float) -> str:
    return f"{100 * part / max(1, whole):.1f} %"


def without_items(text: str, items: Sequence[str]) -> str:
    """A translation without what was injected, as far as it is there."""
    for item in sorted(items, key=len, reverse=True):
        text = text.replace(item, " ", 1)
    return " ".join(re.sub(r"\s+([.,:;!?)])", r"\1", text).split())


def prove_intact(models: dict[str, Counting], pairs: Sequence[tuple[str, str]]) -> list[str]:
    """What was injected comes back once each, and the rest is no worse."""
    made = [inject(source, number) for number, (source, _) in enumerate(pairs)]
    references = [target for _, target in pairs]
    rows = [f"| | {' | '.join(f'{name} protection' for name in models)} |", "|---" * (len(models) + 1) + "|"]
    cells: dict[str, list[str]] = {}
    texts: dict[str, list[list[str]]] = {"BLEU of the rest": [], "BLEU with nothing injected": []}
    for translator in models.values():
        translator.again, COUNTED["forced"] = 0, 0
        found = translate(translator, [text for text, _ in made])
        counts = [(Counter(items), result.text) for (_, items), result in zip(made, found, strict=True)]
        again = translator.again or COUNTED["forced"]
        whole = sum(all(text.count(item) == count for item, count in items.items()) for items, text in counts)
        kept = sum(min(text.count(item), count) for items, text in counts for item, count in items.items())
        flagged = sum(translator.judge(each).name == "placeholder-lost" for each in found)
        rest = [without_items(result.text, items) for (_, items), result in zip(made, found, strict=True)]
        plain = [each.text for each in translate(translator, [source for source, _ in pairs])]
        for name, value in {
            f"sentences of {len(made):,} in which all is intact, once each": share(whole, len(made)),
            f"of {sum(len(items) for _, items in made):,} injected items, found": share(kept, sum(len(items) for _, items in made)),
            "sentences decoded a second time under the constraint": f"{again:,}",
            "sentences flagged `placeholder-lost`": f"{flagged:,}",
            "BLEU of the rest": f"{bleu(rest, references, 'de').score:.1f}",
            "BLEU of the same sentences with nothing injected": f"{bleu(plain, references, 'de').score:.1f}",
        }.items():
            cells.setdefault(name, []).append(value)
        for each, found_texts in zip(texts.values(), (rest, plain), strict=True):
            each.append(found_texts)
    rows += [f"| {name} | {' | '.join(values)} |" for name, values in cells.items()]
    said = [f"- {name}: {compare(*each, references, target_lang='de')[0]}" for name, each in texts.items()]
    return [*rows, "", "With protection beside without, by paired bootstrap:", "", *said]


def placed_spans(placed: Placed) -> dict[str, tuple[int, int]]:
    """Of each pair of tags, the words that it is around."""
    found: dict[str, tuple[int, int]] = {}
    opened: dict[int, tuple[str, int]] = {}
    for tag in placed.marked.tags:
        if tag.kind == "open":
            opened[tag.pair] = tag.raw, tag.place
        elif tag.pair in opened:
            raw, start = opened[tag.pair]
            found[raw] = start, tag.place
    return found


def order_as(source: TaggedText, target: TaggedText) -> list[Span]:
    """The spans of the target in the order of those of the source."""
    by_style = {span.style: span for span in target.spans}
    return [by_style[span.style] for span in source.spans]


def is_sound(placed: Placed, source: Marked) -> bool:
    """Every tag once, well nested."""
    whole = "".join(tag.raw for tag in placed.marked.tags)
    return all(whole.count(tag.raw) == 1 for tag in source.tags) and is_nested([f"{each}>" for each in re.findall(r"</?g", whole)])


def right_tags(
    source: TaggedText, target: str, wanted: Sequence[tuple[int, int]], links: Sequence[Link] | None
) -> tuple[int, bool]:
    """How many pairs of tags are around exactly the words that they belong to, punctuation aside; whether all is sound."""
    placed = place_tags(source.marked(), target, links)
    if links is None:
        # The same share of the text, as a run of an office file keeps it.
        placed = place_tags(Marked(source.text, source.marked().tags, is_flat=True), target)
    found = placed_spans(placed)
    right = 0
    for number, (start, end) in enumerate(wanted, 1):
        at, to = found.get(f'<g id="{number}">', (0, 0))
        right += target[at:to].strip(" .,:;\"'„“”»«()") == target[start:end].strip(" .,:;\"'„“”»«()") and at < end and start < to
    return right, is_sound(placed, source.marked())


def prove_tags(translator: Translator, pairs: Sequence[tuple[TaggedText, TaggedText]]) -> list[str]:
    """Tags around the right words: of the reference, and of our own translation where it has the words of the reference."""
    aligner = make_aligner(translator.artifact)
    if aligner is None:
        return ["No head of this model aligns well enough: tags enclose whole segments, and the account says so."]
    cases = [(source, target.text, [(span.start, span.end) for span in order_as(source, target)]) for source, target in pairs]
    own = []
    for (source, target), found in zip(pairs, translate(translator, [source.text for source, _ in pairs]), strict=True):
        words = [target.text[span.start : span.end] for span in order_as(source, target)]
        if all(found.text.count(each) == 1 for each in words):
            own.append((source, found.text, [(found.text.index(each), found.text.index(each) + len(each)) for each in words]))
    rows = ["| tags around the right words | by attention | relative position | sound |", "|---|---|---|---|"]
    two = [case for case in cases if len(case[2]) == 2]
    groups = {
        f"of {len(cases)} references": cases,
        f"of them, {len(two)} with two": two,
        f"of them, {len(cases) - len(two)} with one": [case for case in cases if len(case[2]) == 1],
        f"of {len(own)} own translations that have the words": own,
    }
    for name, given in groups.items():
        links = aligner([(source.text, target) for source, target, _ in given])
        ours = [right_tags(*case, links=each or []) for case, each in zip(given, links, strict=True)]
        base = [right_tags(*case, links=None) for case in given]
        total = sum(len(spans) for _, _, spans in given)
        sound = all(each for _, each in [*ours, *base])
        cells = [share(sum(right for right, _ in each), total) for each in (ours, base)]
        rows.append(f"| {name} ({total} pairs of tags) | {' | '.join(cells)} | {'all' if sound else 'NOT ALL'} |")
    facts = translator.artifact.facts["alignment"]
    heads = ", ".join(f"layer {layer + 1} head {head + 1} ({mode})" for layer, head, mode in facts["heads"])
    tuned = "How attention, shortlist and distance are weighed was chosen on half of those with two, and on none of the others."
    return [*rows, "", f"Aligned by {heads}, error rate {facts['error']:.2f} against IBM model 1 on training pairs. {tuned}"]


HARD = {
    "single words": ["file", "open", "window", "table", "Save", "color", "yes", "no", "the", "a", "of", "spreadsheet", "formula"],
    "repeated words": [f"{word} " * count for word in ("the", "file", "no no", "click here", "very") for count in (5, 20, 80)],
    "unseen script": [
        "파일을 여십시오", "ファイルを開く", "打开文件", "Откройте файл сейчас", "افتح الملف", "เปิดไฟล์", "फ़ाइल खोलें",
        "გახსენით ფაილი", "Άνοιξε το αρχείο", "פתח את הקובץ",
    ],
    "very long": [("Click the button to open the file and choose a color for the table, " * 40).strip(), "word " * 600],
    "all capitals": ["OPEN THE FILE AND SAVE IT.", "CLICK OK TO CLOSE THE DIALOG.", "SELECT A CELL IN THE TABLE.", "DO NOT PRINT"],
    "garbage": ["asdf qwer zxcv uiop", "........", "!!! ??? !!!", "x" * 300, "1 2 3 4 5 6 7 8 9", "a b c d e f g h i j k"],
}  # fmt: skip


def repeats(text: str) -> bool:
    """Whether some words come five times or more in a row: another way to find loops than the one that is proved."""
    words = text.split()
    for period in range(1, 25):
        run = 0
        for place in range(period, len(words)):
            run = run + 1 if words[place] == words[place - period] else 0
            if run >= 4 * period:
                return True
    return False


def prove_hard_cases(translator: Translator) -> list[str]:
    """No loop unflagged; every line in an unseen script flagged."""
    rows = ["| lines | | flagged | loops | loops not flagged |", "|---|---|---|---|---|"]
    for name, lines in HARD.items():
        found = translate(translator, lines)
        unsound = [not translator.judge(each).is_sound for each in found]
        loops = [repeats(each.text) and not repeats(each.source) for each in found]
        missed = sum(loop and not flag for loop, flag in zip(loops, unsound, strict=True))
        rows.append(f"| {name} | {len(lines)} | {sum(unsound)} | {sum(loops)} | {missed} |")
    return rows


def prove_false_alarms(translator: Translator, pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Verdicts on ordinary held-out sentences."""
    counts = Counter(translator.judge(each).name for each in translate(translator, [source for source, _ in pairs]))
    alarms = sum(count for name, count in counts.items() if name not in ("ok", "copied", "kept", "empty"))
    parts = ", ".join(f"{count:,} {name}" for name, count in counts.most_common())
    return [f"Of {len(pairs):,} ordinary held-out sentences, {share(alarms, len(pairs))} are flagged: {parts}."]


def report(models: dict[str, Counting], held_out: HeldOut, steps: int) -> str:
    """Everything that is measured, as a page."""
    first = models["with"]
    shape = first.artifact.recipe.model
    parts = [
        ("# Protection, markup and the account, measured", [
            f"Written by `benchmarks/protection.py --steps {steps}` (`make prove-protection`) on {date.today()}. Office help, English → German. "
            f"Two models ({shape.encoder_layers} + {shape.decoder_layers} layers of {shape.d_model}, what `undivided train` takes for so many steps) "
            f"learned from the same pairs for {steps:,} steps of 1,024 tokens each, one with `tokens.protect`, one without; "
            f"{len(held_out.tagged) + len(held_out.plain):,} pairs were held out. Engine: {first.engine.name}. What it is about: [account](account.md).",
        ]),
        ("## Placeholders, tags, addresses, numbers", prove_intact(models, held_out.plain[:INJECTED])),
        ("## Inline markup", prove_tags(first, held_out.tagged)),
        ("## Loops and nonsense", prove_hard_cases(first)),
        ("## False alarms", prove_false_alarms(first, held_out.plain)),
    ]  # fmt: skip
    return "\n\n".join(f"{title}\n\n" + "\n".join(lines) for title, lines in parts) + "\n"


def main() -> None:
    """Train what is not trained yet, measure, and write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=6000, help="steps of each training")
    parser.add_argument("--jobs", type=int, default=2, help="trainings at a time, of one thread each")
    parser.add_argument("--only", choices=list(MODELS), help="train this model, and do nothing else")
    parser.add_argument("--folder", type=Path, default=ROOT / ".venv" / "protection")
    parser.add_argument("--report", type=Path, default=ROOT / "docs" / "protection.md")
    options = parser.parse_args()
    if options.only:
        train_one(options.folder, options.only, options.steps)
        return
    held_out = split_corpus(CORPUS, options.folder, TAGGED, PLAIN)
    train_all(options.folder, options.steps, options.jobs)
    models = {name: Counting(model_folder(options.folder, name, options.steps)) for name in MODELS}
    text = report(models, held_out, options.steps)
    print(text)
    options.report.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
