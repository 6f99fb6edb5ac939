"""XLIFF 1.2 and 2.x: `target` is filled beside `source`, its state says that a person must review it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from undivided.core.errors import InputError
from undivided.formats.contract import DocumentOptions, Edit, Marked, Segment, SegmentList, SplicedText, State, Unit, Write
from undivided.formats.text_file import TextFile
from undivided.formats.xml_file import Element, InlineRules, like, parse_elements, read_marked, set_attribute, write_marked

RULES = InlineRules(
    codes=frozenset({"ph", "bpt", "ept", "it", "ut", "x", "bx", "ex", "sc", "ec", "cp", "sm", "em", "sub"}),
    opening=frozenset({"bpt", "bx", "sc"}),
    closing=frozenset({"ept", "ex", "ec"}),
    words=frozenset({"ph", "x"}),
)
OPEN_STATES = {"new", "needs-translation", "needs-l10n", "needs-adaptation", "initial"}
DRAFT_STATES = {"needs-review-translation", "needs-review-l10n", "needs-review-adaptation"}


def parse_xliff(file: TextFile, options: DocumentOptions) -> SplicedText:
    """A segment for each `trans-unit` (or its `mrk` segments) of 1.2, each `segment` of 2.x."""
    root = parse_elements(file.text)
    if root.local != "xliff":
        raise InputError(f"{file.name}: not an XLIFF file: its first element is <{root.name}>")
    is_new = root.attributes.get("version", "1.2").startswith("2")
    segments = SegmentList(file.text)
    units = list(_new_units(file.text, root, segments) if is_new else _old_units(file.text, root, segments))
    holders = [root] if is_new else [each for each in root.children if each.local == "file"]
    names = ("srcLang", "trgLang") if is_new else ("source-language", "target-language")
    said = next((each.attributes for each in holders if names[0] in each.attributes), {})

    def finish() -> list[Edit]:
        target = options.target_lang
        missing = [each for each in holders if target and not each.attributes.get(names[1])]
        return [Edit(each.start, each.inner, set_attribute(file.text, each, names[1], target)) for each in missing]

    return SplicedText(units, said.get(names[0], ""), said.get(names[1], ""), finish)


def _is_fixed(element: Element | None) -> bool:
    """Whether it, or what it is in, says `translate="no"`."""
    while element is not None:
        said = element.attributes.get("translate")
        if said:
            return said == "no"
        element = element.parent
    return False


def _context(text: str, element: Element) -> str:
    notes = [read_marked(text, note.inner, note.inner_end, RULES).text for note in element.descend() if note.local == "note"]
    return "; ".join([element.attributes.get("resname") or element.attributes.get("id", ""), *notes])


def _old_units(text: str, root: Element, segments: SegmentList) -> Iterator[Unit]:
    for element in root.descend():
        source, parted, target = (element.child(name) for name in ("source", "seg-source", "target"))
        if element.local != "trans-unit" or source is None or _is_fixed(element):
            continue
        state = _old_state(text, element, target)
        context = _context(text, element)
        parts = (
            [each for each in parted.descend() if each.local == "mrk" and each.attributes.get("mtype") == "seg"] if parted else []
        )
        olds = {
            each.attributes.get("mid", ""): read_marked(text, each.inner, each.inner_end, RULES).text
            for each in (target.descend() if target and parts else ())
            if each.local == "mrk"
        }
        found = []
        for part in parts or [source]:
            marked = read_marked(text, part.inner, part.inner_end, RULES)
            if parts:
                old = olds.get(part.attributes.get("mid", ""), "")
            else:
                old = read_marked(text, target.inner, target.inner_end, RULES).text if target else ""
            found.append(segments.add(part.start, marked, context, old, state if old.strip() else "new"))
        if any(each.text.strip() for each in found):
            after = parted or source
            yield Unit(found, _old_writer(text, element, after, parts, target, found))


def _old_state(text: str, element: Element, target: Element | None) -> State:
    if target is None or not text[target.inner : target.inner_end].strip() or target.attributes.get("state") in OPEN_STATES:
        return "new"
    is_draft = target.attributes.get("state") in DRAFT_STATES or element.attributes.get("approved") == "no"
    return "draft" if is_draft else "done"


def _old_writer(
    text: str, unit: Element, after: Element, parts: Sequence[Element], target: Element | None, found: Sequence[Segment]
) -> Write:
    def content(given: Sequence[Marked | None]) -> str:
        if not parts:
            return like(text[after.inner : after.inner_end], write_marked(given[0])) if given[0] else ""
        rows, place = [], after.inner
        for part, segment, each in zip(parts, found, given, strict=True):
            kept = write_marked(Marked(segment.target)) if segment.target else text[part.inner : part.inner_end]
            rows += [text[place : part.inner], write_marked(each) if each else kept]
            place = part.inner_end
        return "".join([*rows, text[place : after.inner_end]])

    def write(given: Sequence[Marked | None], approve: bool) -> list[Edit]:
        state = "translated" if approve else "needs-review-translation"
        prefix = unit.name.removesuffix("trans-unit")
        if target is None:
            before = text[text.rfind("\n", 0, after.start) + 1 : after.start]
            gap = f"{_line_end(text)}{before}" if not before.strip() and "\n" in text[: after.start] else ""
            return [Edit(after.end, after.end, f'{gap}<{prefix}target state="{state}">{content(given)}</{prefix}target>')]
        opening = set_attribute(text, target, "state", state).removesuffix("/>").removesuffix(">").rstrip()
        return [Edit(target.start, target.end, f"{opening}>{content(given)}</{target.name}>")]

    return write


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text[:2000] else "\n"


def _new_units(text: str, root: Element, segments: SegmentList) -> Iterator[Unit]:
    for unit in root.descend():
        if unit.local != "unit" or _is_fixed(unit):
            continue
        for element in unit.children:
            source, target = element.child("source"), element.child("target")
            if element.local != "segment" or source is None:
                continue
            marked = read_marked(text, source.inner, source.inner_end, RULES)
            if not marked.text.strip():
                continue
            old = read_marked(text, target.inner, target.inner_end, RULES).text if target else ""
            is_new = not old.strip() or element.attributes.get("state") == "initial"
            segment = segments.add(source.start, marked, _context(text, unit), old, "new" if is_new else "done")
            yield Unit([segment], _new_writer(text, element, source, target))


def _new_writer(text: str, element: Element, source: Element, target: Element | None) -> Write:
    def write(given: Sequence[Marked | None], approve: bool) -> list[Edit]:
        content = like(text[source.inner : source.inner_end], write_marked(given[0])) if given[0] else ""
        state = Edit(element.start, element.inner, set_attribute(text, element, "state", "reviewed" if approve else "translated"))
        if target is not None:
            opening = text[target.start : target.inner].removesuffix("/>").removesuffix(">").rstrip()
            return [state, Edit(target.start, target.end, f"{opening}>{content}</{target.name}>")]
        prefix = source.name.removesuffix("source")
        before = text[text.rfind("\n", 0, source.start) + 1 : source.start]
        gap = f"{_line_end(text)}{before}" if not before.strip() and "\n" in text[: source.start] else ""
        return [state, Edit(source.end, source.end, f"{gap}<{prefix}target>{content}</{prefix}target>")]

    return write
