# ruff: noqa: E501  (a report is written as it is)
"""Real catalogues and harmed documents of every format: byte-identical when nothing is translated, accepted by their own tools when all is.

    python benchmarks/formats.py [--count 20000] [--folder .venv/catalogues] [--report docs/formats.md]

Catalogues come by pip (Django's PO, Home Assistant's JSON) and apt (LibreOffice's MO, turned into PO by msgunfmt; Qt's QM, turned into TS
by lconvert); what cannot be had is said. All of each is translated by putting its words into capitals, with what is protected masked, then
checked by `msgfmt -c`, `lrelease`, `xmllint`; LibreOffice opens translated office files and must show the text and its styles.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from format_fuzz import OPTIONS, Answer, fuzz, seeds
from format_hostile import try_browser, try_hostile, try_memory, try_named_dtd

from undivided.formats import DocumentOptions, open_document
from undivided.formats.markup import Link, find_words
from undivided.formats.walk import SegmentResult, WalkOptions, choose_segments, save_document, translate_segments

ROOT = Path(__file__).resolve().parent.parent
SYMBOLS = [chr(0xE000 + number) for number in range(64)]
LOWER = re.compile(r"[a-z]")


class Outcome(NamedTuple):
    """What was found in the catalogues of one origin."""

    origin: str
    files: int = 0
    segments: int = 0
    identical: int = 0
    tool: str = "—"
    accepted: int = 0
    asked: int = 0
    faults: int = 0
    remark: str = ""


def shout(texts: Sequence[str]) -> list[Answer]:
    return [Answer(text.upper()) for text in texts]


def translate(data: bytes, format: str, options: DocumentOptions = OPTIONS) -> tuple[bytes, list[SegmentResult]]:
    """A document with all of its words in capitals."""
    document = open_document(data, format, options)
    results = translate_segments(choose_segments(document, True), shout, WalkOptions(symbols=SYMBOLS), align_equal, format)
    return save_document(document, results, approve=True), results


def align_equal(pairs: Sequence[tuple[str, str]]) -> list[list[Link]]:
    """Capitals keep the order of words: the first belongs to the first."""
    return [[Link(a, b) for a, b in zip(find_words(source), find_words(target), strict=False)] for source, target in pairs]


def find_tool(name: str) -> str | None:
    return shutil.which(name) or next((str(path) for path in Path("/usr/lib").glob(f"qt*/bin/{name}")), None)


def download(folder: Path, package: str) -> Path | None:
    """A wheel from the package index, downloaded once."""
    folder.mkdir(parents=True, exist_ok=True)
    if not list(folder.glob(f"{package}-*.whl")):
        command = [
            sys.executable,
            "-m",
            "pip",
            "--disable-pip-version-check",
            "download",
            "--quiet",
            "--no-deps",
            "--only-binary",
            ":all:",
        ]
        subprocess.run([*command, "--dest", str(folder), package], capture_output=True, check=False)
    return next(iter(folder.glob(f"{package}-*.whl")), None)


def unpack_debian(folder: Path, package: str, suffix: str) -> list[Path]:
    """Files of a Debian package, downloaded once and not installed."""
    place = folder / package
    if not place.exists():
        place.mkdir(parents=True)
        subprocess.run(["apt-get", "download", package], cwd=place, capture_output=True, check=False)
        for archive in place.glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", archive, place], check=False)
    return sorted(place.rglob(f"*{suffix}"))


def wheel_members(wheel: Path | None, pattern: str) -> Iterator[tuple[str, bytes]]:
    if wheel is not None:
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if re.search(pattern, name):
                    yield name, archive.read(name)


def converted(paths: Sequence[Path], command: Callable[[Path, Path], list[str]], suffix: str) -> Iterator[tuple[str, bytes]]:
    """Compiled catalogues as their source form."""
    with tempfile.TemporaryDirectory() as folder:
        for path in paths:
            result = Path(folder) / f"{path.stem}{suffix}"
            subprocess.run(command(path, result), capture_output=True, check=False)
            if result.exists() and result.stat().st_size:
                yield path.name, result.read_bytes()


def accepts(command: Sequence[str], data: bytes, suffix: str) -> bool:
    """Whether a tool takes a file without an error."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"file{suffix}"
        path.write_bytes(data)
        return subprocess.run([*command, str(path)], cwd=folder, capture_output=True, check=False).returncode == 0


