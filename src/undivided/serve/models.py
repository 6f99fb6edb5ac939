"""The models that are served: loaded, found by their languages, two in a row where no one has both, loaded again."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from undivided.config.serve import ServeConfig
from undivided.core.console import Console, plural
from undivided.core.errors import InputError
from undivided.inference.translation import encode_texts
from undivided.inference.translator import Translator
from undivided.serve.batching import Batcher, OwnEngine, Runner
from undivided.serve.errors import Refusal, unsupported
from undivided.serve.languages import find_code, language_name, normalize_code

NAMED = re.compile(r"([A-Za-z]{2,3}(?:[-_][A-Za-z]{2,4})?)-([A-Za-z]{2,3}(?:[-_][A-Za-z]{2,4})?)=(.+)")
"""`en-de=folder`"""


class ModelFolder(NamedTuple):
    """A model folder, and its languages where they are said on the command line."""

    path: str
    source: str = ""
    target: str = ""

    @classmethod
    def parse(cls, text: str) -> ModelFolder:
        """`folder`, or `en-de=folder`."""
        found = NAMED.fullmatch(text)
        return cls(found[3], normalize_code(found[1]), normalize_code(found[2])) if found else cls(text)


class Engine(NamedTuple):
    """How models are run, as for `Translator`."""

    name: str = "auto"
    device: str = "auto"
    threads: int = 0
    trust: bool = False


_numbers = itertools.count(1)


@dataclass(eq=False)
class Model:
    """A translator from one language to another, and its queue."""

    source: str
    target: str
    translator: Translator
    batcher: Batcher
    number: int
    """Another for every load: what was kept of the translations of an older one is not used."""

    @property
    def name(self) -> str:
        return f"{self.source}-{self.target}"

    def split(self, line: str) -> list[tuple[str, str, int]]:
        """A line as the pieces that are translated by themselves: text, the white space after it, source subwords."""
        encoded = encode_texts([line], self.translator.artifact.tokenizer.source, self.translator.limits)[0]
        return [(piece.text, piece.space, len(ids)) for piece, ids in zip(encoded.pieces, encoded.ids, strict=True)]


class Route(NamedTuple):
    """The models from one language to another: one, or two with a language in the middle."""

    source: str
    target: str
    models: tuple[Model, ...]

    @property
    def via(self) -> str | None:
        """The language in the middle."""
        return self.models[0].target if len(self.models) > 1 else None


class Models:
    """All models of a server."""

    def __init__(self, models: Sequence[Model]) -> None:
        self.by_pair = {(model.source, model.target): model for model in models}
        self.codes = list(dict.fromkeys(code for pair in self.by_pair for code in pair))

    @property
    def all(self) -> list[Model]:
        return list(self.by_pair.values())

    def check_room(self) -> None:
        """Refuse where the queues of all models are full, whatever is asked for."""
        for model in self.by_pair.values():
            try:
                return model.batcher.check_room()
            except Refusal as refusal:
                full = refusal
        raise full

    def find_language(self, code: object) -> str:
        """The loaded language that a client means."""
        found = find_code(code, self.codes) if isinstance(code, str) else None
        if found is None:
            raise unsupported(code)
        return found

    def targets(self, source: str) -> list[str]:
        """The languages that one can be translated to."""
        return [target for target in self.codes if target != source and self._models(source, target)]

    def route(self, source: str, target: str) -> Route:
        """The way from one language to another; none where they are the same."""
        models = self._models(source, target)
        if not models and source != target:
            there, here = (f"{language_name(code)} ({code})" for code in (target, source))
            raise Refusal(400, f"{there} is not available as a target language from {here}")
        return Route(source, target, models)

    def _models(self, source: str, target: str) -> tuple[Model, ...]:
        if (source, target) in self.by_pair:
            return (self.by_pair[source, target],)
        for middle in self.codes:
            if (source, middle) in self.by_pair and (middle, target) in self.by_pair and source != target:
                return self.by_pair[source, middle], self.by_pair[middle, target]
        return ()


def load_models(folders: Sequence[ModelFolder], config: ServeConfig, engine: Engine, console: Console) -> Models:
    """Load all models; one error where two translate the same, or one does not say what it translates."""
    wanted = [normalize_code(code) for code in config.load_only.split(",") if code.strip()]
    models: dict[tuple[str, str], Model] = {}
    for folder in folders:
        if config.ray:  # Here it only splits texts, looks and judges.
            translator = Translator(folder.path, "cpu", engine.threads, "torch", console, engine.trust)
        else:
            translator = Translator(folder.path, engine.device, engine.threads, engine.name, console, engine.trust)
        data = translator.artifact.recipe.data
        source, target = (normalize_code(code) for code in (folder.source or data.source_lang, folder.target or data.target_lang))
        if not source or not target:
            raise InputError(f"{folder.path}: does not say its languages; say them: undivided serve en-de={folder.path}")
        if (source, target) in models:
            raise InputError(f"{folder.path}: another model already translates {source} to {target}; leave one of them out")
        if wanted and not {source, target} <= set(wanted):
            continue
        number = next(_numbers)
        runner, what = _make_runner(translator, f"{source}-{target}-{number}", folder, config, engine)
        models[source, target] = Model(source, target, translator, Batcher(runner, config), number)
        console.say(f"loaded {folder.path}: {source} → {target}, {what}")
    if not models:
        raise InputError(f"--load-only {config.load_only}: no model of these languages")
    return Models(list(models.values()))


def _make_runner(translator: Translator, name: str, folder: ModelFolder, config: ServeConfig, engine: Engine) -> tuple[Runner, str]:
    """Who translates the batches of a model, and in words."""
    if not config.ray:
        return OwnEngine(translator), f"engine {translator.engine.name}"
    from undivided.serve.replicas import ReplicaJob, start_replicas

    job = ReplicaJob(str(Path(folder.path).absolute()), *engine)
    return start_replicas(job, name, config), f"{plural(config.replicas, 'replica')} on Ray"
