"""Pairs with a made side: translated once, also after a stop; bad ones are left out; the rest becomes a mixture."""

from pathlib import Path

import pytest

from samples import WORDS, sentences, write_lines, write_pairs
from undivided.config import CorpusFiles
from undivided.core.console import Console, Progress
from undivided.training import synthetic
from undivided.training.synthetic import TAG, Languages, Synthetic, choose_lines, keep_good, mix_pairs, rate, translate_lines

QUIET = Console(quiet=True)
ENGLISH_GERMAN = Languages("en", "de")
NO_VALID = CorpusFiles()


@pytest.mark.parametrize("how", [{"n_best": 1}, {"sample": True, "beam_size": 1}], ids=["beam", "sample"])
def test_stopped_in_the_middle_the_rows_are_the_same(translator, tmp_path, monkeypatch, how):
    monkeypatch.setattr(synthetic, "CHUNK", 4)
    lines = write_lines(tmp_path / "lines", [source for source, _ in sentences(10, seed=3)])

    def translate(name):
        rows = []

        def row(result):
            rows.append(result.source)
            return rate(translator, result)

        translate_lines(translator, lines, tmp_path / name, Progress(QUIET, "lines", 10), row, **how)
        return len(rows)

    assert translate("whole") == 10
    whole = (tmp_path / "whole").read_bytes()
    after_six = whole.splitlines(keepends=True)
    (tmp_path / "killed").write_bytes(b"".join(after_six[:6]) + after_six[6][:5])
    assert translate("killed") == 6
    assert (tmp_path / "killed").read_bytes() == whole


def filtered(folder: Path, rows: list[tuple[str, float, str, str]], keep: float = 1.0, valid: CorpusFiles = NO_VALID):
    """What is left of rows of verdict, confidence, German and the English that was made of it."""
    lines = write_lines(folder / "lines", [german for _, _, german, _ in rows])
    rated = write_lines(folder / "rows", [f"{verdict}\t{confidence}\t{english}" for verdict, confidence, _, english in rows])
    paths, counts = keep_good(lines, rated, folder, ENGLISH_GERMAN, True, keep, valid)
    return list(zip(*(path.read_text().splitlines() for path in paths), strict=True)), counts


GOOD = [("ok", -0.1, german, english) for english, german in dict(sentences(8, seed=4)).items()]


def test_good_pairs_stay_in_order_source_first(tmp_path):
    left, counts = filtered(tmp_path, GOOD)
    assert left == [(english, german) for _, _, german, english in GOOD]
    assert counts["pairs"] == counts["lines"] == len(GOOD)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (("looped", -0.1, "der Hund sieht das Haus.", "The dog the dog the dog."), "unsound"),
        (("ok", -9.0, "der Hund sieht das Haus.", "The dog sees the river."), "improbable"),
        (("ok", -0.1, "der Hund sieht das Haus.", "The dog the dog the dog the dog sees."), "mangled"),
        (("ok", -0.1, "der Hund sieht das Haus heute.", "der Hund sieht das Haus heute."), "untranslated"),
        (("ok", -0.1, "Klicken Sie auf %s.", "Click on it."), "placeholders"),
    ],
)
def test_a_bad_pair_is_left_out_and_counted(tmp_path, bad, why):
    left, counts = filtered(tmp_path, [*GOOD[:3], bad, *GOOD[3:]], keep=1 - 1 / (len(GOOD) + 1) if why == "improbable" else 1.0)
    assert left == [(english, german) for _, _, german, english in GOOD]
    assert counts[why] == 1


def test_what_quality_is_measured_on_is_left_out(tmp_path):
    _, _, german, english = GOOD[2]
    valid = CorpusFiles(*write_pairs(tmp_path, "valid", [(f"Indeed, {english}", german)]))
    left, counts = filtered(tmp_path, GOOD, valid=valid)
    assert (english, german) not in left
    assert counts["leak"] == 1


def test_nothing_good_is_no_pairs(tmp_path):
    left, counts = filtered(tmp_path, [("looped", -1.0, "a b", "c c c c")])
    assert (left, counts["pairs"]) == ([], 0)


def test_lines_are_chosen_evenly(tmp_path):
    assert choose_lines((str(number) for number in range(10)), 0.3, tmp_path / "lines") == 3
    assert (tmp_path / "lines").read_text().split() == ["3", "6", "9"]
    assert choose_lines(["a  b", "c"], 1.0, tmp_path / "lines") == 2
    assert (tmp_path / "lines").read_text() == "a b\nc\n"


def made(tmp_path, **how):
    source, target = write_pairs(tmp_path, "made", list(WORDS.items()))
    return Synthetic(source, target, "made", len(WORDS), **({"is_source_made": True, "is_tagged": True} | how))


def test_pairs_of_people_are_their_share_of_an_epoch(tmp_path):
    own = CorpusFiles(*write_pairs(tmp_path, "own", sentences(4)), 2.0)
    own_again, other = mix_pairs([own], 4, [made(tmp_path)], 0.5, tmp_path)
    assert (own_again.weight, other.weight) == (2.0 * len(WORDS) / 4, 1.0)
    assert mix_pairs([own], 4, [made(tmp_path)], 0.0, tmp_path)[0].weight == 2.0


@pytest.mark.parametrize(("how", "tagged"), [({}, True), ({"is_source_made": False}, False), ({"is_tagged": False}, False)])
def test_made_sources_are_tagged_and_only_they(tmp_path, how, tagged):
    other = mix_pairs([], 4, [made(tmp_path, **how)], 0.5, tmp_path)[0]
    assert Path(other.source).read_text().splitlines() == [f"{TAG} {each}" if tagged else each for each in WORDS]
    assert Path(other.target).read_text().splitlines() == list(WORDS.values())


def test_for_the_other_direction_the_other_side_is_made(tmp_path):
    swapped = made(tmp_path).swapped()
    assert not swapped.is_source_made
    assert Path(swapped.source).read_text().splitlines() == list(WORDS.values())
