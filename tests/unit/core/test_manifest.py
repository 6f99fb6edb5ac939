import json

import pytest

from undivided.core.errors import InputError
from undivided.core.manifest import NAME, current_folder, render, verify, write


@pytest.fixture
def folder(tmp_path):
    for name, content in (("a.txt", b"alpha"), ("b.bin", bytes(range(32)))):
        (tmp_path / name).write_bytes(content)
    write(tmp_path, ["a.txt", "b.bin"])
    return tmp_path


def test_whole(folder):
    assert verify(folder, ["a.txt"]) == ["a.txt", "b.bin"]


def test_every_single_bit_of_every_file_counts(folder):
    """All of them, not a sample: the manifest's own bits too."""
    for name in ("a.txt", "b.bin", NAME):
        content = (folder / name).read_bytes()
        for place in range(8 * len(content)):
            changed = bytearray(content)
            changed[place // 8] ^= 1 << place % 8
            (folder / name).write_bytes(changed)
            with pytest.raises(InputError, match=f"{name} is damaged"):
                verify(folder, ["a.txt"])
        (folder / name).write_bytes(content)
    verify(folder, ["a.txt"])


def test_every_truncation_counts(folder):
    for name in ("a.txt", "b.bin", NAME):
        content = (folder / name).read_bytes()
        for length in range(len(content)):
            (folder / name).write_bytes(content[:length])
            with pytest.raises(InputError, match=f"{name} is damaged"):
                verify(folder, ["a.txt"])
        (folder / name).write_bytes(content)


@pytest.mark.parametrize("compact", [False, True], ids=["a model folder", "a checkpoint"])
def test_what_0_1_0_wrote_is_read_and_every_bit_counts(folder, compact):
    sums = json.loads((folder / NAME).read_text())["sha256"]
    content = (json.dumps({"sha256": sums}) if compact else render(sums, sealed=False)).encode()
    (folder / NAME).write_bytes(content)
    assert verify(folder, ["a.txt"]) == ["a.txt", "b.bin"]
    for place in range(8 * len(content)):
        changed = bytearray(content)
        changed[place // 8] ^= 1 << place % 8
        (folder / NAME).write_bytes(changed)
        # Without a seal a wrong digest may be the fault of either; both are named.
        with pytest.raises(InputError, match=NAME):
            verify(folder, ["a.txt"])


def test_missing(folder):
    with pytest.raises(InputError, match=r"does not list c\.txt"):
        verify(folder, ["c.txt"])
    (folder / "b.bin").unlink()
    with pytest.raises(InputError, match=r"b\.bin is missing"):
        verify(folder, [])
    (folder / NAME).unlink()
    with pytest.raises(InputError, match=rf"{NAME} is missing"):
        verify(folder, [])


def test_added_spaces_and_doubled_keys_are_not_what_was_written(folder):
    text = (folder / NAME).read_text()
    for changed in (text + " ", text.replace("{", "{ ", 1), text.replace('  "sha256"', '  "sha256": {},\n  "sha256"', 1)):
        (folder / NAME).write_text(changed)
        with pytest.raises(InputError, match=f"{NAME} is damaged"):
            verify(folder, [])


def test_current(tmp_path):
    assert current_folder(tmp_path) == tmp_path
    (tmp_path / ".incoming").mkdir()
    assert current_folder(tmp_path) == tmp_path / ".incoming"


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "sub/a.txt", "..", ".", ".hidden", "c:x", "a\\b", "a b", ""])
def test_names_outside_of_the_folder_are_refused(folder, name):
    """A manifest may come from a stranger, who can write any sum and seal it."""
    inside = folder / "inside"
    (inside / "sub").mkdir(parents=True)
    (inside / "a.txt").write_bytes(b"alpha")
    sums = json.loads((folder / NAME).read_text())["sha256"]
    (inside / NAME).write_text(render({"a.txt": sums["a.txt"], name: sums["a.txt"]}))
    with pytest.raises(InputError, match="no file of this folder"):
        verify(inside, ["a.txt"])
