"""Table 2: BLEU on WMT 2014 and the cost of training, the paper's and ours. [paper 6.1, Table 2]"""

from __future__ import annotations

import json
import math
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from sacrebleu.metrics import BLEU

from undivided.config import Recipe, build_recipe
from undivided.config.settings import Values, merge
from undivided.core.console import Console, Progress, duration, plural
from undivided.core.errors import InputError
from undivided.core.files import write_atomic
from undivided.data.text_files import read_lines
from undivided.inference.score import Score, bleu, import_sacremoses
from undivided.inference.translator import Translator
from undivided.models.cost import PAPER_GPUS, PAPER_HOURS, PAPER_STEPS, PAPER_VOCABULARY, SUSTAINED, count_products, paper_cost
from undivided.paper import report
from undivided.paper.chart import Chart, Series
from undivided.paper.runs import compute_lines, fingerprint, read_facts, train_or_load
from undivided.paper.table2 import wmt
from undivided.paper.table2.cost import PAPER, sustained_here, training_cost

LENGTH = 30
"""Tokens per sentence assumed when counting from shapes; it matters little, as products with weights dominate."""


def compound_split_bleu(hypotheses: Sequence[str], references: Sequence[str], lang: str) -> Score:
    """Case-sensitive BLEU over Moses tokens, without smoothing, German compounds split at hyphens. [paper 6.1]

    As the paper's authors scored English to German: `##AT##-##AT##` where a hyphen joins two words, then multi-bleu.
    """
    sacremoses = import_sacremoses()
    split = sacremoses.MosesTokenizer(lang).tokenize

    def tokenise(lines: Sequence[str]) -> list[str]:
        tokens = [split(line, escape=False, return_str=True) for line in lines]
        return [split_compounds(line) for line in tokens] if lang == "de" else tokens

    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    value = metric.corpus_score(tokenise(hypotheses), [tokenise(references)])
    compounds = ".compounds-split" if lang == "de" else ""
    signature = f"{metric.get_signature()}|sacremoses:{sacremoses.__version__}.{lang}.tokenised{compounds}"
    return Score("BLEU-tokenised", value.score, signature)


def split_compounds(line: str) -> str:
    """`Text-Format` → `Text ##AT##-##AT## Format`."""
    return re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", line)


@dataclass(frozen=True)
class Run:
    """A recipe trained on WMT 2014 and scored on newstest2014."""

    recipe: Recipe
    facts: dict[str, Any]
    scores: list[Score]
    sustained: float
    data: wmt.Prepared

    @property
    def processes(self) -> int:
        """Number of training processes, each on its own device; 1 if the training did not record it."""
        return int(self.facts.get("processes", 1))

    @property
    def cost(self) -> float:
        """The cost by the paper's accounting, on this machine."""
        return paper_cost(self.facts["seconds"] / 3600, self.processes, self.sustained)

    @property
    def counted(self) -> float:
        """The cost counted from shapes, for the tokens that training saw."""
        vocab, tokens = self.facts["vocabulary"], self.facts["target_tokens"]
        return count_products(self.recipe.model, vocab, LENGTH, LENGTH).training_flops * tokens / LENGTH


def refuse_torchrun(arguments: Sequence[str], out: Path) -> None:
    """Refuse to run under torchrun, where every process would prepare, translate and report; only training is parallel."""
    size = os.environ.get("WORLD_SIZE", "1")
    if size != "1":
        steps = "\n  ".join(commands(arguments, out))
        raise InputError(f"table 2 runs in one process, not in {size}; to train its model on several GPUs:\n  {steps}")


def commands(arguments: Sequence[str], out: Path) -> list[str]:
    """The commands for several GPUs: prepare, train on all of them, then score the finished model."""
    table = ["undivided", *(argument for argument in arguments if argument != "--prepare-only")]
    training = ["torchrun", "--nproc-per-node", "gpu", "-m", "undivided", "train", str(_recipe_of(out))]
    return [shlex.join(command) for command in ([*table, "--prepare-only"], training, table)]