def try_catalogues(
    origin: str, format: str, files: Iterator[tuple[str, bytes]], command: Sequence[str], suffix: str, share: int = 1
) -> Outcome:
    """Round trip of every file, and a tool's word on every `share`-th translated one whose original it accepts."""
    count = segments = identical = asked = accepted = faults = 0
    tool = find_tool(command[0]) if command else None
    remark = ""
    for number, (name, data) in enumerate(files):
        count += 1
        document = open_document(data, format, OPTIONS, name)
        identical += document.save({}) == data
        segments += len(document.segments())
        result, results = translate(data, format)
        faults += sum(len(sentence.faults) for each in results for sentence in each.sentences)
        if tool and number % share == 0 and accepts([tool, *command[1:]], data, suffix):
            asked += 1
            good = accepts([tool, *command[1:]], result, suffix)
            accepted += good
            remark = remark or ("" if good else f"refused: {name}")
    said = " ".join(command) if tool else "—"
    return Outcome(
        origin, count, segments, identical, said, accepted, asked, faults, remark or ("" if count else "could not be had here")
    )


def all_catalogues(folder: Path) -> Iterator[Outcome]:
    django, home = download(folder, "django"), download(folder, "homeassistant")
    check = ["msgfmt", "-c", "-o", "/dev/null"]
    yield try_catalogues("Django, PO", "po", wheel_members(django, r"\.po$"), check, ".po", share=5)
    yield try_catalogues(
        "Home Assistant, JSON",
        "json",
        wheel_members(home, r"translations/(?:en|de|ko|pl)\.json$"),
        ["python3", "-m", "json.tool"],
        ".json",
        share=200,
    )
    memories = unpack_debian(folder, "libreoffice-l10n-de", ".mo") if find_tool("msgunfmt") else []
    yield try_catalogues(
        "LibreOffice, PO", "po", converted(memories, lambda a, b: ["msgunfmt", "-o", str(b), str(a)], ".po"), check, ".po"
    )
    convert = find_tool("lconvert")
    compiled = unpack_debian(folder, "qttranslations5-l10n", ".qm") if convert else []
    yield try_catalogues(
        "Qt, TS", "ts", converted(compiled, lambda a, b: [str(convert), "-if", "qm", "-i", str(a), "-of", "ts", "-o", str(b)], ".ts"),
        ["lrelease", "-silent"], ".ts",
    )  # fmt: skip
    yield try_catalogues(
        "XLIFF made of Django's PO",
        "xliff",
        _as_xliff(wheel_members(django, r"/(?:de|ko|ru)/.*\.po$")),
        ["xmllint", "--noout"],
        ".xlf",
    )


