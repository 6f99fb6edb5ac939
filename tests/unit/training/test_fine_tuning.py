"""Fine-tuning: old data mixed in, the pull back to the old weights, imported models, and what the card says of it."""

import io
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from marian_models import make_marian
from marian_models import sentences as marian_sentences
from samples import flags, sentences, tiny_recipe, write_pairs
from undivided.artifact import load_artifact
from undivided.cli import main
from undivided.config import build_recipe
from undivided.core.console import Console
from undivided.core.errors import InputError
from undivided.core.ids import MASKED
from undivided.data.batches import make_batch
from undivided.inference.score import perplexity
from undivided.inference.translator import Translator
from undivided.interop.door import import_model
from undivided.training.distill import distill
from undivided.training.fisher import PART, measure_fisher
from undivided.training.loop import Trainer, train
from undivided.training.old_data import old_corpora
from undivided.training.prepare import prepare
from undivided.training.speed import tokens_per_second


@pytest.fixture
def values(model, tmp_path):
    recipe = tiny_recipe(tmp_path / "out", write_pairs(tmp_path, "new", sentences(40, seed=5)))
    del recipe["model"], recipe["tokens"]
    recipe["data"] |= {"valid": [write_pairs(tmp_path, "valid", sentences(5, seed=6))]}
    recipe["train"] |= {"start": str(model), "max_steps": 4, "rate": 1e-3, "average": 1, "save_every": 2, "warmup_steps": 1}
    return recipe


def said_by(values):
    said = io.StringIO()
    train(values, Console(stream=said))
    return said.getvalue()


def distance(values, model):
    before, after = (dict(load_artifact(folder).model.named_parameters()) for folder in (model, values["train"]["out"]))
    return float(sum((after[name] - before[name]).detach().square().sum() for name in before))


def test_the_flag_is_from(model, tmp_path, capsys):
    new = write_pairs(tmp_path, "new", sentences(240, seed=5))
    command = ["train", "--from", str(model), "--train", *new, "--max-steps", "2", "--out", str(tmp_path / "out")]
    assert main(command) == 0
    said = capsys.readouterr().err
    assert "on the new data (12 pairs): BLEU " in said
    assert "on the old data (20 pairs): BLEU " in said
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"Fine-tuned with undivided from `{model.name}`." in card
    assert "- on the old data: BLEU " in card
    assert main(["train", "--from", str(tmp_path / "none"), "--train", *new, "--out", str(tmp_path / "no")]) == 2
    assert not (tmp_path / "no").exists()


def test_old_pairs_are_mixed_in_by_their_share(model, values):
    values["data"]["mix"] = 0.25
    with prepare(values, Console(quiet=True)) as prepared:
        store = prepared.store
        sizes = [count * weight for count, weight in zip(store.corpora, store.weights)]
    assert len(sizes) == 2
    assert sizes[1] / sum(sizes) == pytest.approx(0.25, abs=0.01)
    assert [files.source for files in prepared.recipe.data.old_train] == [load_artifact(model).recipe.data.train[0].source]


def test_a_mixed_run_resumes_with_the_command_that_started_it(values):
    values["data"]["mix"] = 0.5
    assert "mixed in: 40 old pairs in every pass over the 40 new pairs" in said_by(values)
    values["train"]["max_steps"] = 6
    assert "resumed at step 4" in said_by(values)
    values["data"]["mix"] = 0.4
    with pytest.raises(InputError, match=r"data.mix was 0.5, now 0.4"):
        train(values, Console(quiet=True))


def test_what_the_old_model_is_measured_on_stays_out_of_the_mixture(values, tmp_path):
    old = tiny_recipe(tmp_path / "old", write_pairs(tmp_path, "old", sentences(200, seed=7)))
    old["train"] |= {"max_steps": 2}
    old["data"] |= {"hold_out": 10}
    train(old, Console(quiet=True))
    values["train"]["start"] = str(tmp_path / "old")
    values["data"] |= {"train": [write_pairs(tmp_path, "more", sentences(240, seed=5))], "mix": 0.5, "valid": []}
    recipe = build_recipe(values)
    (corpus,) = old_corpora(recipe)
    assert len(corpus.held_out) == 10
    with prepare(values, Console(quiet=True)) as prepared:
        assert prepared.store.corpora == [228, 190]
        assert len(prepared.validation_pairs()) == 12
        assert {pair.source for pair in prepared.validation_pairs()} <= {source for source, _ in sentences(240, seed=5)}


