"""The check of corpora: each rule finds what it should, leaves good pairs alone, and memory stays bounded."""

import random

import numpy as np
import pytest

from undivided.config import CorpusFiles
from undivided.data.check import seen
from undivided.data.check.alignment import AlignmentTracker
from undivided.data.check.block import Block
from undivided.data.check.corpus import TextCorpus, language_of_name
from undivided.data.check.judge import Expected, Usual, copies, judge
from undivided.data.check.languages import detect, wrong_language
from undivided.data.check.mojibake import is_mojibake, repair
from undivided.data.check.rules import BITS, RULES, bits_of
from undivided.data.check.run import CheckOptions, check_corpus, clean_corpus
from undivided.data.check.seen import HeldOut, PairStore

LINES = {
    "en": "The window of the house is open and nobody knows why.",
    "de": "Das Fenster des Hauses ist offen, und niemand weiß warum.",
    "fr": "La fenêtre de la maison est ouverte et personne ne sait pourquoi.",
    "es": "La ventana de la casa está abierta y nadie sabe por qué.",
    "it": "La finestra della casa è aperta e nessuno sa perché.",
    "nl": "Het raam van het huis staat open en niemand weet waarom.",
    "pl": "Okno domu jest otwarte i nikt nie wie dlaczego.",
    "ru": "Окно дома открыто, и никто не знает почему.",
    "uk": "Вікно будинку відчинене, і ніхто не знає чому.",
    "ko": "집의 창문이 열려 있는데 아무도 이유를 모릅니다.",
    "ja": "家の窓が開いていますが、誰も理由を知りません。",
    "zh": "房子的窗户开着，没有人知道为什么。",
    "el": "Το παράθυρο του σπιτιού είναι ανοιχτό.",
    "ar": "نافذة المنزل مفتوحة ولا أحد يعرف لماذا.",
    "hi": "घर की खिड़की खुली है और कोई नहीं जानता क्यों।",
    "tr": "Evin penceresi açık ve kimse nedenini bilmiyor.",
    "vi": "Cửa sổ của ngôi nhà đang mở và không ai biết tại sao.",
    "fi": "Talon ikkuna on auki, eikä kukaan tiedä miksi.",
    "hu": "A ház ablaka nyitva van, és senki sem tudja, miért.",
}


def rules_of(source, target, **changes):
    """The names of the rules that one pair breaks."""
    expected = Expected("en", "de", Usual(0.1, 0.15), 5000, lambda text: [word for word in text.split() if word[0] in "{%<"])
    bits, _ = judge(Block([source]), Block([target]), expected)
    return {name for name, bit in BITS.items() if int(bits[0]) & bit}


@pytest.fixture
def store():
    with PairStore() as made:
        yield made


def check(tmp_path, store, source, target):
    (tmp_path / "a.en").write_bytes(source if isinstance(source, bytes) else "".join(f"{line}\n" for line in source).encode())
    (tmp_path / "a.de").write_bytes(target if isinstance(target, bytes) else "".join(f"{line}\n" for line in target).encode())
    corpus = TextCorpus(CorpusFiles(str(tmp_path / "a.en"), str(tmp_path / "a.de")), "", "", "")
    remove = bits_of([name for name, rule in RULES.items() if rule.removes])
    return check_corpus(corpus, CheckOptions(remove=remove), HeldOut(), store), corpus


@pytest.mark.parametrize("language", LINES)
def test_a_sentence_is_known_by_its_language(language):
    found = detect(Block([LINES[language]]))
    assert found.names[int(found.best[0])] == language


@pytest.mark.parametrize("language", LINES)
def test_other_languages_are_wrong_and_its_own_is_not(language):
    lines = list(LINES.values())
    wrong, _ = wrong_language(Block(lines), language)
    assert [name for name, is_wrong in zip(LINES, wrong) if not is_wrong] == [language]


@pytest.mark.parametrize("line", ["", "12.5", "OK", "USB 3.0", "LibreOffice Writer", "C:\\data\\x.txt", "…", "Microsoft", "A"])
def test_short_lines_are_not_called_wrong(line):
    for language in ("en", "de", "ko", "ru"):
        assert not wrong_language(Block([line]), language)[0][0]


def test_an_unknown_language_is_never_wrong():
    assert not wrong_language(Block(list(LINES.values())), "xx")[0].any()


