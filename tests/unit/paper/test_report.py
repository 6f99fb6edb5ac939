import numpy as np
import pytest

from undivided.paper.report import bootstrap_interval, format_command, head, interval, table, write


def test_numbers_stand_to_the_right():
    lines = table(["name", "F1", "mixed"], [["a", "1.5", "x"], ["b", "–", "2"]]).splitlines()
    assert lines == ["| name | F1 | mixed |", "| --- | ---: | --- |", "| a | 1.5 | x |", "| b | – | 2 |"]


def test_a_command_can_be_run_again_as_it_is(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    given = [
        "paper",
        "table4",
        "a.yaml",
        "--trees",
        str(tmp_path / "trees"),
        f"--report={tmp_path / 'here' / 'r.md'}",
        "--x=1",
        "a b",
    ]
    said = format_command([*given, "/elsewhere/far"])
    assert said == "undivided paper table4 a.yaml --trees ../trees --report=r.md --x=1 'a b' /elsewhere/far"


def test_a_report_begins_with_its_command_and_is_written_whole(tmp_path):
    path = tmp_path / "deep" / "r.md"
    write(path, [*head("Title", ["paper", "table1"]), "end", "", ""])
    text = path.read_text()
    assert text.startswith("# Title\n")
    assert "```\nundivided paper table1\n```" in text
    assert text.endswith("end\n")
    assert [each.name for each in path.parent.iterdir()] == ["r.md"]


def test_resampling_gives_the_interval_of_the_mean():
    counts = np.array([[value, 1] for value in range(400)])
    low, high = bootstrap_interval(lambda sums: float(sums[0] / sums[1]), counts)
    error = np.std(range(400)) / 20
    assert low == pytest.approx(199.5 - 1.96 * error, abs=error / 2)
    assert high == pytest.approx(199.5 + 1.96 * error, abs=error / 2)
    assert bootstrap_interval(lambda sums: float(sums[0] / sums[1]), counts) == (low, high)
    assert interval(1, 2.25) == "1.0–2.2"
