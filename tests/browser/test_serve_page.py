"""The page of `undivided serve` in a real browser, with a real server behind it."""

import json
import re
from pathlib import Path

import pytest
from waiting import wait_until

from samples import sentences
from undivided import Translator

SENTENCES = [source for source, _ in sentences(12, seed=9)]
PAGE = Path(__file__).parents[2] / "src" / "undivided" / "serve" / "page"


def type_text(tab, text, translation=None):
    """Write a text and wait for its translation."""
    tab.fill("#text", text)
    wait_until(tab, "document.getElementById('output').classList.contains('is-old') === false")
    tab.wait_for_selector("#output .word")
    if translation is not None:
        assert shown(tab) == translation


def shown(tab):
    return tab.text_content("#output .rows")


def choose_language(tab, source, target):
    tab.select_option("#source-language", source)
    tab.select_option("#target-language", target)


def select_word(tab, number):
    """Select a word of the translation; the other words that are offered, as texts."""
    tab.locator("#output .word").nth(number).click()
    tab.wait_for_selector(".read .sources li")
    wait_until(tab, "!document.querySelector('.choices .loading')")
    return tab.locator(".choices li b").all_text_contents()


# Writing.


def test_what_is_typed_is_translated(open_page, address, translator):
    tab = open_page(address)
    choose_language(tab, "en", "de")
    tab.locator("#text").press_sequentially(SENTENCES[0], delay=5)
    tab.wait_for_selector("#output .word")
    wait_until(
        tab, "(wanted) => document.querySelector('#output .rows')?.textContent === wanted", translator.translate(SENTENCES[0])
    )
    assert tab.text_content("#heard") == shown(tab)
    assert tab.text_content("#count") == f"{len(SENTENCES[0])} / 5,000"


def test_lines_stay_lines(open_page, address, translator):
    tab = open_page(address)
    choose_language(tab, "en", "de")
    text = f"{SENTENCES[1]}\n\n  {SENTENCES[2]}\n"
    type_text(tab, text)
    lines = shown(tab).split("\n")
    assert [line.strip() for line in lines] == [*(translator.translate(each) for each in (SENTENCES[1], "", SENTENCES[2])), ""]


def test_only_the_last_text_counts(open_page, address, translator):
    """What was asked for before is cancelled: an answer that comes late changes nothing."""
    slow = {"first": True}

    def delay(route):
        if slow.pop("first", False):
            tab.wait_for_timeout(700)
        route.continue_()

    tab = open_page(address)
    choose_language(tab, "en", "de")
    tab.route("**/v1/translate", delay)
    tab.fill("#text", SENTENCES[3])
    tab.wait_for_timeout(120)
    type_text(tab, SENTENCES[4], translator.translate(SENTENCES[4]))
    tab.wait_for_timeout(900)
    assert shown(tab) == translator.translate(SENTENCES[4])


def test_an_empty_text_has_no_translation(open_page, address):
    tab = open_page(address)
    type_text(tab, SENTENCES[0])
    tab.click("#clear")
    tab.wait_for_selector("#output .nothing")
    assert tab.evaluate("document.activeElement.id") == "text"
    assert tab.locator("#copy").is_hidden()


def test_the_language_is_detected_and_swapped(open_page, address):
    tab = open_page(address)
    tab.select_option("#target-language", "de")
    type_text(tab, "The old horse likes the garden at night.")
    assert tab.locator("#source-language option:checked").text_content() == "English (detected)"
    before = shown(tab)
    tab.click("#swap")
    assert tab.input_value("#text") == before
    assert [tab.input_value(f"#{side}-language") for side in ("source", "target")] == ["de", "en"]
    wait_until(tab, "document.getElementById('output').classList.contains('is-old') === false")


def test_a_language_in_the_middle_is_said(open_page, address):
    """Whose words the last model was given nobody sees: they cannot be selected."""
    tab = open_page(address)
    choose_language(tab, "en", "fr")
    tab.fill("#text", SENTENCES[0])
    tab.wait_for_selector("#output .segment")
    assert tab.text_content("#model") == "through German"
    assert len(shown(tab)) > 5
    assert tab.locator("#output .word").count() == 0


def test_the_translation_is_copied(open_page, address):
    tab = open_page(address)
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    type_text(tab, SENTENCES[0])
    tab.click("#copy")
    wait_until(tab, "document.getElementById('copy').textContent === 'Copied'")
    assert tab.evaluate("navigator.clipboard.readText()") == shown(tab)


# Words.


