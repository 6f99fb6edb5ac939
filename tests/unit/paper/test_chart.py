import sys
import xml.etree.ElementTree as ET

import pytest

from samples import drawn_points
from undivided.paper.chart import COLOURS, Chart, Series

pytest.importorskip("matplotlib")


def drawn(chart: Chart, path) -> ET.Element:
    chart.write(path)
    return ET.parse(path).getroot()


def texts(root: ET.Element) -> set[str]:
    return {element.text for element in root.iter() if element.tag.endswith("}text")}


@pytest.mark.parametrize("log", [False, True])
def test_a_chart_has_every_point_bound_and_name(tmp_path, log):
    series = [Series("a & b", [(1, 2), (4, 8), (8, 9)], [(1, 3), (6, 9), (8, 10)]), Series("c", [(2, 2)], connect=False)]
    root = drawn(Chart("t < u", "x", "y", series, log=log), tmp_path / "c.svg")
    assert {"a & b", "c", "t < u", "x", "y"} <= texts(root)
    assert [drawn_points(tmp_path / "c.svg", colour) for colour in COLOURS[:3]] == [3 + 1, 1 + 1, 0]
    assert sum("LineCollection" in each.get("id", "") for each in root.iter()) == 1
    if log:
        assert {"1", "2", "4", "8"} <= texts(root)


def test_a_chart_is_the_same_file_every_time(tmp_path):
    chart = Chart("t", "x", "y", [Series("s", [(1, 2), (4, 8)])])
    chart.write(tmp_path / "one.svg")
    chart.write(tmp_path / "two.svg")
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    assert b"date" not in (tmp_path / "one.svg").read_bytes()


def test_names_on_the_axis_and_empty_charts(tmp_path):
    chart = Chart("t", "x", "y", [Series("s", [(0, 5.0), (1, 5.0)])], names=["A1", "B1"])
    assert {"A1", "B1"} <= texts(drawn(chart, tmp_path / "c.svg"))
    drawn(Chart("t", "x", "y", []), tmp_path / "deep" / "none.svg")


def test_a_missing_matplotlib_is_said_before_anything_runs(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.chdir(tmp_path)
    for table in ("table1", "table2"):
        result = run("paper", table, "--out" if table == "table2" else "--report", tmp_path / "t")
        assert (result.code, "pip install matplotlib" in result.err) == (2, True)
    assert list(tmp_path.iterdir()) == []
