"""What `undivided check` prints: a table with a small picture of where in the file each fault is; or JSON."""

from __future__ import annotations

from typing import Any

from undivided.core.console import plural
from undivided.data.check.alignment import Drift
from undivided.data.check.rules import RULES
from undivided.data.check.run import CheckReport

BARS = " ▁▂▃▄▅▆▇█"
WIDTH = 30
EXAMPLE = 90


def list_rules() -> str:
    """All rules, and which remove pairs."""
    width = max(map(len, RULES))
    rows = [f"{name:{width}}  {'removes' if rule.removes else 'reports'}  {rule.finds}" for name, rule in RULES.items()]
    return "\n".join([*rows, "", "--clean removes by the rules marked so; --remove and --keep change that."])


def show_report(report: CheckReport, removed: list[str]) -> str:
    """The report of one corpus for a person."""
    way = f", {report.source_lang or '?'} → {report.target_lang or '?'}"
    share = f"{report.faulty / max(1, report.pairs):.2%}"
    rows = [f"{report.name}: {plural(report.pairs, 'pair')}{way}; {report.faulty:,} with faults that --clean removes ({share})"]
    if report.uneven:
        rows.append(f"  {report.uneven}: line n of one file must translate line n of the other")
    rows += [f"  {describe_drift(drift)}" for drift in report.drifts]
    if report.found:
        rows.append(f"  {'rule':<16} {'pairs':>9} {'share':>7}  {'along the file':<{WIDTH}}  first lines")
    for name, found in report.found.items():
        mark = " " if name in removed else "·"
        lines = ", ".join(f"{line:,}" for line in found.lines[:4]) + (", …" if found.count > 4 else "")
        count = f"{found.count:>9,} {found.count / report.pairs:>7.2%}"
        rows.append(f" {mark}{name:<16} {count}  {sparkline(found.along):<{WIDTH}}  {lines}")
    for name, found in report.found.items():
        for example in found.examples[:1]:
            looks = _looks_like(name, example.source_lang, example.target_lang)
            rows += [
                f"  {name}: {RULES[name].finds}; line {example.line:,}{looks}",
                f"    {_short(example.source)}",
                f"    {_short(example.target)}",
            ]
    if any(name not in removed for name in report.found):
        rows.append("  · is only reported, unless --remove names it")
    if any(found.removed for found in report.found.values()):
        parts = [f"{found.removed:,} {name}" for name, found in report.found.items() if found.removed]
        rows.append(f"  removed: {', '.join(parts)}")
    return "\n".join(rows)


def describe_drift(drift: Drift) -> str:
    """`misaligned from line 812 on: …`."""
    count = plural(abs(drift.offset), "line")
    way, why = (
        ("down", "lines were added to the target, or are missing in the source")
        if drift.offset > 0
        else ("up", "lines are missing in the target, or were added to the source")
    )
    place = f"from about line {drift.start:,} to {drift.end - 1:,}"
    return f"misaligned {place}: the translation stands {count} further {way} in the target ({why})"


def _looks_like(name: str, source_lang: str, target_lang: str) -> str:
    if name == "source-language" and source_lang:
        return f", looks like {source_lang}"
    return f", looks like {target_lang}" if name == "target-language" and target_lang else ""


def _short(text: str) -> str:
    return text if len(text) <= EXAMPLE else f"{text[: EXAMPLE - 1]}…"


def sparkline(counts: list[int], width: int = WIDTH) -> str:
    """Counts as a row of bars, the highest full."""
    size = max(1, len(counts) // width)
    sums = [sum(counts[place : place + size]) for place in range(0, len(counts), size)]
    most = max(sums, default=0)
    return "".join(BARS[-(-each * (len(BARS) - 1) // most)] if most else " " for each in sums)


def as_json(report: CheckReport, removed: list[str]) -> dict[str, Any]:
    """The report of one corpus for a program."""
    return {
        "name": report.name,
        "source_lang": report.source_lang,
        "target_lang": report.target_lang,
        "pairs": report.pairs,
        "faulty": report.faulty,
        "uneven": report.uneven,
        "misaligned": [drift._asdict() for drift in report.drifts],
        "usual_ratio": round(report.usual_ratio, 4),
        "languages": [
            {name or "unknown": count for name, count in counter.most_common(8) if count} for counter in report.languages
        ],
        "rules": {
            name: {
                "pairs": found.count,
                "removes": name in removed,
                "removed": found.removed,
                "first_lines": found.lines,
                "along": found.along,
                "examples": [example._asdict() for example in found.examples],
            }
            for name, found in report.found.items()
        },
    }
