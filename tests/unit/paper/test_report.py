import xml.etree.ElementTree as ET

import numpy as np
import pytest

from undivided.paper.report import Axis, Chart, Series, bootstrap_interval, format_command, head, interval, table, write


def test_numbers_stand_to_the_right():
    lines = table(["name", "F1", "mixed"], [["a", "1.5", "x"], ["b", "–", "2"]]).splitlines()
    assert lines == ["| name | F1 | mixed |", "| --- | ---: | --- |", "| a | 1.5 | x |", "| b | – | 2 |"]


def test_a_command_has_no_path_of_this_machine():
    said = format_command(["paper", "table4", "recipes/a.yaml", "--trees", "/home/me/trees", "--report=/tmp/r.md", "--x=1", "a b"])
    assert said == "undivided paper table4 recipes/a.yaml --trees trees --report=r.md --x=1 'a b'"


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


@pytest.mark.parametrize("log", [False, True])
def test_a_chart_is_svg_with_every_point_and_name(log):
    series = [Series("a & b", [(1, 2), (4, 8)], [(1, 3), (6, 9)]), Series("c", [(2, 2)], joined=False)]
    root = ET.fromstring(Chart("t < u", "x", "y", series, log=log).svg())
    tags = [element.tag.partition("}")[2] for element in root]
    assert tags.count("circle") == 3 + 2
    assert tags.count("polyline") == 1
    assert {"a & b", "c", "t < u", "x", "y"} <= {element.text for element in root}


def test_names_on_the_axis_and_empty_charts():
    root = ET.fromstring(Chart("t", "x", "y", [Series("s", [(0, 5.0), (1, 5.0)])], names=["A1", "B1"]).svg())
    assert {"A1", "B1"} <= {element.text for element in root}
    ET.fromstring(Chart("t", "x", "y", []).svg())


def test_ticks_are_round_and_inside():
    assert Axis(0, 10, 0, 100, log=False).ticks() == [0, 2, 4, 6, 8, 10]
    assert Axis(16, 1024, 0, 100, log=True).ticks() == [16, 32, 64, 128, 256, 512, 1024]
    axis = Axis(0, 10, 0, 100, log=False)
    assert 0 < axis(0) < axis(10) < 100
