"""`make sbom` writes a valid CycloneDX bill of what is installed."""

import importlib.util
import json
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("sbom", ROOT / "tools" / "sbom.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def bill(tool):
    return tool.make_bill([])


def test_it_is_valid(bill):
    pytest.importorskip("cyclonedx", reason="cyclonedx-python-lib[json-validation] of the extra `dev` is not installed")
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    fault = JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(bill))
    assert fault is None, fault


def test_it_lists_what_is_needed_in_the_versions_that_are_there(bill):
    listed = {each["name"]: each["version"] for each in bill["components"]}
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    for requirement in map(Requirement, needed):
        if requirement.marker is None or requirement.marker.evaluate():
            name = requirement.name.lower().replace(".", "-")
            assert listed[name] == metadata.version(name)
    assert "sympy" in listed, "what torch needs is needed too"
    assert not {"pytest", "ruff", "mypy", "transformers"} & listed.keys(), "tools are no part of it"


def test_an_extra_adds_what_it_needs(tool, bill):
    more = {each["name"] for each in tool.make_bill(["moses"])["components"]} - {each["name"] for each in bill["components"]}
    assert "sacremoses" in more


def test_every_reference_leads_somewhere_and_the_same_installation_gives_the_same_bill(tool, bill):
    known = {each["bom-ref"] for each in [*bill["components"], bill["metadata"]["component"]]}
    assert {each["ref"] for each in bill["dependencies"]} == known
    assert {name for each in bill["dependencies"] for name in each["dependsOn"]} <= known
    assert tool.make_bill([]) == bill
