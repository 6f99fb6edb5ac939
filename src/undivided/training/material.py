"""What `improve` and `tune` begin with: settings of a model or recipe, and its pairs as text files, validation apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import NamedTuple

from undivided.artifact import load_artifact, open_artifact
from undivided.config import CorpusFiles, DataConfig, Recipe, TrainConfig, build_recipe, preset_values
from undivided.config.data import DATASET
from undivided.config.settings import Values, as_values, merge
from undivided.config.yaml_file import read_yaml
from undivided.core.console import Console
from undivided.core.errors import InputError
from undivided.core.files import open_atomic, sha256_of
from undivided.core.manifest import current_folder
from undivided.data.corpus import CorpusReport, Pair, check_corpora, corpus_digests, corpus_name, read_pairs
from undivided.data.holdout import choose_held_out, count_held_out
from undivided.inference.score import score
from undivided.inference.translator import Translator
from undivided.training.budget import FITTED
from undivided.training.corpora import with_text_corpora
from undivided.training.resume import CHANGEABLE, find_moved, read_record, record_path
from undivided.training.stages import Made
from undivided.training.synthetic import Languages, text_lines

UNLIMITED = {"max_steps": 1_000_000, "max_epochs": 0}
"""Where minutes are given, they alone end a training."""

SCHEDULE = set(FITTED["train"]) - {"max_steps", "save_every"}
"""Settings of a training that a new model needs and a fine-tuned one does not."""

FRESH = {"train": {"out": "", "start": "", "pull": 0.0, "ewc": 0.0, "minutes": 0.0}, "data": {"mix": 0.0, "old_train": []}}
"""What a new model does not take over from another."""


class Begin(NamedTuple):
    """The settings of new models, and the model that is there."""

    values: Values
    model: Path | None = None
    """The given model; none where a recipe was given."""
    start: str = ""
    """A model folder that new models may also be fine-tuned from."""

    @property
    def recipe(self) -> Recipe:
        """The settings, as far as the data does not decide them."""
        return build_recipe(self.values)


class Material(NamedTuple):
    """Pairs to learn from and pairs to measure on, as text files of ours."""

    languages: Languages
    originals: list[CorpusFiles]
    pairs: int
    valid: CorpusFiles

    def swapped(self) -> Material:
        """For a model of the other direction."""
        return Material(self.languages.swapped(), [_swap(each) for each in self.originals], self.pairs, _swap(self.valid))


def _swap(files: CorpusFiles) -> CorpusFiles:
    return CorpusFiles(files.target, files.source, files.weight)


def begin_with(model: str, given: Values, minutes: float) -> Begin:
    """The settings of a model folder or recipe file, or none, below those that are given."""
    folder = Path(model) if model and Path(model).is_dir() else None
    start = str((given.get("train") or {}).get("start", ""))
    if folder is None:
        below = read_yaml(model) if model else {}
    else:
        recipe = _find_recipe(folder)
        below = inherit(recipe)
        start = start or (str(folder) if recipe.train.start or not recipe.data.train else "")
    below = merge(below, preset_values(str(given.get("preset", "")), given))
    values = merge(merge(merge(below, {"train": UNLIMITED} if minutes else {}), given), FRESH)
    data = build_recipe(values).data
    if not data.train:
        named = f"{model}: names no training text" if model else "what should it learn from?"
        raise InputError(f"{named}; name the pairs: --train SOURCE TARGET")
    for path in (path for files in [*data.train, *data.valid] for path in (files.source, files.target) if path):
        if not Path(path).exists() and not path.startswith(DATASET):
            raise InputError(f"{path}: no such file; name the pairs to learn from: --train SOURCE TARGET, --valid SOURCE TARGET")
    return Begin(values, folder, start)


def _find_recipe(folder: Path) -> Recipe:
    """The recipe of a translator, with its corpora where they are now."""
    recipe = open_artifact(folder).recipe
    return find_moved(recipe, read_record(record_path(folder))) if record_path(folder).exists() else recipe


def inherit(recipe: Recipe) -> Values:
    """The settings that new models take over: all, but what was fitted to the minutes of a training where no preset was named."""
    values = as_values(recipe)
    if not recipe.data.train:  # Imported: its sizes are another's.
        data = {name: values["data"][name] for name in ("source_lang", "target_lang", "language_code")}
        return {"data": data}
    if recipe.preset:
        return values
    return {
        section: {key: value for key, value in keys.items() if key not in FITTED.get(section, ())}
        for section, keys in values.items()
        if isinstance(keys, dict)
    }


def write_material(values: Values, folder: Path, console: Console) -> Made:
    """The pairs as text files, without those of validation, which are files of their own."""
    values = with_text_corpora(values, folder / "corpora", console)
    data = build_recipe(values).data
    reports = check_corpora([*data.train, *data.valid], data)
    for report in reports:
        console.say(report.summary())
    held_out = _hold_out(data, sum(report.kept for report in reports[: len(data.train)]))
    named = list(zip(data.train, held_out, strict=True))
    counts = [
        _write_pairs(folder, f"train-{number}", _read(files, data, held, False)) for number, (files, held) in enumerate(named)
    ]
    valid = [pair for files, held in named for pair in _read(files, data, held, True)]
    valid += [pair for files in data.valid for pair in _read(files, data, frozenset(), False)]
    if not valid:
        raise InputError("too few pairs to hold some out, and quality decides what is kept: name some with --valid SOURCE TARGET")
    facts: Values = {"pairs": sum(counts), "validation pairs": _write_pairs(folder, "valid", valid)}
    facts |= {"weights": [files.weight for files in data.train], "languages": [data.source_lang, data.target_lang]}
    return Made(facts, sorted([*folder.glob("*.source"), *folder.glob("*.target")]))


def read_material(folder: Path, facts: Values) -> Material:
    """What `write_material` has written."""

    def files(name: str, weight: float = 1.0) -> CorpusFiles:
        return CorpusFiles(str(folder / f"{name}.source"), str(folder / f"{name}.target"), weight)

    originals = [files(f"train-{number}", weight) for number, weight in enumerate(facts["weights"])]
    return Material(Languages(*facts["languages"]), originals, facts["pairs"], files("valid"))


def material_origin(values: Values) -> Values:
    """What the text files are made of."""
    data = build_recipe(values).data
    here = [
        files for files in [*data.train, *data.valid] if all(Path(path).is_file() for path in (files.source, files.target) if path)
    ]
    return {"corpora": sorted(corpus_digests(here).values()), "hold_out": data.hold_out, "encoding": data.encoding}


def _hold_out(data: DataConfig, pairs: int) -> Sequence[frozenset[int]]:
    """Of each training corpus the lines for validation: the same ones as in a training that holds out as many."""
    count = 0 if data.valid else count_held_out(pairs, data.hold_out)
    return choose_held_out(data.train, data, count) if count else [frozenset()] * len(data.train)


def _read(files: CorpusFiles, data: DataConfig, held: Set[int], is_held: bool) -> Iterator[Pair]:
    """The pairs of a corpus that are held out, or all others."""
    for pair in read_pairs(files, data, CorpusReport(corpus_name(files))):
        if (pair.line in held) == is_held:
            yield pair


def _write_pairs(folder: Path, name: str, pairs: Iterable[Pair]) -> int:
    count = 0
    with open_atomic(folder / f"{name}.source") as source, open_atomic(folder / f"{name}.target") as target:
        for pair in pairs:
            source.write(f"{pair.source}\n".encode())
            target.write(f"{pair.target}\n".encode())
            count += 1
    return count


def training_settings(values: Values, material: Material, corpora: Sequence[CorpusFiles], out: Path, minutes: float) -> Values:
    """The settings of one training: everything but what it learns from, in which direction and for how long."""
    data: Values = {"train": [as_values(files) for files in corpora], "valid": [as_values(material.valid)], "encoding": ""}
    data |= {"source_lang": material.languages.source, "target_lang": material.languages.target}
    return merge(values, {"data": data, "train": {"out": str(out), **({"minutes": minutes} if minutes else {})}})


def fine_tuning_settings(values: Values, start: str) -> Values:
    """Settings of a model that goes on from another: its sizes, and a gentle schedule fitted to the minutes."""
    train = {key: value for key, value in (values.get("train") or {}).items() if key not in SCHEDULE}
    kept: Values = {section: values[section] for section in ("data", "search") if section in values}
    return kept | {"train": {**train, "start": start}}


def training_origin(values: Values) -> Values:
    """What a training depends on, without what may change when it resumes: its files by their content."""
    recipe = build_recipe(values)
    corpora = [[*corpus_digests([files]).values(), files.weight] for files in [*recipe.data.train, *recipe.data.valid]]
    start = seal_of(Path(recipe.train.start)) if recipe.train.start else ""
    return {"settings": lasting_settings(values), "corpora": corpora, "start": start}


def seal_of(folder: Path) -> str:
    """What tells one model folder from another."""
    return sha256_of(current_folder(folder) / "manifest.json")


def lasting_settings(values: Values) -> Values:
    """Settings that may not change when a training resumes, each as it is read: a flag gives texts where a recipe gives numbers."""
    known = as_values(build_recipe(values))
    return {
        section: {key: known[section][key] for key in keys if not _may_change(section, key)} if isinstance(keys, Mapping) else keys
        for section, keys in values.items()
    }


def _may_change(section: str, key: str) -> bool:
    return (section == "train" and key in (*CHANGEABLE, "start")) or (section == "data" and key in ("train", "valid"))


def open_translator(folder: Path, config: TrainConfig, console: Console) -> Translator:
    """A model where it was trained: the same device and threads."""
    return Translator(folder, config.device, config.threads, console=console)


def measure(translator: Translator, valid: CorpusFiles) -> Values:
    """BLEU and chrF of a model on validation pairs, by its own search."""
    sources, targets = (list(text_lines(Path(path))) for path in (valid.source, valid.target))
    outputs = [result.text for result in translator.stream(sources, n_best=1)]
    bleu, chrf, _ = score(outputs, targets, target_lang=translator.artifact.recipe.data.target_lang)
    return {"BLEU": round(bleu.score, 2), "chrF2": round(chrf.score, 2), "signature": bleu.signature}


def training_facts(folder: Path) -> Values:
    """How long a model was trained."""
    facts = load_artifact(folder).facts
    return {"steps": facts.get("steps", 0), "minutes": round(float(facts.get("seconds", 0.0)) / 60, 2)}
