# ruff: noqa: E501  (a report is written as it is)
"""Where sentences end: known sentences of real corpora are joined into paragraphs and split again, by us and by other libraries.

    python benchmarks/sentences.py [--paragraphs 1500] [--peers PYTHON] [--report docs/benchmarks/sentences.md]

Corpora come from $UNDIVIDED_CORPORA; only lines that end like a sentence are taken. `--peers` names the Python of an environment with pysbd and
sentencex; without it ours is measured alone. Speed is characters per second of CPU time.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

from undivided.data.sentences import split_sentences
from undivided.data.text_files import raw_lines

ROOT = Path(__file__).resolve().parent.parent
CORPORA = Path(os.environ.get("UNDIVIDED_CORPORA", ROOT.parent / "shared" / "corpora"))
SETS = {
    "office help": [
        ("en", "libreoffice-help/en-de/train.en"),
        ("de", "libreoffice-help/en-de/train.de"),
        ("fr", "libreoffice-help/en-fr/train.fr"),
        ("ko", "libreoffice-help/en-ko/train.ko"),
    ],
    "captions": [("en", "multi30k/val.en"), ("de", "multi30k/val.de"), ("fr", "multi30k/val.fr")],
    "news and travel": [("en", "flores/dev.en"), ("zh", "flores/dev.zh")],
}
PEER = """
import json, sys, time
name, language, texts = json.load(sys.stdin)
if name == "pysbd":
    import pysbd
    segmenter = pysbd.Segmenter(language=language, clean=False)
    split = segmenter.segment
else:
    import sentencex
    split = lambda text: list(sentencex.segment(language, text))
start = time.process_time()
found = [split(text) for text in texts]
json.dump([time.process_time() - start, found], sys.stdout)
"""


def paragraphs(path: Path, language: str, count: int) -> list[list[str]]:
    """Groups of two to five sentences that stood in one corpus."""
    chance = random.Random(str(path))
    lines = [" ".join(line.decode("utf-8", "replace").split()) for line in raw_lines(path)]
    lines = [line for line in lines if line and line[-1] in ".!?。！？" and len(line) > 8]
    return [[chance.choice(lines) for _ in range(chance.randrange(2, 6))] for _ in range(count)]


def ends(parts: list[str]) -> set[int]:
    """How many characters that are no spaces stand before each inner boundary."""
    found, place = set(), 0
    for part in parts[:-1]:
        place += len("".join(part.split()))
        found.add(place)
    return found


def rate(groups: list[list[str]], found: list[list[str]]) -> tuple[float, float, float]:
    right = said = wanted = 0
    for group, parts in zip(groups, found, strict=True):
        known, ours = ends(group), ends([part for part in parts if part.strip()])
        right, said, wanted = right + len(known & ours), said + len(ours), wanted + len(known)
    precision, recall = right / max(1, said), right / max(1, wanted)
    return precision, recall, 2 * precision * recall / max(1e-9, precision + recall)


def split_by(name: str, language: str, texts: list[str], peers: str) -> tuple[float, list[list[str]]] | None:
    if name == "undivided":
        start = time.process_time()
        found = [[each.text for each in split_sentences(text, language)] for text in texts]
        return time.process_time() - start, found
    if not peers:
        return None
    done = subprocess.run(
        [peers, "-c", PEER], input=json.dumps([name, language, texts]), capture_output=True, text=True, check=False
    )
    return tuple(json.loads(done.stdout)) if done.returncode == 0 else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paragraphs", type=int, default=1500)
    parser.add_argument("--peers", default="")
    parser.add_argument("--report", type=Path, default=ROOT / "docs" / "benchmarks" / "sentences.md")
    options = parser.parse_args()
    if not CORPORA.is_dir():
        sys.exit(f"{CORPORA}: no corpora there; set UNDIVIDED_CORPORA")
    rows = []
    for title, files in SETS.items():
        for language, name in files:
            groups = paragraphs(CORPORA / name, language, options.paragraphs)
            texts = [("" if language == "zh" else " ").join(group) for group in groups]
            for splitter in ("undivided", "pysbd", "sentencex"):
                result = split_by(splitter, language, texts, options.peers)
                if result is None:
                    rows.append(f"| {title}, {language} | {splitter} | — | — | — | — |")
                    continue
                precision, recall, both = rate(groups, result[1])
                speed = sum(map(len, texts)) / max(1e-6, result[0]) / 1e6
                rows.append(f"| {title}, {language} | {splitter} | {precision:.4f} | {recall:.4f} | {both:.4f} | {speed:.2f} |")
                print(rows[-1], flush=True)
    text = f"""# Where sentences end

Written by `benchmarks/sentences.py --paragraphs {options.paragraphs}` on {date.today()}: known sentences of real corpora, joined by twos to fives, and split again. A boundary is right where a
sentence of the corpus ended; some lines of the corpora are two sentences themselves, so that no splitter reaches 1. A dash: not installed, or it does not know the language.

| text | splitter | precision | recall | F1 | million characters/s |
|---|---|---|---|---|---|
{chr(10).join(rows)}
"""
    options.report.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
