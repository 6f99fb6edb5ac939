"""Kernels are there wherever a C compiler is, and those that compute something else are not used."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from undivided.nn import backend
from undivided.nn.backend.library import why_no_kernels

HERE = Path(backend.__file__).parent
COMPILER = shutil.which("cc")

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler here")


def test_where_there_is_a_compiler_there_are_kernels():
    assert why_no_kernels() == ""


@pytest.mark.parametrize(
    ("file", "right", "wrong", "code"),
    [
        ("layers.c", "", "", 0),
        ("layers.c", "float mean = total / (float)width;", "float mean = 0;", 1),
        ("loss.c", "__builtin_log((double)*total)", "(double)*total", 1),
    ],
    ids=["right", "norm", "softmax"],
)
def test_a_library_is_tried_before_it_is_used(tmp_path, file, right, wrong, code):
    copied = Path(shutil.copytree(HERE / "c", tmp_path / "c"))
    source = (copied / file).read_text()
    assert not right or source.count(right) == 1
    (copied / file).write_text(source.replace(right, wrong) if right else source)
    library = str(tmp_path / "kernels.so")
    build = [str(COMPILER), "-O1", "-std=gnu11", "-shared", "-fPIC", "-w", "-march=native", *map(str, copied.glob("*.c"))]
    subprocess.run([*build, "-o", library, "-lm"], check=True, capture_output=True)
    assert subprocess.run([sys.executable, "-I", str(HERE / "trial.py"), library], check=False).returncode == code


NAN_PROGRAM = """
#include "vectors.h"
int main(void) {
    wide result = exp_lanes(broadcast(__builtin_nanf("")));
    for (int i = 0; i < WIDE; i++)
        if (result[i] == result[i]) return 2;
    return 0;
}
"""


def test_exponentials_of_nan_are_nan_without_undefined_behaviour(tmp_path):
    (tmp_path / "main.c").write_text(NAN_PROGRAM)
    checks = ["-fsanitize=signed-integer-overflow,shift", "-fno-sanitize-recover=all"]
    build = [str(COMPILER), "-O1", "-std=gnu11", "-w", "-march=native", *checks, f"-I{HERE / 'c'}", str(tmp_path / "main.c"), "-o"]
    if subprocess.run([*build, str(tmp_path / "main"), "-lm"], check=False, capture_output=True).returncode:
        pytest.skip("this compiler has no sanitizer")
    done = subprocess.run([tmp_path / "main"], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
