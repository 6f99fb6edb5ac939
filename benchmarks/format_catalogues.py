"""Real catalogues for `benchmarks/formats.py`: fetched from package archives, translated into capitals, shown to their own tools.

PO of Django and JSON of Home Assistant come by pip, PO of LibreOffice and XLIFF of Symfony (with the schemas of XLIFF) from
Debian's packages, TS of KeePassXC and qBittorrent from Debian's source packages. They are kept under the folder that is given,
never in the project.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from format_fuzz import OPTIONS, Answer

from undivided.formats import DocumentOptions, open_document
from undivided.formats.markup import Link, find_words
from undivided.formats.protection import find_protected
from undivided.formats.walk import SegmentResult, WalkOptions, choose_segments, save_document, translate_segments
from undivided.formats.xml_file import escape

BREAK = "\n"
SYMBOLS = [chr(0xE000 + number) for number in range(64)]
Files = Iterator[tuple[str, bytes]]


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
    if not list(folder.glob(f"{package}-*.whl")):
        folder.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
        subprocess.run([*pip, "--only-binary", ":all:", "--dest", str(folder), package], capture_output=True, check=False)
    return next(iter(folder.glob(f"{package}-*.whl")), None)


def unpack_debian(folder: Path, package: str, suffix: str) -> list[Path]:
    """Files of a Debian package, downloaded once and not installed."""
    place = folder / package
    if not list(place.glob("*.deb")):
        place.mkdir(parents=True, exist_ok=True)
        subprocess.run(["apt-get", "download", package], cwd=place, capture_output=True, check=False)
        for archive in place.glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", archive, place], check=False)
    return sorted(place.rglob(f"*{suffix}"))


def source_files(folder: Path, package: str, suffix: str) -> Files:
    """Files of a Debian source package, downloaded once; apt's own lists are not touched."""
    place = folder / f"{package}-source"
    if not list(place.glob("*.orig.tar.*")):
        (place / "lists" / "partial").mkdir(parents=True, exist_ok=True)
        release = Path("/etc/os-release")
        known = re.search(r"VERSION_CODENAME=(\w+)", release.read_text(encoding="utf-8")) if release.exists() else None
        origin = f"deb-src http://deb.debian.org/debian {known[1] if known else 'stable'} main\n"
        (place / "source.list").write_text(origin, encoding="utf-8")
        settings = {
            "Dir::Etc::sourcelist": place / "source.list",
            "Dir::Etc::sourceparts": "-",
            "Dir::State::lists": place / "lists",
            "Dir::Cache::srcpkgcache": "",
            "Dir::Cache::pkgcache": "",
        }
        apt = ["apt-get", *(word for name, value in settings.items() for word in ("-o", f"{name}={value}"))]
        for verb in (["update"], ["source", "--download-only", package]):
            subprocess.run([*apt, *verb], cwd=place, capture_output=True, check=False)
    for archive in sorted(place.glob("*.orig.tar.*")):
        if archive.suffix == ".asc":
            continue
        with tarfile.open(archive) as members:
            for member in members:
                if member.isfile() and member.name.endswith(suffix) and (stream := members.extractfile(member)):
                    yield member.name, stream.read()


def wheel_members(wheel: Path | None, pattern: str) -> Files:
    if wheel is not None:
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if re.search(pattern, name):
                    yield name, archive.read(name)


def converted(paths: Sequence[Path], command: Callable[[Path, Path], list[str]], suffix: str) -> Files:
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


def try_catalogues(origin: str, format: str, files: Files, command: Sequence[str], suffix: str, share: int = 1) -> Outcome:
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
    said = " ".join(Path(each).name if each.endswith(".xsd") else each for each in command) if tool else "—"
    remark = remark or ("" if count else "could not be had here")
    return Outcome(origin, count, segments, identical, said, accepted, asked, faults, remark)


def _paths(paths: Sequence[Path]) -> Files:
    for path in paths:
        yield path.name, path.read_bytes()


def xliff_schema(folder: Path, name: str) -> list[str]:
    """A command that checks a file against the schema of XLIFF, which Symfony's package carries; empty where it cannot be had."""
    found = unpack_debian(folder, "php-symfony-translation", ".xsd")
    for path in found:
        # Schemas name each other by addresses; here they are beside each other, and nothing is loaded from elsewhere.
        text = re.sub(r'schemaLocation="[^"]*/xml\.xsd"', 'schemaLocation="xml.xsd"', path.read_text(encoding="utf-8"))
        (folder / path.name).write_text(text, encoding="utf-8")
    return ["xmllint", "--nonet", "--noout", "--schema", str(folder / name)] if found else []


def try_django(folder: Path) -> Outcome:
    files = wheel_members(download(folder, "django"), r"\.po$")
    return try_catalogues("Django, PO", "po", files, ["msgfmt", "-c", "-o", "/dev/null"], ".po", share=5)


def try_home(folder: Path) -> Outcome:
    files = wheel_members(download(folder, "homeassistant"), r"translations/(?:en|de|ko|pl)\.json$")
    return try_catalogues("Home Assistant, JSON", "json", files, ["python3", "-m", "json.tool"], ".json", share=200)