def _recipe_of(out: Path) -> Path:
    return out / "recipe.yaml"


def prepare(values: Values, data: Path, out: Path, checksums: Path | None, console: Console) -> tuple[Values, wmt.Prepared]:
    """Prepare the text of a recipe's language pair, and write the recipe with its files to `out` for `undivided train`."""
    draft = build_recipe(values)
    target = draft.data.target_lang
    if draft.data.source_lang != "en" or target not in wmt.TRAIN:
        known = ", ".join(f"en–{each}" for each in wmt.TRAIN)
        raise InputError(f"data.target_lang: table 2 has {known}, not {draft.data.source_lang or '?'}–{target or '?'}")
    text = wmt.prepare(data, target, out / "data", checksums, console)
    places = {"data": {part: [text.paths[part]] for part in ("train", "valid")}, "train": {"out": str(out / "model")}}
    # Through JSON: keys of a recipe carry their line number, and YAML writes plain strings only.
    full: Values = json.loads(json.dumps(merge(values, places)))
    write_atomic(_recipe_of(out), yaml.safe_dump(full, allow_unicode=True, sort_keys=False).encode())
    return full, text


def train_and_score(values: Values, data: Path, out: Path, checksums: Path | None, console: Console) -> Run:
    """Prepare the data, train, average, translate newstest2014 and score it. Resumes after a stop."""
    import_sacremoses()  # a missing package must be reported before the training
    full, text = prepare(values, data, out, checksums, console)
    model = train_or_load(full, console)
    draft = build_recipe(full)
    # PyTorch, as 8-bit weights would cost BLEU.
    translator = Translator(model, draft.train.device, draft.train.threads, "torch")
    target = draft.data.target_lang
    sources, references = (read_lines(path) for path in text.paths["test"])
    ours = _translate_test(translator, model, sources, out / "newstest2014", target, console)
    scores = [bleu(ours, references, target), compound_split_bleu(ours, references, target)]
    return Run(translator.artifact.recipe, read_facts(model), scores, sustained_here(translator.device), text)


def _translate_test(
    translator: Translator, model: Path, sources: Sequence[str], out: Path, target: str, console: Console
) -> list[str]:
    """Translate every line as one sentence, as WMT has it; the result is kept and not computed again."""
    progress = Progress(console, "translated lines", len(sources))
    key = fingerprint((model / "manifest.json").read_text(), translator.search_config(sentences=False))

    def work_on(lines: Sequence[str]) -> Iterator[str]:
        return (result.text for result in translator.stream(lines, advance=progress.advance, sentences=False))

    ours = compute_lines(out.with_name(f"{out.name}-{key}.{target}"), sources, work_on, 500)
    console.clear()
    return ours


def write_report(run: Run | None, path: Path, arguments: Sequence[str]) -> str:
    """Write costs, the paper's table, and the results of a training; return the table of costs."""
    shown = cost_table()
    lines = report.head("Table 2: BLEU on newstest2014 and the cost of training", arguments)
    lines += [_cost_text(), "", shown, ""]
    if run is None:
        lines += [
            "No model was trained for this report; with a recipe and the files of WMT 2014 it also has the BLEU of a model.",
            "",
        ]
    else:
        lines += ["## Trained here", "", *_run_text(run), ""]
    header = ["model", "BLEU en–de", "BLEU en–fr", "FLOPs en–de", "FLOPs en–fr"]
    rows = [[row.name, *(_figure(value) for value in row[1:])] for row in PAPER]
    lines += ["## The paper's Table 2", "", report.table(header, rows), ""]
    lines += [f"![BLEU over the cost of training]({path.stem}-cost.svg)"]
    _cost_chart().write(path.with_name(f"{path.stem}-cost.svg"))
    report.write(path, lines)
    return shown


