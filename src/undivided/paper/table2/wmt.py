"""The WMT 2014 data of the paper, from the standard files as published. [paper 5.1]"""

from __future__ import annotations

import gzip
import hashlib
import html
import re
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from undivided.config.settings import list_faults
from undivided.core.console import Console, Progress
from undivided.core.errors import InputError
from undivided.core.files import open_atomic, write_atomic


class Corpus(NamedTuple):
    """One parallel corpus inside a published archive: file names of source and target; `a|b` means either name."""

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

SIZES = {
    "de": "The standard files hold about 4.5 million pairs, as the paper says.",
    "fr": "The standard files hold about 40.8 million pairs; the paper says 36 million, but not how it filtered.",
}
"""The amount of training data, by target language."""

PUBLISHED: dict[str, dict[str, str]] = {
    "sha256": {
        "training-parallel-europarl-v7.tgz": "0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
        "training-parallel-commoncrawl.tgz": "c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
        "training-parallel-nc-v9.tgz": "cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485",
    },
    "md5": {"test-full.tgz": "a8cd784e006feb32ac6f3d9ec7eb389a"},
}
"""Published checksums: sha256 as listed by two data-set libraries, md5 as listed by sacreBLEU.

We have not verified them against the files, so a difference is only a warning.
"""


class Prepared(NamedTuple):
    """The text of a language pair, and the published files it came from."""

    paths: dict[str, list[str]]
    """`train`, `valid` and `test`: source and target of each."""
    sha256: dict[str, str]
    """Of each published file."""
    checked: dict[str, str]
    """For each file, what its checksum was compared with, and the result."""


def held_out(target: str) -> dict[str, Corpus]:
    """newstest2013 for validation, newstest2014 for the test."""
    pair = f"{target}en"
    return {
        "valid": Corpus(
            "dev.tgz", "newstest2013.en|newstest2013-src.en.sgm", f"newstest2013.{target}|newstest2013-ref.{target}.sgm"
        ),
        "test": Corpus("test-full.tgz", f"newstest2014-{pair}-src.en.sgm", f"newstest2014-{pair}-ref.{target}.sgm"),
    }


def prepare(data: Path, target: str, out: Path, checksums: Path | None, console: Console) -> Prepared:
    """`train`, `valid` and `test` as two aligned text files each under `out`, made once. All faults are reported together.

    The checksums of the files are stored beside the text, so that prepared text can be checked without the files.
    """
    parts = {"train": TRAIN[target], **{part: (corpus,) for part, corpus in held_out(target).items()}}
    paths = {part: [str(out / f"{part}.{lang}") for lang in ("en", target)] for part in parts}
    names = list(dict.fromkeys(corpus.archive for corpora in parts.values() for corpus in corpora))
    if all(_sums_file(kind, out).exists() for kind in PUBLISHED):
        sums = _recorded_sums(out, names)
        console.say(f"{out}: already prepared")
        return Prepared(paths, sums["sha256"], _check_sums(sums, checksums, f"download it again and remove {out}", console))
    archives = _archives(data, names)
    sums = {kind: {name: _sum(path, kind) for name, path in archives.items()} for kind in PUBLISHED}
    checked = _check_sums(sums, checksums, "download it again", console)
    out.mkdir(parents=True, exist_ok=True)
    for part, corpora in parts.items():
        _write_part(corpora, archives, [Path(path) for path in paths[part]], console)
    for kind, found in sums.items():
        write_atomic(_sums_file(kind, out), "".join(f"{value}  {name}\n" for name, value in found.items()))
    return Prepared(paths, sums["sha256"], checked)


def _sums_file(kind: str, out: Path) -> Path:
    """The file of stored checksums, in the format of `sha256sum` and `md5sum`."""
    return out / f"{kind}.txt"


def _recorded_sums(out: Path, names: Sequence[str]) -> dict[str, dict[str, str]]:
    """By kind, the stored checksums of the files that the text came from; they must be these files."""
    sums = {kind: _read_sums(_sums_file(kind, out)) for kind in PUBLISHED}
    if any(found.keys() != set(names) for found in sums.values()):
        raise InputError(f"{out}: contains the text of another language pair; choose another --out")
    return sums


def _sum(path: Path, kind: str) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, kind).hexdigest()


