"""The bill of materials of undivided as it is installed here, in CycloneDX JSON: `make sbom`.

    python tools/sbom.py [-o sbom.json] [--extra ray …]

What is listed is what the package needs, directly and through others, and nothing of the tools beside it.
"""

from __future__ import annotations

import argparse
import json
import sys
import uuid
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import quote

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = "undivided"


def needs(name: str, extras: frozenset[str]) -> list[tuple[str, frozenset[str]]]:
    """What a distribution needs on this machine, each as (name, extras)."""
    found = []
    for text in metadata.requires(name) or []:
        requirement = Requirement(text)
        wanted = [{"extra": extra} for extra in sorted(extras)] or [{"extra": ""}]
        if requirement.marker is None or any(requirement.marker.evaluate(each) for each in wanted):
            found.append((canonicalize_name(requirement.name), frozenset(requirement.extras)))
    return found


def walk(extras: frozenset[str]) -> dict[str, set[str]]:
    """Every distribution that is needed and installed, with those that it needs."""
    graph: dict[str, set[str]] = {}
    waiting, seen = [(ROOT, extras)], set()
    while waiting:
        name, asked = waiting.pop()
        if (name, asked) in seen:
            continue
        seen.add((name, asked))
        graph.setdefault(name, set())
        for needed, their_extras in needs(name, asked):
            try:
                metadata.version(needed)
            except metadata.PackageNotFoundError:
                continue
            if needed != name:
                graph[name].add(needed)
            waiting.append((needed, their_extras))
    return graph


def reference(name: str) -> str:
    """A package URL."""
    return f"pkg:pypi/{name}@{quote(metadata.version(name))}"


def component(name: str) -> dict[str, Any]:
    """One distribution with its version and licence."""
    facts = metadata.metadata(name)
    entry = {
        "type": "library",
        "bom-ref": reference(name),
        "name": name,
        "version": metadata.version(name),
        "purl": reference(name),
    }
    if facts.get("License-Expression"):
        entry["licenses"] = [{"expression": facts["License-Expression"]}]
    elif facts.get("License") and facts["License"] != "UNKNOWN":
        entry["licenses"] = [{"license": {"name": facts["License"].splitlines()[0][:100]}}]
    if facts.get("Summary"):
        entry["description"] = facts["Summary"]
    return entry


def bill(extras: list[str]) -> dict[str, Any]:
    """The whole bill. It has no date: the same installation gives the same bill."""
    graph = walk(frozenset(extras))
    components = [component(name) for name in sorted(graph) if name != ROOT]
    depends = [{"ref": reference(name), "dependsOn": sorted(map(reference, graph[name]))} for name in sorted(graph)]
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(depends))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{number}",
        "version": 1,
        "metadata": {"component": component(ROOT) | {"type": "application"}},
        "components": components,
        "dependencies": depends,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", help="where it goes (default: stdout)")
    parser.add_argument("--extra", action="append", default=[], help="an extra of undivided to include; may be repeated")
    options = parser.parse_args()
    text = json.dumps(bill(options.extra), indent=2, ensure_ascii=False) + "\n"
    if options.output:
        Path(options.output).write_text(text, encoding="utf-8")
        print(f"{options.output}: {text.count(chr(10) + '    {')} entries", file=sys.stderr)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
