"""A look into models other than the Transformer: recurrent with attention and without, and convolutional."""

import json
import re

import numpy as np
import pytest
import torch

from samples import sentences, write_lines
from undivided import InputError, Translator
from undivided.artifact import Artifact, save_artifact
from undivided.config import CorpusFiles, build_recipe
from undivided.core.console import Console
from undivided.data.batches import make_batch
from undivided.inference.search import forced_scores, search
from undivided.look import View, count_what_if_runs, look, render_page, run_what_if, save_look, summarize
from undivided.look.heads import report_heads
from undivided.look.heads.report import format_table
from undivided.look.what_if import find_heads
from undivided.models import make_model
from undivided.nn.attention import attention_hook

LINES = [source for source, _ in sentences(6, seed=9)]
ATTENTIVE = {
    "rnn-additive": {"kind": "recurrent", "cell": "rnn", "attention": "additive"},
    "lstm-multiplicative": {"kind": "recurrent", "cell": "lstm", "attention": "multiplicative", "d_hidden": 12},
    "gru-fed": {"kind": "recurrent", "cell": "gru", "attention": "additive", "input_feeding": True},
    "convolutional": {"kind": "convolutional", "kernel_width": 3, "encoder_layers": 2, "decoder_layers": 3},
}
BLIND = {"kind": "recurrent", "cell": "gru", "attention": "none"}


def make(translator, changes):
    """Untrained, two layers deep unless it is said otherwise."""
    torch.manual_seed(3)
    recipe = build_recipe(
        {
            "model": {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2} | changes,
            "search": {"max_extra": 4, "beam_size": 3},
            "data": {"source_lang": "en"},
        }
    )
    tokenizer = translator.artifact.tokenizer
    return Artifact(recipe, tokenizer, make_model(recipe.model, len(tokenizer.source), len(tokenizer.target)).eval())


@pytest.fixture(scope="module", params=ATTENTIVE)
def artifact(request, translator):
    return make(translator, ATTENTIVE[request.param])


@pytest.fixture(scope="module")
def blind(translator):
    return make(translator, BLIND)


def ids_of(result):
    return [token.id for token in result.source], [token.id for token in result.tgt_out]


def layers_of(artifact):
    """How many attentions to the source there are, each of one head."""
    return artifact.recipe.model.decoder_layers if artifact.recipe.model.kind == "convolutional" else 1


def test_weights_are_those_of_the_model(artifact):
    """Rows sum to 1, and they are what the attention modules gave."""
    result = look(artifact, LINES[0], "ein Hund mag das alte Haus.")
    source, target = len(result.source), len(result.steps)
    assert result.encoder.shape == (0, 0, source, source)
    assert result.decoder.shape == (0, 0, target, target)
    assert result.cross.shape == (layers_of(artifact), 1, target, source)
    assert source != target
    np.testing.assert_allclose(result.cross.sum(-1), 1.0, atol=1e-5)
    given = {}
    for name, module in artifact.model.named_modules():
        if type(module).__name__ in ("Alignment", "Attention"):
            module.register_forward_hook(lambda _, __, output, name=name: given.setdefault(name, []).append(output[1]))
    left, right = ids_of(result)
    batch = make_batch([left], [right])
    with torch.no_grad():
        artifact.model.decode(artifact.model.encode(batch.src, None), batch.tgt_in)
    wanted = np.stack([torch.cat(rows, dim=1).numpy() for rows in given.values()])
    np.testing.assert_allclose(result.cross, wanted, atol=1e-6)


def test_looking_changes_no_bit_of_a_translation(artifact):
    config, source = artifact.recipe.search, artifact.tokenizer.source.encode([LINES[0]])
    before = search(artifact.model, source, config, torch.device("cpu"))[0][0]
    result = look(artifact, LINES[0])
    after = search(artifact.model, source, config, torch.device("cpu"))[0][0]
    assert before == after
    assert (result.score, result.log_probability) == (before.score, before.log_probability)
    with attention_hook(lambda owner, weights: weights):
        assert search(artifact.model, source, config, torch.device("cpu"))[0][0] == before


def test_the_lens_reads_every_decoder_layer(artifact):
    result = look(artifact, LINES[0], "ein Hund")
    for step in result.steps:
        assert len(step.lens) == artifact.recipe.model.decoder_layers
        assert step.lens[-1].probability == pytest.approx(step.probability, rel=1e-4)
        assert [each.id for each in step.lens[-1].candidates] == [each.id for each in step.candidates[:5]]
    assert any(step.lens[0].candidates != step.lens[-1].candidates for step in result.steps)


