"""Pairs that nobody wrote: text of one language with translations of it by a model, the bad ones left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Unpack

from undivided.config import CorpusFiles, DataConfig
from undivided.core.console import Console, Progress, plural
from undivided.core.files import open_append, open_atomic
from undivided.data.check.corpus import TextCorpus
from undivided.data.check.rules import RULES, bits_of
from undivided.data.check.run import CheckOptions, check_corpus, clean_corpus, hold_out
from undivided.data.check.seen import PairStore
from undivided.data.corpus import CorpusReport, read_texts
from undivided.formats.protection import find_placeholders
from undivided.inference.search_settings import SearchChanges
from undivided.inference.translator import Translation, Translator

CHUNK = 2000
"""Lines that are translated and written together: a stopped run resumes after the last of them."""

TAG = "⁂"
"""What the sources of tagged pairs begin with. A character that text does not begin with, so it is a subword of its own."""

UNSOUND = ("looped", "truncated", "broken-text", "unknown-script", "placeholder-lost", "length-ratio")
"""Verdicts on translations that nobody should learn from. How improbable others are is judged by rank, not by a limit."""


class Languages(NamedTuple):
    """Of both sides of pairs."""

    source: str
    target: str

    def swapped(self) -> Languages:
        """Of the other direction."""
        return Languages(self.target, self.source)


class Synthetic(NamedTuple):
    """Pairs in two files, one side of which a model made."""

    source: str
    target: str
    kind: str
    """What they are called where it is said what they brought."""
    pairs: int
    is_source_made: bool
    is_tagged: bool = False
    """Whether a model that reads the made side is told so."""

    def swapped(self) -> Synthetic:
        """The same pairs for a model of the other direction."""
        return self._replace(source=self.target, target=self.source, is_source_made=not self.is_source_made)


def translate_lines(
    translator: Translator,
    source: Path,
    target: Path,
    progress: Progress,
    row: Callable[[Translation], str],
    begin: bytes = b"",
    **changes: Unpack[SearchChanges],
) -> None:
    """Write a row for each line of a file; what a stopped run has written in whole chunks is kept, so the rows are the same."""
    done = _keep_whole_chunks(target)
    progress.advance(done)
    with open_append(target) as out:
        out.write(b"" if done else begin)
        lines = islice(text_lines(source), done, None)
        while chunk := list(islice(lines, CHUNK)):
            results = translator.stream(chunk, advance=progress.advance, first=done, **changes)
            out.write("".join(f"{row(result)}\n" for result in results).encode())
            out.flush()
            done += len(chunk)
    progress.console.clear()


def text_lines(path: Path) -> Iterator[str]:
    """The lines of one of our files."""
    with path.open(encoding="utf-8-sig", newline="\n") as stream:
        for line in stream:
            yield line.removesuffix("\n")


def count_lines(path: Path) -> int:
    """How many lines one of our files has."""
    return sum(1 for _ in text_lines(path))


def _keep_whole_chunks(path: Path) -> int:
    """How many lines a stopped run has written in whole chunks; the rest is removed, because batches depend on their chunk."""
    if not path.exists():
        return 0
    done = end = place = 0
    with path.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            place += len(line)
            if number % CHUNK == 0 and line.endswith(b"\n"):
                done, end = number, place
    with open_append(path) as out:
        out.truncate(end)
    return done


def choose_lines(texts: Iterable[str], share: float, path: Path) -> int:
    """Write a share of some texts, evenly spread, a line each; how many there are."""
    chosen = 0
    with open_atomic(path) as out:
        for number, text in enumerate(texts):
            if int((number + 1) * share) > int(number * share):
                out.write(f"{' '.join(text.split())}\n".encode())
                chosen += 1
    return chosen


def usable_lines(files: Sequence[str], config: DataConfig) -> Iterator[str]:
    """The lines of text files that training could use."""
    for name in files:
        yield from read_texts(CorpusFiles(name), config, CorpusReport(name))


def rate(translator: Translator, result: Translation) -> str:
    """A translation as a row of three columns: what is wrong with it, how probable it is, its text."""
    verdict = translator.judge(result).name
    found = verdict if verdict in UNSOUND or not result.text.strip() else "ok"
    return f"{found}\t{result.confidence:.6f}\t{' '.join(result.text.split())}"


def make_pairs(translator: Translator, lines: Path, rows: Path, console: Console, what: str, is_sampled: bool) -> None:
    """Translate a file of lines into a file of rows, see `rate`."""
    progress = Progress(console, what, count_lines(lines))
    how: SearchChanges = {"sample": True, "beam_size": 1, "n_best": 1} if is_sampled else {"n_best": 1}
    translate_lines(translator, lines, rows, progress, lambda result: rate(translator, result), **how)


def keep_good(
    lines: Path, rows: Path, folder: Path, languages: Languages, is_source_made: bool, keep: float, valid: CorpusFiles
) -> tuple[list[Path], dict[str, int]]:
    """The pairs worth learning from, as two files, source first, and what became of the rest.

    Left out are unsound translations, the least probable ones, and what `undivided check --clean` would remove.
    """
    rated = [row.split("\t", 2) for row in text_lines(rows)]
    sound = sorted(float(confidence) for verdict, confidence, _ in rated if verdict == "ok")
    least = sound[min(len(sound) - 1, int(len(sound) * (1 - keep)))] if sound else 0.0
    counts = Counter({"lines": len(rated), "unsound": len(rated) - len(sound)})
    raw = CorpusFiles(str(folder / "all.given"), str(folder / "all.made"))
    with open_atomic(Path(raw.source)) as given, open_atomic(Path(raw.target)) as made:
        for text, (verdict, confidence, translation) in zip(text_lines(lines), rated, strict=True):
            if verdict == "ok" and float(confidence) >= least:
                given.write(f"{text}\n".encode())
                made.write(f"{translation}\n".encode())
                counts["probable"] += 1
    improbable = len(sound) - counts.pop("probable", 0)
    if is_source_made:  # What is made is the translation, and judged as one.
        languages, valid = languages.swapped(), CorpusFiles(valid.target, valid.source)
    paths, found = _clean(raw, folder / "pairs", languages, valid)
    return paths[::-1] if is_source_made else paths, {**counts, "improbable": improbable, **found}


def _clean(files: CorpusFiles, folder: Path, languages: Languages, valid: CorpusFiles) -> tuple[list[Path], dict[str, int]]:
    """What the rules of `undivided check` leave of two files; how many pairs each rule removed, and how many are left."""
    # Line n was made of line n: nothing can be misaligned.
    remove = bits_of([name for name, rule in RULES.items() if rule.removes and name != "misaligned"])
    options = CheckOptions(remove=remove, placeholders=find_placeholders)
    if not Path(files.source).stat().st_size:
        return [Path(files.source), Path(files.target)], {"pairs": 0}
    known = hold_out([TextCorpus(valid, "", *languages)] if valid.source else [], options.max_chars)
    corpus = TextCorpus(files, "", *languages)
    with PairStore() as store:
        report = check_corpus(corpus, options, known, store)
        paths, kept = clean_corpus(corpus, store, report, remove, folder)
    removed = {name: found.removed for name, found in report.found.items() if found.removed}
    return paths, {**removed, "pairs": kept}


def tag_sources(source: str, tagged: Path) -> str:
    """A file whose lines are those of another, each with the tag before it."""
    with open_atomic(tagged) as out:
        for line in text_lines(Path(source)):
            out.write(f"{TAG} {line}\n".encode())
    return str(tagged)


def mix_pairs(
    originals: Sequence[CorpusFiles], count: int, made: Sequence[Synthetic], least_share: float, folder: Path
) -> list[CorpusFiles]:
    """Training corpora: the pairs that people wrote, often enough to be their share of an epoch, and those with a made side."""
    synthetic = sum(each.pairs for each in made)
    weight = max(1.0, round(least_share / (1 - least_share) * synthetic / max(1, count), 2))
    corpora = [CorpusFiles(files.source, files.target, files.weight * weight) for files in originals]
    for number, each in enumerate(each for each in made if each.pairs):
        source = each.source
        if each.is_tagged and each.is_source_made:
            source = tag_sources(source, folder / f"tagged-{number}.source")
        corpora.append(CorpusFiles(source, each.target))
    return corpora


def describe_counts(counts: dict[str, int]) -> str:
    """What became of some lines, in words."""
    left = [f"{count:,} {name}" for name, count in counts.items() if name not in ("lines", "pairs") and count]
    return f"{plural(counts['lines'], 'line')}, {counts['pairs']:,} kept" + (f" (left out: {', '.join(left)})" if left else "")
