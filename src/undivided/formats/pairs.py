"""Documents → pairs to train from: translation memories, catalogues with both languages, and trees of catalogues aligned by key."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from undivided.core.errors import InputError
from undivided.data.text_files import open_bytes
from undivided.formats.contract import Document, DocumentOptions
from undivided.formats.datasets import dataset_files, is_dataset, read_dataset
from undivided.formats.document import TEXT_FORMATS, format_of, open_document, read_file
from undivided.formats.languages import is_language, matches_language
from undivided.formats.mo import read_mo
from undivided.formats.tmx import stream_units

CATALOGUES = ("po", "xliff", "ts", "tmx", "json", "yaml", "strings", "android", "srt", "vtt")
"""What is looked for in a folder."""
ANYWHERE = re.compile(r"\A(?:values-|.*?[._-])?([a-zA-Z]{2,3}(?:[-_]r?[a-zA-Z]{2,4})?)(?:\.lproj)?\Z")


class DocumentPairs(NamedTuple):
    """What there is to train from."""

    source_lang: str
    target_lang: str
    pairs: Iterator[tuple[str, str]]


def document_files(source: str, target: str = "") -> list[Path]:
    """The files of a corpus: one, two, all catalogues of a folder, or those of a dataset that is here."""
    if is_dataset(source):
        return dataset_files(source)
    if not Path(source).is_dir():
        return [Path(name) for name in (source, target) if name]
    names = sorted(path for path in Path(source).rglob("*") if path.is_file() and not path.is_symlink())
    return [path for path in names if path.suffix.lower() == ".mo" or format_of(path) in CATALOGUES]


def read_document_pairs(source: str, target: str = "", options: DocumentOptions | None = None) -> DocumentPairs:
    """The pairs of a document, of two catalogues, or of a folder; `InputError` where the languages are not clear."""
    options = options or DocumentOptions()
    if is_dataset(source):
        source_lang, target_lang, found = read_dataset(source, options)
        return DocumentPairs(source_lang, target_lang, clean_pairs(found))
    if Path(source).is_dir():
        return _folder_pairs(Path(source), options)
    if target:
        found = align_catalogues(open_document(source), open_document(target))
        return DocumentPairs(options.source_lang, options.target_lang, clean_pairs(found))
    if source.lower().endswith(".tmx"):
        return _memory_pairs(source, options)
    return _file_pairs(Path(source), options)


def _file_pairs(path: Path, options: DocumentOptions) -> DocumentPairs:
    if path.suffix.lower() == ".mo":
        catalogue = read_mo(read_file(path), str(path))
        return DocumentPairs(options.source_lang, catalogue.target_lang or options.target_lang, clean_pairs(catalogue.pairs))
    document = open_document(path, options=options)
    found = ((each.text, each.target) for each in document.segments() if each.state == "done")
    source_lang, target_lang = document.source_lang or options.source_lang, document.target_lang or options.target_lang
    return DocumentPairs(source_lang, target_lang, clean_pairs(found))


def _memory_pairs(source: str, options: DocumentOptions) -> DocumentPairs:
    """A TMX as a stream; its first units tell its languages."""
    languages: dict[str, None] = {}
    with open_bytes(source) as stream:
        for number, unit in enumerate(stream_units(stream, source)):
            languages.update(dict.fromkeys(unit))
            if number >= 1000:
                break
    wanted = [each for each in (options.source_lang, options.target_lang) if each]
    known = list(languages)
    ours = next((each for each in known if options.source_lang and matches_language(each, options.source_lang)), "")
    theirs = next((each for each in known if options.target_lang and matches_language(each, options.target_lang)), "")
    if not wanted and len(known) == 2:
        ours, theirs = known
    elif len(known) == 2 and len(wanted) == 1 and (ours or theirs):
        ours, theirs = (
            ours or next(each for each in known if each != theirs),
            theirs or next(each for each in known if each != ours),
        )
    if not ours or not theirs:
        raise InputError(f"{source}: has {', '.join(known) or 'no units'}; say which languages: --source-lang en --target-lang de")

    def read() -> Iterator[tuple[str, str]]:
        with open_bytes(source) as stream:
            for unit in stream_units(stream, source):
                if ours in unit and theirs in unit:
                    yield unit[ours], unit[theirs]

    return DocumentPairs(options.source_lang or ours, options.target_lang or theirs, clean_pairs(read()))


def align_catalogues(source: Document, target: Document) -> Iterator[tuple[str, str]]:
    """The texts of two catalogues that have the same key, or where there are no keys the same number."""
    known = {each.key: each.text for each in target.segments() if each.key}
    theirs = target.segments()
    has_keys = bool(known)
    for number, each in enumerate(source.segments()):
        if each.key and each.key in known:
            yield each.text, known[each.key]
        elif not has_keys and len(theirs) == len(source.segments()):
            yield each.text, theirs[number].text


def clean_pairs(pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Pairs without line breaks: line by line where both have as many lines, else each side in one line."""
    for source, target in pairs:
        ours, theirs = _lines(source), _lines(target)
        if len(ours) == len(theirs):
            yield from zip(ours, theirs, strict=True)
        elif ours and theirs:
            yield " ".join(ours), " ".join(theirs)