def test_another_word_is_chosen_and_it_goes_on_from_there(open_page, address, translator):
    tab = open_page(address)
    choose_language(tab, "en", "de")
    type_text(tab, SENTENCES[0])
    before = shown(tab).split(" ")
    others = select_word(tab, 3)
    assert others
    assert before[3] not in others
    for word, rest in zip(others, tab.locator(".choices .rest").all_text_contents(), strict=True):
        assert rest.startswith(f"… {word}")
    tab.locator(".choices button").first.click()
    assert shown(tab) == next(translator.stream([SENTENCES[0]], prefixes=[" ".join([*before[:3], others[0]])])).text
    assert tab.evaluate("document.activeElement.textContent") == others[0]
    assert others[0] in tab.text_content("#heard")
    tab.get_by_role("button", name="Undo").click()
    assert shown(tab) == " ".join(before)


def test_a_chosen_translation_can_be_chosen_from_again(open_page, address):
    """The look is at what stands there, not at what the model would have written by itself."""
    tab = open_page(address)
    choose_language(tab, "en", "de")
    type_text(tab, SENTENCES[0])
    select_word(tab, 3)
    tab.locator(".choices button").first.click()
    second = shown(tab)
    others = select_word(tab, 4)
    tab.locator(".choices button").first.click()
    assert shown(tab).split(" ")[:5] == [*second.split(" ")[:4], others[0]]


def test_ones_own_words_are_gone_on_from(open_page, address, translator):
    tab = open_page(address)
    choose_language(tab, "en", "de")
    type_text(tab, SENTENCES[0])
    first = shown(tab).split(" ")[0]
    select_word(tab, 1)
    tab.fill(".own input", "Vogel")
    tab.press(".own input", "Enter")
    wait_until(tab, "document.querySelector('#output .rows').textContent.includes('Vogel')")
    assert shown(tab).startswith(f"{first} Vogel")
    assert shown(tab) == next(translator.stream([SENTENCES[0]], prefixes=[f"{first} Vogel"])).text


def test_another_sentence_is_chosen(open_page, address, translator):
    tab = open_page(address)
    choose_language(tab, "en", "de")
    type_text(tab, SENTENCES[5])
    offered = tab.locator(".sentences li").all_text_contents()
    assert offered == [each for each in translator.translate(SENTENCES[5], n_best=4) if each != shown(tab)]
    tab.locator(".sentences button").nth(1).click()
    assert shown(tab) == offered[1]


def test_attention_of_a_word_is_shown(open_page, address, model):
    """The shares of source words are those of the look: the last layer, all heads."""
    from undivided.look import look

    tab = open_page(address)
    choose_language(tab, "en", "de")
    type_text(tab, SENTENCES[0])
    seen = look(Translator(model, threads=1, engine="torch"), SENTENCES[0])
    assert seen.translation == shown(tab)
    for number in range(len(seen.translation.split(" "))):
        select_word(tab, number)
        rows = [at for at, step in enumerate(seen.steps) if step.written.word == number]
        weights = seen.cross[-1].mean(axis=0)[rows].mean(axis=0)
        wanted: dict[str, float] = {}
        for token, weight in zip(seen.source, weights, strict=True):
            name = SENTENCES[0].split(" ")[token.word] if token.word >= 0 else "end of the sentence"
            wanted[name] = wanted.get(name, 0.0) + float(weight)
        best = max(wanted, key=wanted.__getitem__)
        first = tab.locator(".sources li").first
        assert first.locator("bdi").text_content() == best
        assert int(re.sub(r"\D.*", "", first.locator("small").text_content())) == pytest.approx(100 * wanted[best], abs=1.5)
        marked = tab.locator("#behind mark").all_text_contents()
        assert set(marked) <= set(SENTENCES[0].split(" "))
        assert best == "end of the sentence" or best in marked


def test_marks_stand_behind_their_words(open_page, address):
    tab = open_page(address)
    choose_language(tab, "en", "de")
    type_text(tab, SENTENCES[0])
    select_word(tab, 0)
    same = tab.evaluate(
        """() => { const style = (id) => { const s = getComputedStyle(document.getElementById(id));
            return [s.font, s.padding, s.lineHeight, s.whiteSpace, s.letterSpacing, s.wordBreak, s.overflowWrap].join(); };
            const box = (id) => { const b = document.getElementById(id).getBoundingClientRect();
                return [b.x, b.y, b.width].join(); };
            return [style("behind") === style("text"), box("behind") === box("text")]; }"""
    )
    assert same == [True, True]


def test_the_inside_of_the_model_opens(open_page, address):
    tab = open_page(address)
    choose_language(tab, "en", "de")
    type_text(tab, SENTENCES[0])
    select_word(tab, 0)
    tab.get_by_role("button", name="Look inside the model").click()
    tab.wait_for_selector("#inside .attention .heat canvas")
    assert tab.locator("#inside .multiples button").count() == 2
    tab.keyboard.press("Escape")
    assert not tab.evaluate("document.getElementById('inside').open")


