import os
import subprocess
import sys

import pytest

from samples import environment
from undivided.core import files
from undivided.core.errors import InputError
from undivided.core.files import (
    build_folder,
    create_file,
    open_append,
    open_atomic,
    parse_json,
    read_bounded,
    read_json,
    sha256_of,
    write_atomic,
)
from undivided.core.locks import lock_folder, try_lock_folder


def test_bounded_reading(tmp_path):
    (tmp_path / "a").write_bytes(b"12345")
    assert read_bounded(tmp_path / "a", 5) == b"12345"
    with pytest.raises(InputError, match="more than 4 bytes"):
        read_bounded(tmp_path / "a", 4)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[1]", b"3", b"null", b"[" * 200_000, b'{"a":' * 200_000, b"9" * 10_000])
def test_odd_json(tmp_path, content):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(InputError, match=r"a\.json: damaged"):
        read_json(tmp_path / "a.json")
    with pytest.raises(InputError, match="damaged"):
        read_json(tmp_path / "a.json", limit=3) if len(content) > 3 else read_json(tmp_path / "a.json")


def test_json(tmp_path):
    (tmp_path / "a.json").write_text('{"a": [1, "ü"]}', encoding="utf-8")
    assert read_json(tmp_path / "a.json") == {"a": [1, "ü"]}
    with pytest.raises(InputError, match=r"none\.json: missing"):
        read_json(tmp_path / "none.json")
    with pytest.raises(ValueError, match="nested too deep"):
        parse_json(b"[" * 100_000)


def test_nothing_is_written_through_a_link(tmp_path):
    (tmp_path / "precious").write_text("mine")
    for name in ("fresh", "whole", "dangling"):
        (tmp_path / name).symlink_to(tmp_path / ("none" if name == "dangling" else "precious"))
    with create_file(tmp_path / "fresh") as stream:
        stream.write(b"new")
    with create_file(tmp_path / "dangling") as stream:
        stream.write(b"new")
    write_atomic(tmp_path / "whole", b"new")
    assert (tmp_path / "precious").read_text() == "mine"
    assert not (tmp_path / "none").exists()
    assert all((tmp_path / name).read_bytes() == b"new" for name in ("fresh", "whole", "dangling"))


def test_what_is_added_to_is_a_plain_file_of_its_own(tmp_path):
    for _ in range(2):
        with open_append(tmp_path / "log") as stream:
            stream.write(b"line\n")
    assert (tmp_path / "log").read_bytes() == b"line\nline\n"
    (tmp_path / "link").symlink_to(tmp_path / "log")
    (tmp_path / "dangling").symlink_to(tmp_path / "none")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "dangling", "pipe"):
        with pytest.raises(InputError, match="is no plain file"):
            open_append(tmp_path / name)
    assert not (tmp_path / "none").exists()
    os.link(tmp_path / "log", tmp_path / "twin")
    with open_append(tmp_path / "twin") as stream:
        stream.write(b"more\n")
    assert (tmp_path / "twin").read_bytes() == b"line\nline\nmore\n"
    assert (tmp_path / "log").read_bytes() == b"line\nline\n"


