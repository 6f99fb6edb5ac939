import gzip
import lzma

import pytest

from undivided.config import CorpusFiles, DataConfig
from undivided.core.errors import InputError
from undivided.core.files import sha256_of
from undivided.data import corpus, text_files
from undivided.data.corpus import CorpusReport, check_corpora, corpus_digests, hold_pairs, read_pairs
from undivided.data.text_files import raw_lines, read_lines, zstd_module

PACKERS = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstd_module().compress}


def read(files, **config):
    findings = CorpusReport("corpus")
    pairs = [(pair.source, pair.target) for pair in read_pairs(files, DataConfig(**config), findings)]
    return pairs, findings


@pytest.fixture
def two_files(tmp_path):
    def make(source: bytes, target: bytes) -> CorpusFiles:
        (tmp_path / "a.src").write_bytes(source)
        (tmp_path / "a.tgt").write_bytes(target)
        return CorpusFiles(str(tmp_path / "a.src"), str(tmp_path / "a.tgt"))

    return make


@pytest.mark.parametrize("end", [b"\n", b""], ids=["final newline", "no final newline"])
def test_plain_files(two_files, end):
    pairs, findings = read(two_files(b"one\ntwo" + end, "eins\nzwö".encode() + end))
    assert pairs == [("one", "eins"), ("two", "zwö")]
    assert (findings.lines, findings.kept, findings.dropped) == (2, 2, 0)


def test_tsv(tmp_path):
    (tmp_path / "a.tsv").write_bytes(b"one\teins\nno tab\na\tb\tc\ntwo\tzwei\n")
    pairs, findings = read(CorpusFiles(str(tmp_path / "a.tsv")))
    assert pairs == [("one", "eins"), ("two", "zwei")]
    assert findings.first == {"columns": [2, 3]}


@pytest.mark.parametrize("suffix", PACKERS)
def test_compressed(tmp_path, suffix):
    (tmp_path / f"a.tsv{suffix}").write_bytes(PACKERS[suffix](b"one\teins\ntwo\tzwei\n"))
    assert read(CorpusFiles(str(tmp_path / f"a.tsv{suffix}")))[0] == [("one", "eins"), ("two", "zwei")]


