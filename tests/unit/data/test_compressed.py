"""Compressed files as the system's own tools write and read them: joined, padded, cut off."""

import random
import shutil
import subprocess

import pytest

from undivided.core.errors import InputError
from undivided.data.text_files import raw_lines

TOOLS = {"gz": "gzip", "xz": "xz", "zst": "zstd"}
LONG = bytes(random.Random(1).choice(b"abcdef \n") for _ in range(300_000)) + b"\n"
SHORT = b"second\n" * 50


def pack(kind, content):
    if shutil.which(TOOLS[kind]) is None:
        pytest.skip(f"{TOOLS[kind]} is not installed")
    return subprocess.run([TOOLS[kind], "-c", "-q"], input=content, capture_output=True, check=True).stdout


def unpack(path, kind):
    """What the system's tool reads; None where it refuses the file."""
    done = subprocess.run([TOOLS[kind], "-dcq", str(path)], capture_output=True, check=False)
    return done.stdout if done.returncode == 0 else None


def read(path):
    try:
        return b"".join(line + b"\n" for line in raw_lines(path))
    except InputError as error:
        return None if str(error).startswith(f"{path}: damaged") else error


def check(tmp_path, kind, content):
    path = tmp_path / f"a.{kind}"
    path.write_bytes(content)
    assert read(path) == unpack(path, kind)


@pytest.mark.parametrize("kind", TOOLS)
def test_joined_files_are_read_whole(tmp_path, kind):
    long, short, empty = (pack(kind, content) for content in (LONG, SHORT, b""))
    for content in (long, long + short, short + long, empty + short, short + empty, empty):
        check(tmp_path, kind, content)


@pytest.mark.parametrize("zeros", [4, 8, 512, 65_532, 65_536, 65_540, 3 * 65_536])
def test_no_xz_stream_is_lost_behind_padding(tmp_path, zeros):
    long, short = pack("xz", LONG), pack("xz", SHORT)
    path = tmp_path / "a.xz"
    for padding in (zeros, 65_536 - len(short) % 65_536 + zeros // 4 * 4):
        path.write_bytes(short + b"\0" * padding + long + b"\0" * zeros)
        assert read(path) == unpack(path, "xz") == SHORT + LONG


@pytest.mark.parametrize("zeros", [1, 2, 3, 7, 65_535])
def test_xz_padding_that_is_no_multiple_of_four_is_refused(tmp_path, zeros):
    check(tmp_path, "xz", pack("xz", SHORT) + b"\0" * zeros)
    check(tmp_path, "xz", pack("xz", SHORT) + b"\0" * zeros + pack("xz", LONG))


def test_gzip_padding_loses_nothing(tmp_path):
    """gzip itself stops at zeros between members and calls the rest garbage."""
    (tmp_path / "a.gz").write_bytes(pack("gz", SHORT) + b"\0" * 70_000 + pack("gz", LONG) + b"\0" * 5)
    assert read(tmp_path / "a.gz") == SHORT + LONG


@pytest.mark.parametrize("kind", TOOLS)
def test_truncated_files_are_refused(tmp_path, kind):
    first, second = pack(kind, LONG), pack(kind, SHORT)
    rng, both = random.Random(2), first + second
    ends = {0, 1, 2, 3, 4, 5, 6, 10, 12, len(first) - 1, len(first) - 8, len(first) + 1, len(first) + 5, len(both) - 1}
    for end in sorted(ends | {rng.randrange(len(both)) for _ in range(10)} - {len(first)}):
        check(tmp_path, kind, both[:end])


@pytest.mark.parametrize("kind", ["xz", "zst"])
def test_garbage_after_a_stream_is_refused(tmp_path, kind):
    for garbage in (b"garbage!", b"\0" * 4 + b"garbage!"):
        check(tmp_path, kind, pack(kind, SHORT) + garbage)
