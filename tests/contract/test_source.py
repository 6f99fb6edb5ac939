"""How the package is built: public names, the order of its packages, what it refuses."""

import ast
import re
from pathlib import Path

import pytest

import undivided

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "undivided"
FILES = sorted(PACKAGE.rglob("*.py"))

IMPORTED = re.compile(r"(?:^|import |from |-m )undivided\.([a-z_]\w*)(?=\.|\s|$)")
MOST_LINES, MOST_LINES_OF_A_FUNCTION, MOST_PACKAGES = 350, 60, 14


def packages() -> list[str]:
    """The packages in their order, from the table of docs/architecture.md."""
    lines = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if re.match(r"\|\s*package\s*\|", line))
    names: list[str] = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        names += [name.rstrip("/") for name in re.findall(r"`([^`]+)`", line.split("|")[1])]
    return names


def package_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """The packages that a file imports, anywhere in it; types for the checker alone do not count."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module == "undivided":
                found |= {alias.name for alias in node.names}
            elif (node.module or "").startswith("undivided."):
                found.add(str(node.module).split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("undivided.")}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # `importlib.import_module("undivided.nn")`, `python -m undivided.nn`, code in a string: imports all the same.
            found |= set(IMPORTED.findall(node.value))
    return found - {"__version__"}


def test_public_names_are_pinned():
    assert undivided.__all__ == ["InputError", "Translation", "Translator", "UndividedError", "__version__"]
    assert all(getattr(undivided, name) is not None for name in undivided.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = undivided.nonsense


def test_every_package_is_in_the_table():
    assert {package_of(path) for path in FILES} - {"__init__", "__main__"} == set(packages())


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_package_imports_only_packages_above_it(path):
    package, order = package_of(path), packages()
    if package in ("__init__", "__main__"):
        pytest.skip("stands beside the packages")
    wrong = {name for name in imports(path) if name != package and order.index(name) > order.index(package)}
    assert wrong == set()


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nothing_that_runs_foreign_code(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assert not names & {"eval", "exec", "torch.load", "torch.save", "yaml.load", "yaml.unsafe_load", "os.system", "np.load"}
    modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names}
    modules |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not modules & {"pickle", "dill", "joblib", "shelve", "marshal"}


WRITTEN = sorted(path for path in PACKAGE.rglob("*") if path.suffix in (".py", ".c", ".h", ".js", ".css", ".html"))


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_file_is_read_in_one_sitting(path):
    assert path.name not in ("utils.py", "helpers.py", "common.py")
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MOST_LINES


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_function_fits_on_a_screen(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    lengths = {node.name: (node.end_lineno or 0) - node.lineno + 1 for node in functions}
    assert {name: length for name, length in lengths.items() if length > MOST_LINES_OF_A_FUNCTION} == {}


def test_the_house_can_be_held_in_the_head():
    beside = {"__init__.py", "__main__.py", "py.typed", "__pycache__"}
    entries = {path.name for path in PACKAGE.iterdir()} - beside
    assert len(entries) <= MOST_PACKAGES, sorted(entries)


def test_imports_in_strings_count(tmp_path):
    lines = [
        'importlib.import_module("undivided.look.html")',
        'code = "import sys; from undivided.nn.backend import kernels"',
        'command = [sys.executable, "-m", "undivided.cli"]',
        'text = "see undivided.org, or write to undivided.train"',
        "from undivided.core import errors",
    ]
    (tmp_path / "a.py").write_text("\n".join(lines))
    assert imports(tmp_path / "a.py") == {"look", "nn", "cli", "core"}


def test_the_package_is_typed():
    assert (PACKAGE / "py.typed").exists()


NEW_FOLDERS = {
    "artifact/save.py", "cli/demo/corpus.py", "core/manifest.py", "data/store.py", "data/subwords.py",
    "inference/engines/copies.py", "inference/engines/ctranslate2_convert.py", "inference/engines/int8_model.py",
    "training/checkpoint.py",
}  # fmt: skip
"""Files that write into a folder that was made for it just before, in which nobody can have planted a link."""


def test_everything_else_is_written_by_the_safe_writers_of_core():
    """`create_file`, `open_append`, `open_atomic`, `write_atomic`: nothing is written through a link."""
    found = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
                modes = [each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
                writes = name == "open" and any(set(mode) <= set("rwaxbt+") and set(mode) & set("wax+") for mode in modes)
                if writes or name in ("write_text", "write_bytes"):
                    found.add(str(path.relative_to(PACKAGE)))
    assert found - NEW_FOLDERS == {"core/files.py"}


def test_every_test_file_has_a_name_of_its_own():
    names = sorted(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert len(names) == len(set(names)), "pytest tells test files apart by their names"
