"""The WMT 2014 data of the paper, from the standard files as they are published. [paper 5.1]"""

from __future__ import annotations

import gzip
import html
import re
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from undivided.console import Console, InputError, Progress
from undivided.corpus import digest
from undivided.settings import listed


class Corpus(NamedTuple):
    """One parallel corpus inside a published file: names of its sides, source first; of names with `|` between, one is there."""

    archive: str
    source: str
    target: str


def _both(archive: str, stem: str, target: str) -> Corpus:
    return Corpus(archive, f"{stem}.en", f"{stem}.{target}")


TRAIN: dict[str, tuple[Corpus, ...]] = {
    "de": (
        _both("training-parallel-europarl-v7.tgz", "europarl-v7.de-en", "de"),
        _both("training-parallel-commoncrawl.tgz", "commoncrawl.de-en", "de"),
        _both("training-parallel-nc-v9.tgz", "news-commentary-v9.de-en", "de"),
    ),
    "fr": (
        _both("training-parallel-europarl-v7.tgz", "europarl-v7.fr-en", "fr"),
        _both("training-parallel-commoncrawl.tgz", "commoncrawl.fr-en", "fr"),
        _both("training-parallel-un.tgz", "undoc.2000.fr-en", "fr"),
        _both("training-parallel-nc-v9.tgz", "news-commentary-v9.fr-en", "fr"),
        Corpus("training-giga-fren.tar", "giga-fren.release2.fixed.en.gz", "giga-fren.release2.fixed.fr.gz"),
    ),
}
"""English to German is about 4.5 million pairs, English to French about 36 million (the paper)."""


def held_out(target: str) -> dict[str, Corpus]:
    """newstest2013 to choose by, newstest2014 to be judged on."""
    pair = f"{target}en"
    return {
        "valid": Corpus(
            "dev.tgz", "newstest2013.en|newstest2013-src.en.sgm", f"newstest2013.{target}|newstest2013-ref.{target}.sgm"
        ),
        "test": Corpus("test-full.tgz", f"newstest2014-{pair}-src.en.sgm", f"newstest2014-{pair}-ref.{target}.sgm"),
    }


def prepare(data: Path, target: str, out: Path, checksums: Path | None, console: Console) -> dict[str, list[str]]:
    """`train`, `valid` and `test` as two aligned text files each under `out`, made once. All faults are named at once."""
    parts = {"train": TRAIN[target], **{part: (corpus,) for part, corpus in held_out(target).items()}}
    paths = {part: [str(out / f"{part}.{lang}") for lang in ("en", target)] for part in parts}
    archives = _archives(data, [corpus.archive for corpora in parts.values() for corpus in corpora])
    if (out / "sha256.txt").exists():
        return paths
    found = _checked(archives, checksums)
    out.mkdir(parents=True, exist_ok=True)
    for part, corpora in parts.items():
        _write_part(corpora, archives, [Path(path) for path in paths[part]], console)
    (out / "sha256.txt").write_text("".join(f"{sha256}  {name}\n" for name, sha256 in found.items()))
    return paths


def _archives(data: Path, names: Sequence[str]) -> dict[str, Path]:
    """The published files, wherever under the folder they lie."""
    if not data.is_dir():
        raise InputError(f"{data}: no such folder; it should hold the files of WMT 2014: {', '.join(dict.fromkeys(names))}")
    there = {path.name: path for path in sorted(data.rglob("*")) if path.is_file()}
    missing = [f"{data}: {name} is not there" for name in dict.fromkeys(names) if name not in there]
    if missing:
        raise InputError(listed("the data have", missing))
    return {name: there[name] for name in dict.fromkeys(names)}


def _checked(archives: dict[str, Path], checksums: Path | None) -> dict[str, str]:
    """The sha256 of every file; where a list of them is given (as `sha256sum` writes), all must be on it and equal."""
    found = {name: digest(path) for name, path in archives.items()}
    if checksums is None:
        return found
    try:
        lines = [line.split() for line in checksums.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{checksums}: cannot be read: {error}") from None
    wanted = {Path(line[-1].lstrip("*")).name: line[0] for line in lines}
    faults = []
    for name, sha256 in found.items():
        if name not in wanted:
            faults.append(f"{name}: not in {checksums}")
        elif wanted[name] != sha256:
            faults.append(f"{name}: sha256 is {sha256}, but {checksums} says {wanted[name]}; get it again")
    if faults:
        raise InputError(listed("the data have", faults))
    return found


def _write_part(corpora: Sequence[Corpus], archives: dict[str, Path], paths: Sequence[Path], console: Console) -> None:
    """All corpora of a part, one after the other, in two files that appear when they are whole."""
    building = [path.with_name(path.name + ".part") for path in paths]
    for path in building:
        path.write_bytes(b"")
    for corpus in corpora:
        counts = [_append(archives[corpus.archive], name, path, console) for name, path in zip(corpus[1:], building, strict=True)]
        if counts[0] != counts[1]:
            raise InputError(
                f"{corpus.archive}: {corpus.source} has {counts[0]:,} lines, but {corpus.target} {counts[1]:,}; get the file again"
            )
        console.say(f"{corpus.archive}: {counts[0]:,} pairs of {corpus.source} and {corpus.target}")
    for part, path in zip(building, paths, strict=True):
        part.replace(path)


def _append(archive: Path, names: str, path: Path, console: Console) -> int:
    """Add the lines of one member to a file; how many."""
    progress, count = Progress(console, f"lines of {names}", None), 0
    with _member(archive, names.split("|")) as (name, stream), path.open("ab") as out:
        for line in sgm_lines(stream) if name.endswith(".sgm") else _lines(stream):
            out.write(line + b"\n")
            count += 1
            if count % 10_000 == 0:
                progress.advance(10_000)
    console.clear()
    return count


@contextmanager
def _member(archive: Path, names: Sequence[str]) -> Iterator[tuple[str, BinaryIO]]:
    """One file inside a tar archive, unpacked where it is gzip."""
    try:
        with tarfile.open(archive) as tar:
            members = {Path(each.name).name: each for each in tar if each.isfile()}
            name = next((name for name in names if name in members), "")
            stream = tar.extractfile(members[name]) if name else None
            if stream is None:
                raise InputError(f"{archive}: holds no {' or '.join(names)}")
            yield name, cast(BinaryIO, gzip.GzipFile(fileobj=stream) if name.endswith(".gz") else stream)
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{archive}: damaged or not a tar archive: {error}; get it again") from None


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    for line in stream:
        yield line.rstrip(b"\r\n")


def sgm_lines(stream: BinaryIO) -> Iterator[bytes]:
    """The segments of a test set in NIST's SGML."""
    for segment in re.findall(r"<seg[^>]*>(.*?)</seg>", stream.read().decode("utf-8"), re.DOTALL | re.IGNORECASE):
        yield " ".join(html.unescape(segment).split()).encode()
