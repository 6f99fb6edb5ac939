"""What was tried and how it ended, as a page."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

from attacks.command import Patience
from attacks.pool import Result
from attacks.trial import FAULTS, Verdict

SUBJECTS = {
    "1": "checkpoints that cannot be read are kept", "2": "damaged tokens are found", "3": "two writers of one file or folder",
    "4": "compressed files are read whole", "5": "foreign copies for CTranslate2", "6": "damage before and after opening",
    "7": "foreign modules", "8": "terminal escapes", "9": "folders that ask for memory", "10": "planted links",
    "11": "foreign libraries", "12": "Ctrl-C", "13": "closed pipes and full disks", "14": "ranges of flags",
    "15": "numbers that are not finite", "16": "no home, no user", "17": "odd file names and locales", "18": "hostile recipes",
    "19": "closed streams", "20": "little address space", "21": "long lines", "22": "what killed processes leave",
    "23": "numbers of threads", "24": "full disks, pauses, undefined behaviour in C", "bombs": "compressed bombs",
    "generate": "hostile input to `generate`", "classify": "hostile input to `classify`", "distill": "hostile input to `distill`",
    "paper": "hostile input to `paper`", "demo": "hostile input to `demo`", "threads": "one `Translator` in several threads",
    "rollback": "NaN over several checkpoints", "clock": "a clock that moves", "workers": "killed workers",
    "ray": "killed workers of Ray", "asan": "kernels under sanitizers",
}  # fmt: skip
"""What the attacks are about, by the keys in `Attack.faults`."""


def describe(results: list[Result], command: str, sittings: list[float]) -> str:
    """The page."""
    total = sum(_tried(each) for each in results)
    counts = {fault: sum(each.verdicts[fault] for each in results) for fault in FAULTS}
    held = sum(each.verdicts[Verdict.HELD] for each in results)
    skipped = sum(each.verdicts[Verdict.SKIPPED] for each in results)
    failures = [" ".join(text.split()) for each in results for text in each.failures]
    broken = [f"- `{text[:120]} … {text[-300:]}`" for text in failures]
    in_parts = f" ({len(sittings)} sittings)" if len(sittings) > 1 else ""
    busy = f"; the machine was busy with other work, so time limits were {Patience.factor:.1f} × as long"
    return "\n".join(
        [
            "# Held against somebody who tries",
            "",
            f"Written by `{command}` (`make prove-adversary`) on {date.today().isoformat()}, "
            f"in {sum(sittings) / 60:.0f} minutes{in_parts}"
            f"{busy if Patience.factor > 1 else ''}.",
            "",
            f"**{total:,} trials: {held:,} held, " + ", ".join(f"{count} {fault}" for fault, count in counts.items()) + ".**",
            *([f"{skipped} could not be tried on this machine; the table says why."] if skipped else []),
            "",
            "A trial is one seeded attempt to do harm: to a folder, a file, a run, a process or its surroundings. It runs the",
            "command in a fork of a process that has imported everything, which ends as Python ends where that matters; what",
            "happens while Python starts is tried with processes of their own. `--only NAME --number N` repeats one.",
            "",
            "- *lost*: something that was there is gone, or something was written where it must not be",
            "- *wrong*: a result differs from the right one, a refusal has no sentence, a limit was passed",
            "- *abort*: a process ended by a signal that nobody sent, or a sanitizer reported",
            "- *traceback*, *hang*: as they say",
            "",
            "| attack | what is done, and what must hold | trials | did not hold | how they ended |",
            "|---|---|---|---|---|",
            *map(_row, results),
            "",
            "## By subject",
            "",
            "| subject | trials | held |",
            "|---|---|---|",
            *_subjects(results),
            *(["", "## Did not hold", "", *broken] if broken else []),
        ]
    )


def _tried(result: Result) -> int:
    return sum(result.verdicts.values()) - result.verdicts[Verdict.SKIPPED]


def _row(result: Result) -> str:
    ways = ", ".join(f"{way} ({count})" for way, count in result.ways.most_common(10 if "sanitized" in result.attack.name else 4))
    about = result.attack.about.replace("|", "\\|")
    return f"| {result.attack.name} | {about} | {_tried(result):,} | {result.broken} | {ways} |"


def _subjects(results: list[Result]) -> Iterable[str]:
    for key, name in SUBJECTS.items():
        chosen = [each for each in results if key in each.attack.faults.split()]
        held = sum(each.verdicts[Verdict.HELD] for each in chosen)
        yield f"| {f'{key}. ' if key.isdigit() else ''}{name} | {sum(map(_tried, chosen)):,} | {held:,} |"
