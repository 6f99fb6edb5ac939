"""Several models as one: the mean of their probabilities at every step."""

import pytest
import torch

from undivided.config import ModelConfig, SearchConfig
from undivided.inference.search import search
from undivided.models import make_model
from undivided.models.ensemble import Ensemble

CPU = torch.device("cpu")
SOURCES = [[5, 6, 7, 3], [8, 9, 3], [4, 3]]


def fresh(seed, **changes):
    torch.manual_seed(seed)
    config = ModelConfig(**({"d_model": 16, "d_ff": 32, "n_heads": 2, "encoder_layers": 1, "decoder_layers": 1} | changes))
    return make_model(config, 14, 14).eval()


def found(model, **changes):
    config = SearchConfig(**({"beam_size": 3, "max_extra": 6, "n_best": 2} | changes))
    return [
        [(each.tokens, pytest.approx(each.log_probability, abs=1e-4)) for each in row]
        for row in search(model, SOURCES, config, CPU)
    ]


def test_a_model_with_itself_is_itself():
    model = fresh(1)
    assert found(Ensemble([model, model, model])) == found(model)


def test_probabilities_are_averaged_at_every_step():
    models = [fresh(1), fresh(2, d_model=32, positions="learned", max_positions=40)]
    both = Ensemble(models)
    tokens = torch.tensor([[2]])
    src = torch.tensor([SOURCES[0]])
    with torch.inference_mode():
        state = both.start(both.encode(src, None))
        alone = [model.step(model.start(model.encode(src, None)), tokens).softmax(-1) for model in models]
        torch.testing.assert_close(both.step(state, tokens).exp(), (alone[0] + alone[1]) / 2)
    assert both.config.position_limit == 40


def test_models_that_disagree_are_outvoted():
    lone, voters = fresh(1), [fresh(2), fresh(2), fresh(2), fresh(2)]
    assert found(lone) != found(voters[0])
    together = search(Ensemble([lone, *voters]), SOURCES, SearchConfig(beam_size=1, max_extra=6), CPU)
    alone = search(voters[0], SOURCES, SearchConfig(beam_size=1, max_extra=6), CPU)
    assert [row[0].tokens for row in together] == [row[0].tokens for row in alone]