def test_write_atomic_keeps_the_old_file_when_it_fails(tmp_path, monkeypatch):
    write_atomic(tmp_path / "a", b"old")

    def full(_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            write_atomic(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"old"
    write_atomic(tmp_path / "a", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


HOLDER = """
import sys, time
from pathlib import Path
from undivided.core.locks import lock_folder, try_lock_folder
with lock_folder(Path(sys.argv[1]), "busy"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_folder_is_held_by_one_process_and_free_when_it_dies(tmp_path):
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment()) as holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(InputError, match="busy"), lock_folder(tmp_path, "busy"):
            pass
        holder.kill()
    with lock_folder(tmp_path, "busy"):
        pass


def test_a_lock_is_no_link(tmp_path):
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "lock").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="lock"), lock_folder(tmp_path, "busy"):
        pass
    assert (tmp_path / "precious").read_text() == "mine"


def test_sha256(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    assert sha256_of(tmp_path / "a") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    with pytest.raises(InputError, match="cannot be read"):
        sha256_of(tmp_path / "none")


def test_a_stream_replaces_a_file_at_its_end_and_leaves_nothing_after_an_error(tmp_path):
    (tmp_path / "a").write_bytes(b"old")
    with open_atomic(tmp_path / "a") as stream:
        stream.write(b"new")
        assert (tmp_path / "a").read_bytes() == b"old"
        assert f".{os.getpid()}." in next(path.name for path in tmp_path.iterdir() if path.name != "a")
    assert (tmp_path / "a").read_bytes() == b"new"
    with pytest.raises(TypeError), open_atomic(tmp_path / "a") as stream:
        stream.write("no bytes")
    assert (tmp_path / "a").read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_text_is_written_as_utf_8(tmp_path):
    write_atomic(tmp_path / "a", "ü\n")
    assert (tmp_path / "a").read_bytes() == "ü\n".encode()


def test_a_folder_takes_its_name_when_it_is_whole(tmp_path):
    for content in ("old", "new"):
        with build_folder(tmp_path / "parent" / "a") as building:
            (building / "part").write_text(content)
        assert (tmp_path / "parent" / "a" / "part").read_text() == content
    with pytest.raises(OSError, match="missing"), build_folder(tmp_path / "parent" / "a") as building:
        (building / "missing" / "part").write_text("half")
    assert (tmp_path / "parent" / "a" / "part").read_text() == "new"
    assert [path.name for path in (tmp_path / "parent").iterdir()] == ["a"]


def test_a_lock_of_an_older_release_excludes_us(tmp_path):
    """They lock the same file in the same way."""
    fcntl = pytest.importorskip("fcntl")
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(InputError, match="busy"), lock_folder(tmp_path, "busy"):
            pass
    with lock_folder(tmp_path, "busy"):
        pass


def test_a_folder_is_locked_once(tmp_path):
    with try_lock_folder(tmp_path) as first, try_lock_folder(tmp_path) as second:
        assert (first, second) == (True, False)
    with try_lock_folder(tmp_path) as again:
        assert again
    assert not list(tmp_path.iterdir())


BUILDER = """
import sys, time
from pathlib import Path
from undivided.core.files import build_folder
with build_folder(Path(sys.argv[1])) as building:
    (building / "part").write_text("half")
    print("built", flush=True)
    time.sleep(60)
"""


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_builds_is_not(tmp_path):
    command = [sys.executable, "-c", BUILDER]
    (tmp_path / "precious").mkdir()
    (tmp_path / "store-z.1.building").symlink_to(tmp_path / "precious")
    with (
        subprocess.Popen([*command, str(tmp_path / "store-a")], stdout=subprocess.PIPE, env=environment()) as killed,
        subprocess.Popen([*command, str(tmp_path / "store-b")], stdout=subprocess.PIPE, env=environment()) as living,
    ):
        assert killed.stdout.readline() == living.stdout.readline() == b"built\n"
        killed.kill()
        killed.wait()
        with build_folder(tmp_path / "store-c"):
            pass
        left = {path.name for path in tmp_path.iterdir()}
        living.kill()
    assert left == {"precious", "store-z.1.building", f"store-b.{living.pid}.building", "store-c"}


def test_a_folder_is_on_the_disk_before_it_takes_its_name(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(files, "fsync", lambda path: synced.append((path.name, (tmp_path / "a").exists())))
    with build_folder(tmp_path / "a") as building:
        (building / "part").write_text("whole")
    assert ("part", False) in synced
    assert (building.name, False) in synced
    assert synced[-1] == (tmp_path.name, True)


@pytest.mark.skipif(os.name == "nt", reason="Windows removes nothing")
def test_the_part_of_a_killed_process_is_removed_by_the_next_that_writes_there(tmp_path):
    out = tmp_path / "o[ut].txt"
    code = (
        "import os, signal, sys; from pathlib import Path; from undivided.core.files import open_atomic\n"
        "with open_atomic(Path(sys.argv[1])) as stream:\n"
        "    stream.write(b'half' * int(sys.argv[2])); stream.flush(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    for size in ("0", "1"):  # Killed before and after something was written.
        subprocess.run([sys.executable, "-c", code, str(out), size], env=environment(), check=False)
        assert len(list(tmp_path.iterdir())) == 1
    mine = tmp_path / "o[ut].txt.7.part"
    mine.write_text("not ours")
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "o[ut].txt.8.undivided-part").symlink_to(tmp_path / "precious")
    with open_atomic(out) as held:
        held.write(b"new")
        with open_atomic(tmp_path / "other") as stream:
            stream.write(b"other")
        files.remove_abandoned_files(out, files.PART)
    assert out.read_bytes() == b"new"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["o[ut].txt", "o[ut].txt.7.part", "o[ut].txt.8.undivided-part", "other", "precious"]
    )


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_nothing_waits_for_a_pipe_that_has_the_name_of_a_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for read in (read_json, sha256_of, lambda path: read_bounded(path, 10)):
        with pytest.raises(InputError, match="pipe: is no plain file"):
            read(tmp_path / "pipe")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
@pytest.mark.parametrize("name", ["pipe", "link to a pipe", "link to a device"])
def test_no_file_takes_the_place_of_a_pipe_or_a_device(tmp_path, name):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link to a pipe").symlink_to(tmp_path / "pipe")
    (tmp_path / "link to a device").symlink_to("/dev/null")
    before = (tmp_path / name).lstat()
    with pytest.raises(InputError, match="is no plain file"):
        write_atomic(tmp_path / name, b"new")
    assert (tmp_path / name).lstat().st_ino == before.st_ino
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.skipif(os.name == "nt", reason="permissions as POSIX has them")
def test_a_file_keeps_its_permissions_and_takes_none_of_a_link(tmp_path):
    path = tmp_path / "private"
    path.write_bytes(b"old")
    path.chmod(0o600)
    write_atomic(path, b"new")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"new", 0o600)
    (tmp_path / "link").symlink_to(path)
    write_atomic(tmp_path / "link", b"newer")
    (tmp_path / "usual").touch()
    assert (tmp_path / "link").stat().st_mode == (tmp_path / "usual").stat().st_mode
    assert path.read_bytes() == b"new"
