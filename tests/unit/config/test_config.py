import dataclasses

import pytest
import yaml

from undivided.cli import make_parser
from undivided.config import PRESETS, CorpusFiles, Recipe, build_recipe, preset_for
from undivided.config.flags import given_settings
from undivided.config.settings import as_values, coerce, iter_settings, merge, nest_values
from undivided.config.yaml_file import read_yaml
from undivided.core.errors import InputError


def fault(values):
    with pytest.raises(InputError) as caught:
        build_recipe(values)
    return str(caught.value)


@pytest.mark.parametrize(
    ("values", "advice"),
    [
        ({"model": {"d_modl": 256}}, "model.d_modl: no such setting; did you mean 'd_model'?"),
        ({"modell": {}}, "modell: no such setting; did you mean 'model'?"),
        ({"d_model": 256}, "did you mean 'model.d_model'?"),
        ({"model": {"max_steps": 3}}, "did you mean 'train.max_steps'?"),
        ({"preset": "tinny"}, "did you mean 'tiny'?"),
        ({"model": {"norm": "poste"}}, "did you mean 'post'?"),
        (
            {"model": {"kind": "recurent"}},
            "is none of transformer, recurrent, convolutional, decoder_only, encoder_only, vision, drawing; "
            "did you mean 'recurrent'?",
        ),
        ({"model": {"kind": "recurrent", "cell": "ltsm"}}, "model.cell: 'ltsm' is none of rnn, lstm, gru; did you mean 'lstm'?"),
        ({"model": {"kind": "recurrent", "attention": "aditive"}}, "did you mean 'additive'?"),
        ({"data": {"train": [{"source": "a", "targt": "b"}]}}, "did you mean 'target'?"),
    ],
)
def test_unknown_words_get_a_suggestion(values, advice):
    assert advice in fault(values)


def test_all_faults_are_listed_at_once():
    message = fault({"model": {"d_modl": 1, "dropout": 1.5}, "train": {"max_steps": "many", "optimizer": "sgd"}, "preset": "huge"})
    for name in ("5 faults", "model.d_modl", "model.dropout", "train.max_steps", "train.optimizer", "preset"):
        assert name in message


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("model", "d_model", 0),
        ("model", "d_model", 2.5),
        ("model", "d_model", True),
        ("model", "d_model", None),
        ("model", "d_model", "wide"),
        ("model", "d_model", float("inf")),
        ("model", "dropout", 1.0),
        ("model", "dropout", -0.1),
        ("model", "dropout", float("nan")),
        ("model", "attention_bias", "maybe"),
        ("model", "norm", ["post"]),
        ("train", "rate", [1]),
        ("train", "out", {"a": 1}),
        ("data", "train", "a.txt"),
        ("data", "train", [["a", "b", "c"]]),
        ("data", "train", [["only-source.txt"]]),
        ("data", "train", [{"target": "b"}]),
        ("data", "train", [None]),
    ],
)
def test_wrong_types_and_ranges(section, key, value):
    assert f"{section}.{key}: " in fault({section: {key: value}})


@pytest.mark.parametrize("value", [3, "text", ["a"]])
def test_section_that_is_no_section(value):
    assert "model: expected 'key: value' lines" in fault({"model": value})


def test_settings_that_do_not_fit_each_other():
    assert "does not divide" in fault({"model": {"d_model": 30, "n_heads": 4}})
    assert "odd" in fault({"model": {"d_model": 33, "n_heads": 3}})
    build_recipe({"model": {"d_model": 30, "n_heads": 4, "d_k": 8, "d_v": 8}})


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ({"kind": "recurrent", "attention": "none", "input_feeding": True}, "model.input_feeding: there is nothing to feed"),
        ({"kind": "recurrent", "d_hidden": 33}, "model.d_hidden: 33 is odd"),
        ({"kind": "recurrent", "d_model": 33}, "model.d_model: 33 is odd"),
        (
            {"kind": "recurrent", "n_heads": 2},
            "model.n_heads: a setting of transformer, decoder_only, encoder_only, vision and drawing models; model.kind is rec",
        ),
        (
            {"kind": "recurrent", "positions": "learned"},
            "vision, drawing and convolutional models; model.kind is recurrent",
        ),
        ({"kind": "convolutional", "cell": "gru"}, "model.cell: a setting of recurrent models; model.kind is convolutional"),
        ({"kind": "convolutional", "d_model": 33}, "model.d_model: 33 is odd"),
        ({"cell": "gru"}, "model.cell: a setting of recurrent models; model.kind is transformer"),
        ({"kernel_width": 5}, "model.kernel_width: a setting of convolutional models"),
        ({"positions": "none", "join_positions": "concatenate"}, "nothing to concatenate"),
    ],
)
def test_settings_of_models_that_do_not_fit_each_other(model, said):
    message = fault({"model": model})
    assert said in message
    assert "\n" not in message