def test_by_keyboard_alone(open_page, address):
    tab = open_page(address)
    choose_language(tab, "en", "de")
    type_text(tab, SENTENCES[0])
    focused = "document.activeElement.textContent"
    words = tab.locator("#output .word").all_text_contents()
    tab.focus("#clear")
    tab.keyboard.press("Tab")
    assert tab.evaluate(focused) == words[0]
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("ArrowRight")
    assert tab.evaluate(focused) == words[2]
    tab.keyboard.press("End")
    assert tab.evaluate(focused) == words[-1]
    tab.keyboard.press("Home")
    tab.keyboard.press("Enter")
    tab.wait_for_selector(".sources li")
    assert tab.get_attribute("#output .word", "aria-expanded") == "true"
    tab.keyboard.press("Escape")
    assert tab.get_attribute("#output .word", "aria-expanded") == "false"
    assert tab.locator(".word-card").count() == 0


# Verdicts, limits, keys.


def test_a_doubtful_translation_is_marked(open_page, address):
    tab = open_page(address)
    choose_language(tab, "en", "de")
    type_text(tab, f"{SENTENCES[0]}\nПривет, как твои дела сегодня?")
    assert tab.locator(".segment.check").count() == 1
    note = tab.locator(".note-check")
    assert "letters that the model has never seen" in note.text_content()
    assert tab.get_attribute(".segment.check", "aria-describedby") == note.get_attribute("id")
    tab.get_by_role("button", name="한국어").click()
    assert "학습하지 않은 문자" in tab.text_content(".note-check")


def test_a_text_that_is_too_long_is_not_sent(open_page, address):
    tab = open_page(address)
    asked = []
    tab.on("request", lambda request: asked.append(request.url))
    tab.fill("#text", "word " * 1001)
    tab.wait_for_selector("#problem:not(:empty)")
    assert "5,005 characters; this server takes at most 5,000" in tab.text_content("#problem")
    place = tab.evaluate("(({ top, bottom }) => [top, bottom])(document.getElementById('problem').getBoundingClientRect())")
    assert 0 < place[0] < place[1] <= tab.evaluate("innerHeight")
    assert tab.locator("#count.is-over").count() == 1
    tab.wait_for_timeout(200)
    assert not asked
    type_text(tab, SENTENCES[0])
    assert tab.text_content("#problem") == ""


def test_it_waits_as_long_as_the_server_says(open_page, address, translator):
    refused = []

    def refuse(route):
        if len(refused) < 2:
            refused.append(route)
            route.fulfill(
                status=429, headers={"Retry-After": "1"}, body=json.dumps({"error": "Slowdown"}), content_type="application/json"
            )
        else:
            route.continue_()

    tab = open_page(address, says="429")
    choose_language(tab, "en", "de")
    tab.route("**/v1/translate", refuse)
    tab.fill("#text", SENTENCES[6])
    wait_until(tab, "document.getElementById('problem').textContent.includes('tried again in 1 s')")
    tab.wait_for_selector("#output .word", timeout=8000)
    assert shown(tab) == translator.translate(SENTENCES[6])
    assert len(refused) == 2
    assert tab.text_content("#problem") == ""


def test_a_server_that_is_gone_is_said(open_page, address):
    tab = open_page(address, says="ERR_FAILED")
    tab.route("**/v1/translate", lambda route: route.abort())
    tab.fill("#text", SENTENCES[0])
    wait_until(tab, "document.getElementById('problem').textContent.includes('does not answer')")


def test_an_api_key_is_asked_for_and_its_limit_is_said(open_page, serve, tmp_path, run):
    keys = tmp_path / "keys.txt"
    key = run("serve", "--new-key", "me", "--api-keys-db-path", keys).out.strip()
    limits = ["--api-keys", "--api-keys-db-path", str(keys), "--req-limit", "3", "--alternatives-limit", "0"]
    limits += ["--url-prefix", "/mt"]
    tab = open_page(serve("--frontend-timeout", "0", *limits), says="Failed to load resource")
    tab.goto(tab.url.removesuffix("/"))
    assert tab.url.endswith("/mt/")
    tab.fill("#text", SENTENCES[0])
    tab.wait_for_selector("#problem:not(:empty)")
    assert tab.text_content("#problem") == "This server needs an API key."
    tab.fill("#api-key", key)
    tab.press("#api-key", "Enter")
    tab.wait_for_selector("#output .word")
    assert tab.text_content("#problem") == ""
    for text in SENTENCES[1:5]:
        tab.fill("#text", text)
        tab.wait_for_selector("#output:not(.is-old), #problem:not(:empty)")
    wait_until(tab, "/too many requests/i.test(document.getElementById('problem').textContent)")
    tab.get_by_role("button", name="한국어").click()
    assert "요청이 너무 많습니다" in tab.text_content("#problem")


