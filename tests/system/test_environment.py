"""Odd surroundings end in a sentence, never in a traceback: closed streams, locales, odd names, no home, too little memory."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from samples import environment, sentences, write_pairs
from undivided.artifact import demand
from undivided.core import process
from undivided.core.errors import InputError, UndividedError, describe_error
from undivided.core.files import check_folder_name, encode_text

FROZEN = Path(__file__).parent.parent / "contract" / "frozen-1"
C_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0"}
SMALL = ["--preset", "tiny", "--model.d_model", "16", "--model.n_heads", "2", "--vocab-size", "330", "--device", "cpu"]
UNDIVIDED = f"{sys.executable} -m undivided"

pytestmark = pytest.mark.skipif(os.name == "nt", reason="streams, locales and limits of POSIX")


@pytest.fixture
def home(tmp_path):
    """A working directory with a model and a text."""
    shutil.copytree(FROZEN, tmp_path / "m")
    (tmp_path / "in.txt").write_text("a dog\nhéllo\n", encoding="utf-8")
    return tmp_path


def shell(home, command, **env):
    """Run a line of shell; exit code, stdout and stderr, in which no traceback may be."""
    done = subprocess.run(["bash", "-c", command], cwd=home, env=environment(**env), capture_output=True, check=False, timeout=120)
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr
    return done.returncode, done.stdout.decode(), done.stderr.decode()


TRANSLATE = f"{UNDIVIDED} translate m in.txt --engine torch --threads 1"


@pytest.mark.parametrize("verb", [TRANSLATE, f"{UNDIVIDED} score --help", f"{UNDIVIDED} plan --preset tiny"])
def test_results_for_a_closed_stdout_are_a_failure(home, verb):
    code, _, err = shell(home, f"{verb} >&-")
    assert code == 1
    assert "stdout is closed" in err
    assert shell(home, f"{verb} >&- 2>&-")[0] == 1


def test_a_closed_stdout_does_not_matter_to_a_file(home):
    assert shell(home, f"{TRANSLATE} -o out.txt >&-")[0] == 0
    assert len((home / "out.txt").read_text(encoding="utf-8").splitlines()) == 2


def test_messages_for_a_closed_stderr_are_dropped(home):
    code, out, _ = shell(home, f"{TRANSLATE} 2>&-")
    assert (code, len(out.splitlines())) == (0, 2)
    assert shell(home, f"{UNDIVIDED} translate none in.txt 2>&-")[0] == 2


def test_no_file_becomes_stdout_or_stderr(home):
    """A file that is opened while stderr is closed would get its number, and what libraries print there."""
    assert shell(home, f"{TRANSLATE} -o out.txt 0<&- >&- 2>&-")[0] == 0
    assert len((home / "out.txt").read_text(encoding="utf-8").splitlines()) == 2


def test_a_closed_stdin_is_named(home):
    code, _, err = shell(home, f"{UNDIVIDED} translate m --engine torch --threads 1 <&-")
    assert code == 1
    assert "stdin or stdout is closed" in err


@pytest.mark.parametrize("verb", ["train", "translate", "look", "plan", "paper"])
def test_help_in_the_c_locale(home, verb):
    code, out, _ = shell(home, f"{UNDIVIDED} {verb} --help", **C_LOCALE)
    assert code == 0
    assert "usage: undivided" in out


def test_text_and_names_in_the_c_locale(home):
    (home / "m").rename(home / "mö")
    with_utf8 = shell(home, f"{UNDIVIDED} look mö 'a dög'")
    assert shell(home, f"{UNDIVIDED} look mö 'a dög'", **C_LOCALE)[:2] == with_utf8[:2]
    assert shell(home, f"{UNDIVIDED} translate mö in.txt --threads 1", **C_LOCALE)[0] == 0
    (home / "r.yaml").write_text("data: {train: [[dö.en, dö.de]]}\ntrain: {out: q}\n", encoding="utf-8")
    code, _, err = shell(home, f"{UNDIVIDED} train r.yaml", **C_LOCALE)
    assert code == 2
    assert "cannot be a file name in this locale" in err


@pytest.mark.parametrize("env", [{}, C_LOCALE])
def test_corpora_whose_names_are_not_utf8(tmp_path, env):
    for path in write_pairs(tmp_path, "t", sentences(40)):
        os.rename(path, os.fsencode(path).replace(b"/t.", b"/t\xff."))
    train = f"{UNDIVIDED} train --train t?.src t?.tgt --valid t?.src t?.tgt --out m {' '.join(SMALL)}"
    for steps in (1, 2):  # The second resumes.
        code, _, err = shell(tmp_path, f"{train} --max-steps {steps}", **env)
        assert code == 0, err
    facts = json.loads((tmp_path / "m" / "config.json").read_text(encoding="utf-8"))["facts"]
    assert "t\udcff.src" in json.dumps(facts, ensure_ascii=False)
    assert "t\\udcff.src" in (tmp_path / "m" / "README.md").read_text(encoding="utf-8")
    assert shell(tmp_path, f"{UNDIVIDED} translate m t?.src --engine torch -o $'o\\xfe.txt'", **env)[0] == 0
    assert os.path.exists(os.fsencode(tmp_path) + b"/o\xfe.txt")


def test_a_model_folder_must_have_a_utf8_name(home):
    with pytest.raises(InputError, match="must be UTF-8"):
        check_folder_name("m\udcff")
    check_folder_name("mö")
    os.rename(home / "m", os.fsencode(home) + b"/m\xff")
    for command in ("translate m? in.txt", f"train --train in.txt in.txt --out $'n\\xff' {' '.join(SMALL)}"):
        code, _, err = shell(home, f"{UNDIVIDED} {command}")
        assert code == 2
        assert "the name of a model folder must be UTF-8" in err
    assert not os.path.exists(os.fsencode(home) + b"/n\xff")


def test_spelled_out_names_are_the_same_in_json():
    assert json.loads(encode_text(json.dumps({"é": "t\udcff"}, ensure_ascii=False))) == {"é": "t\udcff"}


def test_text_of_the_command_line_must_be_utf8():
    assert process.argument_text("dög") == "dög"
    with pytest.raises(InputError, match="not valid UTF-8"):
        process.argument_text("d\udcffg")


def test_no_home_and_no_entry_in_passwd(home):
    """As in a container that runs under a number which no user has."""
    code = (
        "import os, pwd, sys\n"
        "def nobody(number): raise KeyError(number)\n"
        "pwd.getpwuid = nobody\n"
        "from undivided.cli import main\n"
        "sys.exit(main(['translate', 'm', 'in.txt', '--engine', 'torch', '--threads', '1']))"
    )
    bare = {name: value for name, value in environment().items() if name not in ("HOME", "XDG_CACHE_HOME", "USER", "LOGNAME")}
    done = subprocess.run([sys.executable, "-c", code], cwd=home, env=bare, capture_output=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 2


@pytest.mark.parametrize("kilobytes", [200_000, 350_000, 550_000, 700_000])
@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
def test_too_little_address_space_is_said(home, kilobytes, engine):
    command = f"ulimit -v {kilobytes}; {UNDIVIDED} translate m in.txt --engine {engine}"
    code, out, err = shell(home, command)
    assert (code, out) == (1, "")
    assert f"{kilobytes * 1024 >> 20:,} MiB of address space (ulimit -v), and needs at least 1," in err
    assert code not in (-signal.SIGABRT, 128 + signal.SIGABRT, 128 + signal.SIGSEGV)


def test_more_threads_need_more_address_space(monkeypatch):
    monkeypatch.setattr(process, "address_limit", lambda: 8 << 30)
    process.check_memory_limit(8)
    with pytest.raises(UndividedError, match="8,192 MiB"):
        process.check_memory_limit(1024)
    monkeypatch.setattr(process, "address_limit", lambda: None)
    process.check_memory_limit(1024)


def test_the_memory_of_a_container_counts(tmp_path, monkeypatch):
    own = tmp_path / "cgroup"
    groups = {"2": ("sys/fs/cgroup", "memory.max", ""), "1": ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory")}
    for version, (top, name, controller) in groups.items():
        home = tmp_path / version
        inner = home / top / "user" / "job"
        inner.mkdir(parents=True)
        own.write_text(f"12:cpu,cpuacct:/x\n3:{controller}:/user/job\n")
        assert list(process.container_limits(home, own)) == []
        (inner / name).write_text("max\n")
        (inner.parent / name).write_text(f"{3 << 30}\n")
        assert list(process.container_limits(home, own)) == [3 << 30]
        # Within a container, its own group is mounted at the top.
        own.write_text(f"3:{controller}:/../elsewhere\n")
        (home / top / name).write_text(f"{2 << 30}\n")
        assert 2 << 30 in process.container_limits(home, own)
    assert list(process.container_limits(tmp_path, tmp_path / "none")) == []
    assert 0 < process.usable_memory() <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    monkeypatch.setattr(process, "container_limits", lambda: iter([5 << 30]))
    monkeypatch.setattr(process, "address_limit", lambda: None)
    assert process.usable_memory() == min(5 << 30, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    monkeypatch.setattr(process, "address_limit", lambda: 4 << 30)
    assert demand.memory_limit() == 2 << 30


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
        RuntimeError("can't start new thread"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
        RuntimeError("std::bad_alloc"),
    ],
)
def test_too_little_memory_is_said(error):
    assert describe_error(error)[1] == 1
    assert "not enough memory" in describe_error(error)[0]


def test_what_onednn_says_where_memory_is_limited(monkeypatch):
    error = RuntimeError("could not create a primitive")
    monkeypatch.setattr(process, "address_limit", lambda: None)
    assert process.describe_limit(error) is None
    monkeypatch.setattr(process, "address_limit", lambda: 2 << 30)
    assert process.describe_limit(error) == ("not enough memory; raise the limit: ulimit -v unlimited", 1)
    assert process.describe_limit(RuntimeError("some bug")) is None


def test_errors_that_nobody_foresaw_keep_their_traceback():
    assert describe_error(RuntimeError("some bug")) is None
    assert describe_error(UnicodeEncodeError("latin-1", "ö", 0, 1, "no")) is None