def test_an_unidirectional_model_may_be_of_any_width():
    build_recipe({"model": {"kind": "recurrent", "d_model": 33, "bidirectional": False}})


def test_faults_of_and_between_settings_are_listed_at_once():
    """But not those that a wrong value's default would make."""
    message = fault(
        {"model": {"kind": "recurrent", "cell": "ltsm", "attention": "none", "input_feeding": True, "d_hidden": 7, "d_ff": 9}}
    )
    for name in ("4 faults", "model.cell", "model.input_feeding", "model.d_hidden", "model.d_ff"):
        assert name in message
    assert "does not divide" not in fault({"model": {"d_model": "wide", "n_heads": 7}})
    assert "a setting of" not in fault({"model": {"kind": "recurent", "cell": "gru"}})


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("kind", ["recurrent", "convolutional"])
def test_a_preset_gives_a_model_only_the_settings_it_has(preset, kind):
    recipe = build_recipe({"model": {"kind": kind}}, preset)
    assert recipe.model.d_model == build_recipe({}, preset).model.d_model
    assert build_recipe(as_values(recipe)) == recipe
    message = fault({"preset": preset, "model": {"kind": kind, "n_heads": 2}})
    assert "model.n_heads: a setting of transformer, decoder_only, encoder_only, vision and drawing models" in message


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("1e-9", float, 1e-9),
        ("1e3", int, 1000),
        ("9007199254740993", int, 9007199254740993),
        (9007199254740993, int, 9007199254740993),
        ("true", bool, True),
        ("off", bool, False),
        (False, str, "no"),
        (12, str, "12"),
    ],
)
def test_coercion(text, kind, value):
    assert coerce(text, kind) == value


def test_yaml_oddities(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text("train:\n  epsilon: 1e-9\n  max_steps: 1e5\ndata:\n  source_lang: no\n  target_lang: en\nmodel:\n")
    recipe = build_recipe(read_yaml(path))
    assert recipe.train.epsilon == 1e-9
    assert recipe.train.max_steps == 100_000
    assert recipe.data.source_lang == "no"


@pytest.mark.parametrize("text", ["a: [1", "just words", "- a\n- b", "\tx: 1", b"\xff\xfe"])
def test_bad_yaml_names_the_file(tmp_path, text):
    path = tmp_path / "recipe.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=r"recipe\.yaml"):
        read_yaml(path)


def test_missing_and_empty_recipe(tmp_path):
    with pytest.raises(InputError, match="no such recipe"):
        read_yaml(tmp_path / "none.yaml")
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    assert build_recipe(read_yaml(tmp_path / "empty.yaml")) == build_recipe({})


def test_flags_win_over_yaml_and_yaml_over_preset():
    recipe = {"preset": "tiny", "model": {"d_model": 64, "d_ff": 100}}
    options = make_parser().parse_args(["train", "--model.d_model=32", "--seed", "7", "--train", "a", "b", "--train", "c.tsv"])
    built = build_recipe(merge(recipe, nest_values(given_settings(options, Recipe))))
    assert (built.model.d_model, built.model.d_ff, built.model.n_heads, built.train.seed) == (32, 100, 4, 7)
    assert built.data.train == [CorpusFiles("a", "b"), CorpusFiles("c.tsv")]


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_build(preset):
    assert build_recipe({}, preset) == build_recipe({"preset": preset})


def test_presets_are_the_papers():
    base, big = build_recipe({}, "base"), build_recipe({}, "big")
    assert (base.model.d_model, base.model.d_ff, base.model.n_heads, base.train.warmup_steps) == (512, 2048, 8, 4000)
    assert (big.model.d_model, big.model.d_ff, big.model.n_heads, big.model.dropout) == (1024, 4096, 16, 0.3)
    assert (base.train.average, big.train.average) == (5, 20)


def test_preset_by_size_grows():
    names = [preset_for(pairs) for pairs in (1, 30_000, 300_000, 5_000_000, 40_000_000)]
    assert names[0] == names[1] == "tiny"
    ranks = [list(PRESETS).index(name) for name in names]
    assert ranks == sorted(ranks)
    assert len(set(names)) >= 3


def test_every_setting_has_help_and_a_flag():
    options = make_parser().parse_args(["train", "--model.d_model=1"])
    assert hasattr(options, "model.d_model")
    for name, item, _ in iter_settings(Recipe):
        assert len(item.metadata["help"]) > 3, name


def test_values_survive_yaml():
    recipe = build_recipe({"data": {"train": [["a", "b"], {"source": "c.tsv", "weight": 2}]}}, "small")
    assert build_recipe(yaml.safe_load(yaml.safe_dump(as_values(recipe)))) == recipe
    assert dataclasses.is_dataclass(recipe)