@pytest.mark.parametrize("kind", ATTENTIVE)
def test_saliency_is_the_slope_as_a_word_fades(translator, kind):
    artifact = make(translator, ATTENTIVE[kind])
    model = artifact.model.double()
    result = look(artifact, LINES[0], "ein Hund")
    left, right = ids_of(result)
    batch = make_batch([left], [right])
    positions = model.source_embedding.positions

    def log_probabilities(side, place, factor):
        module = getattr(model, f"{side}_embedding")

        def hook(_, __, output):
            bare = torch.zeros_like(output)
            still = bare if positions is None else positions(bare)
            faded = torch.ones(output.shape[1], 1, dtype=output.dtype)
            faded[place] = factor
            return (output - still) * faded + still

        handle = module.register_forward_hook(hook)
        with torch.no_grad():
            states = model.decode(model.encode(batch.src, None), batch.tgt_in)
            handle.remove()
            return model.logits(states)[0].log_softmax(-1).gather(1, batch.tgt_out[0, :, None])[:, 0]

    for side, values in (("source", result.saliency_source), ("target", result.saliency_target)):
        for place in range(values.shape[1]):
            slope = (log_probabilities(side, place, 1 + 1e-4) - log_probabilities(side, place, 1 - 1e-4)) / 2e-4
            np.testing.assert_allclose(values[:, place], slope, atol=2e-4, rtol=2e-3)


def test_every_attention_is_turned_off_in_turn(artifact):
    result = run_what_if(artifact, look(artifact, LINES[0]))
    assert len(result.heads_off) == layers_of(artifact)
    assert count_what_if_runs(result) == len(result.heads_off) + len(result.alternatives)
    left, right = ids_of(result)
    cpu = torch.device("cpu")
    before = sum(forced_scores(artifact.model, [left], [right], cpu)[0])
    for head, off in zip(find_heads(artifact.model, left, right), result.heads_off):
        with attention_hook(head.off_hook()):
            after = sum(forced_scores(artifact.model, [left], [right], cpu)[0])
            best = search(artifact.model, [left], artifact.recipe.search, cpu)[0][0]
        assert off.lost == pytest.approx(before - after, abs=1e-3)
        assert off.score == pytest.approx(best.score, abs=1e-4)
        assert abs(off.lost) > 1e-4


def test_page_json_picture_and_text(artifact, tmp_path):
    pytest.importorskip("matplotlib", reason="pictures need the extra `look`")
    result = look(artifact, LINES[0])
    assert "place of a Transformer's self-attention" in result.remark
    for name in ("look.html", "look.json", "look.png", "look.svg", "look.pdf"):
        save_look(result, tmp_path / name)
    values = json.loads((tmp_path / "look.json").read_text(encoding="utf-8"))
    np.testing.assert_allclose(values["cross"], result.cross, atol=1e-6)
    assert values["encoder"] == []
    assert values["remark"] == result.remark
    assert result.remark in summarize(result)
    with pytest.raises(InputError, match=r"no encoder self-attention to draw.*Transformer"):
        View("encoder").check(result)


def test_heads_of_a_corpus(artifact, tmp_path):
    pairs = sentences(20, seed=6)
    files = CorpusFiles(*(str(write_lines(tmp_path / f"c.{at}", [pair[at] for pair in pairs])) for at in (0, 1)))
    result = report_heads(Translator(artifact, engine="torch"), files, 5, Console(quiet=True))
    assert [(row.use, row.layer, row.head) for row in result.heads] == [("cross", layer, 0) for layer in range(layers_of(artifact))]
    for row in result.heads:
        assert row.alignment is not None
        assert (row.previous, row.next) == (None, None)
        assert row.name in ("alignment", "same word", "punctuation/end", "broad", "mixed")
    assert len(result.alignments) == 5
    assert all(re.fullmatch(r"\d+-\d+( \d+-\d+)*", line) for line in result.alignments)
    assert "encoder self-attention" not in format_table(result)


# Without attention.


def test_without_attention_it_is_said_and_the_rest_is_there(blind, tmp_path):
    result = run_what_if(blind, look(blind, LINES[0]))
    assert result.cross.shape == (0, 0, len(result.steps), len(result.source))
    assert result.heads_off == ()
    assert len(result.alternatives) == count_what_if_runs(result)
    assert result.remark.startswith("This model has no attention")
    assert np.abs(result.saliency_source).max() > 0
    assert all(len(step.lens) == 2 for step in result.steps)
    assert result.remark in summarize(result)
    assert "attends to" not in summarize(result)
    assert result.remark.split(":")[0] in render_page(result)
    save_look(result, tmp_path / "look.json")
    assert json.loads((tmp_path / "look.json").read_text(encoding="utf-8"))["remark"] == result.remark


def test_the_command_without_attention(blind, run, tmp_path):
    save_artifact(blind, tmp_path / "m")
    folder = tmp_path / "m"
    for name in ("look.html", "look.json"):
        assert run("look", folder, LINES[0], "-o", tmp_path / name, "--fast").code == 0
        assert (tmp_path / name).stat().st_size > 1000
    said = run("look", folder, LINES[0])
    assert (said.code, "has no attention" in said.out) == (0, True)
    drawn = run("look", folder, LINES[0], "-o", tmp_path / "look.png")
    assert drawn.code == 2
    assert "no encoder-decoder attention to draw" in drawn.err
    files = [write_lines(tmp_path / f"c.{at}", [pair[at] for pair in sentences(3)]) for at in (0, 1)]
    counted = run("look", folder, "--corpus", *files)
    assert counted.code == 2
    assert "no attention heads" in counted.err
    assert not (tmp_path / "look.png").exists()
