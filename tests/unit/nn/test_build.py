"""Kernels are there wherever a C compiler is, and those that compute something else are not used."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from undivided.nn import library
from undivided.nn.library import open_kept, why_no_kernels

HERE = Path(library.__file__).parent
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


def built(path: Path) -> None:
    path.write_bytes(b"ours")


def test_a_kept_library_is_used_again(tmp_path):
    for build in (built, None):
        with open_kept(tmp_path / "kernels.so", build) as library:
            assert library.read() == b"ours"


@pytest.mark.parametrize("kind", ["link", "twin", "owner", "mode", "content", "no digest", "pipe", "digest of another"])
def test_a_library_that_is_not_what_this_user_built_is_built_again(tmp_path, kind):
    path, digest = tmp_path / "kernels.so", tmp_path / "kernels.so.sha256"
    open_kept(path, built).close()
    stranger = tmp_path / "stranger"
    if kind in ("link", "twin"):
        path.rename(stranger)
        (os.symlink if kind == "link" else os.link)(stranger, path)
    elif kind == "owner":
        if os.geteuid():
            pytest.skip("only root can give files away")
        os.chown(path, 12345, -1)
    elif kind == "mode":
        path.chmod(0o722)
    elif kind == "content":
        path.write_bytes(b"evil")
    elif kind == "no digest":
        digest.unlink()
    elif kind == "pipe":
        path.unlink()
        os.mkfifo(path)
    else:
        digest.write_text("0" * 64)
    again = []

    def rebuilt(made: Path) -> None:
        again.append(made)
        built(made)

    with open_kept(path, rebuilt) as library:
        assert library.read() == b"ours"
        assert os.fstat(library.fileno()).st_uid == os.geteuid()
    assert len(again) == 1
    assert not path.is_symlink()


def test_kernels_are_loaded_from_the_file_that_was_checked(tmp_path, python):
    code = "from undivided.nn.library import why_no_kernels; print(why_no_kernels() or 'loaded')"
    said = python(code, XDG_CACHE_HOME=str(tmp_path))
    (library,) = (tmp_path / "undivided").glob("kernels-*.so")
    assert said == "loaded\n"
    # A library of the same name that a stranger left: a link to something that is no library.
    library.unlink()
    (tmp_path / "evil").write_text("evil")
    library.symlink_to(tmp_path / "evil")
    assert python(code, XDG_CACHE_HOME=str(tmp_path)) == said
    assert (tmp_path / "evil").read_text() == "evil"