def test_old_data_that_is_gone_or_useless_is_said(values, tmp_path, model):
    values["data"]["old_train"] = [write_pairs(tmp_path, "old", sentences(7))]
    with pytest.raises(InputError, match=r"--mix 0\.5"):
        train(values, Console(quiet=True))
    del values["data"]["old_train"]
    values["train"] |= {"start": "", "pull": 1.0}
    with pytest.raises(InputError, match=r"train.pull: a setting of fine-tuning.*--from"):
        train(values, Console(quiet=True))
    assert main(["train", *flags({"data": {"mix": 0.5}}), "--train", "a", "b", "--out", str(tmp_path / "x")]) == 2


def test_the_pull_keeps_weights_near_where_they_were(model, values, tmp_path):
    values["train"] |= {"max_steps": 20, "save_every": 20}
    train(values, Console(quiet=True))
    free = distance(values, model)
    values["train"] |= {"pull": 300.0, "out": str(tmp_path / "pulled")}
    train(values, Console(quiet=True))
    assert 0 < distance(values, model) < free / 4


def test_a_pulled_run_resumes_to_where_it_would_have_come(model, values, tmp_path):
    values["train"] |= {"pull": 100.0, "max_steps": 8, "save_every": 4}
    train(values, Console(quiet=True))
    whole = dict(load_artifact(values["train"]["out"]).model.named_parameters())
    values["train"] |= {"out": str(tmp_path / "halves")}
    with prepare(values, Console(quiet=True)) as prepared:
        trainer = Trainer(prepared, Console(quiet=True))
        plans = trainer.task.stream.plans()
        trainer.model.train()
        for _ in range(4):
            trainer.advance(plans)
        trainer.save()
    train(values, Console(quiet=True))
    halves = dict(load_artifact(values["train"]["out"]).model.named_parameters())
    assert all(torch.equal(whole[name], halves[name]) for name in whole)


def test_a_student_of_a_fine_tuned_teacher_is_no_fine_tuning(values, tmp_path):
    values["data"]["mix"] = 0.5
    values["train"]["pull"] = 1.0
    teacher = train(values, Console(quiet=True))
    student = {"train": {"out": str(tmp_path / "student"), "max_steps": 1, "save_every": 1}}
    recipe = load_artifact(distill(teacher, student, Console(quiet=True))).recipe
    assert (recipe.train.start, recipe.train.pull, recipe.data.mix, recipe.data.old_train) == ("", 0.0, 0.0, [])


@pytest.mark.parametrize("options", [{}, {"tied": False, "separate": True, "languages": ["deu"]}])
def test_an_imported_model_is_fine_tuned_and_forgets_no_mask(options, tmp_path):
    """The target's sentencepiece has three pieces that the vocabulary lacks: no text is split into them, and none is written."""
    make_marian(tmp_path / "theirs", **options)
    import_model(tmp_path / "theirs", tmp_path / "ours", Console(quiet=True), "cc-by-4.0")
    before = load_artifact(tmp_path / "ours")
    masked = before.model.output_bias < MASKED / 2
    assert bool(masked.any())
    code = ">>deu<< " if "languages" in options else ""
    pairs = [(f"{code}{line}", line.upper()) for line in marian_sentences(120, 4)]
    values = {
        "data": {"train": [write_pairs(tmp_path, "new", pairs[:-4])], "valid": [write_pairs(tmp_path, "valid", pairs[-4:])]},
        "train": {"start": str(tmp_path / "ours"), "out": str(tmp_path / "tuned"), "max_steps": 60, "rate": 5e-3},
    }
    assert "on the new data" in said_by(values | {"train": values["train"] | {"validate_every": 60}})
    log = [json.loads(line) for line in (tmp_path / "tuned" / "training" / "log.jsonl").read_text().splitlines()]
    assert log[-1]["perplexity"] < 40, "from more than the vocabulary: nothing counts as impossible"
    after = load_artifact(tmp_path / "tuned")
    assert torch.equal(after.model.output_bias[masked], before.model.output_bias[masked])
    assert not masked[torch.tensor([token for line in pairs for token in after.tokenizer.target.encode([line[1]])[0]])].any()
    assert after.facts["license"] == "cc-by-4.0"
    assert "Imported by undivided from `theirs`" in (tmp_path / "tuned" / "README.md").read_text()


