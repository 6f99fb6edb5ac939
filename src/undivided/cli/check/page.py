"""The page of `undivided check --report`: one file without scripts and network, with pictures as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from undivided.cli.check.show import describe_drift
from undivided.core.console import plural, printable
from undivided.data.check.rules import RULES
from undivided.data.check.run import CheckReport, Found

STYLE = """
:root { color-scheme: light dark; --ink: #222; --paper: #fff; --line: #ddd; --bad: #c0392b; --note: #8a6d1b; --cell: 33, 97, 174; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e8; --paper: #16181c; --line: #3a3d44; --bad: #ff7b6b; --note: #e0c068; --cell: 122, 176, 240; }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); }
body { max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; }
td, th { padding: .3rem .6rem; text-align: left; border-bottom: 1px solid var(--line); vertical-align: top; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
.bad { color: var(--bad); } .note { color: var(--note); }
svg { display: block; max-width: 100%; } details { margin: .4rem 0; }
.pair { margin: .3rem 0 .8rem 1rem; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; } h2 { margin-top: 2.5rem; overflow-wrap: anywhere; }
"""


def check_page(reports: Sequence[CheckReport], removed: Sequence[str]) -> str:
    """A page with all reports."""
    body = "\n".join(_section(report, removed) for report in reports)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>undivided check</title><style>{STYLE}</style></head><body><h1>What is wrong with the text</h1>\n{body}\n"
        "</body></html>\n"
    )


def _section(report: CheckReport, removed: Sequence[str]) -> str:
    way = f"{report.source_lang or '?'} → {report.target_lang or '?'}"
    head = f"{plural(report.pairs, 'pair')}, {way}; {report.faulty:,} break a rule by which <code>--clean</code> removes pairs."
    faults = [report.uneven, *map(describe_drift, report.drifts)]
    alarms = "".join(f'<p class="bad">{_text(fault)}</p>' for fault in faults if fault)
    rows = "".join(_row(name, found, report, name in removed) for name, found in report.found.items())
    table = (
        '<div class="scroll"><table><tr><th>rule</th><th>pairs</th><th>share</th><th>along the file</th><th>what it finds</th></tr>'
        f"{rows}</table></div>"
        if rows
        else "<p>Nothing was found.</p>"
    )
    examples = "".join(_examples(name, found) for name, found in report.found.items())
    return f"<h2>{_text(report.name)}</h2><p>{head}</p>{alarms}{table}<h3>Lengths</h3>{_lengths(report)}<h3>Examples</h3>{examples}"


def _row(name: str, found: Found, report: CheckReport, removes: bool) -> str:
    kind, fate = ("bad", "removes") if removes else ("note", "only reported")
    return (
        f'<tr><td class="{kind}"><b>{name}</b><br><small>{fate}</small></td><td class="number">{found.count:,}</td>'
        f'<td class="number">{found.count / max(1, report.pairs):.2%}</td><td>{_bars(found.along, kind)}</td>'
        f"<td>{_text(RULES[name].finds)}</td></tr>"
    )


def _bars(counts: Sequence[int], kind: str) -> str:
    """How many pairs each part of the file has, from its first line to its last."""
    most, width, height = max(counts, default=0) or 1, 3, 28
    bars = "".join(
        f'<rect x="{place * width}" y="{height - max(1.0, count / most * height):.1f}" width="{width - 1}" '
        f'height="{max(1.0, count / most * height):.1f}"/>'
        for place, count in enumerate(counts)
        if count
    )
    size = f'width="{len(counts) * width}" height="{height}" viewBox="0 0 {len(counts) * width} {height}"'
    label = f"at most {most:,} in one of {len(counts)} parts of the file"
    return f'<svg {size} class="{kind}" fill="currentColor" role="img" aria-label="{label}"><title>{label}</title>{bars}</svg>'


def _lengths(report: CheckReport) -> str:
    """A map of lengths: each cell is darker the more pairs have these lengths. Good pairs stand along a diagonal."""
    cells, size, side = report.lengths, 12, 12 * len(report.lengths)
    most = math.log1p(float(cells.max())) or 1.0
    parts = []
    for ours in range(len(cells)):
        for theirs in range(len(cells)):
            if count := int(cells[ours, theirs]):
                said = (
                    f"source about {2 ** (ours / 2):.0f}, target about {2 ** (theirs / 2):.0f} characters: {plural(count, 'pair')}"
                )
                place = f'x="{40 + ours * size}" y="{side - (theirs + 1) * size}"'
                shade = 0.12 + 0.88 * math.log1p(count) / most
                style = f'width="{size - 1}" height="{size - 1}" style="fill: rgba(var(--cell), {shade:.2f})"'
                parts.append(f"<rect {place} {style}><title>{said}</title></rect>")
    ticks = "".join(
        f'<text x="{40 + step * size}" y="{side + 14}" font-size="10" fill="currentColor">{2 ** (step // 2)}</text>'
        f'<text x="0" y="{side - step * size}" font-size="10" fill="currentColor">{2 ** (step // 2)}</text>'
        for step in range(0, len(cells), 4)
    )
    label = "Pairs by the length of source (right) and target (up), in characters; a step is a factor of 1.4"
    return (
        f'<svg width="{side + 60}" height="{side + 20}" viewBox="0 0 {side + 60} {side + 20}" role="img" aria-label="{label}">'
        f"{''.join(parts)}{ticks}</svg><p><small>{label}. Usually the target has {report.usual_ratio:.2f} times the length of "
        "the source.</small></p>"
    )


def _examples(name: str, found: Found) -> str:
    pairs = "".join(
        f'<div class="pair">line {each.line:,} <small>({each.source_lang or "?"} → {each.target_lang or "?"})</small><br>'
        f'<span dir="auto">{_text(each.source)}</span><br><span dir="auto">{_text(each.target)}</span></div>'
        for each in found.examples
    )
    lines = ", ".join(f"{line:,}" for line in found.lines) + (", …" if found.count > len(found.lines) else "")
    return f"<details open><summary><b>{name}</b>: lines {lines}</summary>{pairs}</details>"


def _text(text: str) -> str:
    return escape(printable(text))
