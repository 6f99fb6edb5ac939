"""Existing clients, unchanged, against the server."""

import asyncio
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from samples import sentences

SENTENCES = [source for source, _ in sentences(4, seed=7)]


@pytest.fixture(scope="module")
def expected(server):
    return [server.translate(text)["translatedText"] for text in SENTENCES]


def test_libretranslatepy(server, expected):
    from libretranslatepy import LibreTranslateAPI

    api = LibreTranslateAPI(server.url + "/")
    assert [api.translate(text, "en", "de") for text in SENTENCES] == expected
    assert api.detect(SENTENCES[0])[0]["language"] == "en"
    assert [each["code"] for each in api.languages()] == ["en", "de", "fr"]


def test_deep_translator_libre(server, expected):
    from deep_translator import LibreTranslator

    client = LibreTranslator(source="en", target="de", custom_url=server.url + "/", api_key="x")
    assert client.translate(SENTENCES[0]) == expected[0]
    assert client.translate_batch(SENTENCES) == expected


def test_deep_translator_deepl(server, expected, monkeypatch):
    from deep_translator import DeeplTranslator
    from deep_translator.constants import BASE_URLS

    monkeypatch.setitem(BASE_URLS, "DEEPL_FREE", server.url + "/{version}/")  # It has no parameter for the address.
    client = DeeplTranslator(source="en", target="de", api_key="x")
    assert client.translate_batch(SENTENCES) == expected


def test_libretranslate_aio(server, expected, tmp_path):
    from libretranslate_aio import AsyncLibreTranslate

    (tmp_path / "a.txt").write_text(SENTENCES[0] + "\n")

    async def talk():
        async with AsyncLibreTranslate(server.url) as client:
            assert await client.health()
            found = await asyncio.gather(*(client.translate(text, "en", "de") for text in SENTENCES))
            assert [each.translated_text for each in found] == expected
            assert (await client.translate(SENTENCES[0], "auto", "de", alternatives=2)).detected_language.language == "en"
            assert (await client.detect(SENTENCES[0]))[0].language == "en"
            assert {each.code for each in await client.languages()} == {"en", "de", "fr"}
            assert (await client.frontend_settings()).char_limit == 5000
            assert await client.suggest("A dog", "Ein Hund", "en", "de")
            return (await client.translate_file(tmp_path / "a.txt", "en", "de")).translated_file_url

    url = asyncio.run(talk())
    assert server.get(url.removeprefix(server.url)).text == expected[0] + "\n"


def test_deepl(server, expected):
    import deepl

    client = deepl.Translator("key", server_url=server.url)
    found = client.translate_text(SENTENCES, source_lang="EN", target_lang="DE")
    assert [each.text for each in found] == expected
    assert found[0].detected_source_lang == "EN"
    marked = client.translate_text(f"<b>{SENTENCES[0]}</b>", target_lang="DE", tag_handling="xml")
    assert marked.text == f"<b>{expected[0]}</b>"
    assert {each.code for each in client.get_source_languages()} == {"EN", "DE"}
    assert {each.code for each in client.get_target_languages()} == {"DE", "FR"}
    assert client.get_usage().character.count >= sum(map(len, SENTENCES))
    with pytest.raises(deepl.DeepLException, match="formality"):
        client.translate_text("A dog.", target_lang="DE", formality="more")
    with pytest.raises(deepl.DeepLException, match="not supported"):
        client.translate_text("A dog.", target_lang="JA")


def test_translate_of_npm(server, expected, tmp_path_factory):
    home = Path(__file__).parents[3] / ".venv" / "npm"
    if not (home / "node_modules" / "translate").is_dir():
        if shutil.which("npm") is None:
            pytest.skip("npm is not installed")
        home.mkdir(parents=True, exist_ok=True)
        got = subprocess.run(["npm", "install", "--silent", "--prefix", home, "translate@3.1.0"], capture_output=True, check=False)
        if got.returncode:
            pytest.skip("npm cannot install the package `translate`")
    code = f"""import {{ Translate }} from "translate";
    const translate = new Translate({{ engine: "libre", url: "{server.url}/translate", from: "en", to: "de" }});
    console.log(JSON.stringify(await Promise.all({json.dumps(SENTENCES)}.map(text => translate(text)))));"""
    script = home / "run.mjs"
    script.write_text(code)
    got = subprocess.run(["node", script], capture_output=True, text=True, check=False)
    assert got.returncode == 0, got.stderr
    assert json.loads(got.stdout) == expected


def test_openai_chat(server, expected):
    assert {"undivided:en-de", "undivided:en-fr"} <= {each["id"] for each in server.get("/v1/models").json()["data"]}
    messages = [
        {"role": "system", "content": "Translate."},
        {"role": "user", "content": "x"},
        {"role": "user", "content": SENTENCES[0]},
    ]
    got = server.post("/v1/chat/completions", json={"model": "undivided:en-de", "messages": messages}).json()
    assert got["choices"][0]["message"] == {"role": "assistant", "content": expected[0]}
    parts = [{"role": "user", "content": [{"type": "text", "text": SENTENCES[0]}]}]
    got = server.post("/v1/chat/completions", json={"model": "undivided:auto-de", "messages": parts, "stream": True})
    assert got.headers["content-type"].startswith("text/event-stream")
    lines = [line.removeprefix("data: ") for line in got.text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    assert json.loads(lines[0])["choices"][0]["delta"]["content"] == expected[0]
    for wrong in (
        {"model": "gpt", "messages": parts},
        {"model": "gpt-4", "messages": parts},
        {"model": "undivided:en-de", "messages": []},
        {"model": "undivided:en-zz", "messages": parts},
    ):
        got = server.post("/v1/chat/completions", json=wrong)
        assert got.status_code == 400
        message = got.json()["error"]["message"]
        assert message == "model must name two languages, such as undivided:en-de" if "gpt" in wrong["model"] else message