GOOD = ("The red house has 12 windows.", "Das rote Haus hat 12 Fenster.")
CASES = [
    (*GOOD, set()),
    ("", "Das rote Haus.", {"empty"}),
    ("The red house.", " \t", {"empty"}),
    ("The red house has a door.\x07", "Das rote Haus hat eine Tür.", {"control"}),
    ("The red house has a\0 door.", "Das rote Haus hat eine Tür.", {"control"}),
    ("The red house has a door.", "Das rote Haus hat eine T\ufffdr.", {"broken"}),
    ("The red house has a door.", "Das rote Haus hat \ue123 eine Tür.", {"broken"}),
    ("The red house has a door.", "Das rote Haus hat eine\u200b Tür.", {"hidden"}),
    ("The red house has a door.", "Das rote Haus hat eine TÃ¼r fÃ¼r alle.", {"mojibake"}),
    ("It is the client’s own house.", "Es ist das eigene Haus â€“ und das ist gut.", {"mojibake"}),
    ("The red house has a door.", "Dаs rote Haus hat eine Tür.", {"mixed-scripts"}),
    (LINES["fr"], LINES["de"], {"source-language"}),
    (LINES["en"], LINES["fr"], {"target-language"}),
    (LINES["de"], LINES["en"], {"swapped"}),
    (LINES["en"], LINES["en"], {"untranslated"}),
    (LINES["en"], LINES["en"].replace("window", "Fenster"), {"untranslated"}),
    ("Microsoft Word", "Microsoft Word", {"equal"}),
    ("The red house has a door.", "Das rote rote rote rote rote Haus hat eine Tür.", {"mangled"}),
    ("The red house has a door.", "Das rote Haus hat das Haus hat das Haus hat das Haus hat.", {"mangled"}),
    ("The red house has a door.", "▁Das ▁rote ▁Haus ▁hat eine Tür.", {"mangled"}),
    ("The red house has a door.", "Das rote H a u s t ü r e n haus.", {"mangled"}),
    ("The red house has a door.", "Das rote Haus hat eine Tüüüüüüüüüüüüüüür.", {"mangled"}),
    ("The red house has a door.", "Ja.", {"length-ratio"}),
    ("The value {name} is not valid.", "Der Wert {wert} ist nicht gültig.", {"placeholders"}),
    ("The value {name} is not valid.", "Der Wert {name} ist nicht gültig.", set()),
    ("The house was built in 1998.", "Das Haus wurde 1989 gebaut.", set()),
    ("The house was built in 1998.", "Das Haus wurde 1997 gebaut.", {"digits"}),
    ("It costs 1,000.50 dollars today.", "Es kostet heute 1.000,50 Dollar.", set()),
    ("Value 1, value 2, value 3 and value 4.", "Wert 1, Wert 2, Wert 3 und Wert 4.", set()),
    ("He was very, very, very, very tired.", "Er war sehr, sehr, sehr, sehr müde.", set()),
    ("IN FRANCE THEY SAY «CAFÉ» TO IT.", "IN FRANKREICH SAGT MAN «CAFÉ» DAZU.", set()),
]


@pytest.mark.parametrize(("source", "target", "rules"), CASES)
def test_rules(source, target, rules):
    assert rules_of(source, target) == rules


def test_every_rule_of_a_pair_alone_has_a_case():
    later = {"not-utf8", "columns", "too-long", "misaligned", "duplicate", "near-duplicate", "leak"}
    assert set().union(*(rules for *_, rules in CASES)) == set(RULES) - later


@pytest.mark.parametrize(
    "text", ["Straße für Übermut – „so“ …", "déjà vu à l'œuvre", "Příliš žluťoučký kůň", "это по-русски", "“quotes”"]
)
def test_mojibake_is_known_and_repaired(text):
    for encoding in ("cp1252", "latin-1"):
        try:
            broken = text.encode().decode(encoding)
        except UnicodeDecodeError:
            continue
        assert is_mojibake(broken)
        assert repair(broken) == text
    assert not is_mojibake(text)


def test_a_block_counts_as_python_does():
    rng = random.Random(3)
    letters = "abÄß 가나中 1٣.\t\u0301я"
    lines = ["".join(rng.choice(letters) for _ in range(rng.randrange(20))) for _ in range(300)]
    block = Block(lines)
    assert block.length.tolist() == [len(line) for line in lines]
    assert "".join(map(chr, block.codes)) == "\n".join(lines)
    ours = ["".join(map(chr, block.codes[a:b])) for a, b in zip(block.words.start, block.words.end)]
    assert [line for line, word in zip(block.words.line, ours) if word not in lines[line]] == []
    known = {}
    for word, number in zip(ours, block.words.hash.tolist()):
        assert known.setdefault(word.lower(), number) == number
    assert len(set(known.values())) == len(known)


def test_copies_are_found_within_their_own_line_only():
    source = ["Alpha Bravo Charlie Delta Echo", "one other line here today"]
    assert copies(Block(source), Block(source[::-1])).tolist() == [False, False]
    assert copies(Block(source), Block(source)).tolist() == [True, True]


def made_lines(count, seed=1):
    """Lines of many lengths, and others beside them of about the same."""
    rng = random.Random(seed)
    lengths = [rng.randrange(1, 25) for _ in range(count)]
    ours = [" ".join(rng.choice(("house", "tree", "window", "and", "is")) for _ in range(each)) + "." for each in lengths]
    theirs = [
        " ".join(rng.choice(("Haus", "Baum", "Fenster", "und", "ist")) for _ in range(max(1, each + rng.randrange(-2, 3)))) + "."
        for each in lengths
    ]
    return ours, theirs


