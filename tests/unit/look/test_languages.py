"""The interface of the pages in Korean: every text has one, none is left over, and both have the same blanks."""

import re

from undivided.look.html import PAGE
from undivided.look.result import FATES, USES

TEXT = r'"((?:[^"\\]|\\.)*)"'
DIRECT = re.compile(rf"\bsay(?:Parts)?\(\s*(?:[^()\"]*(?:\"\w+\"[^()\"]*)?\? )?{TEXT}(?: : {TEXT})?")
LISTED = re.compile(
    r"COLUMN_TITLES = \{.*?\};|const NAMES = \{.*?\};|const (?:\w+_)?VIEWS = \[.*?\];|const SECTIONS = \[.*?\];"
    r"|const entries = \[.*?\];|\[\"#\".*?\]",
    re.DOTALL,
)
NOT_TEXTS = re.compile(r"^(?:best|continued|fell-out|ended|overtaken|×|✓|■|…|)$")


def table() -> dict[str, str]:
    text = "".join((PAGE / name).read_text(encoding="utf-8") for name in ("korean.js", "live/hangul.js"))
    return dict(re.findall(rf"^  {TEXT}: {TEXT},$", text, flags=re.MULTILINE))


def texts() -> set[str]:
    """Every text that a page may show: said where it is written, listed to be said, or given by Python."""
    found = {*FATES.values(), *USES.values()}
    for part in [*PAGE.glob("*.js"), *(PAGE / "live").glob("*.js"), *(PAGE / "training").glob("*.js")]:
        code = part.read_text(encoding="utf-8")
        found |= {text for match in DIRECT.finditer(code) for text in match.groups() if text}
        for block in LISTED.findall(code):
            found |= {text for text in re.findall(TEXT, block) if not NOT_TEXTS.match(text)}
    remark = "This model has encoder-decoder attention only: {} layers take the place of a Transformer's self-attention."
    found |= {remark.format(kind) for kind in ("recurrent", "convolutional")}
    found |= {"This model has no attention: its decoder knows the source only by the encoder's final state.", "source", "target"}
    return found


def test_every_text_is_there_in_korean_and_none_is_left_over():
    assert texts() - table().keys() == set()
    assert table().keys() - texts() == set()
    assert len(table()) > 150


def test_blanks_are_the_same_and_the_korean_is_korean():
    for english, korean in table().items():
        assert sorted(re.findall(r"\{\w+\}", english)) == sorted(re.findall(r"\{\w+\}", korean)), english
        assert korean == "#" or re.search(r"[가-힣]", korean), english
