"""No version with a known hole is allowed, installed or pinned. Each hole has its number and the version that closed it."""

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[2]

DIRECT = {
    "torch": {
        "2.6.0": "CVE-2025-32434: torch.load runs code, also with weights_only",
        "2.10.0": "CVE-2026-24747: the same once more, by broken memory",
        "2.11.0": "CVE-2026-4538: loading of .pt2 archives",
    },
    "sentencepiece": {
        "0.2.1": "CVE-2026-1260: heap overflow by a made-up model",
        "0.2.2": "google/sentencepiece issues 1263 and 1269: crashes by an over-long piece and by a made-up character map",
    },
    "numpy": {"1.22.2": "CVE-2021-41495, CVE-2021-41496, CVE-2021-34141"},
    "PyYAML": {"5.4": "CVE-2020-14343: a full loader runs code (we use the safe one)"},
    "filelock": {"4.2.1": "CVE-2026-112906, CVE-2026-112934, CVE-2026-112941; before them CVE-2025-68146, CVE-2026-22701"},
    "transformers": {
        "5.0.0": "CVE-2026-1839: random state of a checkpoint runs code",
        "5.3.0": "CVE-2026-4372: a config runs code, also with trust_remote_code off",
    },
    "pytest": {"9.0.3": "CVE-2025-71176: guessable temporary folders"},
    "setuptools": {"78.1.1": "CVE-2025-47273: path traversal in PackageIndex"},
    "ray": {
        "2.52.0": "CVE-2025-62593: code by way of a browser",
        "2.54.0": "CVE-2026-27482: jobs deleted by way of a browser",
        "2.56.0": "CVE-2026-57516: WebDataset archives run code",
    },
}
"""Holes in what pyproject.toml names."""

THROUGH_OTHERS = {
    "Jinja2": {"3.1.6": "CVE-2025-27516: out of the sandbox"},
    "Werkzeug": {"3.1.6": "CVE-2025-66221, CVE-2026-21860, CVE-2026-27199: device names of Windows"},
    "lxml": {"6.1.0": "CVE-2026-41066: entities read local files"},
    "h11": {"0.16.0": "CVE-2025-43859: request smuggling"},
    "tqdm": {"4.66.3": "CVE-2024-34062: arguments are evaluated"},
    "idna": {"3.7": "CVE-2024-3651: quadratic time"},
}
"""Holes in what comes with those: pinned for what we test and ship with `make`."""


def requirements() -> dict[str, Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"].values()
    listed = [
        *project["project"]["dependencies"],
        *project["build-system"]["requires"],
        *(each for extra in extras for each in extra),
    ]
    return {Requirement(text).name.lower(): Requirement(text) for text in listed}


def pins() -> dict[str, Version]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    found = [re.fullmatch(r"([A-Za-z0-9._-]+)==(\S+)", line) for line in lines]
    return {each[1].lower().replace("_", "-"): Version(each[2]) for each in found if each}


def floor(name: str) -> Version:
    """The lowest version that pyproject.toml allows."""
    bounds = [Version(each.version) for each in requirements()[name.lower()].specifier if each.operator in (">=", "==", "~=")]
    assert bounds, f"{name} has no lowest version"
    return max(bounds)


@pytest.mark.parametrize("name", DIRECT)
def test_no_version_with_a_known_hole_is_allowed(name):
    assert floor(name) >= max(map(Version, DIRECT[name])), DIRECT[name]


# What builds the package is installed for the building alone: the setuptools beside it is Python's own, whatever its version.
@pytest.mark.parametrize("name", [name for name in DIRECT | THROUGH_OTHERS if name != "setuptools"])
def test_no_version_with_a_known_hole_is_installed_or_pinned(name):
    closed = max(map(Version, (DIRECT | THROUGH_OTHERS)[name]))
    if name.lower() in pins():
        assert pins()[name.lower()] >= closed
    try:
        installed = Version(metadata.version(name))
    except metadata.PackageNotFoundError:
        pytest.skip(f"{name} is not installed")
    assert installed >= closed


def test_every_requirement_has_a_lowest_version():
    open_ended = [name for name, each in requirements().items() if not each.specifier and name not in ("undivided", "types-pyyaml")]
    assert open_ended == []


def test_every_pin_is_allowed_by_pyproject():
    wrong = [name for name, version in pins().items() if name in requirements() and version not in requirements()[name].specifier]
    assert wrong == []
