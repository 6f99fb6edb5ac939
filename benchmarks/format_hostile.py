"""Files that mean harm, and files that are large: what `benchmarks/formats.py` shows beside catalogues and random harm."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from format_fuzz import OPTIONS, seeds

from undivided.core.errors import InputError
from undivided.formats import open_document

XML = ("xliff", "ts", "android", "tmx")
ZIPS = ("docx", "pptx", "xlsx", "odt", "odp", "epub")
LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))


def _with_doctype(data: bytes, doctype: str) -> bytes:
    """An XML file with another document type declaration."""
    text = data.decode("utf-8")
    head, _, rest = text.partition("?>") if text.startswith("<?xml") else ("", "", text)
    rest = rest.split("<!DOCTYPE", 1)[0] + rest.split("<!DOCTYPE", 1)[1].partition(">")[2] if "<!DOCTYPE" in rest else rest
    return f"{head}?>{doctype}{rest}".encode() if head else f"{doctype}{rest}".encode()


ATTACKS: dict[str, Callable[[bytes], bytes]] = {
    "an entity that names a file": lambda data: _with_doctype(data, '<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]>'),
    "a billion laughs": lambda data: _with_doctype(data, f'<!DOCTYPE x [<!ENTITY l0 "ha">{LAUGHS}]>'),
    "a parameter entity from elsewhere": lambda data: _with_doctype(
        data, '<!DOCTYPE x [<!ENTITY % e SYSTEM "http://127.0.0.1:9/e">%e;]>'
    ),
    "an entity that nobody declared": lambda data: data.replace(b"</", b"&nobody;</", 1),
}


def _rezip(data: bytes, change: Callable[[zipfile.ZipFile, zipfile.ZipFile], None]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        change(old, new)
    return out.getvalue()


def _copy(old: zipfile.ZipFile, new: zipfile.ZipFile) -> None:
    for member in old.infolist():
        new.writestr(member, old.read(member))


def _slip(old: zipfile.ZipFile, new: zipfile.ZipFile) -> None:
    _copy(old, new)
    new.writestr("../../outside.txt", b"x")


def _absolute(old: zipfile.ZipFile, new: zipfile.ZipFile) -> None:
    _copy(old, new)
    new.writestr("/tmp/outside.txt", b"x")


def _bomb(old: zipfile.ZipFile, new: zipfile.ZipFile) -> None:
    _copy(old, new)
    new.writestr("bomb.xml", b"\0" * (300 << 20))


def _many(old: zipfile.ZipFile, new: zipfile.ZipFile) -> None:
    _copy(old, new)
    for number in range(25_000):
        new.writestr(f"m{number}", b"")


def _laughs_inside(old: zipfile.ZipFile, new: zipfile.ZipFile) -> None:
    for member in old.infolist():
        data = old.read(member)
        is_xml = member.filename.endswith((".xml", ".xhtml", ".opf")) and "rels" not in member.filename
        new.writestr(member, ATTACKS["a billion laughs"](data) if is_xml else data)


ZIP_ATTACKS = {
    "a member named ../../outside.txt": _slip,
    "a member with an absolute name": _absolute,
    "a member that unpacks to 300 MB": _bomb,
    "25,000 members": _many,
    "a billion laughs in its XML": _laughs_inside,
}


def try_hostile() -> list[tuple[str, str]]:
    """Each attack on each format: refused in a sentence, or what happened instead."""
    rows, originals = [], seeds()
    for attack, change in ATTACKS.items():
        rows.append((attack, _judge({format: (originals[format][0], change(originals[format][0])) for format in XML})))
    for attack, rewrite in ZIP_ATTACKS.items():
        documents = {format: (originals[format][0], _rezip(originals[format][0], rewrite)) for format in ZIPS}
        rows.append((attack, _judge(documents)))
    return rows


def _judge(documents: dict[str, tuple[bytes, bytes]]) -> str:
    refused, same, others = [], [], []
    for format, (original, data) in documents.items():
        try:
            texts = [each.text for each in open_document(data, format, OPTIONS).segments()]
        except InputError:
            refused.append(format)
        except Exception as error:
            others.append(f"{format}: {type(error).__name__}")
        else:
            # HTML has no entities of its own: at most the declaration itself is taken for text.
            before = sum(len(each.text) for each in open_document(original, format, OPTIONS).segments())
            is_harmless = sum(map(len, texts)) <= before + len(LAUGHS) + 100 and "haha" not in "".join(texts)
            (same if is_harmless else others).append(format if is_harmless else f"{format}: READ AND EXPANDED")
    found = [("refused", refused), ("read, with nothing expanded", same), ("WRONG", others)]
    return "; ".join(f"{what}: {', '.join(names)}" for what, names in found if names)


def try_named_dtd() -> str:
    """A DTD that is only named must not be loaded: no connection may be tried."""
    data = _with_doctype(seeds()["tmx"][0], '<!DOCTYPE tmx SYSTEM "http://127.0.0.1:9/tmx14.dtd">')
    try:
        return f"read without it, {len(open_document(data, 'tmx', OPTIONS).segments())} segments"
    except InputError:
        return "refused"


MEMORY = """
import sys, time
from pathlib import Path
from undivided.formats.contract import DocumentOptions
from undivided.formats.pairs import read_document_pairs
count = sum(1 for _ in read_document_pairs(sys.argv[1], "", DocumentOptions("en", "de")).pairs)
peak = next(line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(count, int(peak) // 1024)
"""


def try_memory(sizes: tuple[int, ...] = (2, 20, 200)) -> list[tuple[str, str, str]]:
    """Translation memories of so many MB, read to train from: units, and the most memory that was taken."""
    rows = []
    unit = (
        '<tu tuid="{0}"><tuv xml:lang="en"><seg>The house number {0} stands at the end of the long street.</seg></tuv>'
        '<tuv xml:lang="de"><seg>Das Haus Nummer {0} steht am Ende der langen Straße.</seg></tuv></tu>\n'
    )
    with tempfile.TemporaryDirectory() as name:
        for size in sizes:
            path, number = Path(name) / f"{size}.tmx", 0
            with path.open("w", encoding="utf-8") as stream:
                stream.write('<?xml version="1.0"?>\n<tmx version="1.4"><header srclang="en"/><body>\n')
                while stream.tell() < size << 20:
                    stream.write("".join(unit.format(number + step) for step in range(1000)))
                    number += 1000
                stream.write("</body></tmx>\n")
            done = subprocess.run([sys.executable, "-c", MEMORY, str(path)], capture_output=True, text=True, check=True)
            units, peak = done.stdout.split()
            rows.append((f"{path.stat().st_size / (1 << 20):,.0f} MB", f"{int(units):,}", f"{int(peak):,} MB"))
            path.unlink()
    return rows


PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>a title</title></head><body><h1>a great heading</h1>
<p id="one">some <b>bold words</b> and <a href="https://example.org/x">a link</a> here.</p><pre>keep this</pre></body></html>"""


def try_browser(translate: Callable[[bytes, str], bytes]) -> str:
    """A translated page in a browser: what its elements hold."""
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        return "playwright is not installed here"
    browser = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)
    if browser is None:
        return "no browser is installed here"
    try:
        with sync_playwright() as play:
            opened = play.chromium.launch(executable_path=browser, args=["--no-sandbox"])
            page = opened.new_page()
            page.set_content(translate(PAGE.encode(), "html").decode())
            shown = {
                "heading": page.inner_text("h1"),
                "bold": page.inner_text("p b"),
                "link": page.inner_text("p a"),
                "address": page.get_attribute("p a", "href"),
                "code": page.inner_text("pre"),
            }
            opened.close()
    except Error as error:
        return f"the browser failed: {str(error).splitlines()[0]}"
    wanted = {
        "heading": "A GREAT HEADING",
        "bold": "BOLD WORDS",
        "link": "A LINK",
        "address": "https://example.org/x",
        "code": "keep this",
    }
    wrong = {name: text for name, text in shown.items() if text != wanted[name]}
    return (
        f"WRONG: {wrong}"
        if wrong
        else "heading, bold words and link translated in their elements; address and preformatted text kept"
    )