def _as_xliff(files: Iterator[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
    from undivided.formats.xml_file import escape

    for name, data in files:
        units = [
            f'  <trans-unit id="{each.number}"><source>{escape(each.text)}</source></trans-unit>\n'
            for each in open_document(data, "po", name=name).segments()
        ]
        head = '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file original="a" source-language="en" datatype="plaintext">'
        yield name, f'<?xml version="1.0"?>\n{head}<body>\n{"".join(units)}</body></file></xliff>\n'.encode()


PAGE = """<html><head><meta charset="utf-8"><title>t</title></head><body><h1>A great heading</h1>
<p>Some <b>bold words</b> and <i>slanted ones</i> here.</p><table><tr><td>one cell</td><td>another cell</td></tr></table></body></html>"""


def try_office() -> list[tuple[str, str]]:
    """Documents that LibreOffice wrote, translated, and opened by it again: what it shows of the text and the bold words."""
    office = shutil.which("soffice")
    if not office:
        return [("—", "LibreOffice is not installed here")]
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "page.html").write_text(PAGE, encoding="utf-8")
        (folder / "table.csv").write_text("one cell,another cell\n", encoding="utf-8")
        for format in ("docx", "odt", "xlsx", "ods"):
            source = "table.csv" if format in ("xlsx", "ods") else "page.html"
            rows.append((format, _office_round(office, folder, format, source)))
        rows.append(("pptx", _slides_round(office, folder)))
    return rows


SLIDES = """<?xml version="1.0" encoding="UTF-8"?><office:document xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0"
xmlns:draw="urn:oasis:names:tc:opendocument:xmlns:drawing:1.0" xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"
xmlns:svg="urn:oasis:names:tc:opendocument:xmlns:svg-compatible:1.0" xmlns:style="urn:oasis:names:tc:opendocument:xmlns:style:1.0"
xmlns:fo="urn:oasis:names:tc:opendocument:xmlns:xsl-fo-compatible:1.0" office:version="1.2"
office:mimetype="application/vnd.oasis.opendocument.presentation"><office:automatic-styles><style:style style:name="B" style:family="text">
<style:text-properties fo:font-weight="bold"/></style:style></office:automatic-styles><office:body><office:presentation><draw:page draw:name="p1">
<draw:frame svg:width="10cm" svg:height="5cm" svg:x="1cm" svg:y="1cm"><draw:text-box><text:p>Some <text:span text:style-name="B">bold
words</text:span> here.</text:p></draw:text-box></draw:frame></draw:page></office:presentation></office:body></office:document>"""


def _slides_round(office: str, folder: Path) -> str:
    """Slides that LibreOffice wrote, translated, opened by it again and saved as ODP: the text and the bold words that it has read."""
    (folder / "slides.fodp").write_text(SLIDES, encoding="utf-8")

    def convert(name: str, kind: str) -> None:
        home = f"-env:UserInstallation=file://{folder}/profile"
        subprocess.run(
            [office, home, "--headless", "--convert-to", kind, "--outdir", str(folder), str(folder / name)],
            capture_output=True,
            check=False,
            timeout=180,
        )

    convert("slides.fodp", "pptx")
    if not (folder / "slides.pptx").exists():
        return "LibreOffice could not write one"
    data = (folder / "slides.pptx").read_bytes()
    result, results = translate(data, "pptx")
    (folder / "new.pptx").write_bytes(result)
    convert("new.pptx", "fodp")
    shown = (folder / "new.fodp").read_text(encoding="utf-8") if (folder / "new.fodp").exists() else ""
    plain = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", shown))
    bold = re.search(r'<text:span text:style-name="(\w+)">BOLD WORDS</text:span>', shown)
    style = re.search(rf'<style:style style:name="{bold[1]}".*?</style:style>', shown, re.DOTALL) if bold else None
    is_bold = bool(style and 'fo:font-weight="bold"' in style[0])
    is_same = open_document(data, "pptx").save({}) == data
    return (
        f"{len(results)} segments; untranslated {'byte-identical' if is_same else 'CHANGED'}; text "
        f"{'shown' if 'SOME BOLD WORDS HERE.' in plain else 'LOST'}, bold words {'bold' if is_bold else 'NOT BOLD'}"
    )


def _office_round(office: str, folder: Path, format: str, source: str) -> str:
    home = f"-env:UserInstallation=file://{folder}/profile"

    def convert(path: Path, kind: str, out: str) -> Path:
        target = folder / out
        filters = ["--infilter=HTML (StarWriter)"] if path.suffix == ".html" else []
        subprocess.run(
            [office, home, "--headless", *filters, "--convert-to", kind, "--outdir", str(target), str(path)],
            capture_output=True,
            check=False,
            timeout=180,
        )
        return next(iter(target.glob(f"{path.stem}.*")), folder / "missing")

    made = convert(folder / source, format, f"made-{format}")
    if not made.exists():
        return "LibreOffice could not write one"
    data = made.read_bytes()
    result, results = translate(data, format)
    (folder / f"new.{format}").write_bytes(result)
    shown = convert(folder / f"new.{format}", "csv" if format in ("xlsx", "ods") else "html", f"shown-{format}")
    text = shown.read_text(encoding="utf-8", errors="replace") if shown.exists() else ""
    is_same = open_document(data, format).save({}) == data
    if format in ("xlsx", "ods"):
        good = "ONE CELL" in text and "ANOTHER CELL" in text
        return f"{len(results)} segments; untranslated {'byte-identical' if is_same else 'CHANGED'}; text {'shown' if good else 'LOST'}"
    words = re.sub(r"\s+", " ", text)
    bold = bool(re.search(r"<b>(?:<[^>]+>|\s)*BOLD WORDS(?:<[^>]+>|\s)*</b>", words))
    good = all(each in words for each in ("A GREAT HEADING", "ONE CELL", "ANOTHER CELL"))
    heading = bool(re.search(r"<h1[^>]*>(?:<[^>]+>|\s)*A GREAT HEADING", words))
    return (
        f"{len(results)} segments; untranslated {'byte-identical' if is_same else 'CHANGED'}; text {'shown' if good else 'LOST'}, "
        f"heading {'a heading' if heading else 'NOT A HEADING'}, bold words {'bold' if bold else 'NOT BOLD'}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000, help="harmed documents of each format")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--sizes", type=int, nargs="*", default=[2, 20, 200], metavar="MB", help="sizes of translation memories to read"
    )
    parser.add_argument("--folder", type=Path, default=ROOT / ".venv" / "catalogues")
    parser.add_argument("--report", type=Path, default=ROOT / "docs" / "formats.md")
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=PARTS, help="what to run; the rest is taken from the last run")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    kept = options.folder / "results.json"
    known: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    start = time.monotonic()
    for part in options.parts:
        known[part] = run_part(part, options)
        kept.write_text(json.dumps(known), encoding="utf-8")
    options.report.write_text(report(options, known, time.monotonic() - start), encoding="utf-8")