def try_libreoffice(folder: Path) -> Outcome:
    memories = unpack_debian(folder, "libreoffice-l10n-de", ".mo") if find_tool("msgunfmt") else []
    files = converted(memories, lambda a, b: ["msgunfmt", "-o", str(b), str(a)], ".po")
    return try_catalogues("LibreOffice, PO", "po", files, ["msgfmt", "-c", "-o", "/dev/null"], ".po")


def try_qt(folder: Path, package: str, title: str) -> Outcome:
    return try_catalogues(f"{title}, TS", "ts", source_files(folder, package, ".ts"), ["lrelease", "-silent"], ".ts")


def try_symfony(folder: Path) -> Outcome:
    packages = ("php-symfony-validator", "php-symfony-security-core", "php-symfony-form")
    files = _paths([path for each in packages for path in unpack_debian(folder, each, ".xlf")])
    return try_catalogues("Symfony, XLIFF 1.2", "xliff", files, xliff_schema(folder, "xliff-core-1.2-strict.xsd"), ".xlf")


def try_made(folder: Path, version: str) -> Outcome:
    """XLIFF with groups, segments, notes and inline codes, made of Django's messages."""
    files = wheel_members(download(folder, "django"), r"/(?:de|ko|ru)/.*\.po$")
    schema = "xliff-core-1.2-strict.xsd" if version == "1.2" else "xliff-core-2.0.xsd"
    write = old_xliff if version == "1.2" else new_xliff
    made = ((name, write([each.text for each in open_document(data, "po", name=name).segments()])) for name, data in files)
    return try_catalogues(f"XLIFF {version} made of Django's PO", "xliff", made, xliff_schema(folder, schema), ".xlf")


def coded(text: str, code: Callable[[int, str], str]) -> str:
    """A text as the content of an element, with inline codes in the place of placeholders and tags."""
    parts, place = list[str](), 0
    for number, item in enumerate(find_protected(text), 1):
        parts += [escape(text[place : item.start]), code(number, escape(item.text))]
        place = item.end
    return "".join([*parts, escape(text[place:])])


def old_xliff(texts: Sequence[str]) -> bytes:
    """XLIFF 1.2: every third unit in a group within a group, every fourth one segmented, every fifth one with a target."""
    rows = []
    for number, text in enumerate(texts):
        content = coded(text, lambda at, item: f'<ph id="{at}">{item}</ph>')
        content = f'<g id="g">{content}</g>' if number % 2 else content
        segmented = f'<seg-source><mrk mtype="seg" mid="0">{content}</mrk></seg-source>' if number % 4 == 3 else ""
        target = "" if segmented or number % 5 else f'<target state="needs-translation">{content}</target>'
        unit = f'<trans-unit id="{number}">\n  <source>{content}</source>{segmented}{target}\n  <note>{number}</note></trans-unit>'
        rows.append(f'<group id="a{number}"><group id="b{number}">{unit}</group></group>' if number % 3 == 0 else unit)
    head = '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">'
    body = f'<file original="a" source-language="en" datatype="plaintext"><body>{BREAK.join(rows)}</body></file>'
    return f'<?xml version="1.0"?>\n{head}{body}</xliff>\n'.encode()


def new_xliff(texts: Sequence[str]) -> bytes:
    """XLIFF 2.0: units in groups, with notes, two segments with white space between, codes of which some have their data aside."""
    rows = []
    for number, text in enumerate(texts):
        content = coded(text, lambda at, item: f'<ph id="p{at}" dataRef="d{at}"/>')
        items = [f'<data id="d{at}">{escape(item.text)}</data>' for at, item in enumerate(find_protected(text), 1)]
        data = f"<originalData>{''.join(items)}</originalData>" if items else ""
        content = f'<pc id="c">{content}</pc>' if number % 2 else content
        more = "<ignorable><source> </source></ignorable>\n<segment><source>Two.</source></segment>" if number % 4 == 3 else ""
        notes = f"<notes><note>{number}</note></notes>"
        segment = f"<segment>\n  <source>{content}</source>\n</segment>{more}"
        unit = f'<unit id="u{number}">{notes}{data}{segment}</unit>'
        rows.append(f'<group id="g{number}">{unit}</group>' if number % 3 == 0 else unit)
    head = '<xliff version="2.0" srcLang="en" trgLang="de" xmlns="urn:oasis:names:tc:xliff:document:2.0">'
    return f'<?xml version="1.0"?>\n{head}<file id="f">{BREAK.join(rows)}</file></xliff>\n'.encode()


ORIGINS: dict[str, Callable[[Path], Outcome]] = {
    "Django": try_django,
    "Home Assistant": try_home,
    "LibreOffice": try_libreoffice,
    "KeePassXC": lambda folder: try_qt(folder, "keepassxc", "KeePassXC"),
    "qBittorrent": lambda folder: try_qt(folder, "qbittorrent", "qBittorrent"),
    "Symfony": try_symfony,
    "XLIFF 1.2": lambda folder: try_made(folder, "1.2"),
    "XLIFF 2.0": lambda folder: try_made(folder, "2.0"),
}
