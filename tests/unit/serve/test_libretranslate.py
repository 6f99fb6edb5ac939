"""LibreTranslate's API: shapes, codes and messages, as its clients expect them."""

import pytest

from samples import sentences

SENTENCES = [source for source, _ in sentences(8, seed=5)]


def test_a_text_is_translated_as_the_command_does(server, translator):
    expected = translator.translate(SENTENCES)
    got = [server.translate(text)["translatedText"] for text in SENTENCES]
    assert sum(a == b for a, b in zip(got, expected)) >= 7  # The server runs CTranslate2, the fixture PyTorch.
    assert len(set(got)) == len(set(SENTENCES))


def test_json_form_and_query_string_are_the_same(server):
    fields = {"q": SENTENCES[0], "source": "en", "target": "de"}
    answers = [
        server.post("/translate", json=fields | {"api_key": None}),
        server.post("/translate", json=fields | {"api_key": "", "format": "text"}),
        server.post("/translate", data=fields),
        server.post("/translate", files={name: (None, value) for name, value in fields.items()}),
        server.post("/translate", params=fields),
    ]
    assert [each.status_code for each in answers] == [200] * 5
    assert len({each.text for each in answers}) == 1
    assert set(answers[0].json()) == {"translatedText"}


def test_a_list_gives_lists(server):
    answer = server.translate([*SENTENCES[:3], "", "123"], source="auto", alternatives=2)
    assert [type(each) for each in answer["translatedText"]] == [str] * 5
    assert answer["translatedText"][3:] == ["", "123"]
    assert len(answer["detectedLanguage"]) == len(answer["alternatives"]) == 5
    assert answer["detectedLanguage"][0]["language"] == "en"
    assert 1 <= len(answer["alternatives"][0]) <= 2
    assert answer["translatedText"][0] not in answer["alternatives"][0]


def test_lines_spaces_and_what_has_no_words_stay(server):
    one = server.translate(SENTENCES[0])["translatedText"]
    text = f"\n  {SENTENCES[0]}  \n\n42\n\t{SENTENCES[0]}\n"
    assert server.translate(text)["translatedText"] == f"\n  {one}  \n\n42\n\t{one}\n"
    assert server.translate("🙂")["translatedText"] == "🙂"


def test_html_keeps_its_markup(server):
    answer = server.translate(f'<p class="x">{SENTENCES[0]}</p><script>var a = "the dog";</script>', format="html")
    one = server.translate(SENTENCES[0])["translatedText"]
    assert answer["translatedText"] == f'<p class="x">{one}</p><script>var a = "the dog";</script>'


def test_a_pair_that_no_model_has_goes_through_another_and_says_so(server):
    answer = server.translate(SENTENCES[0], target="fr")
    middle = server.translate(SENTENCES[0])["translatedText"]
    assert answer["via"] == "de"
    assert answer["translatedText"] == server.translate(middle, source="de", target="fr")["translatedText"]
    assert "via" not in server.translate(SENTENCES[0])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"source": "en", "target": "de"}, "Invalid request: missing q parameter"),
        ({"q": "", "source": "en", "target": "de"}, "Invalid request: missing q parameter"),
        ({"q": "a", "target": "de"}, "Invalid request: missing source parameter"),
        ({"q": "a", "source": "en"}, "Invalid request: missing target parameter"),
        ({"q": "a", "source": "en", "target": "zz"}, "zz is not supported"),
        ({"q": "a", "source": "zz", "target": "de"}, "zz is not supported"),
        ({"q": "a", "source": "en", "target": "de", "format": "rtf"}, "rtf format is not supported"),
        (
            {"q": "a", "source": "en", "target": "de", "alternatives": "x"},
            "Invalid request: alternatives parameter is not a number",
        ),
        ({"q": "a", "source": "en", "target": "de", "alternatives": 6}, "Invalid request: alternatives parameter must be <= 5"),
        ({"q": "a" * 5001, "source": "en", "target": "de"}, "Invalid request: request (5001) exceeds text limit (5000)"),
        ({"q": ["a"] * 51, "source": "en", "target": "de"}, "Invalid request: request (51) exceeds text limit (50)"),
        ({"q": "a", "source": "de", "target": "en"}, "English (en) is not available as a target language from German (de)"),
        ({"q": {"a": 1}, "source": "en", "target": "de"}, "Invalid request: q must be a text or a list of texts"),
        ({"q": ["a", 1], "source": "en", "target": "de"}, "Invalid request: q must be a text or a list of texts"),
        ({"q": "a", "source": 7, "target": ["de"]}, "7 is not supported"),
    ],
)
def test_what_is_wrong_is_said_as_libretranslate_does(server, fields, message):
    answer = server.post("/translate", json=fields)
    assert (answer.status_code, answer.json()) == (400, {"error": message})


def test_other_methods_and_paths(server):
    answer = server.get("/translate")
    assert (answer.status_code, answer.headers["allow"], answer.json()) == (405, "POST", {"error": "Method Not Allowed"})
    assert server.get("/nothing").json() == {"error": "Not Found"}
    assert server.post("/languages").status_code == 405


