"""Stages: done once, resumed, refused where they were made of something else; and who gets how many minutes."""

import pytest

from undivided.core.console import Console
from undivided.core.errors import InputError
from undivided.core.signals import Stopped
from undivided.training.stages import Budget, Made, Stages


@pytest.fixture
def stages(tmp_path):
    return Stages(tmp_path, Console(quiet=True))


def writing(calls, text="made"):
    def make(folder):
        calls.append(folder.name)
        (folder / "file.txt").write_text(text)
        return Made({"lines": len(text)}, [folder / "file.txt"])

    return make


def test_a_stage_is_done_once(stages, tmp_path):
    calls = []
    found = [Stages(tmp_path, stages.console).run("one", {"of": "this"}, writing(calls)) for _ in range(2)]
    assert found == [{"lines": 4}] * 2
    assert calls == ["one"]


def test_one_that_failed_is_tried_again(stages, tmp_path):
    def failing(folder):
        (folder / "file.txt").write_text("half")
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        stages.run("one", {}, failing)
    calls = []
    assert stages.run("one", {}, writing(calls)) == {"lines": 4}
    assert calls == ["one"]


def test_what_it_is_made_of_may_not_change(stages):
    stages.run("one", {"text": "a", "keep": 0.9}, writing([]))
    with pytest.raises(InputError, match="begun with other text; undo"):
        stages.run("one", {"text": "b", "keep": 0.9}, writing([]))


def test_a_changed_file_is_noticed(stages, tmp_path):
    stages.run("one", {}, writing([]))
    (tmp_path / "one" / "file.txt").write_text("mode")
    with pytest.raises(InputError, match=r"file\.txt: missing or changed"):
        stages.run("one", {}, writing([]))


@pytest.mark.parametrize(("stop", "code"), [(Stopped(15, "resume with: undivided train"), 143), (KeyboardInterrupt(), 130)])
def test_a_stop_names_the_stage_and_keeps_its_exit_code(stages, stop, code):
    def stopping(_):
        raise stop

    with pytest.raises(Stopped, match="stopped in stage one; run the same command again") as caught:
        stages.run("one", {}, stopping)
    assert caught.value.exit_code == code


def test_a_corrected_command_need_not_agree_with_the_wrong_one(stages):
    def refusing(_):
        raise InputError("too few pairs")

    with pytest.raises(InputError, match="too few pairs"):
        stages.run("one", {"text": "a"}, refusing)
    assert stages.run("one", {"text": "b"}, writing([])) == {"lines": 4}


def test_seconds_are_those_of_all_stages(stages, tmp_path):
    """A training that was stopped and resumed counts with all of its minutes."""
    stages.run("one", {}, lambda _: Made({"minutes": 2.0}))
    again = Stages(tmp_path, stages.console)
    again.run("one", {}, lambda _: Made({}))
    assert again.seconds == stages.seconds == pytest.approx(120.0)


def test_each_stage_takes_its_share_of_what_is_left():
    budget = Budget(60, [("a", 1), ("b", 2), ("c", 3)])
    assert [budget.minutes_of(*each) for each in (("a", 0), ("b", 600), ("c", 600))] == [10, 20, 50]
    assert budget.minutes_of("c", 10_000) == 0.05
    assert Budget(0, [("a", 1)]).minutes_of("a", 5) == 0
    assert "b: about 20 min" in str(budget)