PARTS = ("catalogues", "office", "hostile", "memory", "fuzz")


def run_part(part: str, options: argparse.Namespace) -> Any:
    """The results of one part, as JSON can hold them."""
    found: Any
    if part == "catalogues":
        found = [outcome._asdict() for outcome in all_catalogues(options.folder)]
    elif part == "office":
        found = [*try_office(), ("html, in a browser", try_browser(lambda data, format: translate(data, format)[0]))]
    elif part == "hostile":
        found = [*try_hostile(), ("a DTD on another machine that is only named (TMX)", try_named_dtd())]
    elif part == "memory":
        found = try_memory(tuple(options.sizes))
    else:
        found = {}
        for format in seeds():
            counts, wrong = fuzz(format, options.count, options.seed)
            found[format] = dict(counts)
            print(format, found[format], [message for _, message in wrong[:3]], flush=True)
    print(part, found, flush=True)
    return found


def report(options: argparse.Namespace, known: dict[str, Any], seconds: float) -> str:
    outcomes = [Outcome(**each) for each in known["catalogues"]]
    office, hostile, memory, fuzzed = (known[part] for part in PARTS[1:])
    wrong = sum(counts.get("wrong", 0) for counts in fuzzed.values())
    rows = [
        "# Documents: real catalogues, and harmed ones",
        "",
        f"Written by `benchmarks/formats.py --count {options.count} --seed {options.seed}` (`make prove-formats`) on {date.today()}, in "
        f"{seconds / 60:.0f} minutes.",
        "",
        "## Real catalogues",
        "",
        "Opened and saved without a translation, each must be byte-identical. Then every text is translated (into capitals, with what is protected "
        "masked), and the tool of the format is asked about files whose original it accepts.",
        "",
        "| catalogues | files | segments | byte-identical | protected text lost | tool | accepted | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for each in outcomes:
        accepted = f"{each.accepted:,} of {each.asked:,}" if each.asked else "—"
        rows.append(
            f"| {each.origin} | {each.files:,} | {each.segments:,} | {each.identical:,} | {each.faults:,} | `{each.tool}` | {accepted} | {each.remark} |"
        )
    rows += [
        "",
        "## Office files and pages",
        "",
        "Written by LibreOffice, translated, opened by LibreOffice again; and a page, translated, in a browser.",
        "",
        "| format | what was found |",
        "|---|---|",
    ]
    rows += [f"| {format} | {found} |" for format, found in office]
    rows += ["", "## Files that mean harm", "", "| attack | what happened |", "|---|---|"]
    rows += [f"| {attack} | {found} |" for attack, found in hostile]
    rows += ["", "## Large translation memories", "", "Read to train from, each in a process of its own.", ""]
    rows += ["| size of the TMX | units | most memory |", "|---|---|---|"]
    rows += [f"| {' | '.join(row)} |" for row in memory]
    rows += [
        "",
        "## Harmed documents",
        "",
        "Documents of each format with one to four random changes (bytes flipped, cut out, repeated, moved, put in). Each is refused in one "
        "sentence, or it is byte-identical when saved, keeps every segment through a bad model's translations, and can be read again. "
        f"**{wrong:,} went wrong** (an error that nobody foresaw, a wrong result, or more than five seconds).",
        "",
        "| format | documents | refused | translated | wrong |",
        "|---|---|---|---|---|",
    ]
    rows += [
        f"| {format} | {sum(counts.values()):,} | {counts.get('refused', 0):,} | {counts.get('translated', 0):,} | {counts.get('wrong', 0):,} |"
        for format, counts in fuzzed.items()
    ]
    return "\n".join([*rows, ""])


if __name__ == "__main__":
    main()
