"""Kernels are there wherever a C compiler is, and those that compute something else are not used."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from undivided.nn import backend
from undivided.nn.backend import kernels

HERE = Path(backend.__file__).parent
COMPILER = shutil.which("cc")

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler here")


def test_where_there_is_a_compiler_there_are_kernels():
    assert kernels.reason() == ""


@pytest.mark.parametrize(
    ("right", "wrong", "code"),
    [
        ("", "", 0),
        ("float mean = total / (float)width;", "float mean = 0;", 1),
        ("__builtin_log((double)*total)", "(double)*total", 1),
    ],
    ids=["right", "norm", "softmax"],
)
def test_a_library_is_tried_before_it_is_used(tmp_path, right, wrong, code):
    source = (HERE / "kernels.c").read_text()
    assert not right or source.count(right) == 1
    (tmp_path / "kernels.c").write_text(source.replace(right, wrong) if right else source)
    library = str(tmp_path / "kernels.so")
    build = [
        str(COMPILER),
        "-O1",
        "-std=gnu11",
        "-shared",
        "-fPIC",
        "-w",
        "-march=native",
        str(tmp_path / "kernels.c"),
        "-o",
        library,
    ]
    subprocess.run([*build, "-lm"], check=True, capture_output=True)
    assert subprocess.run([sys.executable, "-I", str(HERE / "trial.py"), library], check=False).returncode == code