def test_the_speed_of_an_imported_model_can_be_measured():
    """`--minutes` tries some steps first: a bias of the logits takes part in them."""
    shape = {"d_model": 16, "d_ff": 16, "n_heads": 2, "encoder_layers": 1, "decoder_layers": 1, "output_bias": True}
    assert tokens_per_second(build_recipe({"model": shape, "batches": {"tokens": 64}}), 300, 8, seconds=0.0) > 0


def moved(values, model):
    before, after = (dict(load_artifact(folder).model.named_parameters()) for folder in (model, values["train"]["out"]))
    return torch.cat([(after[name] - before[name]).detach().flatten().abs() for name in before])


def test_the_fisher_information_is_the_mean_of_squared_gradients_of_single_sentences(model):
    found = load_artifact(model)
    sides = zip(*sentences(6, seed=9))
    rows = [each.encode(list(texts)) for each, texts in zip((found.tokenizer.source, found.tokenizer.target), sides)]
    fisher = measure_fisher(found.model, [make_batch([src], [tgt]) for src, tgt in zip(*rows)], 2, Console(quiet=True))
    wanted = [torch.zeros_like(each) for each in found.model.parameters()]
    for src, tgt in zip(*rows):
        found.model.zero_grad()
        read = torch.tensor([[2, *tgt[:-1]]])
        logits = found.model.logits(found.model.decode(found.model.encode(torch.tensor([src]), None), read))[0]
        (-logits.log_softmax(-1).gather(1, torch.tensor(tgt)[:, None]).sum()).backward()
        for total, parameter in zip(wanted, found.model.parameters()):
            total += parameter.grad.square() / 6
    mean = torch.cat([each.flatten() for each in wanted]).mean()
    assert torch.cat([each.flatten() for each in fisher]).mean() == pytest.approx(1.0, rel=1e-4)
    assert all(torch.allclose(one, other / mean, rtol=1e-3, atol=1e-5) for one, other in zip(fisher, wanted))
    assert not any(parameter.requires_grad is False for parameter in found.model.parameters())


def test_ewc_is_a_step_along_the_gradient_of_its_penalty(values):
    values["train"]["ewc"] = 10.0
    with prepare(values, Console(quiet=True)) as prepared:
        run = Trainer(prepared, Console(quiet=True)).run
        start = [each.detach().clone() for each in run.parameters]
        with torch.no_grad():
            for parameter in run.parameters:
                parameter.add_(torch.randn_like(parameter))
        before = [each.detach().clone().requires_grad_() for each in run.parameters]
        penalty = sum((f * (w - w0).square()).sum() * 10 / 2 for f, w, w0 in zip(run.fisher, before, start))
        gradients = torch.autograd.grad(penalty, before)
        run.pull_back(1e-6)
    for parameter, was, gradient in zip(run.parameters, before, gradients):
        assert torch.allclose(parameter - was, -1e-6 * gradient, rtol=1e-2, atol=1e-6)