def _lines(text: str) -> list[str]:
    return [line for raw in text.splitlines() if (line := " ".join(raw.split()))]


def _folder_pairs(folder: Path, options: DocumentOptions) -> DocumentPairs:
    """Catalogues with both languages as they are; those with one, aligned with the catalogue of the other language."""
    files = document_files(str(folder))
    if not files:
        raise InputError(f"{folder}: holds no catalogues; known names: .po .mo .xlf .ts .tmx .json .yaml .strings .xml .srt .vtt")
    source_lang, target_lang = _folder_languages(files, folder, options)

    def read() -> Iterator[tuple[str, str]]:
        stems = {path.with_suffix("") for path in files if path.suffix.lower() == ".po"}
        groups: dict[str, dict[str, Path]] = {}
        for path in files:
            kind = "mo" if path.suffix.lower() == ".mo" else format_of(path)
            if kind == "mo" or (kind in TEXT_FORMATS and TEXT_FORMATS[kind].is_bilingual):
                if not (kind == "mo" and path.with_suffix("") in stems):
                    yield from _bilingual_pairs(path, kind, folder, DocumentOptions(source_lang, target_lang))
            elif kind != "text":
                name, language = split_language(path.relative_to(folder))
                groups.setdefault(name, {})[language] = path
        for by_language in groups.values():
            sides = [_of_language(by_language, each) for each in (source_lang, target_lang)]
            sides[0] = sides[0] or by_language.get("")
            if sides[0] and sides[1] and sides[0] != sides[1]:
                yield from align_catalogues(open_document(sides[0]), open_document(sides[1]))

    return DocumentPairs(source_lang, target_lang, clean_pairs(read()))


def _bilingual_pairs(path: Path, kind: str, folder: Path, options: DocumentOptions) -> Iterator[tuple[str, str]]:
    if kind == "tmx":
        yield from _memory_pairs(str(path), options).pairs
        return
    found = _file_pairs(path, DocumentOptions())
    language = found.target_lang or split_language(path.relative_to(folder))[1]
    if not language or matches_language(language, options.target_lang):
        yield from found.pairs


def _folder_languages(files: Sequence[Path], folder: Path, options: DocumentOptions) -> tuple[str, str]:
    """The two languages: as the settings say, else as the names of files and folders do if they name just two."""
    if options.source_lang and options.target_lang:
        return options.source_lang, options.target_lang
    named = sorted({split_language(path.relative_to(folder))[1] for path in files} - {""})
    if not options.source_lang and not options.target_lang and len(named) == 1:
        return "", named[0]
    if options.target_lang and not options.source_lang:
        others = [each for each in named if not matches_language(each, options.target_lang)]
        return (others[0] if len(others) == 1 else ""), options.target_lang
    if options.source_lang:
        named = [each for each in named if not matches_language(each, options.source_lang)]
        if len(named) == 1:
            return options.source_lang, named[0]
    raise InputError(
        f"{folder}: has catalogues of {', '.join(named) or 'no language'}; say which: --source-lang en --target-lang de"
    )


def _of_language(by_language: dict[str, Path], wanted: str) -> Path | None:
    return next(
        (path for language, path in sorted(by_language.items()) if language and wanted and matches_language(language, wanted)), None
    )


def split_language(path: Path) -> tuple[str, str]:
    """A path with its language replaced by `*`, and the language: `values-de/strings.xml`, `de.json`, `de/LC_MESSAGES/app.po`."""
    parts = list(path.parts)
    stem = path.stem
    for place in range(len(parts) - 1, -1, -1):
        name = stem if place == len(parts) - 1 else parts[place]
        found = ANYWHERE.match(name)
        if name == "values":
            parts[place] = "*"
            return "/".join(parts), ""
        if found and is_language(found[1].replace("-r", "-")) and _is_known(found[1]):
            parts[place] = name[: found.start(1)].removesuffix("values-") + "*" + (path.suffix if place == len(parts) - 1 else "")
            return "/".join(parts), found[1].replace("-r", "-")
    return "/".join(parts), ""


LANGUAGES = frozenset({
    "af", "am", "ar", "ast", "az", "be", "bg", "bn", "br", "bs", "ca", "cs", "cy", "da", "de", "dsb", "el", "en", "eo", "es",
    "et", "eu", "fa", "fi", "fr", "fy", "ga", "gd", "gl", "gu", "he", "hi", "hr", "hsb", "hu", "hy", "ia", "id", "ig", "io",
    "is", "it", "ja", "ka", "kab", "kk", "km", "kn", "ko", "ky", "la", "lb", "lo", "lt", "lv", "mi", "mk", "ml", "mn", "mr",
    "ms", "mt", "my", "nb", "ne", "nl", "nn", "no", "oc", "or", "pa", "pl", "ps", "pt", "ro", "ru", "si", "sk", "sl", "so",
    "sq", "sr", "sv", "sw", "ta", "te", "tg", "th", "tk", "tl", "tr", "tt", "udm", "ug", "uk", "ur", "uz", "vi", "xh", "yi",
    "yo", "zh", "zu",
})  # fmt: skip
"""Codes that names of files are searched for: not every pair of letters is a language."""


def _is_known(code: str) -> bool:
    return re.split(r"[-_]", code)[0].lower() in LANGUAGES
