# ruff: noqa: E501  (documents are written as they are)
"""Office files that LibreOffice wrote, translated and opened by it again: what `benchmarks/formats.py` shows of them."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from format_catalogues import translate

from undivided.formats import open_document

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
