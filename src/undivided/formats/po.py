"""Gettext's PO and POT: msgstr is filled, marked `fuzzy` unless approved; everything else stays."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from undivided.core.errors import InputError
from undivided.formats.contract import DocumentOptions, Edit, Marked, SegmentList, SplicedText, State, Unit, Write
from undivided.formats.plurals import PluralRule, plural_rule
from undivided.formats.po_strings import join_strings, wrap_message
from undivided.formats.text_file import TextFile, read_text

KEYWORD = re.compile(r"(msgctxt|msgid_plural|msgid|msgstr)(?:\[(\d{1,2})\])?\s*(?=\")")
CHARSET = re.compile(rb"Content-Type:[^\n\"]{0,100}?charset=([A-Za-z][\w.:-]*)", re.IGNORECASE)
LINE = re.compile(r"[^\n]*(?:\n|\Z)")
OPEN_RULE = "nplurals=INTEGER"
"""How the plural forms of a template begin."""
STRINGS = re.compile(r'"((?:[^"\\]|\\.)*)"[ \t\r]*\Z')


@dataclass
class Field:
    """A keyword and its strings."""

    start: int
    """Where the first string begins."""
    end: int
    parts: list[str]

    @property
    def text(self) -> str:
        """What the strings say."""
        return join_strings(self.parts)


@dataclass
class Entry:
    """A message, with its comments."""

    fields: dict[str, Field] = field(default_factory=dict)
    comments: list[str] = field(default_factory=list)
    flags: tuple[int, int, list[str]] | None = None
    """Where the flags of `#,` are, and which."""
    start: int = -1
    """Where the first keyword is."""


def read_po(data: bytes, name: str) -> TextFile:
    """Decode a PO file as its header says."""
    found = CHARSET.search(data)
    codec = found.group(1).decode("ascii") if found else "utf-8"
    return read_text(data, name, "utf-8" if codec.upper() == "CHARSET" else codec)


def parse_entries(file: TextFile) -> list[Entry]:
    """The messages of a PO file; obsolete ones are comments."""
    entries, entry, current = list[Entry](), Entry(), None
    for number, found in enumerate(LINE.finditer(file.text), 1):
        start, line = found.start(), found[0].rstrip("\r\n")
        text = line.strip()
        keyword = KEYWORD.match(text)
        if keyword or text.startswith('"'):
            indent = line.index(text)
            if keyword:
                name = keyword[1] + (f"[{int(keyword[2])}]" if keyword[2] else "")
                if name in ("msgctxt", "msgid") and any(each.startswith("msgstr") for each in entry.fields):
                    entries.append(entry)
                    entry = Entry()
                if name in entry.fields:
                    raise InputError(f"{file.name}, line {number:,}: a second {name} in one message")
                entry.start = start if entry.start < 0 else entry.start
                begin = start + indent + keyword.end()
                current = entry.fields[name] = Field(begin, begin, [])
            if current is None:
                raise InputError(f"{file.name}, line {number:,}: a string that belongs to no msgid or msgstr")
            string = STRINGS.match(text, keyword.end() if keyword else 0)
            if string is None:
                raise InputError(f"{file.name}, line {number:,}: a string does not end")
            current.parts.append(string[1])
            current.end = start + len(line.rstrip())
        elif text.startswith("#") or not text:
            if any(each.startswith("msgstr") for each in entry.fields):
                entries.append(entry)
                entry = Entry()
            current = None
            if text.startswith("#,"):
                flags = [each.strip() for each in text[2:].split(",")]
                entry.flags = (start, start + len(line), [*(entry.flags[2] if entry.flags else []), *filter(None, flags)])
            elif text.startswith(("#.", "# ")):
                entry.comments.append(text[2:].strip())
        else:
            raise InputError(f"{file.name}, line {number:,}: expected msgid, msgstr, a string or a comment")
    return [each for each in [*entries, entry] if "msgid" in each.fields]


def header_fields(entries: Sequence[Entry]) -> dict[str, str]:
    """The fields of the header, by name in lower case."""
    for entry in entries:
        if not entry.fields["msgid"].text and "msgctxt" not in entry.fields and "msgstr" in entry.fields:
            lines = entry.fields["msgstr"].text.split("\n")
            return {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines) if name}
    return {}


def parse_po(file: TextFile, options: DocumentOptions) -> SplicedText:
    """A segment for each message; for each plural form, one."""
    entries = parse_entries(file)
    header = header_fields(entries)
    end = "\r\n" if "\r\n" in file.text[:2000] else "\n"
    wraps = not any(len(line) > 81 and line.startswith('"') for line in file.text.splitlines()[:5000])
    segments, units = SegmentList(file.text), list[Unit]()
    said = header.get("plural-forms", "")
    # In a template it is left open how many forms there are.
    rule = plural_rule(options.target_lang) if said.startswith(OPEN_RULE) else None
    is_single = "n!=1" in (rule.header() if rule else said).replace(" ", "")
    for entry in entries:
        forms = _forms(entry, rule)
        if entry.fields["msgid"].text.strip() and forms:
            units.append(_entry_unit(file, entry, forms, segments, (end, wraps), is_single))
    return SplicedText(units, target_lang=header.get("language", ""), finish=lambda: _fill_header(entries, options, rule, end))


def _forms(entry: Entry, rule: PluralRule | None) -> list[str]:
    """The forms of a message in their order; with a rule, as many as that says of a message that has no translation yet."""
    forms = sorted((name for name in entry.fields if name.startswith("msgstr")), key=lambda name: (len(name), name))
    usual = [f"msgstr[{number}]" for number in range(len(forms))]
    if (
        rule is None
        or "msgid_plural" not in entry.fields
        or not forms
        or forms != usual
        or any(entry.fields[each].text for each in forms)
    ):
        return forms
    end = entry.fields[forms[-1]].end
    wanted = [f"msgstr[{number}]" for number in range(rule.forms)]
    entry.fields |= {name: Field(end, end, []) for name in wanted if name not in entry.fields}
    return wanted


def _entry_unit(
    file: TextFile, entry: Entry, forms: Sequence[str], segments: SegmentList, style: tuple[str, bool], is_single: bool
) -> Unit:
    """The segments of a message. `is_single` says that the first plural form is for the number 1 alone."""
    single, plural = entry.fields["msgid"].text, entry.fields.get("msgid_plural")
    context = [entry.fields["msgctxt"].text] if "msgctxt" in entry.fields else []
    is_fuzzy = entry.flags is not None and "fuzzy" in entry.flags[2]
    found = []
    for number, form in enumerate(forms):
        old = entry.fields[form].text
        state: State = "new" if not old else "draft" if is_fuzzy else "done"
        # A form for several numbers must say which, also where the English singular does not.
        shared = len(forms) == 1 or (plural and not is_single and plural.text.count("%") > single.count("%"))
        text = plural.text if plural and (number > 0 or shared) else single
        found.append(segments.add(entry.start, text, "; ".join([*context, *entry.comments]), old, state))
    return Unit(found, _writer(file, entry, forms, style))


def _writer(file: TextFile, entry: Entry, forms: Sequence[str], style: tuple[str, bool]) -> Write:
    def write(given: Sequence[Marked | None], approve: bool) -> list[Edit]:
        edits = []
        for form, each in zip(forms, given, strict=True):
            place = entry.fields[form]
            is_new = place.start == place.end
            if each is not None or is_new:
                written = wrap_message(each.text if each else "", len(form) + 1, *style)
                edits.append(Edit(place.start, place.end, f"{style[0]}{form} {written}" if is_new else written))
        surplus = [field.end for name, field in entry.fields.items() if name.startswith("msgstr") and name not in forms]
        if surplus:
            edits.append(Edit(entry.fields[forms[-1]].end, max(surplus), ""))
        return [*edits, *_mark(file, entry, approve, style[0])]

    return write


def _mark(file: TextFile, entry: Entry, approve: bool, end: str) -> list[Edit]:
    """Set or remove the flag `fuzzy`."""
    if entry.flags is None:
        return [] if approve else [Edit(entry.start, entry.start, f"#, fuzzy{end}")]
    start, stop, flags = entry.flags
    if approve == ("fuzzy" not in flags):
        return []
    kept = [each for each in flags if each != "fuzzy"] if approve else ["fuzzy", *flags]
    if kept:
        return [Edit(start, stop, "#, " + ", ".join(kept))]
    return [Edit(start, file.text.find("\n", stop) + 1 or stop, "")]


def _fill_header(entries: Sequence[Entry], options: DocumentOptions, rule: PluralRule | None, end: str) -> list[Edit]:
    """What a template leaves open in its header is filled: language, encoding, plural forms."""
    known = {"Content-Type: text/plain; charset=CHARSET\\n": "Content-Type: text/plain; charset=UTF-8\\n"}
    if options.target_lang:
        language = f"Language: {options.target_lang}\\n"
        known |= {"Language: \\n": language, "Language:\\n": language}
    for entry in entries:
        if not entry.fields["msgid"].text and "msgstr" in entry.fields:
            header = entry.fields["msgstr"]
            parts = [known.get(part, part) for part in header.parts]
            if rule is not None:
                parts = [
                    f"Plural-Forms: {rule.header()}\\n" if part.startswith(f"Plural-Forms: {OPEN_RULE}") else part for part in parts
                ]
            if parts != header.parts and len(parts) > 1:
                return [Edit(header.start, header.end, end.join(f'"{part}"' for part in parts))]
    return []
