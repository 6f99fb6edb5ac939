"""Script in texts, file names, model names and in answers of the server: the page shows it and runs none of it."""

import itertools
import json
import re

import pytest
from waiting import wait_until

MARK = "window.ran=(window.ran||0)+1"
MARKUP = [
    f"<script>{MARK}</script>",
    f"<img src=x onerror={MARK}>",
    f"<svg onload={MARK}>",
    f"<svg><script>{MARK}</script></svg>",
    f"<iframe srcdoc='<script>parent.{MARK.removeprefix('window.')}</script>'></iframe>",
    f"<iframe src=javascript:{MARK}></iframe>",
    f"<a href=javascript:{MARK} autofocus>x</a>",
    f"<input autofocus onfocus={MARK}>",
    f"<details open ontoggle={MARK}>",
    f"<video><source onerror={MARK}></video>",
    f"<body onload={MARK}>",
    f"<style>@import 'javascript:{MARK}'</style>",
    "<style>*{display:none}</style>",
    f"<object data=javascript:{MARK}>",
    f"<math><mi xlink:href=javascript:{MARK}>x",
    f"<form action=javascript:{MARK}><button autofocus>x",
    f"<meta http-equiv=refresh content=0;javascript:{MARK}>",
    "<base href=https://example.invalid/>",
    f"<template><script>{MARK}</script></template>",
    f"javascript:{MARK}",
    f"{{{{constructor.constructor('{MARK}')()}}}}",
    f"${{{MARK}}}",
    f"';{MARK};//",
    f"`;{MARK};//",
    "__proto__",
]
AROUND = ["{}", "\"'>{}", "</textarea>{}", "--><!--{}", "</script>{}", "<![CDATA[{}]]>", "\u202e{}", "{}\x00\ufeff<!--"]
PAYLOADS = [around.replace("{}", markup) for around, markup in itertools.product(AROUND, MARKUP)]
assert len(set(PAYLOADS)) == 200

TAGS = "() => [...new Set([...document.querySelectorAll('*')].map(each => each.localName))].sort()"
USUAL = (
    "html head meta title link script body header main footer section div dialog h1 h2 h3 p ul li span b small bdi mark a img "
    "svg path noscript form label input select option textarea button progress"
)
"""The elements that the page itself makes."""


def assert_harmless(tab):
    assert tab.evaluate("window.ran") is None
    assert set(tab.evaluate(TAGS)) <= set(USUAL.split())
    assert tab.evaluate("document.scripts.length") == 1
    assert (
        tab.evaluate("[...document.querySelectorAll('*')].filter(e => e.getAttributeNames().some(n => n.startsWith('on'))).length")
        == 0
    )
    assert tab.evaluate("document.baseURI") == tab.url


def test_the_check_itself_notices_markup(open_page, address):
    """What the policy refuses is reported by the console, and an element that is not the page's is seen."""
    said = []
    tab = open_page(address, says=" ")
    tab.on("console", lambda message: said.append(message.text))
    tab.evaluate(
        "(text) => { document.getElementById('main').innerHTML += text }",
        "<svg><video></video></svg><img src=x onerror=window.ran=1>",
    )
    tab.wait_for_timeout(200)
    assert any("Content Security Policy" in text for text in said)
    with pytest.raises(AssertionError):
        assert_harmless(tab)


def test_script_in_texts(open_page, address):
    """Through the real server and back, and through the history."""
    tab = open_page(address)
    tab.select_option("#source-language", "en")
    for start in range(0, len(PAYLOADS), 25):
        text = "\n".join(re.sub(r"[\x00\r\n]", "", each) for each in PAYLOADS[start : start + 25])
        tab.fill("#text", text)
        wait_until(tab, "!document.getElementById('output').classList.contains('is-old')")
        assert_harmless(tab)
        tab.locator("#output .word").first.click()
        # What was only copied was read from no word.
        tab.wait_for_selector(".word-card .read > *, .word-card [role=alert]", state="attached")
        assert_harmless(tab)
    tab.wait_for_selector("#history li")
    tab.reload()
    tab.wait_for_selector("#history li")
    assert_harmless(tab)


def test_script_in_file_names(open_page, address):
    tab = open_page(address)
    files = [
        {"name": f"{each.replace('/', '∕')}.txt", "mimeType": "text/plain", "buffer": b"The dog sees the house today.\n"}
        for each in PAYLOADS
    ]
    for start in range(0, len(files), 50):
        tab.set_input_files("#file", files[start : start + 50])
    wait_until(tab, "document.querySelectorAll('.jobs .ready, .jobs .failed').length === 200", seconds=120)
    assert_harmless(tab)
    assert tab.locator(".jobs .ready").count() > 190
    names = set(tab.locator(".jobs .file-name").all_text_contents())
    assert sum(file["name"] in names for file in files) > 150


