"""Write the software bill of materials of undivided as installed here, as CycloneDX JSON: `make sbom`.

    python tools/sbom.py [-o sbom.json] [--extra ray …]

It lists the dependencies of the package, direct and indirect, and none of the development tools.
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


def requirements(name: str, extras: frozenset[str]) -> list[tuple[str, frozenset[str]]]:
    """The requirements of a distribution on this machine, each as (name, extras)."""
    found = []
    for text in metadata.requires(name) or []:
        requirement = Requirement(text)
        wanted = [{"extra": extra} for extra in sorted(extras)] or [{"extra": ""}]
        if requirement.marker is None or any(requirement.marker.evaluate(each) for each in wanted):
            found.append((canonicalize_name(requirement.name), frozenset(requirement.extras)))
    return found


def dependency_graph(extras: frozenset[str]) -> dict[str, set[str]]:
    """Every installed dependency, with its own dependencies."""
    graph: dict[str, set[str]] = {}
    pending, visited = [(ROOT, extras)], set()
    while pending:
        name, wanted_extras = pending.pop()
        if (name, wanted_extras) in visited:
            continue
        visited.add((name, wanted_extras))
        graph.setdefault(name, set())
        for needed, their_extras in requirements(name, wanted_extras):
            try:
                metadata.version(needed)
            except metadata.PackageNotFoundError:
                continue
            if needed != name:
                graph[name].add(needed)
            pending.append((needed, their_extras))
    return graph


def package_url(name: str) -> str:
    """The package URL of a distribution."""
    return f"pkg:pypi/{name}@{quote(metadata.version(name))}"


def describe_component(name: str) -> dict[str, Any]:
    """One distribution with its version and licence."""
    facts = metadata.metadata(name)
    entry = {
        "type": "library",
        "bom-ref": package_url(name),
        "name": name,
        "version": metadata.version(name),
        "purl": package_url(name),
    }
    if facts.get("License-Expression"):
        entry["licenses"] = [{"expression": facts["License-Expression"]}]
    elif facts.get("License") and facts["License"] != "UNKNOWN":
        entry["licenses"] = [{"license": {"name": facts["License"].splitlines()[0][:100]}}]
    if facts.get("Summary"):
        entry["description"] = facts["Summary"]
    return entry


def make_bill(extras: list[str]) -> dict[str, Any]:
    """The whole bill of materials. It has no date: the same installation gives the same bill."""
    graph = dependency_graph(frozenset(extras))
    components = [describe_component(name) for name in sorted(graph) if name != ROOT]
    depends = [{"ref": package_url(name), "dependsOn": sorted(map(package_url, graph[name]))} for name in sorted(graph)]
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(depends))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{number}",
        "version": 1,
        "metadata": {"component": describe_component(ROOT) | {"type": "application"}},
        "components": components,
        "dependencies": depends,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", help="output file (default: stdout)")
    parser.add_argument("--extra", action="append", default=[], help="an extra of undivided to include; may be repeated")
    options = parser.parse_args()
    text = json.dumps(make_bill(options.extra), indent=2, ensure_ascii=False) + "\n"
    if options.output:
        Path(options.output).write_text(text, encoding="utf-8")
        print(f"{options.output}: {text.count(chr(10) + '    {')} entries", file=sys.stderr)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
