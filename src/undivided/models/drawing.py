"""Drawing: a learned codebook turns an image into tokens, and a decoder writes them behind those of a text.

The idea of Ramesh et al., 2021 (DALL·E). Differs from theirs: the codebook is that of van den Oord et al., 2017 (VQ-VAE), one
code for each patch; codebook and decoder are learned at the same time, neither disturbed by the other's gradient.
"""

from __future__ import annotations

import dataclasses

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from undivided.config import ModelConfig
from undivided.models.decoder_only import DecoderOnly
from undivided.models.transformer import initialise_projections
from undivided.models.vision import cut_patches, join_patches


class Codebook(nn.Module):
    """Patches ↔ codes: a patch becomes a vector, the vector the nearest of some learned ones, and that a patch again."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        pixels = config.channels * config.patch**2
        self.into = nn.Sequential(nn.Linear(pixels, config.d_model), nn.GELU(), nn.Linear(config.d_model, config.d_code))
        self.codes = nn.Parameter(torch.empty(config.codes, config.d_code))
        self.back = nn.Sequential(nn.Linear(config.d_code, config.d_model), nn.GELU(), nn.Linear(config.d_model, pixels))
        initialise_projections(self)
        nn.init.normal_(self.codes)

    def copy_codes_from(self, images: Tensor) -> None:
        """Make the codes of some real patches, so that none starts far from all of them."""
        with torch.no_grad():
            vectors = self.into(cut_patches(images, self.config.patch)).flatten(0, 1)
            different = vectors.unique(dim=0)
            chosen = torch.randperm(len(different))[torch.arange(len(self.codes)) % len(different)]
            self.codes.copy_(different[chosen])

    def nearest(self, vectors: Tensor) -> Tensor:
        """`B N` numbers of the codes nearest to vectors `B N D`."""
        return torch.cdist(vectors, self.codes.expand(len(vectors), -1, -1)).argmin(dim=-1)

    def tokens(self, images: Tensor) -> Tensor:
        """Images `B C Y X` → codes `B N`."""
        return self.nearest(self.into(cut_patches(images, self.config.patch)))

    def draw(self, codes: Tensor) -> Tensor:
        """Codes `B N` → images `B C Y X`."""
        config, parts = self.config, self.back(self.codes[codes])
        return join_patches(parts, config.channels, config.image_height, config.image_width, config.patch)

    def loss(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """For each pixel the squared error of the redrawn images, with what draws vectors and codes together; and the codes.

        The gradient passes from the code straight to the vector that it stands for.
        """
        parts = cut_patches(images, self.config.patch)
        vectors = self.into(parts)
        numbers = self.nearest(vectors)
        codes = self.codes[numbers]
        redrawn = self.back(vectors + (codes - vectors).detach())
        together = F.mse_loss(codes, vectors.detach()) + 0.25 * F.mse_loss(vectors, codes.detach())
        return F.mse_loss(redrawn, parts) + together, numbers


class Drawing(nn.Module):
    """A codebook, and a decoder over one vocabulary: the text's subwords, then the codes."""

    def __init__(self, config: ModelConfig, vocabulary: int) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        self.codebook = Codebook(config)
        self.decoder = DecoderOnly(dataclasses.replace(config, kind="decoder_only"), vocabulary + config.codes)
