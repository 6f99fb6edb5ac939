"""The demo without a network: reading, aligning, splitting, falling back, and one small run from end to end."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import pytest

from undivided.cli.demo import corpus as corpus_room
from undivided.cli.demo import run as room
from undivided.config.settings import merge
from undivided.core.console import Console
from undivided.core.errors import InputError
from undivided.training.loop import Stopped

NOUNS = {
    "dog": "Hund",
    "man": "Mann",
    "tree": "Baum",
    "table": "Tisch",
    "moon": "Mond",
    "hat": "Hut",
    "ring": "Ring",
    "fish": "Fisch",
}
VERBS = {"sees": "sieht", "finds": "findet", "buys": "kauft", "paints": "malt", "loses": "verliert"}


def made_up() -> list[tuple[str, str]]:
    return [
        (f"The {a} {v} a {b}.", f"Der {NOUNS[a]} {VERBS[v]} einen {NOUNS[b]}.")
        for a in NOUNS
        for v in VERBS
        for b in NOUNS
        if a != b
    ]


def quiet() -> Console:
    return Console(quiet=True, stream=io.StringIO())


def nothing(reason: str) -> object:
    def fetch(target: str, scratch: Path, console: Console) -> list[tuple[str, str]]:
        raise corpus_room.Unavailable(reason)

    return fetch


def test_paragraphs_keep_ids_and_text_of_nested_tags_and_entities():
    html = """<script>var p = "no";</script><p>no id</p><h1 id="hd_id1">Save &amp; <a href="x">close</a></h1>
    <div><p id="par_id2" class="x">Gr&ouml;&#223;e <span class="emph">of <b>a</b></span>\n  file<br>here</p> outside
    <p id="par_idN3"></p><p id="other">no</p></div>"""
    assert corpus_room.paragraphs(html) == [("hd_id1", "Save & close"), ("par_id2", "Größe of a file here"), ("par_idN3", "")]


def test_a_page_is_kept_from_training(tmp_path, monkeypatch):
    for lang, word in (("en-US", "text"), ("de", "Text")):
        folder = tmp_path / "usr/help" / lang / "text"
        folder.mkdir(parents=True)
        for name, count in (("short", 3), ("usual", 15)):
            rows = [f"<p id=par_id{row}>{word} {name} {row}</p>" for row in range(count)]
            (folder / f"{name}.html").write_text("".join(rows), encoding="utf-8")
    monkeypatch.setattr(corpus_room.shutil, "which", lambda name: name)
    monkeypatch.setattr(corpus_room, "run", lambda command, folder: None)
    found = list(corpus_room.libreoffice_help("de", tmp_path, quiet()))
    assert found == [(f"text short {row}", f"Text short {row}") for row in range(3)]
    assert "text usual 7" in (tmp_path / "unseen.html").read_text(encoding="utf-8")


def test_paragraphs_read_only_the_default_wording():
    html = """<p id="par_id1">Press <span class="switchinline"><span hidden="true" class="MAC"><span>Command</span></span><span
    hidden="true"><span>Ctrl</span></span></span>+F now.</p>"""
    assert corpus_room.paragraphs(html) == [("par_id1", "Press Ctrl+F now.")]


def test_help_pages_are_aligned_by_page_id_and_occurrence(tmp_path, monkeypatch):
    pages = {
        "en-US": {"a.html": "<p id=par_id1>one</p><p id=par_id1>two</p>", "only.html": "<p id=par_id1>alone</p>"},
        "de": {"a.html": "<p id=par_id1>eins</p><p id=par_id1>zwei</p><p id=par_id9>neun</p>", "b.html": "<p id=par_id1>fern</p>"},
    }
    for lang, files in pages.items():
        folder = tmp_path / "usr/share/office/help" / lang / "text" / "deep"
        folder.mkdir(parents=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    monkeypatch.setattr(corpus_room.shutil, "which", lambda name: name)
    monkeypatch.setattr(corpus_room, "run", lambda command, folder: None)
    assert list(corpus_room.libreoffice_help("de", tmp_path, quiet())) == [("one", "eins"), ("two", "zwei")]


def test_package_lists_are_renewed_when_the_download_fails(tmp_path, monkeypatch):
    ran = []

    def run(command: list[str], folder: Path) -> None:
        ran.append(command[1])
        if ran == ["download"]:
            raise corpus_room.Unavailable("unable to locate package")

    monkeypatch.setattr(corpus_room.shutil, "which", lambda name: name)
    monkeypatch.setattr(corpus_room.os, "geteuid", lambda: 0)
    monkeypatch.setattr(corpus_room, "run", run)
    assert list(corpus_room.libreoffice_help("de", tmp_path, quiet())) == []
    assert ran == ["download", "update", "download"]


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        (
            "Open it. Close it!",
            "Öffnen Sie es. Schließen Sie es!",
            [("Open it.", "Öffnen Sie es."), ("Close it!", "Schließen Sie es!")],
        ),
        ("Use a name, e.g. Two.", "Ein Name, z. B. Zwei.", [("Use a name, e.g. Two.", "Ein Name, z. B. Zwei.")]),
        ("Click it. Go on.", "열기를 클릭합니다. 계속합니다.", [("Click it.", "열기를 클릭합니다."), ("Go on.", "계속합니다.")]),
        (
            'Choose (A). "B" is next.',
            "Choisir « A ». « B » suit.",
            [("Choose (A).", "Choisir « A »."), ('"B" is next.', "« B » suit.")],
        ),
        ("One two. Three four.", "Eins und zwei.", [("One two. Three four.", "Eins und zwei.")]),
    ],
)
def test_sentences_are_paired_where_both_sides_have_as_many(source, target, expected):
    assert corpus_room.sentence_pairs(source, target) == expected


def test_clean_drops_what_is_no_translated_sentence():
    good = ("Open the file now.", "Öffnen Sie jetzt die Datei.")
    texts = [
        good,
        good,
        ("Open the file now.", "Eine andere Fassung davon."),
        ("The same in both.", "The same in both."),
        ("Too short", "Zu kurz"),
        ("word " * 26, "Wort " * 26),
        ("Nearly all of it is lost here.", "Weg"),
        ("=SUM(A1:A9)+3*(7-2) = 12", "=SUMME(A1:A9)+3*(7-2) = 12"),
        ("", ""),
        ("There is no more.", ""),
    ]
    assert corpus_room.clean(texts, "de") == [good]


def test_clean_drops_what_is_not_yet_korean():
    assert corpus_room.clean([("Open the file now.", "Open this file now.")], "ko") == []
    assert len(corpus_room.clean([("Open the file now.", "지금 파일을 엽니다.")], "ko")) == 1


def test_split_shares_no_text_and_is_always_the_same():
    pairs = made_up()
    pairs += [(f"Whatever {number} says", "Alles dasselbe.") for number in range(40)]
    parts = corpus_room.split(pairs)
    size = len(pairs) // 10
    assert {name: len(part) for name, part in parts.items()} == {"train": len(pairs) - 2 * size, "valid": size, "test": size}
    for side in (0, 1):
        texts = [{each[side] for each in part} for part in parts.values()]
        assert len(set.union(*texts)) == sum(map(len, texts))
    again = corpus_room.split(pairs[::-1])
    assert (again["valid"], again["test"]) == (parts["valid"], parts["test"])


def test_messages_are_aligned_by_nested_keys(tmp_path, monkeypatch):
    files = {
        "app/parts/light/translations/en.json": {"state": {"on": "On", "off": "Off\n now"}, "name": "Light"},
        "app/parts/light/translations/de.json": {"state": {"on": "An", "off": "Aus  jetzt", "new": "Neu"}, "count": 3},
        "app/parts/light/translations/sensor.en.json": {"name": "Sensor light"},
        "app/parts/light/translations/sensor.de.json": {"name": "Lichtfühler"},
        "app/static/translations/en-0123456789abcdef0123.json": {"a": {"b": "Front", "c": "[%key:x%]"}},
        "app/static/translations/de-fedcba98765432100000.json": {"a": {"b": "Vorne", "c": "Verweis"}},
        "app/static/translations/en-GB-0123456789abcdef0123.json": {"a": {"b": "British"}},
    }
    with zipfile.ZipFile(tmp_path / "app.whl", "w") as wheel:
        for name, content in files.items():
            wheel.writestr(name, json.dumps(content))
    monkeypatch.setattr(corpus_room, "run", lambda command, folder: None)
    found = set(corpus_room.home_assistant("de", tmp_path, quiet()))
    assert found == {("On", "An"), ("Off now", "Aus jetzt"), ("Sensor light", "Lichtfühler"), ("Front", "Vorne")}


@pytest.mark.parametrize("pair", ["en-xx", "de-en", "", "../en-de"])
def test_unknown_pair_is_told_with_the_known_ones(pair, tmp_path):
    with pytest.raises(InputError, match="en-de, en-fr, en-ko"):
        room.demo(pair, 1, tmp_path, quiet())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("minutes", [0, -1, float("nan")])
def test_no_time_is_refused(minutes, tmp_path):
    with pytest.raises(InputError, match="minutes"):
        room.demo("en-de", minutes, tmp_path, quiet())


def test_without_apt_get_the_second_source_is_asked(monkeypatch):
    asked = []

    def second(target: str, scratch: Path, console: Console) -> list[tuple[str, str]]:
        asked.append((target, scratch.is_dir()))
        return made_up()

    monkeypatch.setattr(corpus_room.shutil, "which", lambda name: None)
    monkeypatch.setattr(corpus_room, "home_assistant", second)
    monkeypatch.setattr(corpus_room, "ENOUGH_PAIRS", 100)
    stream = io.StringIO()
    assert corpus_room.fetch_pairs("de", Console(stream=stream)) == ("home-assistant", made_up())
    assert asked == [("de", True)]
    assert "apt-get is not installed" in stream.getvalue()


def test_a_source_that_holds_too_little_is_passed_over(monkeypatch):
    monkeypatch.setattr(corpus_room, "libreoffice_help", lambda *_: iter(made_up()[:20]))
    monkeypatch.setattr(corpus_room, "home_assistant", lambda *_: iter(made_up()))
    monkeypatch.setattr(corpus_room, "ENOUGH_PAIRS", 100)
    assert len(corpus_room.fetch_pairs("de", quiet()).pairs) == len(made_up())


def test_no_source_at_all_is_one_clear_error(monkeypatch, tmp_path):
    monkeypatch.setattr(corpus_room, "libreoffice_help", nothing("no route to host"))
    monkeypatch.setattr(corpus_room, "home_assistant", nothing("no pip here"))
    with pytest.raises(InputError, match=r"(?s)network.*no route to host.*no pip here.*undivided train"):
        room.demo("en-de", 1, tmp_path, quiet())
    assert not (tmp_path / "en-de" / "corpus").exists()


def test_a_failing_program_is_told_with_its_last_words(tmp_path):
    with pytest.raises(corpus_room.Unavailable, match="last words"):
        corpus_room.run(["sh", "-c", "echo first >&2; echo last words >&2; exit 3"], tmp_path)
    with pytest.raises(corpus_room.Unavailable, match="no-such-program"):
        corpus_room.run(["no-such-program"], tmp_path)


def test_varied_lengths_without_repeats():
    texts = ["x" * length for length in range(1, 31)][::-1]
    lengths = [len(texts[place]) for place in room.pick_examples(texts)]
    assert lengths == sorted(set(lengths))
    assert len(lengths) == 6
    assert lengths[0] <= 5
    assert lengths[-1] >= 25
    assert sorted(room.pick_examples(["b", "a"])) == [0, 1]


@pytest.fixture
def small(monkeypatch):
    """A made-up corpus and a model that learns a little of it in seconds."""
    fetched = []

    def first(target: str, scratch: Path, console: Console) -> list[tuple[str, str]]:
        fetched.append(target)
        (scratch / "unseen.html").write_text("<p>The dog <b>sees</b> a tree.</p><p>The man buys %s.</p>", encoding="utf-8")
        return made_up()

    model = {"d_model": 32, "d_ff": 32, "n_heads": 2, "encoder_layers": 1, "decoder_layers": 1}
    changes = {"model": model, "tokens": {"vocab_size": 300}, "train": {"threads": 1, "validate_every": 10**6, "warmup_steps": 20}}
    monkeypatch.setattr(corpus_room, "libreoffice_help", first)
    monkeypatch.setattr(corpus_room, "ENOUGH_PAIRS", 100)
    plain = room.make_recipe
    monkeypatch.setattr(room, "make_recipe", lambda *given: merge(plain(*given), changes))
    return fetched


def test_demo_from_end_to_end_and_not_twice(small, tmp_path, capsys, monkeypatch):
    room.demo("en-de", 0.03, tmp_path, quiet())
    first = capsys.readouterr().out
    home = tmp_path / "en-de"
    names = [f"{part}.{lang}" for part in ("test", "train", "valid") for lang in ("de", "en")]
    assert sorted(path.name for path in (home / "corpus").iterdir()) == sorted(["ORIGIN.txt", *names, "unseen.html"])
    assert f"not seen: {home / 'corpus' / 'unseen.html'}" in first
    assert "2 segments: " in first
    translated = (home / "unseen.de.html").read_text(encoding="utf-8")
    assert [translated.count(tag) for tag in ("<p>", "<b>", "</b>", "</p>")] == [2, 1, 1, 2]
    assert "BLEU" in first
    assert "chrF2" in first
    assert "|tok:13a|" in first
    assert first.count("  reference  ") == 6
    assert f"translate {home / 'model'}" in first
    monkeypatch.setattr(room, "train", lambda *_: pytest.fail("trained again"))
    room.demo("en-de", 0.03, tmp_path, quiet())
    assert capsys.readouterr().out == first
    assert small == ["de"], "the corpus is fetched once"


def test_a_stopped_demo_says_how_to_go_on_and_keeps_its_corpus(small, tmp_path, monkeypatch):
    def stopped(*_: object) -> None:
        raise Stopped(15, "stopped and saved at step 7")

    monkeypatch.setattr(room, "train", stopped)
    with pytest.raises(Stopped, match="step 7, or run the demo again") as caught:
        room.demo("en-de", 1, tmp_path, quiet())
    assert caught.value.exit_code == 143
    assert (tmp_path / "en-de" / "corpus" / "test.de").exists()


def test_more_minutes_than_were_spent_train_on(tmp_path):
    log = tmp_path / "log.jsonl"
    assert room.minutes_spent(log) == 0
    log.write_text('{"event": "step", "seconds": 900}\n{"event": "final", "seconds": 180.5}\n{"event": "st', encoding="utf-8")
    assert room.minutes_spent(log) == pytest.approx(180.5 / 60)
