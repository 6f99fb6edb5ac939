"""Two systems compared: whether their difference is real. COMET by another environment."""

import json
import random
import sys

import pytest

from samples import sentences, write_lines
from undivided import InputError
from undivided.inference.comet import comet_score
from undivided.inference.score import bleu_by_length, compare

PAIRS = sentences(150, seed=4)
REFERENCE = [target for _, target in PAIRS]


def worsen(lines, share, seed=1):
    chance = random.Random(seed)
    return [" ".join(word if chance.random() > share else "xx" for word in line.split()) for line in lines]


def test_a_real_difference_and_chance():
    good, bad = worsen(REFERENCE, 0.1), worsen(REFERENCE, 0.4)
    found = {each.metric: each for each in compare(good, bad, REFERENCE)}
    assert found.keys() == {"BLEU", "chrF2", "TER"}
    assert found["BLEU"].is_real
    assert found["BLEU"].score > found["BLEU"].other
    assert "a real difference (p < 0.05)" in str(found["BLEU"])
    same = {each.metric: each for each in compare(good, worsen(REFERENCE, 0.1, seed=2), REFERENCE)}
    assert not same["BLEU"].is_real
    assert "may be chance" in str(same["BLEU"])
    with pytest.raises(InputError, match="second system has 1 line"):
        compare(good, ["x"], REFERENCE)


def test_on_the_command_line(run, tmp_path):
    files = [
        write_lines(tmp_path / name, lines)
        for name, lines in (("a", worsen(REFERENCE, 0.1)), ("b", worsen(REFERENCE, 0.5)), ("r", REFERENCE))
    ]
    ran = run("score", files[0], files[2], "--versus", files[1])
    assert ran.code == 0
    assert "BLEU" in ran.out
    assert " versus " in ran.out
    assert "a real difference" in ran.out
    rows = [json.loads(line) for line in run("score", files[0], files[2], "--versus", files[1], "--json").out.splitlines()]
    assert [row["p"] < 0.05 for row in rows if "p" in row] == [True] * 3
    ran = run("score", files[0], files[2], "--versus", tmp_path)
    assert (ran.code, "add --model" in ran.err) == (2, True)


def test_two_models(run, model, tmp_path):
    files = [write_lines(tmp_path / side, [pair[at] for pair in PAIRS[:8]]) for at, side in enumerate("st")]
    ran = run("score", "--model", model, *files, "--versus", model, "--quiet")
    assert ran.code == 0
    assert ran.out.count("+0.00") == 3


FAKE = """
class Found: system_score = 0.875
class Model:
    def predict(self, rows, **more):
        assert set(rows[0]) == {"src", "mt", "ref"}
        return Found
def download_model(name): return name
def load_from_checkpoint(path): return Model()
"""


@pytest.fixture
def other_python(tmp_path):
    """A Python that has a made-up `comet`, and one that has none."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "comet.py").write_text(FAKE)
    wrapper = tmp_path / "python"
    start = f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r}); assert sys.argv[1:3] == ['-I', '-c']; exec(sys.argv[3])"
    wrapper.write_text(f"#!{sys.executable}\n{start}\n")
    wrapper.chmod(0o755)
    return wrapper


def test_comet_by_another_environment(run, other_python, tmp_path):
    found = comet_score(str(other_python), ["a"], ["b"], ["c"])
    assert (found.name, found.score) == ("COMET", 87.5)
    files = [write_lines(tmp_path / name, ["x", "y"]) for name in "hrs"]
    ran = run("score", *files[:2], "--comet-python", other_python, "--source", files[2])
    assert "COMET 87.50 Unbabel/wmt22-comet-da|times:100" in ran.out
    ran = run("score", *files[:2], "--comet-python", other_python)
    assert (ran.code, "--source FILE, with 2 lines" in ran.err) == (2, True)


@pytest.mark.parametrize("python", [sys.executable, "/none/python"])
def test_without_comet_it_is_said_how(python):
    with pytest.raises(InputError, match="pip install unbabel-comet, then --comet-python comet-env/bin/python"):
        comet_score(python, ["a"], ["b"], ["c"])


def test_validation_by_length():
    found = bleu_by_length([5, 10, 11, 99], ["a b c d"] * 4, ["a b c d", "a b c d", "x", "a b c d"])
    assert found == {
        "bleu_11_to_20_subwords": 0.0,
        "bleu_1_to_10_subwords": pytest.approx(100),
        "bleu_over_80_subwords": pytest.approx(100),
    }
