"""Qt Linguist's TS: `translation` is filled and stays `unfinished` unless approved."""

from __future__ import annotations

from collections.abc import Sequence

from undivided.core.errors import InputError
from undivided.formats.contract import DocumentOptions, Edit, Marked, SegmentList, SplicedText, State, Unit, Write
from undivided.formats.text_file import TextFile
from undivided.formats.xml_file import Element, InlineRules, escape_quotes, parse_elements, read_marked, set_attribute, write_marked

RULES = InlineRules()


def parse_ts(file: TextFile, options: DocumentOptions) -> SplicedText:
    """A segment for each message; for each plural form, one."""
    text = file.text
    root = parse_elements(text)
    if root.local != "TS":
        raise InputError(f"{file.name}: not a Qt TS file: its first element is <{root.name}>")
    segments, units = SegmentList(text), list[Unit]()
    for message in root.descend():
        source, target = message.child("source"), message.child("translation")
        if message.local != "message" or source is None or target is None:
            continue
        if target.attributes.get("type") in ("obsolete", "vanished") or target.child("lengthvariant"):
            continue
        marked = read_marked(text, source.inner, source.inner_end, RULES)
        if not marked.text.strip():
            continue
        forms = [each for each in target.children if each.local == "numerusform"] or [target]
        found = []
        for form in forms:
            old = read_marked(text, form.inner, form.inner_end, RULES).text
            is_draft = target.attributes.get("type") == "unfinished"
            state: State = "new" if not old else "draft" if is_draft else "done"
            found.append(segments.add(source.start, marked, _context(text, message), old, state))
        units.append(Unit(found, _writer(text, target, forms)))

    def finish() -> list[Edit]:
        has = root.attributes.get("language") or not options.target_lang
        return [] if has else [Edit(root.start, root.inner, set_attribute(text, root, "language", options.target_lang))]

    return SplicedText(units, root.attributes.get("sourcelanguage", ""), root.attributes.get("language", ""), finish)


def _context(text: str, message: Element) -> str:
    """The class that shows it, and what its author says of it."""
    names = [message.parent.child("name")] if message.parent else []
    names += [message.child(each) for each in ("comment", "extracomment", "translatorcomment")]
    return "; ".join(read_marked(text, each.inner, each.inner_end, RULES).text for each in names if each)


def _writer(text: str, target: Element, forms: Sequence[Element]) -> Write:
    def write(given: Sequence[Marked | None], approve: bool) -> list[Edit]:
        opening = set_attribute(text, target, "type", None if approve else "unfinished")
        opening = opening.removesuffix("/>").removesuffix(">").rstrip() + ">"
        if forms[0] is target:
            content = write_marked(given[0], escape_quotes) if given[0] else ""
            return [Edit(target.start, target.end, f"{opening}{content}</{target.name}>")]
        edits = [Edit(target.start, target.inner, opening)]
        for form, each in zip(forms, given, strict=True):
            if each is not None:
                content = f"<{form.name}>{write_marked(each, escape_quotes)}</{form.name}>"
                edits.append(Edit(form.start, form.end, content))
        return edits

    return write
