"""Every process that the package starts is isolated: a module that lies in the working directory is never imported."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import undivided
from samples import environment, write_lines

SOURCES = Path(undivided.__file__).parent
NAMES = ("sentencepiece", "torch", "numpy", "json", "pip", "ctypes", "undivided", "filelock", "safetensors")
STARTERS = {
    "cli/demo/corpus.py": "from pathlib import Path; from undivided.cli.demo import corpus; "
    "corpus.run = lambda command, folder: __import__('subprocess').run([*command, '--help'], capture_output=True, check=True); "
    "from undivided.core.console import Console; list(corpus.home_assistant('de', Path('.').resolve(), Console(quiet=True)))",
    "inference/comet.py": "import sys; from undivided.inference import comet\n"
    "try: comet.comet_score(sys.executable, ['a'], ['b'], ['c'])\n"
    "except comet.InputError as error: assert 'has no comet' in str(error)",
    "inference/workers/process_pool.py": "",
    "interop/bergamot_parity.py": "from undivided.interop.bergamot_parity import run_peer\n"
    "assert run_peer('import json, sentencepiece; print(\"RESULT[1]\")', []) == [1]",
    "nn/backend/bfloat16.py": "from undivided.nn.backend.bfloat16 import _measure_in_a_process as ask; assert ask() > 0",
    "nn/library/__init__.py": "from undivided.nn.library import why_no_kernels; print(why_no_kernels())",
    "serve/workers.py": "",
}
"""Each file that starts processes, with a program that makes it do so."""


@pytest.fixture
def trapped(tmp_path):
    """A working directory full of modules that leave a trace when they are imported."""
    home = tmp_path / "here"
    home.mkdir()
    for name in NAMES:
        (home / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write({name!r})\nraise SystemExit(9)\n")
    return home


def test_the_trap_works(trapped):
    subprocess.run([sys.executable, "-m", "sentencepiece"], cwd=trapped, env=environment(), check=False)
    assert (trapped.parent / "ran").read_text() == "sentencepiece"


def test_every_place_that_starts_a_process_is_tried_here():
    found = {
        str(path.relative_to(SOURCES))
        for path in SOURCES.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in ("Popen", "run", "check_output", "call", "check_call")
        if isinstance(node.value, ast.Name) and node.value.id == "subprocess"
    }
    assert found == set(STARTERS)


def test_every_python_is_started_without_the_working_directory():
    """`sys.executable` is followed by -P or -I wherever a command is built."""
    for name in STARTERS:
        for node in ast.walk(ast.parse((SOURCES / name).read_text(encoding="utf-8"))):
            if isinstance(node, ast.List) and node.elts and ast.unparse(node.elts[0]) == "sys.executable":
                assert ast.unparse(node.elts[1]) in ("'-P'", "'-I'"), name


@pytest.mark.parametrize("name", [name for name, program in STARTERS.items() if program])
def test_a_child_imports_nothing_from_the_working_directory(trapped, tmp_path, name):
    cache = environment(XDG_CACHE_HOME=str(tmp_path / "cache"))
    done = subprocess.run(
        [sys.executable, "-P", "-c", STARTERS[name]], cwd=trapped, env=cache, capture_output=True, check=False, timeout=200
    )
    assert not (tmp_path / "ran").exists()
    assert done.returncode == 0, done.stderr.decode()


def test_workers_import_nothing_from_the_working_directory(trapped, tmp_path, model):
    text = write_lines(tmp_path / "in", ["The dog sees a tree today."] * 3)
    command = [sys.executable, "-P", "-m", "undivided", "translate", model, text, "-o", tmp_path / "out", "--workers", "1", "-q"]
    done = subprocess.run(command, cwd=trapped, env=environment(), capture_output=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr.decode()
    assert not (tmp_path / "ran").exists()
    assert (tmp_path / "out").read_bytes().count(b"\n") == 3


def test_workers_of_a_server_import_nothing_from_the_working_directory(trapped, tmp_path, model):
    command = [sys.executable, "-P", "-m", "undivided", "serve", model, "--port", "0", "--workers", "2", "--threads", "1"]
    with subprocess.Popen(command, cwd=trapped, env=environment(), stderr=subprocess.PIPE, text=True) as server:
        lines = []
        for line in server.stderr:
            lines.append(line)
            if "serving at" in line:
                break
        server.terminate()
        assert server.wait(100) == 0, lines
    assert "serving at" in lines[-1]
    assert not (tmp_path / "ran").exists()
