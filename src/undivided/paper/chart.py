"""Line charts of the reports as SVG, by matplotlib (extra: look), in colours that colour-blind readers can tell apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from undivided.core.files import write_atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""The palette of Okabe and Ito."""

STYLE: Any = {
    "font.family": ["DejaVu Sans"],  # comes with matplotlib
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "legend.frameon": False,
    "legend.fontsize": 8,
    "axes.axisbelow": True,
    # Text stays text, and ids do not change from run to run.
    "svg.fonttype": "none",
    "svg.hashsalt": "undivided",
}


class Series(NamedTuple):
    """One line of a chart, or with `connect` off its points alone. `bounds` gives each point an interval."""

    name: str
    points: Sequence[tuple[float, float]]
    bounds: Sequence[tuple[float, float]] = ()
    connect: bool = True


@dataclass(frozen=True)
class Chart:
    """A line chart. `log` makes both axes logarithmic with base 2; `names` are the labels at 0, 1, 2 … of the x axis."""

    title: str
    x: str
    y: str
    series: Sequence[Series]
    log: bool = False
    names: Sequence[str] = ()

    def write(self, path: Path) -> None:
        """Draw the chart to an SVG file; the same numbers give the same file."""
        import matplotlib
        from matplotlib.figure import Figure

        drawn = BytesIO()
        with matplotlib.rc_context(STYLE):
            figure = Figure(figsize=(7.6, 4.2), layout="constrained")
            self._draw(figure.subplots())
            figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
        # Lines of SVG by matplotlib end in spaces, which version control complains about.
        lines = drawn.getvalue().decode("utf-8").splitlines()
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, "".join(f"{line.rstrip()}\n" for line in lines))

    def _draw(self, axes: Axes) -> None:
        for number, series in enumerate(self.series):
            colour, marker, line = COLOURS[number % len(COLOURS)], *(("o", "-") if number < len(COLOURS) else ("s", "--"))
            xs, ys = [x for x, _ in series.points], [y for _, y in series.points]
            axes.plot(xs, ys, marker + line if series.connect else marker, color=colour, label=series.name, ms=5)
            if series.bounds:
                axes.vlines(xs, [low for low, _ in series.bounds], [high for _, high in series.bounds], color=colour)
        axes.set(title=self.title, xlabel=self.x, ylabel=self.y)
        if self.log:
            for scale, axis in ((axes.set_xscale, axes.xaxis), (axes.set_yscale, axes.yaxis)):
                scale("log", base=2)
                axis.set_major_formatter("{x:g}")
        if self.names:
            axes.set_xticks(range(len(self.names)), self.names, rotation=45, ha="right")
        if self.series:
            axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
