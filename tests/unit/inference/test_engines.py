"""Another engine runs the same folder: proven equal, or refused with the reason."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from samples import sentences
from undivided.artifact import Artifact, load_artifact, save_artifact
from undivided.config import ModelConfig, Recipe, SearchConfig
from undivided.core import manifest
from undivided.core.cache import cache_folder
from undivided.core.console import Console
from undivided.core.errors import InputError
from undivided.core.ids import EOS
from undivided.core.locks import try_lock_folder
from undivided.inference.engines import copies, int8
from undivided.inference.engines import ctranslate2_convert as ct2
from undivided.inference.engines.choice import choose_engine, is_cpu_only
from undivided.inference.engines.contract import batch_by_length
from undivided.inference.engines.copies import UnsupportedModel, sample_rows
from undivided.inference.engines.ctranslate2 import CTranslate2Engine, position_count
from undivided.inference.engines.ctranslate2_convert import check_supported, convert
from undivided.inference.engines.ctranslate2_spec import make_spec
from undivided.inference.engines.torch import TorchEngine
from undivided.inference.search import forced_scores
from undivided.inference.translator import Translator
from undivided.models import make_model
from undivided.nn.attention import attention_hook
from undivided.nn.backend import packing_works
from undivided.nn.device import one_thread

pytest.importorskip("ctranslate2", reason="the extra ctranslate2 is not installed")


@pytest.fixture(autouse=True)
def without_int8(monkeypatch):
    """A processor on which `auto` takes CTranslate2."""
    monkeypatch.setattr(int8, "works", lambda: False)


SMALL = ModelConfig(d_model=32, d_ff=48, n_heads=4, encoder_layers=2, decoder_layers=1, dropout=0.0, max_positions=400)
VARIATIONS = {
    "post-norm, the paper": {},
    "pre-norm": {"norm": "pre"},
    "sinusoids in halves": {"positions": "halves"},
    "learned positions": {"positions": "learned"},
    "the bare index": {"positions": "index", "norm": "pre"},
    "no positions": {"positions": "none"},
    "biases": {"attention_bias": True},
    "gelu": {"activation": "gelu"},
    "swish": {"activation": "swish"},
    "swiglu": {"activation": "swiglu"},
    "two-way tying": {"tie": "target"},
    "no tying": {"tie": "none"},
}


def untrained(translator: Translator, config: ModelConfig) -> Artifact:
    """A model with sharp random weights around the tokenizer of the test model."""
    tokenizer = translator.artifact.tokenizer
    torch.manual_seed(3)
    model = make_model(config, len(tokenizer.source), len(tokenizer.target)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return Artifact(dataclasses.replace(Recipe(), model=config), tokenizer, model)


def float32_engine(artifact: Artifact, folder: Path) -> CTranslate2Engine:
    spec = make_spec(artifact, position_count(artifact.recipe.model))
    spec.validate()
    spec.optimize()
    folder.mkdir()
    spec.save(str(folder))
    return CTranslate2Engine(folder, artifact, 1)


@pytest.mark.parametrize("changes", VARIATIONS.values(), ids=VARIATIONS.keys())
def test_the_same_numbers_in_float32(translator, tmp_path, changes):
    artifact = untrained(translator, dataclasses.replace(SMALL, **changes))
    engine = float32_engine(artifact, tmp_path / "ct2")
    sources = sample_rows(len(artifact.tokenizer.source), count=8)
    targets = [[*row[:5], EOS] for row in sample_rows(len(artifact.tokenizer.target), count=9)[1:]]
    right = forced_scores(artifact.model, sources, targets, torch.device("cpu"))
    ours = engine.scores(sources, targets)
    assert max(abs(a - b) for one, other in zip(right, ours) for a, b in zip(one, other)) < 1e-3


@pytest.mark.parametrize("beam", [1, 4])
def test_the_same_translations_in_float32(translator, tmp_path, beam):
    """Greedy search is the same; beam search ends by another rule, so a few weak hypotheses may differ, none by much."""
    engine, config = float32_engine(translator.artifact, tmp_path / "ct2"), SearchConfig(beam_size=beam, n_best=beam)
    rows = translator.artifact.tokenizer.source.encode([source for source, _ in sentences(30, seed=5)])
    right = dict(engine.reference.search(rows, config, [[]] * len(rows), range(len(rows))))
    ours = dict(engine.search(rows, config, [[]] * len(rows), range(len(rows))))
    ended = [place for place in range(len(rows)) if right[place][0].finished]
    same = [place for place in ended if ours[place][0].tokens == right[place][0].tokens]
    assert len(ended) > 20
    assert len(same) >= (len(ended) if beam == 1 else 0.8 * len(ended))
    assert all(len(ours[place]) == beam for place in ended)
    # CTranslate2 leaves out <unk> before the softmax, the reference after it.
    assert all(ours[place][0].score == pytest.approx(right[place][0].score, abs=0.05) for place in same)
    gaps = [ours[place][0].score - right[place][0].score for place in ended]
    assert abs(sum(gaps) / len(gaps)) < 0.1, gaps


def test_a_prefix_and_the_length_limit(translator, tmp_path):
    engine = float32_engine(translator.artifact, tmp_path / "ct2")
    rows = translator.artifact.tokenizer.source.encode(["The dog sees a tree today."])
    prefix = translator.artifact.tokenizer.target.encode(["Der Baum"])[0][:-1]
    ((_, found),) = engine.search(rows, SearchConfig(), [prefix], [0])
    assert found[0].tokens[: len(prefix)] == prefix
    ((_, found),) = engine.search([[rows[0][0], EOS]], SearchConfig(max_extra=1), [[]], [0])
    assert len(found[0].tokens) <= 2


def test_sampling_and_far_places_are_left_to_the_reference(translator, tmp_path):
    engine = float32_engine(translator.artifact, tmp_path / "ct2")
    rows = translator.artifact.tokenizer.source.encode(["The dog sees a tree today."])
    for config in (SearchConfig(sample=True, seed=7), SearchConfig(beam_size=1, max_extra=5000)):
        assert list(engine.search(rows, config, [[]], [0])) == list(engine.reference.search(rows, config, [[]], [0]))


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Where converted models are kept, for this test and the processes it starts: as a function of a pattern."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cache_folder.cache_clear()
    yield lambda pattern: sorted((tmp_path / "cache" / "undivided" / "ctranslate2").glob(f"*/{pattern}"))
    monkeypatch.undo()
    cache_folder.cache_clear()


@pytest.fixture
def folder(model, tmp_path, monkeypatch, kept):
    """A model so small that 8 bits are few: allow it more."""
    monkeypatch.setattr(ct2, "TOLERANCE", 1.0)
    return shutil.copytree(model, tmp_path / "m", ignore=shutil.ignore_patterns("training", "ctranslate2-*"))


class Said(Console):
    """Remembers what was said, but not that this processor has no instructions for the engine int8."""

    def __init__(self):
        super().__init__(quiet=True)
        self.lines = []

    def say(self, text):
        if not text.startswith("translating with CTranslate2, since"):
            self.lines.append(text)


def test_a_copy_that_came_with_the_model_is_not_believed(folder, kept):
    """It is not even read: CTranslate2 crashes on many that were made to be read by it."""
    Translator(folder, threads=1)
    ours = kept("ctranslate2-int8")[0]
    shutil.copytree(ours, folder / "ctranslate2-int8")
    shutil.rmtree(ours)
    (folder / "ctranslate2-int8" / "model.bin").write_bytes(b"\xff" * 4096)
    manifest.write(folder / "ctranslate2-int8", json.loads((folder / "ctranslate2-int8" / "manifest.json").read_text())["sha256"])
    said = Said()
    assert Translator(folder, threads=1, console=said).translate("The dog sees a tree today.")
    assert said.lines == ["converting the model for CTranslate2 with int8 weights (once) …"]


@pytest.mark.parametrize("how", ["others may write", "a link"])
def test_a_cache_that_is_not_only_ours_is_not_used(folder, tmp_path, kept, how):
    home = tmp_path / "cache" / "undivided"
    if how == "a link":
        (tmp_path / "elsewhere").mkdir()
        home.parent.mkdir()
        home.symlink_to(tmp_path / "elsewhere")
    else:
        home.mkdir(parents=True)
        home.chmod(0o777)
    assert Translator(folder, threads=1).engine.name == "ctranslate2-int8"
    assert not list(home.iterdir())


def test_a_folder_that_nobody_may_write_to_is_converted_once(folder, kept, read_only):
    read_only(folder)
    said = Said()
    assert Translator(folder, threads=1).engine.name == "ctranslate2-int8"
    assert Translator(folder, threads=1, console=said).engine.name == "ctranslate2-int8"
    assert said.lines == []


def test_copies_that_were_not_used_for_long_are_removed(folder, kept):
    Translator(folder, threads=1)
    old, used = (kept("ctranslate2-int8")[0].parent.with_name(name) for name in ("old", "used"))
    for place in (old, used):
        place.mkdir()
    os.utime(old, (1, 1))
    shutil.rmtree(kept("ctranslate2-int8")[0])
    Translator(folder, threads=1)
    assert not old.exists()
    assert used.exists()


def test_converted_once_and_anew_when_the_model_changes(folder, kept):
    first, second = Said(), Said()
    assert Translator(folder, threads=1, console=first).engine.name == "ctranslate2-int8"
    assert first.lines == ["converting the model for CTranslate2 with int8 weights (once) …"]
    (path,) = kept("ctranslate2-int8/model.bin")
    before = path.stat().st_mtime_ns
    Translator(folder, threads=1, console=second)
    assert second.lines == []
    assert path.stat().st_mtime_ns == before
    changed = load_artifact(folder)
    changed.facts["note"] = "a changed model"
    save_artifact(changed, folder)
    Translator(folder, threads=1, console=second)
    assert second.lines == first.lines
    assert not kept("*.building")
    assert not list(folder.glob("ctranslate2-*"))


def test_what_a_killed_process_was_building_is_removed_and_what_another_builds_is_not(folder, kept):
    Translator(folder, threads=1)
    (home,) = kept("ctranslate2-int8")
    shutil.rmtree(home)
    killed, at_work, begun = (home.parent / f"ctranslate2-int8.{name}.building" for name in ("killed", "at-work", "begun"))
    for room in (killed, at_work, begun):
        room.mkdir()
    for room in (killed, at_work):
        (room / "model.bin").write_bytes(b"half")
    with try_lock_folder(at_work) as mine:
        assert mine
        Translator(folder, threads=1)
    assert set(kept("*.building")) == {at_work, begun}


def test_converting_leaves_the_reference_as_it_was(folder, translator):
    before = {name: parameter.clone() for name, parameter in translator.artifact.model.named_parameters()}
    convert(translator.artifact, folder, Said())
    assert all(torch.equal(before[name], parameter) for name, parameter in translator.artifact.model.named_parameters())


def test_what_cannot_be_expressed_is_said(translator, folder):
    for changes, word in [({"window": 4}, "model.window"), ({"d_k": 16}, "model.d_k"), ({"join_positions": "concatenate"}, "join")]:
        artifact = untrained(translator, dataclasses.replace(SMALL, **changes))
        with pytest.raises(UnsupportedModel, match=word):
            check_supported(artifact)
        said = Said()
        assert choose_engine("auto", artifact, folder, 1, said).name == "torch"
        assert word in said.lines[0]
        with pytest.raises(InputError, match=word):
            choose_engine("ctranslate2", artifact, folder, 1, said)


def test_a_model_that_does_not_prove_equal_is_not_used(folder, monkeypatch):
    monkeypatch.setattr(ct2, "parity", lambda *_: 1.5)
    said = Said()
    assert Translator(folder, threads=1, console=said).engine.name == "torch"
    assert "with float32 weights its log-probabilities differ by 1.500" in said.lines[-1]
    with pytest.raises(InputError, match=r"differ by 1\.500"):
        Translator(folder, threads=1, engine="ctranslate2")


def test_more_precise_weights_where_8_bits_are_too_few(folder, monkeypatch):
    monkeypatch.setattr(ct2, "parity", lambda home, *_: 1.5 if "int8" in home.name else 0.0)
    assert Translator(folder, threads=1).engine.name == "ctranslate2-float32"


def test_without_the_extra_auto_is_the_reference(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    said = Said()
    assert Translator(folder, threads=1, console=said).engine.name == "torch"
    assert "pip install ctranslate2" in said.lines[0]


def test_where_the_extra_is_broken_auto_is_the_reference_and_says_so(folder, tmp_path, monkeypatch):
    (tmp_path / "ctranslate2.py").write_text("raise ImportError('libfoo.so: cannot open')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "ctranslate2")
    said = Said()
    assert Translator(folder, threads=1, console=said).engine.name == "torch"
    assert "libfoo.so: cannot open" in said.lines[0]
    with pytest.raises(InputError, match=r"libfoo\.so"):
        Translator(folder, threads=1, engine="ctranslate2")


@pytest.mark.skipif(not packing_works(), reason="this PyTorch has no packed weights")
def test_pytorch_with_rounded_products_is_near_the_reference(translator, folder):
    """Of a trained model: nearly every translation is the same, and scores are close."""
    lines = [source for source, _ in sentences(60, seed=11)]
    engine = Translator(folder, threads=1, engine="torch-bfloat16")
    assert engine.engine.name == "torch-bfloat16"
    ours, exact = (list(each.stream(lines)) for each in (engine, Translator(folder, threads=1, engine="torch")))
    same = [(one, other) for one, other in zip(ours, exact, strict=True) if one.text == other.text]
    assert len(same) >= 57
    assert any(one.score != other.score for one, other in same)
    for one, other in same:
        assert one.score == pytest.approx(other.score, abs=0.05)


@pytest.mark.parametrize("door", ["nvidia0", "nvidiactl", "nvmap", "kfd", "dxg"])
def test_only_a_machine_without_doors_to_a_gpu_is_taken_for_a_cpu_without_asking_torch(tmp_path, monkeypatch, door):
    monkeypatch.setattr("sys.platform", "linux")
    assert is_cpu_only("auto", tmp_path)
    (tmp_path / door).touch()
    assert not is_cpu_only("auto", tmp_path)
    assert is_cpu_only("cpu", tmp_path)
    assert not is_cpu_only("cuda", tmp_path)
    monkeypatch.setattr("sys.platform", "darwin")
    assert not is_cpu_only("auto", tmp_path / "empty")


def test_a_device_that_is_not_there_is_refused_by_every_engine(folder):
    for engine in ("auto", "torch", "ctranslate2"):
        with pytest.raises(InputError, match="device: 'gpu7' is none of"):
            Translator(folder, device="gpu7", engine=engine)


def test_a_model_that_does_not_fit_leaves_nothing_behind(folder, kept):
    """The weights of a folder are read for the first time when it is converted."""
    config = json.loads((folder / "config.json").read_text())
    config["recipe"]["model"]["d_ff"] += 8
    (folder / "config.json").write_text(json.dumps(config))
    manifest.write(folder, json.loads((folder / "manifest.json").read_text())["sha256"])
    with pytest.raises(InputError, match="the weights do not fit the config"):
        Translator(folder, threads=1)
    assert not kept("ctranslate2-*")


def test_a_copy_that_cannot_be_put_in_its_place_is_used_where_it_is(folder, kept, monkeypatch):
    def refused(self, target):
        raise PermissionError(13, "no", str(target))

    monkeypatch.setattr(ct2.Path, "rename", refused)
    translator = Translator(folder, threads=1)
    assert translator.engine.name == "ctranslate2-int8"
    assert translator.translate("The dog sees a tree today.")
    assert not kept("ctranslate2-int8")


def test_the_copy_of_a_process_that_was_faster_is_used(folder, kept, monkeypatch):
    real = ct2.parity
    other = []

    def slow(home, artifact):
        if not other:
            other.append(True)
            other.append(Translator(folder, threads=1).engine)
        return real(home, artifact)

    monkeypatch.setattr(ct2, "parity", slow)
    assert Translator(folder, threads=1).engine.name == "ctranslate2-int8"
    assert [path.name for path in kept("ctranslate2-*")] == ["ctranslate2-int8"]


def test_an_unknown_engine_is_refused(folder):
    with pytest.raises(InputError, match="choose one of auto, torch, torch-bfloat16, int8, ctranslate2"):
        Translator(folder, engine="marian")


def test_a_converted_model_translates_without_torch(translator, folder):
    """Importing it takes longer than a short translation; what CTranslate2 cannot do brings it in."""
    expected = Translator(folder, threads=1).translate("The dog sees a tree today.")
    program = """
        import sys
        from undivided import Translator
        translator = Translator(sys.argv[1], threads=1, engine="ctranslate2")
        print(translator.engine.name, "torch" in sys.modules)
        print(translator.translate("The dog sees a tree today."), "torch" in sys.modules, sep="|")
        print(len(translator.translate("The dog sees a tree today.", sample=True)) > 0, "torch" in sys.modules)
    """
    ran = subprocess.run([sys.executable, "-c", textwrap.dedent(program), folder], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["ctranslate2-int8 False", f"{expected}|False", "True True"]


@pytest.mark.parametrize("part", ["model.bin", "parity.json", "vmap.txt", "manifest.json"])
def test_a_damaged_copy_is_made_anew(folder, kept, part):
    expected = Translator(folder, threads=1).translate("The dog sees a tree today.")
    (path,) = kept(f"ctranslate2-int8/{part}")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    said = Said()
    assert Translator(folder, threads=1, console=said).translate("The dog sees a tree today.") == expected
    assert "converting" in said.lines[0]
    again = Said()
    Translator(folder, threads=1, console=again)
    assert again.lines == []


def test_a_cache_that_cannot_be_written_still_translates(folder, kept, monkeypatch):
    real = copies.tempfile.mkdtemp

    def refuse(**how):
        if "dir" in how:
            raise OSError
        return real(**how)

    monkeypatch.setattr(copies.tempfile, "mkdtemp", refuse)
    said = Said()
    translator = Translator(folder, threads=1, console=said)
    assert translator.engine.name == "ctranslate2-int8"
    assert "is not kept" in said.lines[-1]
    assert translator.translate("The dog sees a tree today.")
    assert not kept("ctranslate2-int8")


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize(("beams", "most"), [(1, 256), (4, 64), (300, 1)])
def test_batches_hold_every_sentence_once_and_get_smaller_towards_the_end(beams, most, workers):
    lengths = [1 + number * 37 % 50 for number in range(1400)] + [5000, 0]
    batches = list(batch_by_length(lengths, beams, workers))
    assert sorted(place for batch in batches for place in batch) == list(range(1402))
    assert batches[0] == [1400]
    widest = [lengths[batch[0]] for batch in batches]
    assert widest == sorted(widest, reverse=True)
    assert max(len(batch) for batch in batches) <= most
    assert all(len(batch) * wide * beams <= 4096 or len(batch) == 1 for batch, wide in zip(batches, widest, strict=True))
    assert len(batches[-2]) == (most if workers == 1 else min(most, 16))


def test_batches_side_by_side_change_nothing(translator, monkeypatch):
    """Each worker computes alone, so that the last bits are those of one thread."""
    rows = translator.artifact.tokenizer.source.encode([source for source, _ in sentences(40, seed=7)])
    config, engine = SearchConfig(beam_size=3, n_best=2), TorchEngine(translator.artifact)
    monkeypatch.setattr("undivided.inference.engines.contract.BATCH_TOKENS", 3 * 48)

    def found(threads):
        monkeypatch.setattr("undivided.inference.engines.torch.torch.get_num_threads", lambda: threads)
        return dict(engine.search(rows, config, [[]] * len(rows), range(len(rows))))

    with one_thread():
        alone = found(1)
    assert found(3) == alone
    assert engine._pool.size == 3


def test_whoever_watches_sees_every_batch(translator, monkeypatch):
    monkeypatch.setattr("undivided.inference.engines.contract.BATCH_TOKENS", 3 * 48)
    monkeypatch.setattr("undivided.inference.engines.torch.torch.get_num_threads", lambda: 2)
    rows = translator.artifact.tokenizer.source.encode([source for source, _ in sentences(20, seed=7)])
    sentences_seen = []
    encoder = translator.artifact.model.encoder[0].self_attention
    with attention_hook(lambda owner, weights: (owner is encoder and sentences_seen.append(len(weights))) or weights):
        list(TorchEngine(translator.artifact).search(rows, SearchConfig(beam_size=1), [[]] * len(rows), range(len(rows))))
    assert sum(sentences_seen) == len(rows)
    assert len(sentences_seen) > 1


def test_batches_for_ctranslate2_do_not_depend_on_the_number_of_threads(model):
    """Sums in a batch of another size are rounded differently, and in a rare line that decides."""
    pytest.importorskip("ctranslate2", reason="the extra ctranslate2 is not installed")
    plans = []
    for threads in (1, 2, 5):
        engine, plan = Translator(model, threads=threads, engine="ctranslate2").engine, []
        submit = engine._submit
        engine._submit = lambda batch, *rest, plan=plan, submit=submit: (plan.append(batch), submit(batch, *rest))[1]
        rows = [[7] * (1 + number % 9) + [EOS] for number in range(300)]
        assert len(list(engine.search(rows, SearchConfig(beam_size=2, max_extra=2), [[]] * 300, range(300)))) == 300
        plans.append(plan)
    assert plans[0] == plans[1] == plans[2]


def test_batches_for_ctranslate2_depend_on_other_searches_in_a_server_alone(model):
    pytest.importorskip("ctranslate2", reason="the extra ctranslate2 is not installed")
    engine = Translator(model, threads=2, engine="ctranslate2").engine
    rows = [[7] * (1 + number % 9) + [EOS] for number in range(40)]
    sizes = {}
    for is_shared in (False, True):
        engine.is_shared, plan, submit = is_shared, [], type(engine)._submit
        engine._submit = lambda batch, *rest, plan=plan, submit=submit: (plan.append(len(batch)), submit(engine, batch, *rest))[1]

        def ask():
            return engine.search(rows, SearchConfig(beam_size=2, max_extra=2), [[]] * 40, range(40))

        first = ask()
        next(first)
        alone = list(plan)
        assert len(list(ask())) == 40
        sizes[is_shared] = plan[len(alone) :]
        assert len(list(first)) == 39
    assert sizes == {False: [16, 16, 8], True: [40]}