def test_languages_with_their_targets(server):
    assert server.get("/languages").json() == [
        {"code": "en", "name": "English", "targets": ["de", "fr"]},
        {"code": "de", "name": "German", "targets": ["fr"]},
        {"code": "fr", "name": "French", "targets": []},
    ]


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("hello handsome", "en"), ("Guten Morgen", "de"), ("Je ne sais pas ce que tu veux dire", "fr"),
        ("The dog sees the house.", "en"), ("Der Hund sieht das Haus", "de"),
    ],
)  # fmt: skip
def test_detection_among_the_loaded_languages(server, text, language):
    found = server.post("/detect", data={"q": text}).json()
    assert found[0]["language"] == language
    assert all(isinstance(each["confidence"], int) and 0 <= each["confidence"] <= 100 for each in found)
    assert sum(each["confidence"] for each in found) <= 101


def test_detection_is_not_certain_of_what_tells_nothing(server):
    assert server.post("/detect", data={"q": "1234 !?"}).json() == [{"confidence": 0, "language": "en"}]
    assert server.post("/detect", json={"q": "xqz"}).json()[0]["confidence"] < 90
    assert server.post("/detect", data={}).json() == {"error": "Invalid request: missing q parameter"}


PO = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n\nmsgid "{}"\nmsgstr ""\n\nmsgid "done"\nmsgstr "fertig"\n'


def test_a_file_comes_back_translated(server):
    content = PO.format(SENTENCES[0])
    answer = server.post("/translate_file", files={"file": ("a b.po", content)}, data={"source": "en", "target": "de"})
    found = answer.json()
    assert (found["translated"], found["left"], found["remarks"]) == (1, 1, [])
    assert found["translatedFileUrl"].startswith(server.url + "/download_file/")
    done = server.get(found["translatedFileUrl"].removeprefix(server.url))
    assert f'msgstr "{server.translate(SENTENCES[0])["translatedText"]}"' in done.text
    assert 'msgstr "fertig"' in done.text
    assert done.headers["content-disposition"].startswith("attachment;")
    assert "a%20b.po" in done.headers["content-disposition"] or '"a b.po"' in done.headers["content-disposition"]


def test_a_file_in_which_nothing_was_translated_says_so(server):
    done = server.post(
        "/translate_file", files={"file": ("a.po", PO.replace('msgstr ""\n\nmsgid "done"', 'msgstr "da"\n\nmsgid "done"'))},
        data={"source": "en", "target": "de"},
    ).json()  # fmt: skip
    assert done["translated"] == 0
    assert "nothing was translated" in done["remarks"][0]


@pytest.mark.parametrize(
    ("file", "fields", "status", "message"),
    [
        (("a.exe", b"MZ"), {}, 400, "Invalid request: file format not supported"),
        (("a.txt", b""), {}, 400, "Invalid request: empty file"),
        (("a.txt", b"x"), {"target": ""}, 400, "Invalid request: missing target parameter"),
        (("a.docx", b"not a zip"), {}, 400, None),
        (("a.json", b"{" * 50_000), {}, 400, None),
        (("a.xlf", b"<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>"), {}, 400, None),
        (None, {}, 400, "Invalid request: missing file parameter"),
    ],
)
def test_files_that_cannot_be_translated(server, file, fields, status, message):
    files = {"file": file} if file else {"other": ("a.txt", b"x")}
    answer = server.post("/translate_file", files=files, data={"source": "en", "target": "de"} | fields)
    assert answer.status_code == status
    assert message is None or answer.json() == {"error": message}


@pytest.mark.parametrize("name", ["../../etc/passwd", "%2e%2e%2fetc%2fpasswd", "0" * 32 + ".a", "a", "\x00", "0" * 32 + "/../x"])
def test_no_other_file_can_be_fetched(server, name):
    assert server.get(f"/download_file/{name}").status_code == 404


def test_settings_health_and_spec(server):
    settings = server.get("/frontend/settings").json()
    assert settings["charLimit"] == 5000
    assert {".po", ".docx", ".srt"} <= set(settings["supportedFilesFormat"])
    assert settings["language"]["source"] == {"code": "auto", "name": "Auto Detect"}
    assert server.get("/health").json() == {"status": "ok"}
    assert "/translate" in server.get("/spec").json()["paths"]
    page = server.get("/docs").text
    assert "POST /translate" in page
    assert "http://" not in page
    assert "<script" not in page


def test_corrections_become_a_corpus_to_train_from(server):
    from undivided.formats import open_document

    pairs = [("A dog & a cat\x0b", "Hund <b>"), (SENTENCES[0], "Anders.")]
    for q, s in pairs:
        assert server.post("/suggest", data={"q": q, "s": s, "source": "en", "target": "de"}).json() == {"success": True}
    document = open_document(server.suggestions)
    # Other tests of this server may have corrected something before.
    added = [(each.text, each.target) for each in document.segments()][-2:]
    assert added == [("A dog & a cat ", "Hund <b>"), (SENTENCES[0], "Anders.")]
    assert server.post("/suggest", data={"q": "a", "source": "en", "target": "de"}).status_code == 400
