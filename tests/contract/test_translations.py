"""English and Korean texts are kept up to date: README, and every page of docs/faq."""

import importlib.util
import shutil
from pathlib import Path

import pytest

from undivided.paper.faq import pages

ROOT = Path(__file__).parents[2]
FAQ = ROOT / "docs" / "faq"
PAGES = sorted(path for path in FAQ.glob("*.md") if not path.name.endswith(".ko.md"))


def loaded():
    spec = importlib.util.spec_from_file_location("translations", ROOT / "tools" / "translations.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tool = loaded()


@pytest.mark.parametrize(("english", "korean"), tool.pairs(), ids=lambda path: path.name)
def test_korean_is_in_step(english, korean):
    assert tool.faults(english, korean) == []


@pytest.mark.parametrize("english", PAGES, ids=lambda path: path.name)
def test_every_page_has_a_korean_twin_with_the_same_numbers_pictures_and_code(english):
    korean = english.with_suffix(".ko.md").read_text(encoding="utf-8")
    assert list(tool.differences(english.read_text(encoding="utf-8"), korean)) == []
    assert sum("가" <= letter <= "힣" for letter in korean) > 100


def test_no_korean_page_is_left_alone():
    twins = {path.name.removesuffix(".md") for path in PAGES}
    assert {path.name.removesuffix(".ko.md") for path in FAQ.glob("*.ko.md")} == twins
    assert len(twins) == 27


def test_the_korean_readme_is_one_screen_too():
    assert len((ROOT / "README.ko.md").read_text(encoding="utf-8").splitlines()) <= 122


def test_pages_and_tool_know_the_same_mark():
    assert pages.DIGESTS == tool.MARK


ENGLISH = """# Title

Some 12 words with `code` and a [link](docs/a.md).

## Part

```sh
run --it
```

| name | what |
|---|---|
| `one` | first |

![picture](a.png)
"""
KOREAN = """# 제목

`code`와 [링크](docs/a.md)가 있는 단어 12개.

## 부분

```sh
run --it
```

| 이름 | 뜻 |
|---|---|
| `one` | 첫째 |

![그림](a.png)
"""
CHANGES = [
    ("## Part", "### Part", "headings"),
    ("run --it", "run --that", "code blocks"),
    ("`code`", "`other`", "code differ"),
    ("12", "13", "numbers"),
    ("| `one` |", "| `two` |", "first columns"),
    ("| first |", "| first | more |", "widths"),
    ("docs/a.md", "docs/b.md", "links"),
    ("a.png", "b.png", "links"),
    ("Some", "Many", "'# Title' has changed"),
    ("first", "last", "'## Part' has changed"),
    ("## Part", "## Section", "'## Section' has changed"),
]


@pytest.fixture
def pair(tmp_path, monkeypatch):
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    english, korean = tmp_path / "a.md", tmp_path / "a.ko.md"
    english.write_text(ENGLISH, encoding="utf-8")
    korean.write_text(KOREAN, encoding="utf-8")
    tool.record_digests(english, korean)
    return english, korean


def test_a_pair_in_step(pair):
    assert tool.faults(*pair) == []


@pytest.mark.parametrize(("before", "after", "said"), CHANGES, ids=[f"{b} to {a}" for b, a, _ in CHANGES])
def test_english_that_changes_alone_is_found(pair, before, after, said):
    pair[0].write_text(ENGLISH.replace(before, after), encoding="utf-8")
    faults = tool.faults(*pair)
    assert any(said in fault for fault in faults), faults
    assert all("python tools/translations.py --done a.md" in fault for fault in faults)


@pytest.mark.parametrize(("before", "after", "said"), [each for each in CHANGES[:8] if each[0] in KOREAN])
def test_korean_that_changes_alone_is_found(pair, before, after, said):
    pair[1].write_text(pair[1].read_text(encoding="utf-8").replace(before, after), encoding="utf-8")
    assert any(said in fault for fault in tool.faults(*pair))


def test_a_section_that_goes_and_a_twin_that_is_missing(pair):
    pair[0].write_text(ENGLISH.partition("## Part")[0], encoding="utf-8")
    assert any("an English section was removed" in fault for fault in tool.faults(*pair))
    pair[1].unlink()
    assert "missing" in tool.faults(*pair)[0]


def test_a_number_of_a_page_that_changes_alone_is_found(tmp_path):
    english, korean = (tmp_path / name for name in ("sqrt-dk.md", "sqrt-dk.ko.md"))
    for path in (english, korean):
        shutil.copy(FAQ / path.name, path)
    text = english.read_text(encoding="utf-8").replace("1024", "1025", 1)
    assert any("numbers" in each for each in tool.differences(text, korean.read_text(encoding="utf-8")))


DISALLOWED = {
    "학습": ("훈련", "가르치"), "하위 명령": ("서브커맨드", "부명령", "하위명령", "동사"),
    "구문 트리": ("구문트리", "파스 트리", "파싱 트리"),
    "퍼플렉서티": ("혼란도", "당혹도", "혼잡도", "복잡도 지표"), "서브워드": ("부분 단어", "하위 단어", "부분어", "서브 워드"),
    "레이어": ("계층", "은닉층", "인코더 층", "디코더 층"),
}  # fmt: skip
"""The word that Korean engineers use, and others for the same thing: one word for each thing."""


@pytest.mark.parametrize("path", [ROOT / "README.ko.md", *sorted(FAQ.glob("*.ko.md"))], ids=lambda path: path.name)
def test_korean_has_one_word_for_each_thing(path):
    text = path.read_text(encoding="utf-8")
    found = {other: word for word, others in DISALLOWED.items() for other in others if other in text}
    assert not found, f"{path}: say the second of each: {found}"