def hostile_answers(payloads):
    """Every text of every answer is one of the payloads: names of languages and models, translations, words, remarks."""
    verdict = {"name": "low-confidence", "reason": payloads[0], "is_sound": False}
    text = "\n".join(payloads)
    ends = list(itertools.accumulate(len(each) + 1 for each in payloads))
    segments = [
        {"source": [0, 1], "target": [end - len(each) - 1, end - 1], "score": 0.0, "verdict": verdict}
        for each, end in zip(payloads, ends, strict=True)
    ]
    others = [{"text": f"{each} other", "score": 0.0} for each in payloads]
    translation = {"text": text, "score": 0.0, "verdict": verdict, "alternatives": others, "segments": segments, "alignments": None}
    token = {"id": 1, "piece": payloads[0], "word": 0, "probability": 0.5, "rank": 1, "candidates": []}
    choices = [
        {"id": 1, "piece": each, "probability": 0.5, "word": each, "translation": f"{each} chosen", "score": 0, "prefix": [1]}
        for each in payloads
    ]
    settings = {"charLimit": 5000, "alternativesLimit": 5, "frontendTimeout": 0, "keyRequired": False, "filesTranslation": True}
    settings["language"] = {side: {"code": payloads[0], "name": payloads[0]} for side in ("source", "target")}
    detected = {"language": payloads[0], "confidence": 1}
    link = f"https://example.invalid/download_file/1/{payloads[0]}"
    return {
        "languages": [{"code": each, "name": each, "targets": [*payloads, "en"]} for each in (*payloads, "en")],
        "ready": {"status": "ready", "models": payloads},
        "frontend/settings": settings | {"supportedFilesFormat": payloads},
        "v1/translate": {"source": "en", "target": "de", "via": payloads[0], "detected": detected, "translations": [translation]},
        "v1/look": {
            "pieces": payloads, "text": payloads[0], "translation": payloads[0], "tokens": [token], "steps": [token],
            "attention": [[1.0]], "words": {"source": [[0, 1]], "target": [[0, 1]]},
            "heads": None, "choices": choices, "remark": payloads[0],
        },
        "translate_file": {"translatedFileUrl": link, "translated": 1, "left": 0, "remarks": payloads},
    }  # fmt: skip


def test_script_in_names_of_models_and_in_every_answer(open_page, address):
    """A server that somebody else runs, or a model that writes whatever it likes."""
    current = {}

    def answer(route):
        path = route.request.url.removeprefix(address)
        if path in current:
            route.fulfill(status=200, body=json.dumps(current[path]), content_type="application/json")
        elif path.startswith("download_file/"):
            route.fulfill(status=200, body="<script>window.ran=1</script>", content_type="text/html")
        else:
            route.continue_()

    tab = open_page(address)
    tab.route("**/*", answer)
    for start in range(0, len(PAYLOADS), 10):
        payloads = PAYLOADS[start : start + 10]
        current.update(hostile_answers(payloads))
        tab.goto(address)
        tab.fill("#text", "x")
        tab.wait_for_selector("#output .word")
        assert tab.text_content("#output .rows") == "\n".join(payloads)
        assert all(each in tab.text_content("#models") for each in payloads)
        tab.locator("#output .word").first.click()
        tab.wait_for_selector(".sentences li")
        assert_harmless(tab)
        tab.locator(".sentences button").first.click()
        tab.set_input_files("#file", [{"name": "a.txt", "mimeType": "text/plain", "buffer": b"x"}])
        tab.wait_for_selector(".jobs .ready")
        assert tab.get_attribute(".jobs a", "href").startswith("blob:")
        assert_harmless(tab)


def test_script_in_errors(open_page, address):
    tab = open_page(address, says="400")
    current = {}
    tab.route("**/v1/translate", lambda route: route.fulfill(status=400, body=json.dumps(current), content_type="application/json"))
    for start in range(0, len(PAYLOADS), 10):
        current["error"] = " ".join(PAYLOADS[start : start + 10])
        tab.fill("#text", f"x{start}")
        wait_until(tab, "(wanted) => document.getElementById('problem').textContent === wanted", current["error"])
    assert_harmless(tab)
