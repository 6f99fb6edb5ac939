"""Files that are not UTF-8: recognised, named, read; never half of a corpus dropped in silence."""

import gzip

import pytest

from samples import sentences, tiny_recipe, write_lines
from undivided.config import CorpusFiles, DataConfig
from undivided.core.console import Console
from undivided.core.errors import InputError
from undivided.data.corpus import CorpusReport, check_corpora, read_pairs
from undivided.data.encodings import check_encoding, guess_encoding
from undivided.data.text_files import raw_lines
from undivided.training.loop import train

GERMAN = ["Bär und Käse", "für große Häuser", "Straße", "grün – „so“", "ja"] * 10
ENGLISH = ["bear and cheese", "for large houses", "street", "green", "yes"] * 10
KOREAN = ["파일을 엽니다", "취소를 누르세요", "끝"] * 20


def corpus(folder, encoding, lines=GERMAN):
    (folder / "a.de").write_bytes("".join(f"{line}\r\n" for line in lines).encode(encoding))
    write_lines(folder / "a.en", ENGLISH)
    return CorpusFiles(str(folder / "a.en"), str(folder / "a.de"))


def targets(files, **config):
    return [pair.target for pair in read_pairs(files, DataConfig(**config), CorpusReport("corpus"))]


@pytest.mark.parametrize("packed", [False, True])
def test_utf_16_is_read_by_its_mark(tmp_path, packed):
    files = corpus(tmp_path, "utf-16")
    if packed:
        (tmp_path / "a.de.gz").write_bytes(gzip.compress((tmp_path / "a.de").read_bytes()))
        files = CorpusFiles(files.source, f"{files.target}.gz")
    assert targets(files) == GERMAN
    (tmp_path / "big").write_bytes(b"\xfe\xff" + "Bär\nSee\n".encode("utf-16-be"))
    assert [line.decode() for line in raw_lines(tmp_path / "big")] == ["Bär", "See"]


def test_a_mark_is_stronger_than_what_is_named(tmp_path):
    """So the text that `distill` writes stands beside files in another encoding."""
    assert targets(corpus(tmp_path, "utf-8-sig"), encoding="cp1252") == GERMAN
    assert targets(corpus(tmp_path, "utf-16"), encoding="cp1252") == GERMAN


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16-le", "utf-16-be", "utf-8"])
def test_an_encoding_can_be_named(tmp_path, encoding):
    name = tmp_path / "one.de"
    name.write_bytes("".join(f"{line}\n" for line in GERMAN).encode(encoding))
    assert [line.decode() for line in raw_lines(name, encoding)] == GERMAN


@pytest.mark.parametrize(
    ("encoding", "said"),
    [
        ("cp1252", "looks like cp1252 (Windows-1252, often called Latin-1): if it is, add --encoding cp1252"),
        ("utf-16-le", "looks like utf-16-le (UTF-16 without a byte-order mark): if it is, add --encoding utf-16-le"),
    ],
)
def test_training_stops_and_names_what_it_looks_like(tmp_path, encoding, said):
    files = corpus(tmp_path, encoding)
    if encoding == "utf-16-le":
        (tmp_path / "a.en").write_bytes("".join(f"{line}\r\n" for line in ENGLISH).encode(encoding))
    with pytest.raises(InputError, match=r"cannot be used|no line can") as caught:
        check_corpora([files], DataConfig())
    assert said in str(caught.value)


def test_a_few_bad_lines_are_dropped_and_many_are_asked_about(tmp_path):
    files = corpus(tmp_path, "utf-8", GERMAN[:-4] + [""] * 4)
    assert check_corpora([files], DataConfig())[0].dropped == 4
    files = corpus(tmp_path, "utf-8", GERMAN[:-20] + [""] * 20)
    with pytest.raises(InputError, match=r"40% of the lines of a corpus cannot be used; is that right\?(.|\n)*--data.max_bad 1"):
        check_corpora([files], DataConfig())
    assert check_corpora([files], DataConfig(max_bad=1.0))[0].dropped == 20


def test_guesses():
    assert guess_encoding("\n".join(GERMAN).encode("cp1252")) == "cp1252"
    assert guess_encoding("\n".join(KOREAN).encode("cp949")) == "cp949"
    assert guess_encoding("\n".join(ENGLISH).encode("utf-16-be")) == "utf-16-be"
    assert guess_encoding(bytes(range(128, 160)) + b" ascii enough to be western text, all of this line" * 9) == ""


@pytest.mark.parametrize("name", ["latin1000", "rot13", "base64", "idna", "unicode_escape", "\0", "undefined"])
def test_what_is_no_encoding_is_refused(name):
    with pytest.raises(InputError, match="is no encoding of text"):
        check_encoding(name)


def test_a_run_with_an_encoding(tmp_path, run):
    pairs = sentences(60)
    for side, at in (("src", 0), ("tgt", 1)):
        (tmp_path / f"a.{side}").write_bytes("".join(f"{pair[at]}\n" for pair in pairs).encode("cp1252"))
    values = tiny_recipe(tmp_path / "m", [str(tmp_path / "a.src"), str(tmp_path / "a.tgt")])
    values["train"]["max_steps"] = 1
    with pytest.raises(InputError, match="add --encoding cp1252"):
        train(values, Console(quiet=True))
    values["data"]["encoding"] = "cp1252"
    folder = train(values, Console(quiet=True))
    (tmp_path / "in").write_bytes("Bär.\n".encode("utf-16"))
    ran = run("translate", folder, tmp_path / "in", "--engine", "torch")
    assert ran.code == 0, ran.err
    assert run("translate", folder, tmp_path / "in", "--encoding", "latin1000").code == 2
    values["data"]["encoding"] = "latin1000"
    with pytest.raises(InputError, match="encoding: 'latin1000' is no encoding"):
        train(values, Console(quiet=True))


def test_score_reads_files_of_different_encodings_and_says_what_one_looks_like(run, tmp_path):
    write_lines(tmp_path / "utf8.de", GERMAN)
    (tmp_path / "old.de").write_bytes("".join(f"{line}\n" for line in GERMAN).encode("cp1252"))
    ran = run("score", tmp_path / "utf8.de", tmp_path / "old.de")
    assert (ran.code, ran.out) == (2, "")
    assert "old.de, line 1: not valid UTF-8; " in ran.err
    assert "old.de looks like cp1252 (Windows-1252, often called Latin-1): if it is, add --encoding cp1252" in ran.err
    ran = run("score", tmp_path / "utf8.de", tmp_path / "old.de", "--encoding", "cp1252")
    assert "\nchrF2 100.00 " in ran.out, "UTF-8 stays UTF-8 beside it"


def test_a_file_to_translate_in_another_encoding_is_told_of(run, model, tmp_path):
    (tmp_path / "old.de").write_bytes("".join(f"{line}\n" for line in GERMAN[:5]).encode("cp1252"))
    reference = ("--engine", "torch", "--threads", "1")
    assert "old.de looks like cp1252" in run("translate", model, tmp_path / "old.de", *reference).err
    assert "looks like" not in run("translate", model, tmp_path / "old.de", "--encoding", "cp1252", *reference).err
    (tmp_path / "utf8").write_bytes("".join(f"{line}\n" for line in GERMAN[:40]).encode() + b"\xff\n")
    ran = run("translate", model, tmp_path / "utf8", *reference)
    assert "line 41: not valid UTF-8" in ran.err
    assert "looks like" not in ran.err, "one bad line is no other encoding"