def test_ewc_holds_what_matters_and_lets_the_rest_go(model, values, tmp_path):
    values["train"] |= {"max_steps": 40, "save_every": 40, "label_smoothing": 0.0}
    train(values, Console(quiet=True))
    free = moved(values, model)
    values["train"] |= {"ewc": 300.0, "out": str(tmp_path / "held")}
    assert "measured on 300 old pairs" in said_by(values)
    held = moved(values, model)
    kept = load_file(tmp_path / "held" / "training" / "fisher" / PART)
    fisher = torch.cat([kept[name].flatten() for name, _ in load_artifact(model).model.named_parameters()])
    share = [
        float(held[part].mean() / free[part].mean()) for part in (fisher >= fisher.quantile(0.98), fisher < fisher.quantile(0.3))
    ]
    assert share[0] < 0.1
    assert share[1] > 0.7


def test_ewc_forgets_less_than_the_same_pull_without_regard(model, values, tmp_path):
    """The new text has other targets for the same words: with it, both texts are more probable than with the blind pull."""
    old, new = sentences(60, seed=3), [(source, target.upper()) for source, target in sentences(200, seed=5)]
    values["data"]["train"] = [write_pairs(tmp_path, "upper", new)]
    values["train"] |= {"max_steps": 60, "save_every": 60, "label_smoothing": 0.0, "rate": 3e-3}
    found = {}
    for name, changes in {"pull": {"pull": 12.0}, "ewc": {"ewc": 40.0}}.items():
        out = tmp_path / name
        train(values | {"train": values["train"] | changes | {"out": str(out)}}, Console(quiet=True))
        translator = Translator(out)
        found[name] = [perplexity(translator, *zip(*pairs)) for pairs in (new, old)]
    assert found["ewc"][0] < found["pull"][0]
    assert found["ewc"][1] < 0.85 * found["pull"][1]


def test_a_run_with_ewc_resumes_bit_for_bit_and_without_its_measurement_not_at_all(model, values, tmp_path):
    values["train"] |= {"ewc": 100.0, "max_steps": 8, "save_every": 4}
    train(values, Console(quiet=True))
    whole = dict(load_artifact(values["train"]["out"]).model.named_parameters())
    values["train"] |= {"out": str(tmp_path / "halves")}
    with prepare(values, Console(quiet=True)) as prepared:
        trainer = Trainer(prepared, Console(quiet=True))
        plans = trainer.task.stream.plans()
        trainer.model.train()
        for _ in range(4):
            trainer.advance(plans)
        trainer.save()
    (tmp_path / "halves" / "training" / "fisher").rename(tmp_path / "kept")
    with pytest.raises(InputError, match="cannot resume as it began"):
        train(values, Console(quiet=True))
    (tmp_path / "kept").rename(tmp_path / "halves" / "training" / "fisher")
    train(values, Console(quiet=True))
    halves = dict(load_artifact(values["train"]["out"]).model.named_parameters())
    assert all(torch.equal(whole[name], halves[name]) for name in whole)
    part = tmp_path / "halves" / "training" / "fisher" / PART
    part.write_bytes(part.read_bytes()[:-1] + b"x")
    values["train"]["max_steps"] = 9
    with pytest.raises(InputError, match="is damaged"):
        train(values, Console(quiet=True))


def test_ewc_without_old_pairs_or_for_other_models_is_refused(values, tmp_path):
    moved_away = load_artifact(values["train"]["start"]).recipe.data.train[0]
    values["train"]["ewc"] = 5.0
    values["data"]["old_train"] = [write_pairs(tmp_path, "old", sentences(7))]
    assert "measured on 7 old pairs" in said_by(values)
    values["train"]["out"] = str(tmp_path / "other")
    del values["data"]["old_train"]
    original = Path(moved_away.source).read_text()
    Path(moved_away.source).write_text(original + "more\n")
    try:
        with pytest.raises(InputError, match=r"--ewc 5: the training data of .* is not here, or has changed"):
            train(values, Console(quiet=True))
    finally:
        Path(moved_away.source).write_text(original)
    assert not (tmp_path / "other").exists()
    with pytest.raises(InputError, match=r"train\.ewc: a setting of transformer, recurrent and convolutional models"):
        build_recipe({"model": {"kind": "decoder_only"}, "train": {"ewc": 1.0, "start": "x"}})