# Documents.

CATALOGUE = """msgid ""
msgstr ""
"Language: de\\n"
"Content-Type: text/plain; charset=UTF-8\\n"

msgid "The dog sees the house today."
msgstr ""

msgid "A cat likes the river again."
msgstr "schon da"
"""


def drop(tab, name, text):
    """Drop a file on the page, as from a desktop."""
    files = tab.evaluate_handle(
        """([name, text]) => { const all = new DataTransfer(); all.items.add(new File([text], name)); return all; }""", [name, text]
    )
    for event in ("dragover", "drop"):
        tab.dispatch_event(".zone", event, {"dataTransfer": files})


def test_a_document_comes_back_translated(open_page, address, translator):
    tab = open_page(address)
    choose_language(tab, "en", "de")
    drop(tab, "messages.po", CATALOGUE)
    tab.wait_for_selector(".jobs .ready")
    assert tab.text_content(".jobs .ready") == "Ready: 1 translated, 1 left as they were"
    with tab.expect_download() as download:
        tab.click(".jobs a")
    assert download.value.suggested_filename == "messages.de.po"
    text = Path(download.value.path()).read_text(encoding="utf-8")
    assert f'msgstr "{translator.translate("The dog sees the house today.")}"' in text
    assert 'msgstr "schon da"' in text
    tab.get_by_role("button", name="Remove messages.po from the list").click()
    assert tab.locator(".jobs li").count() == 0


def test_a_document_that_is_refused_says_why(open_page, address):
    tab = open_page(address, says="400")
    drop(tab, "picture.xyz", "nothing")
    tab.wait_for_selector(".jobs .failed")
    assert len(tab.text_content(".jobs .failed")) > 15


# What stays in the browser.


def test_the_history_stays_in_the_browser_until_it_is_cleared(open_page, address):
    tab = open_page(address)
    choose_language(tab, "en", "de")
    type_text(tab, SENTENCES[7])
    translation = shown(tab)
    tab.wait_for_selector("#history li")
    tab.reload()
    tab.wait_for_selector("#history li")
    assert tab.locator("#history li bdi").all_text_contents() == [SENTENCES[7], translation]
    tab.click("#history li button")
    tab.wait_for_selector("#output .word")
    assert shown(tab) == translation
    assert [tab.input_value(f"#{side}-language") for side in ("source", "target")] == ["en", "de"]
    tab.get_by_role("button", name="Clear the history").click()
    assert tab.locator("#history li").count() == 0
    assert tab.evaluate("localStorage.getItem('undivided.history')") is None


@pytest.mark.parametrize("rubbish", ["{", "[1, null, {}]", '"x"'])
def test_a_broken_history_breaks_nothing(open_page, address, rubbish):
    tab = open_page(address)
    for name in ("history", "languages", "tongue", "theme", "key"):
        tab.evaluate("([name, text]) => localStorage.setItem(`undivided.${name}`, text)", [name, rubbish])
    tab.reload()
    type_text(tab, SENTENCES[0])


def test_colours_and_language_are_kept(open_page, address):
    tab = open_page(address)
    ground = "getComputedStyle(document.body).backgroundColor"
    light = tab.evaluate(ground)
    tab.click("#theme")
    assert tab.evaluate(ground) != light
    tab.get_by_role("button", name="한국어").click()
    assert tab.get_attribute("html", "lang") == "ko"
    tab.reload()
    tab.wait_for_selector("#theme svg")
    assert tab.evaluate(ground) != light
    assert tab.get_attribute("#text", "placeholder") == "텍스트를 입력하거나 붙여 넣으세요"


def test_both_languages_say_the_same_things():
    text = (PAGE / "texts.js").read_text(encoding="utf-8")
    english, korean = (re.search(rf"const {name} = \{{(.*?)\n\}};", text, re.S)[1] for name in ("ENGLISH", "KOREAN"))
    keys = [re.findall(r'^ +"?([\w-]+)"?:', each, re.M) for each in (english, korean)]
    assert keys[0] == keys[1]
    values = [dict(re.findall(r'^ +"?([\w-]+)"?: "(.*)",$', each, re.M)) for each in (english, korean)]
    for key, said in values[0].items():
        assert set(re.findall(r"\{\w+\}", said)) == set(re.findall(r"\{\w+\}", values[1][key])), key
    used = "".join(path.read_text(encoding="utf-8") for path in PAGE.iterdir() if path.suffix in (".js", ".html"))
    assert [
        key for key in values[0] if "-" not in key and key not in ("copied", "looped", "truncated") and f'"{key}"' not in used
    ] == []