@pytest.mark.parametrize("suffix", PACKERS)
def test_several_compressed_parts_in_one_file(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    path.write_bytes(PACKERS[suffix](b"one\n") + PACKERS[suffix](b"two\n"))
    assert list(raw_lines(path)) == [b"one", b"two"]


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize("harm", ["truncated", "flipped", "not compressed"])
def test_damaged_compressed_file(tmp_path, suffix, harm):
    text = "".join(f"line {n} {n * n % 97}\n" for n in range(5000)).encode()
    packed = bytearray(PACKERS[suffix](text))
    if harm == "truncated":
        packed = packed[: len(packed) // 2]
    elif harm == "flipped":
        packed[len(packed) // 2] ^= 0xFF
    else:
        packed = bytearray(text)
    path = tmp_path / f"a{suffix}"
    path.write_bytes(packed)
    with pytest.raises(InputError, match=f"a{suffix}: damaged"):
        list(raw_lines(path))


@pytest.mark.parametrize(("source", "target"), [(3, 5), (5, 3)])
def test_misaligned_files_are_named_with_their_counts(two_files, source, target):
    files = two_files(b"x\n" * source, b"y\n" * target)
    with pytest.raises(InputError) as caught:
        read(files)
    message = str(caught.value)
    assert files.source in message
    assert files.target in message
    assert "3 lines" in message
    assert "5" in message


def test_faults_are_counted_with_their_first_lines(two_files):
    good = ("good", "gut")
    rows = [good, (b"\xff\xfe", "y"), ("a\0b", "y"), ("", "y"), ("x", "  "), ("z" * 21, "y"), ("Rome", "Rome"), good]
    rows += [("", "y")] * 6 + [("y", "z" * 21)]
    encode = lambda text: text if isinstance(text, bytes) else text.encode()  # noqa: E731
    pairs, findings = read(two_files(*(b"".join(encode(row[side]) + b"\n" for row in rows) for side in (0, 1))), max_chars=20)
    assert pairs == [good, ("Rome", "Rome"), good]
    assert findings.counts == {"not_utf8": 1, "nul": 1, "empty": 8, "too_long": 2, "equal": 1}
    assert findings.first == {"not_utf8": [2], "nul": [3], "empty": [4, 5, 9, 10, 11], "too_long": [6, 15], "equal": [7]}
    assert (findings.lines, findings.kept, findings.dropped) == (15, 3, 12)
    summary = findings.summary()
    assert "15 lines read, 3 kept, 12 dropped" in summary
    assert "dropped: 8 lines empty on one side or both (line 4, 5, 9, 10, 11, …)" in summary
    assert "kept: 1 line source equal to target (line 7)" in summary


@pytest.mark.parametrize("bad", [b"\xff", b"a\0", b"", b"z" * 30])
def test_error_mode_names_the_line(two_files, bad):
    with pytest.raises(InputError, match="line 2: "):
        read(two_files(b"x\n" + bad + b"\n", b"y\ny\n"), on_bad_line="error", max_chars=20)


def test_error_mode_keeps_equal_lines(two_files):
    assert read(two_files(b"Rome\n", b"Rome\n"), on_bad_line="error")[0] == [("Rome", "Rome")]


@pytest.mark.parametrize("inside", ["\u2028", "\u2029", "\x0b", "\x0c", "\x1c", "\x1e", "\x85", "\r"])
def test_only_newline_ends_a_line(two_files, inside):
    text = f"one{inside}two"
    assert read(two_files(f"{text}\nthree\n".encode(), b"x\ny\n"))[0] == [(text, "x"), ("three", "y")]


def test_crlf_and_byte_order_mark(two_files):
    assert read(two_files(b"\xef\xbb\xbfone\r\ntwo\r\n", b"eins\nzwei\n"))[0] == [("one", "eins"), ("two", "zwei")]


def test_missing_file_and_directory(tmp_path):
    with pytest.raises(InputError, match=r"none\.txt: no such file"):
        list(raw_lines(tmp_path / "none.txt"))
    with pytest.raises(InputError, match="is a directory"):
        list(raw_lines(tmp_path))
    for suffix in PACKERS:
        with pytest.raises(InputError, match="no such file"):
            list(raw_lines(tmp_path / f"none{suffix}"))


@pytest.mark.parametrize(
    ("content", "said"), [(b"", "empty"), (b"\n\n", "no line can be used"), (bytes(range(256)) * 40, "no line")]
)
def test_nothing_to_learn_from(tmp_path, content, said):
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=said):
        check_corpora([CorpusFiles(str(tmp_path / "a"), str(tmp_path / "b"))], DataConfig())


def test_digests(two_files):
    files = two_files(b"x\n", b"y\n")
    assert corpus_digests([files]) == {files.source: sha256_of(files.source), files.target: sha256_of(files.target)}
    assert sha256_of(files.source) != sha256_of(files.target)


def test_what_is_held_in_memory_has_a_limit(tmp_path, monkeypatch):
    """A few kilobytes that are compressed can be gigabytes."""
    for side in ("a", "b"):
        with gzip.open(tmp_path / f"{side}.gz", "wb") as stream:
            stream.write(f"line {side}\n".encode() * 2000)
    files = CorpusFiles(str(tmp_path / "a.gz"), str(tmp_path / "b.gz"))
    assert len(read_lines(tmp_path / "a.gz")) == len(hold_pairs(files, DataConfig())) == 2000
    for module in (corpus, text_files):
        monkeypatch.setattr(module, "MAX_HELD_BYTES", 100_000)
    with pytest.raises(InputError, match=r"a\.gz: too large to be held in memory"):
        read_lines(tmp_path / "a.gz")
    with pytest.raises(InputError, match="too large to be held in memory"):
        hold_pairs(files, DataConfig())