@pytest.mark.parametrize(("place", "lost"), [(700, 1), (5000, 3), (9000, 1), (3000, 40), (20_000, 1)])
def test_the_line_where_two_files_drift_apart_is_found(place, lost):
    ours, theirs = made_lines(24_000)
    theirs = theirs[:place] + theirs[place + lost :]
    tracker = AlignmentTracker()
    for start in range(0, len(theirs), 1000):
        tracker.add(Block(ours[start : start + 1000][: len(theirs) - start]), Block(theirs[start : start + 1000]), Usual())
    drifts = tracker.finish()
    assert abs(drifts[0].start - (place + 1)) <= (10 if lost < 12 else 64)
    assert drifts[0].offset == -lost
    assert drifts[-1].end == len(theirs) + 1


def test_aligned_files_do_not_drift_and_a_gap_that_closes_ends():
    ours, theirs = made_lines(6000)
    tracker = AlignmentTracker()
    tracker.add(Block(ours), Block(theirs), Usual())
    assert tracker.finish() == []
    theirs = [*theirs[:1000], *theirs[1001:4000], "Haus und Baum.", *theirs[4000:]]
    tracker = AlignmentTracker()
    tracker.add(Block(ours), Block(theirs), Usual())
    (drift,) = tracker.finish()
    assert abs(drift.start - 1001) <= 10
    assert abs(drift.end - 4001) <= 10


def test_files_of_different_length_are_reported_with_the_place(tmp_path, store):
    ours, theirs = made_lines(3000)
    report, _ = check(tmp_path, store, ours, theirs[:1200] + theirs[1201:])
    assert "2,999 lines" in report.uneven
    assert "3,000" in report.uneven
    assert abs(report.drifts[0].start - 1201) <= 10
    assert report.found["misaligned"].count > 1500


@pytest.mark.parametrize("at_once", [1 << 22, 64])
def test_duplicates_are_found_in_memory_and_in_parts(tmp_path, store, monkeypatch, at_once):
    monkeypatch.setattr(seen, "SORTED_AT_ONCE", at_once)
    lines = [f"The house number {'abcdefghij'[n % 10]}{'klmnopqrst'[n // 10 % 10]}x stands there" for n in range(100)]
    ours = [*lines, lines[3], lines[4].upper() + "!", *lines[:50]]
    theirs = [f"{line} drüben" for line in lines]
    theirs = [*theirs, theirs[3], theirs[4], *theirs[:50]]
    check(tmp_path, store, ours, theirs)
    bits = np.concatenate(list(store.blocks(7)))
    exact = [n for n, each in enumerate(bits) if each & BITS["duplicate"]]
    near = [n for n, each in enumerate(bits) if each & BITS["near-duplicate"]]
    assert exact == [100, *range(102, 152)]
    assert near == [101]


def test_leaks_are_found_on_either_side_whatever_the_case():
    known = HeldOut()
    known.add(Block(["The red house stands there.", "Yes"]), Block(["Das rote Haus steht dort.", "Ja"]))
    ours = Block(["the RED house stands there", "Another house is blue.", "Yes", "yes", "Not this one at all."])
    theirs = Block(["Etwas anderes.", "Das rote Haus steht dort!", "Doch", "Doch", "Dieses gar nicht."])
    assert known.find(ours, theirs).tolist() == [True, True, True, False, False]
    assert not HeldOut().find(ours, theirs).any()


def test_bad_bytes_long_lines_and_columns(tmp_path, store):
    long = b"good line here\nbad \xff line\n" + b"x" * 3_000_000 + b"\n"
    report, _ = check(tmp_path, store, long, b"gute Zeile hier\nschlecht\nlang\n")
    assert report.found["not-utf8"].lines == [2]
    assert report.found["too-long"].lines == [3]
    (tmp_path / "t.tsv").write_bytes(b"a house\tein Haus\nonly one column\nx\ty\tz\n")
    with PairStore() as other:
        report = check_corpus(TextCorpus(CorpusFiles(str(tmp_path / "t.tsv")), "", "en", "de"), CheckOptions(), HeldOut(), other)
    assert report.found["columns"].lines == [2, 3]


def test_clean_writes_the_others_in_order_and_counts_each_pair_once(tmp_path, store):
    ours = [GOOD[0], "", GOOD[0], "The tree\x07 is here.", "A tree stands in the garden."]
    theirs = [GOOD[1], "", GOOD[1], "Der Baum ist hier.", "Ein Baum steht im Garten."]
    report, corpus = check(tmp_path, store, ours, theirs)
    remove = bits_of([name for name, rule in RULES.items() if rule.removes])
    paths, kept = clean_corpus(corpus, store, report, remove, tmp_path / "out")
    assert [path.name for path in paths] == ["a.en", "a.de"]
    assert paths[0].read_text(encoding="utf-8").splitlines() == [GOOD[0], ours[4]]
    assert paths[1].read_text(encoding="utf-8").splitlines() == [GOOD[1], theirs[4]]
    assert kept == 2
    assert sum(found.removed for found in report.found.values()) == 3 == report.faulty


def test_the_language_of_a_file_name():
    assert language_of_name("x/train.en") == "en"
    assert language_of_name("train.pt-BR.gz") == "pt-BR"
    assert language_of_name("train.de.txt") == "de"
    assert language_of_name("train.tsv") == language_of_name("train") == ""
