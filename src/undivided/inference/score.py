"""BLEU, chrF and TER with their signatures, and perplexity. [paper 6.1]"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from sacrebleu.metrics import BLEU, CHRF, TER

from undivided.artifact import model_kind
from undivided.config.model import DECODER_ONLY, DRAWING
from undivided.core.console import LoggingConsole, plural
from undivided.core.errors import InputError
from undivided.data.images import read_images, read_labels
from undivided.data.text_files import read_lines
from undivided.inference.classify import Classifier
from undivided.inference.generate import Generator
from undivided.inference.hypothesis import to_perplexity
from undivided.inference.translator import Translator


@dataclass(frozen=True)
class Score:
    """A figure with the signature that lets others reproduce it."""

    name: str
    score: float
    signature: str

    def __str__(self) -> str:
        return f"{self.name} {self.score:.2f} {self.signature}"


def score(hypotheses: Sequence[str], *references: Sequence[str], target_lang: str = "") -> list[Score]:
    """sacreBLEU, chrF2 and TER of translations against one or more references."""
    if not hypotheses:
        raise InputError("nothing to score: there are no translations")
    for reference in references:
        if len(reference) != len(hypotheses):
            raise InputError(
                f"{plural(len(hypotheses), 'translation')} but {plural(len(reference), 'reference')}: "
                "line n of one must belong to line n of the other"
            )
    streams = [list(reference) for reference in references]
    results = []
    for metric in (bleu_metric(target_lang), CHRF(), TER()):
        value = metric.corpus_score(list(hypotheses), streams)
        results.append(Score(value.name, value.score, str(metric.get_signature())))
    return results


def bleu_metric(target_lang: str) -> BLEU:
    """BLEU with the tokeniser of a language; where that is not installed, over characters, with a warning.

    Either way the signature names the tokeniser.
    """
    try:
        return BLEU(trg_lang=target_lang)
    except (RuntimeError, ImportError):
        _warn_of_characters(target_lang)
        return BLEU(tokenize="char")


@cache
def _warn_of_characters(target_lang: str) -> None:
    """Once for each language: validation measures BLEU again and again."""
    LoggingConsole().warn(
        f"BLEU of {target_lang!r} is measured over characters, because its tokeniser is not installed; scores over words are "
        "not comparable. Install it with: pip install 'sacrebleu[ja,ko]'"
    )


def bleu(hypotheses: Sequence[str], references: Sequence[str], target_lang: str = "") -> Score:
    """sacreBLEU only."""
    metric = bleu_metric(target_lang)
    value = metric.corpus_score(list(hypotheses), [list(references)])
    return Score("BLEU", value.score, str(metric.get_signature()))


LENGTHS = (10, 20, 40, 80)
"""Most source subwords of each class of length but the last."""


def bleu_by_length(
    lengths: Sequence[int], hypotheses: Sequence[str], references: Sequence[str], target_lang: str = ""
) -> dict[str, float]:
    """BLEU of the lines of each class of source length, for those that have lines: `bleu_11_to_20_subwords`."""
    classes: dict[str, list[int]] = {}
    for place, length in enumerate(lengths):
        most = next((most for most in LENGTHS if length <= most), 0)
        least = LENGTHS[LENGTHS.index(most) - 1] + 1 if most > LENGTHS[0] else 1
        classes.setdefault(f"bleu_{least}_to_{most}_subwords" if most else f"bleu_over_{LENGTHS[-1]}_subwords", []).append(place)
    return {
        name: bleu([hypotheses[place] for place in places], [references[place] for place in places], target_lang).score
        for name, places in sorted(classes.items())
    }


@dataclass(frozen=True)
class Comparison:
    """How much better a system is than another, and how sure that is."""

    metric: str
    score: float
    other: float
    p: float
    """How often resampled texts show such a difference by chance (paired bootstrap)."""

    @property
    def is_real(self) -> bool:
        """Whether chance is an unlikely explanation."""
        return self.p < SIGNIFICANT

    def __str__(self) -> str:
        verdict = f"a real difference (p < {SIGNIFICANT:g})" if self.is_real else "may be chance, not a real difference"
        return (
            f"{self.metric} {self.score:.2f} versus {self.other:.2f}: {self.score - self.other:+.2f}, p = {self.p:.4f}: {verdict}"
        )


SIGNIFICANT, RESAMPLES = 0.05, 1000


def compare(
    hypotheses: Sequence[str], others: Sequence[str], *references: Sequence[str], target_lang: str = ""
) -> list[Comparison]:
    """Two systems by paired bootstrap resampling (Koehn, 2004), BLEU, chrF and TER."""
    for name, lines in (("second system", others), *(("reference", each) for each in references)):
        if len(lines) != len(hypotheses):
            raise InputError(f"{plural(len(hypotheses), 'translation')} but the {name} has {plural(len(lines), 'line')}")
    from sacrebleu.significance import PairedTest

    systems: list[tuple[str, Sequence[str]]] = [("other", list(others)), ("this", list(hypotheses))]
    metrics = {"BLEU": bleu_metric(target_lang), "chrF2": CHRF(), "TER": TER()}
    test = PairedTest(systems, metrics, [list(each) for each in references], test_type="bs", n_samples=RESAMPLES, n_jobs=1)
    rows: dict[str, list[Any]] = dict(test()[1])
    return [Comparison(name, rows[name][1].score, rows[name][0].score, float(rows[name][1].p_value)) for name in metrics]


def score_single_stack(
    model: str | Path, file: str, labels: Sequence[str], device: str = "auto", threads: int = 0, trust: bool = False
) -> Score:
    """The perplexity of a decoder-only model on a text, or the accuracy of a classifier."""
    kind = model_kind(model)
    if kind in DRAWING:
        raise InputError(f"{model}: drawings have no score; look at them with: undivided generate")
    if len(labels) != (kind not in DECODER_ONLY):
        wants = "a text only" if kind in DECODER_ONLY else "one file, followed by a file of its labels"
        raise InputError(f"{model}: a model of kind {kind} is scored on {wants}")
    if kind in DECODER_ONLY:
        generator = Generator(model, device, threads, trust)
        context = generator.artifact.recipe.data.max_length
        return Score("perplexity", generator.perplexity(read_lines(file)), f"tokens:subwords|end:counted|context:{context}")
    classifier = Classifier(model, device, threads, trust)
    found = classifier.images(read_images(file)) if classifier.reads_images else classifier.texts(read_lines(file))
    names = read_labels(Path(labels[0]), classifier.classes) if classifier.reads_images else read_lines(labels[0])
    if len(names) != len(found) or not names:
        raise InputError(f"{file} has {plural(len(found), 'example')}, but {labels[0]} has {plural(len(names), 'label')}")
    right = sum(each.name == name for each, name in zip(found, names, strict=True))
    return Score("accuracy", 100 * right / len(names), f"percent|examples:{len(names)}")


def import_sacremoses() -> Any:
    """The module `sacremoses`, or an error that says how to install it."""
    try:
        import sacremoses
    except ImportError:
        raise InputError("Moses tokenisation needs sacremoses: pip install sacremoses") from None
    return sacremoses


def moses_bleu(hypotheses: Sequence[str], references: Sequence[str], lang: str) -> Score:
    """Lowercased BLEU over Moses-normalised and -tokenised text, as in older papers (needs the extra `moses`)."""
    sacremoses = import_sacremoses()
    normalise = sacremoses.MosesPunctNormalizer(lang).normalize
    tokenise = sacremoses.MosesTokenizer(lang).tokenize

    def prepare(lines: Sequence[str]) -> list[str]:
        return [tokenise(normalise(line), escape=False, return_str=True).lower() for line in lines]

    metric = BLEU(tokenize="none", force=True)
    value = metric.corpus_score(prepare(hypotheses), [prepare(references)])
    signature = f"{metric.get_signature()}|sacremoses:{sacremoses.__version__}.{lang}.normalised.tokenised.lowercased"
    return Score("BLEU-moses-lc", value.score, signature)


def perplexity(translator: Translator, sources: Sequence[str], targets: Sequence[str]) -> float:
    """exp of the mean negative log-likelihood of a target token, end symbols included."""
    rows = translator.score(sources, targets)
    return to_perplexity(sum(map(sum, rows)), sum(map(len, rows)))