def _cost_chart() -> Chart:
    """The paper's own table as a picture; the best corner is the upper left."""
    pairs = {
        "en–de": [(row.name, row.bleu_de, row.cost_de) for row in PAPER],
        "en–fr": [(row.name, row.bleu_fr, row.cost_fr) for row in PAPER],
    }
    series = []
    for pair, rows in pairs.items():
        for who, ours in (("Transformer", True), ("earlier", False)):
            chosen = [row[1:] for row in rows if row[0].startswith("Transformer") == ours]
            points = [(math.log10(cost), score) for score, cost in chosen if score and cost]
            series.append(Series(f"{pair}, {who}", points, connect=False))
    return Chart("BLEU over the cost of training (the paper's figures)", "FLOPs, power of 10", "BLEU", series)


def _figure(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.1e}" if value > 1e6 else f"{value:g}"


def cost_table() -> str:
    """The cost of base and big by the paper's accounting, and counted from their shapes."""
    header = [
        "model",
        "hours on 8 P100",
        "FLOPs by the paper's accounting",
        "paper",
        "steps",
        "FLOPs counted",
        "share of the sustained rate",
    ]
    rows = []
    for preset, hours in PAPER_HOURS.items():
        recipe, steps = build_recipe({"preset": preset}), PAPER_STEPS[preset]
        accounted = paper_cost(hours, PAPER_GPUS, SUSTAINED["P100"])
        counted = training_cost(recipe.model, PAPER_VOCABULARY, steps, recipe.batches.tokens, LENGTH)
        published = next(row.cost_de for row in PAPER if row.name == f"Transformer ({preset})")
        cells = [f"{hours:g}", f"{accounted:.2e}", _figure(published), f"{steps:,}", f"{counted:.2e}", f"{counted / accounted:.0%}"]
        rows.append([preset, *cells])
    return report.table(header, rows)


def _cost_text() -> str:
    return (
        "The paper's accounting is training time × GPUs × the sustained single-precision rate of a GPU "
        f"({', '.join(f'{name} {rate / 1e12:g}' for name, rate in SUSTAINED.items())} TFLOPS). The count from shapes adds up "
        "all products of a step, forward and twice that backward, for batches of 25,000 source and 25,000 target tokens in "
        f"sentences of {LENGTH} and a vocabulary of 37,000: the arithmetic itself, without the time a machine spends waiting."
    )


def _run_text(run: Run) -> list[str]:
    facts, search, data = run.facts, run.recipe.search, run.recipe.data
    files = [[name, f"`{sha256}`", run.data.checked[name]] for name, sha256 in run.data.sha256.items()]
    return [
        f"Preset {run.recipe.preset}, {data.source_lang}–{data.target_lang}, {facts['parameters']:,} parameters, "
        f"vocabulary {facts['vocabulary']:,}, {facts['steps']:,} steps on {facts['device']}, weights: {facts['weights']}; "
        f"beam {search.beam_size}, α {search.length_penalty:g}. Every line was translated as one sentence, by PyTorch with the "
        "trained weights.",
        "",
        report.table(["figure", "value", "how"], _figures(run)),
        "",
        f"{wmt.SIZES[data.target_lang]} The published checksums are those listed by two data-set libraries (sha256) and "
        "sacreBLEU (md5); we have not verified them against the files ourselves.",
        "",
        report.table(["file", "sha256", "checked"], files),
    ]


def _figures(run: Run) -> list[list[str]]:
    facts = run.facts
    signatures = [score.signature.replace("|", "\\|") for score in run.scores]  # A bare bar would start the next cell.
    rows = [[score.name, f"{score.score:.2f}", f"`{name}`"] for score, name in zip(run.scores, signatures, strict=True)]
    how = f"{duration(facts['seconds'])} × {plural(run.processes, 'device')} × {run.sustained / 1e9:.0f} GFLOPS, measured now"
    if "processes" not in facts:
        how += "; the training did not record its number of processes: one is assumed"
    rows.append(["FLOPs by the paper's accounting", f"{run.cost:.2e}", how])
    rows.append(["FLOPs counted from shapes", f"{run.counted:.2e}", f"{facts['target_tokens']:,} target tokens"])
    return rows
