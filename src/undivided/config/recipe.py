"""The recipe: all settings of a model and its training, built from defaults, preset, YAML and flags."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from undivided.config.data import BatchesConfig, DataConfig, TokensConfig
from undivided.config.model import DECODER_ONLY, ENCODER_ONLY, IMAGES, PAIRED, SINGLE_STACK, ModelConfig, join_names
from undivided.config.presets import PRESETS, preset_values
from undivided.config.search import SearchConfig
from undivided.config.settings import build_config, iter_settings, list_faults, merge, setting, suggest
from undivided.config.train import TrainConfig
from undivided.core.errors import InputError


@dataclass(frozen=True)
class Recipe:
    """Everything that makes a model."""

    preset: str = setting(
        "",
        "tiny (below 100,000 pairs), small (below a million), base (the paper's), fast (base with 8 encoder layers and 1 decoder "
        "layer), student (to be distilled; Firefox can run it) or big (the paper's); without one, a translator is fitted to its "
        "data and budget (--minutes, --max-steps or none), and other kinds of model get tiny, small or base",
        flags=("--preset",),
    )
    data: DataConfig = field(default_factory=DataConfig)
    tokens: TokensConfig = field(default_factory=TokensConfig)
    batches: BatchesConfig = field(default_factory=BatchesConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    search: SearchConfig = field(default_factory=SearchConfig)

    def faults(self) -> list[str]:
        """What is wrong between sections: data of another kind than the model learns from, a context without positions."""
        kind, faults = self.model.kind, self._corpus_faults()
        if kind in ENCODER_ONLY:
            faults += self._labelling_faults()
        if self.data.classes and kind not in ENCODER_ONLY + IMAGES:
            faults.append(f"data.classes: {kind} models have no classes")
        repeated = sorted({name for name in self.data.classes if self.data.classes.count(name) > 1})
        if repeated:
            faults.append(f"data.classes: named twice: {', '.join(repeated)}")
        if self.data.rows == "lines" and kind not in DECODER_ONLY:
            faults.append(f"data.rows: a setting of {join_names(DECODER_ONLY)} models; model.kind is {kind}")
        if self.train.consistency and kind not in PAIRED:
            faults.append(f"train.consistency: a setting of {join_names(PAIRED)} models; model.kind is {kind}")
        faults += self._fine_tuning_faults()
        if kind in SINGLE_STACK and self.model.positions == "learned" and self.max_sequence > self.model.max_positions:
            faults.append(f"model.max_positions: {self.model.max_positions} learned positions, but {self.max_sequence} are needed")
        return faults

    @property
    def max_sequence(self) -> int:
        """The longest sequence that a single-stack model sees: its context, or an image and the tokens before it."""
        images = {"vision": self.model.n_patches + 1, "drawing": self.model.n_patches + self.data.max_length}
        return images.get(self.model.kind, self.data.max_length)

    def _fine_tuning_faults(self) -> list[str]:
        """Settings of fine-tuning where nothing is fine-tuned, or old files that would not be used."""
        train = {"train.pull": self.train.pull, "train.ewc": self.train.ewc}
        alone = {**train, "data.mix": self.data.mix, "data.old_train": self.data.old_train, "train.drafts": self.train.drafts}
        faults = [f"{name}: a setting of fine-tuning; name the model: --from MODEL" for name, value in alone.items() if value]
        if not self.train.start:
            return faults
        if self.train.drafts:
            others = {**train, "train.shard": self.train.shard, "train.consistency": self.train.consistency}
            faults = [f"train.drafts: no draft decoder is trained with {name}" for name, value in others.items() if value]
            return faults + [f"train.drafts: no draft decoder for this model: {fault}" for fault in self.model.draft_faults()]
        if self.model.kind not in PAIRED:
            paired = {"data.mix": self.data.mix, "train.ewc": self.train.ewc}
            what = f"a setting of {join_names(PAIRED)} models; model.kind is {self.model.kind}"
            return [f"{name}: {what}" for name, value in paired.items() if value]
        if self.data.old_train and not (self.data.mix or self.train.ewc):
            return ["data.old_train: say how much of the training it is to be (--mix 0.5), or what it is for (--ewc 30)"]
        return []

    def _corpus_faults(self) -> list[str]:
        """Corpora with a second side where the model reads one, or without where it needs one."""
        kind, faults = self.model.kind, []
        for part, corpora in (("data.train", self.data.train), ("data.valid", self.data.valid)):
            for files in corpora:
                if kind in DECODER_ONLY and not files.is_unpaired:
                    faults.append(f"{part}: {kind} models read text without a second side, but {files.source} has two sides")
                elif kind not in DECODER_ONLY + ENCODER_ONLY:
                    faults += [f"{part}: {fault}" for fault in files.pairing_faults("labels" if kind in IMAGES else "target file")]
        return faults

    def _labelling_faults(self) -> list[str]:
        """All texts have labels, or none."""
        corpora = [*self.data.train, *self.data.valid]
        if len({files.is_unpaired for files in corpora}) > 1:
            return ["data.train, data.valid: some texts have labels and some do not"]
        if self.data.classes and any(files.is_unpaired for files in corpora):
            return ["data.classes: classes are named, but the texts have no labels"]
        return []


def build_recipe(values: Mapping[str, Any], preset: str = "") -> Recipe:
    """A full recipe: defaults, overridden by a preset, overridden by `values`. Every fault is listed at once."""
    faults: list[str] = []
    preset = preset or str(values.get("preset") or "")
    if preset and preset not in PRESETS:
        faults.append(f"preset: {preset!r} is none of {', '.join(PRESETS)}{suggest(preset, PRESETS)}")
    merged = merge(preset_values(preset, values), values) | {"preset": preset}
    recipe = typing.cast(Recipe, build_config(Recipe, merged, "", faults, [name for name, _, _ in iter_settings(Recipe)]))
    if faults:
        raise InputError(list_faults("the settings have", faults))
    return recipe
