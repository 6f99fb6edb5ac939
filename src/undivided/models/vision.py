"""Vision: patches of an image as tokens, and a token before them that learns what the image is (Dosovitskiy et al., 2021: ViT)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from undivided.config import ModelConfig
from undivided.models.stack import Stack
from undivided.models.transformer import initialise_projections
from undivided.nn.dropout import Dropout
from undivided.nn.layers import Positions


def cut_patches(images: Tensor, side: int) -> Tensor:
    """Images `B C Y X` → patches `B N (C side side)`, row by row."""
    batch, channels, height, width = images.shape
    cut = images.view(batch, channels, height // side, side, width // side, side)
    return cut.permute(0, 2, 4, 1, 3, 5).reshape(batch, -1, channels * side * side)


def join_patches(parts: Tensor, channels: int, height: int, width: int, side: int) -> Tensor:
    """The images that patches were cut from."""
    cut = parts.view(len(parts), height // side, width // side, channels, side, side)
    return cut.permute(0, 3, 1, 4, 2, 5).reshape(len(parts), channels, height, width)


class Vision(nn.Module):
    """Images `B C Y X` of values near 0 to 1 → logits `B classes`."""

    def __init__(self, config: ModelConfig, classes: int) -> None:
        super().__init__()
        self.config = config
        self.project = nn.Linear(config.channels * config.patch**2, config.d_model)
        self.first = nn.Parameter(torch.empty(config.d_model))
        self.positions = Positions(config)
        self.dropout = Dropout(config.dropout)
        self.stack = Stack(config, config.encoder_layers)
        self.output = nn.Linear(config.d_model, classes)
        initialise_projections(self)
        nn.init.normal_(self.first, std=0.02)
        self.positions.initialise()

    def forward(self, images: Tensor) -> Tensor:
        x = self.project(cut_patches(images, self.config.patch))
        x = torch.cat([self.first.expand(len(x), 1, -1), x], dim=1)
        return self.output(self.stack(self.dropout(self.positions(x)), None)[:, 0])
