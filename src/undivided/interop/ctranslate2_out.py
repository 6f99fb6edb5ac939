"""Export a translator as a CTranslate2 folder, with its subword models and a small program that runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from undivided.artifact import Artifact
from undivided.core.errors import InputError
from undivided.core.files import write_atomic
from undivided.inference.engines.ctranslate2 import position_count
from undivided.inference.engines.ctranslate2_convert import (
    TOLERANCE,
    UnsupportedModel,
    check_installed,
    check_supported,
    score_samples,
)
from undivided.interop.parity import compare_rounded_scores, compare_scores

EXAMPLE = '''"""Translate lines from stdin: python translate.py < in.txt"""

import sys
from pathlib import Path

import ctranslate2
import sentencepiece

here = Path(__file__).parent
source, target = (sentencepiece.SentencePieceProcessor(str(here / name)) for name in ("source.spm", "target.spm"))
translator = ctranslate2.Translator(str(here))
for line in sys.stdin:
    tokens = source.encode(line.rstrip("\\n"), out_type=str)
    best = translator.translate_batch([tokens], beam_size=BEAM, length_penalty=ALPHA, disable_unk=True)[0].hypotheses[0]
    print(target.decode_pieces(best))
'''


def export_ctranslate2(artifact: Artifact, folder: Path, weights: str) -> dict[str, Any]:
    """Write the folder; the record of how CTranslate2 computes beside us."""
    try:
        check_installed()
        check_supported(artifact)
    except UnsupportedModel as reason:
        raise InputError(f"cannot be exported to CTranslate2: {reason}") from None
    from undivided.inference.engines.ctranslate2_spec import make_spec

    spec = make_spec(artifact, position_count(artifact.recipe.model))
    spec.validate()
    spec.optimize(quantization=weights)
    spec.save(str(folder))
    for name, side in (("source.spm", artifact.tokenizer.source), ("target.spm", artifact.tokenizer.target)):
        write_atomic(folder / name, side.model)
    search = artifact.recipe.search
    write_atomic(
        folder / "translate.py", EXAMPLE.replace("BEAM", str(search.beam_size)).replace("ALPHA", str(search.length_penalty))
    )
    ours, theirs = score_samples(folder, artifact)
    if weights == "float32":
        return compare_scores(ours, theirs, "CTranslate2") | {"weights": weights}
    return compare_rounded_scores(ours, theirs, f"CTranslate2 with {weights} weights", TOLERANCE) | {"weights": weights}