def _archives(data: Path, names: Sequence[str]) -> dict[str, Path]:
    """The paths of the published files, anywhere under the folder."""
    if not data.is_dir():
        raise InputError(f"{data}: no such folder; it should contain the files of WMT 2014: {', '.join(dict.fromkeys(names))}")
    there = {path.name: path for path in sorted(data.rglob("*")) if path.is_file()}
    missing = [f"{data}: {name} is missing" for name in dict.fromkeys(names) if name not in there]
    if missing:
        raise InputError(list_faults("the data have", missing))
    return {name: there[name] for name in dict.fromkeys(names)}


def _check_sums(sums: dict[str, dict[str, str]], checksums: Path | None, remedy: str, console: Console) -> dict[str, str]:
    """Compare each file with the user's checksums (a difference is an error), else with published ones (a warning)."""
    wanted = _read_sums(checksums) if checksums is not None else {}
    faults = [
        f"{name}: sha256 is {sha256}, but {checksums} says {wanted[name]}; {remedy}"
        for name, sha256 in sums["sha256"].items()
        if wanted.get(name, sha256) != sha256
    ]
    if faults:
        raise InputError(list_faults("the data have", faults))
    checked = {}
    for name in sums["sha256"]:
        if name not in wanted and checksums is not None:
            console.say(f"{name}: not in {checksums}")
        checked[name] = "as in --checksums" if name in wanted else _compare_published(name, sums, console)
    return checked


def _compare_published(name: str, sums: dict[str, dict[str, str]], console: Console) -> str:
    for kind, published in PUBLISHED.items():
        if name in published:
            found = sums[kind][name]
            if found == published[name]:
                return f"as published ({kind})"
            console.warn(
                f"{name}: its {kind} is {found}, the published one is {published[name]}; it may be another upload of the same "
                "file, or damaged"
            )
            return f"differs: {kind} {found}, published {published[name]}"
    console.say(f"{name}: not checked, as no published checksum is known; --checksums FILE can give one")
    return "not checked: no published checksum"


def _read_sums(path: Path) -> dict[str, str]:
    """Read the output of `sha256sum`: checksums by file name, without folders."""
    try:
        lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    return {Path(line[-1].lstrip("*")).name: line[0].lower() for line in lines}


def _write_part(corpora: Sequence[Corpus], archives: dict[str, Path], paths: Sequence[Path], console: Console) -> None:
    """Write all corpora of a part, one after the other, to two files that appear when they are complete."""
    with ExitStack() as stack:
        outs = [stack.enter_context(open_atomic(path)) for path in paths]
        for corpus in corpora:
            counts = [_append(archives[corpus.archive], name, out, console) for name, out in zip(corpus[1:], outs, strict=True)]
            if counts[0] != counts[1]:
                raise InputError(
                    f"{corpus.archive}: {corpus.source} has {counts[0]:,} lines, but {corpus.target} {counts[1]:,}; "
                    "get the file again"
                )
            console.say(f"{corpus.archive}: {counts[0]:,} pairs of {corpus.source} and {corpus.target}")


def _append(archive: Path, names: str, out: BinaryIO, console: Console) -> int:
    """Copy the lines of one member; how many."""
    progress, count = Progress(console, f"lines of {names}", None), 0
    with _member(archive, names.split("|")) as (name, stream):
        for line in sgm_lines(stream) if name.endswith(".sgm") else _lines(stream):
            out.write(line + b"\n")
            count += 1
            if count % 10_000 == 0:
                progress.advance(10_000)
    console.clear()
    return count


@contextmanager
def _member(archive: Path, names: Sequence[str]) -> Iterator[tuple[str, BinaryIO]]:
    """Open a file inside a tar archive, decompressed if it is gzip."""
    try:
        with tarfile.open(archive) as tar:
            members = {Path(each.name).name: each for each in tar if each.isfile()}
            name = next((name for name in names if name in members), "")
            stream = tar.extractfile(members[name]) if name else None
            if stream is None:
                raise InputError(f"{archive}: contains no {' or '.join(names)}")
            yield name, cast(BinaryIO, gzip.GzipFile(fileobj=stream) if name.endswith(".gz") else stream)
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{archive}: damaged or not a tar archive: {error}; download it again") from None


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    for line in stream:
        yield line.rstrip(b"\r\n")


def sgm_lines(stream: BinaryIO) -> Iterator[bytes]:
    """The segments of a test set in NIST's SGML."""
    for segment in re.findall(r"<seg[^>]*>(.*?)</seg>", stream.read().decode("utf-8"), re.DOTALL | re.IGNORECASE):
        yield " ".join(html.unescape(segment).split()).encode()
