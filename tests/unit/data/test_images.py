"""Images made like those that a model was trained on."""

import contextlib
import gzip
import lzma
import random
import re
import struct
import zlib

import numpy as np
import pytest

from undivided.core.errors import InputError
from undivided.data.images import fit_images, read_idx, read_images, read_labels
from undivided.data.text_files import zstd_module


def test_sizes_change_by_means_of_what_a_pixel_covers():
    image = np.array([[[[0, 100], [200, 100]]]], dtype=np.uint8)
    assert fit_images(image, 1, 1, 1).tolist() == [[[[100]]]]
    assert fit_images(image, 1, 4, 4)[0, 0].tolist() == [[0, 0, 100, 100]] * 2 + [[200, 200, 100, 100]] * 2
    assert fit_images(np.array([[[[0, 90, 180]]]], dtype=np.uint8), 1, 1, 2).tolist() == [[[[30, 150]]]]
    same = np.random.RandomState(1).randint(0, 256, (3, 1, 5, 7)).astype(np.uint8)
    assert (fit_images(same, 1, 5, 7) == same).all()


def test_colours_become_grey_and_grey_becomes_colours():
    red = np.zeros((1, 3, 2, 2), dtype=np.uint8)
    red[:, 0] = 200
    assert fit_images(red, 1, 2, 2).tolist() == [[[[60, 60], [60, 60]]]]
    assert fit_images(red[:, :1], 3, 2, 2).shape == (1, 3, 2, 2)
    with pytest.raises(InputError, match="2 channels, but this model was trained on 3"):
        fit_images(red[:, :2], 3, 2, 2)


def idx(shape, content=b""):
    return struct.pack(f">4B{len(shape)}I", 0, 0, 8, len(shape), *shape) + content


PACK = {".idx": bytes, ".gz": gzip.compress, ".xz": lzma.compress, ".zst": lambda content: zstd_module().compress(content)}


@pytest.mark.parametrize("suffix", PACK)
def test_an_idx_file_is_read_whole_and_damage_is_named(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    content = PACK[suffix](idx((2, 3, 3), bytes(range(18))))
    path.write_bytes(content)
    assert read_idx(path).tolist() == np.arange(18).reshape(2, 3, 3).tolist()
    for damaged in (content[: len(content) // 2], content[:20] + b"\xff" * (len(content) - 20), b""):
        path.write_bytes(damaged)
        for read in (read_idx, read_images, lambda path: read_labels(path, ["a", "b"])):
            if damaged and suffix == ".idx" and len(damaged) == len(content):
                continue  # Other values, as good as any.
            if not damaged and suffix == ".idx" and read not in (read_idx, read_images):
                continue  # An empty text.
            with pytest.raises(InputError, match=re.escape(str(path))):
                read(path)


@pytest.mark.parametrize("shape", [(0,) * 65, (1,) * 200, (2**31, 2**31), (2**32 - 1,), (1 << 30, 1)])
def test_headers_that_lie_take_no_memory(tmp_path, shape):
    (tmp_path / "a.idx").write_bytes(idx(shape, b"abc"))
    with pytest.raises(InputError, match=r"a\.idx: damaged"):
        read_idx(tmp_path / "a.idx")


@pytest.mark.parametrize("size", [(5000, 5000), (20_000, 20_000), (12_000, 10_000), (2**31 - 1, 1)])
def test_a_picture_that_says_it_is_enormous_is_refused(tmp_path, size):
    pytest.importorskip("PIL", reason="the extra vision is not installed")
    chunks = [(b"IHDR", struct.pack(">2I5B", *size, 8, 0, 0, 0, 0)), (b"IDAT", zlib.compress(bytes(1000))), (b"IEND", b"")]
    parts = [struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks]
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts))
    with pytest.raises(InputError, match=r"a\.png: "):
        read_images(tmp_path / "a.png")


def test_pictures_with_any_bytes_are_read_or_refused(tmp_path):
    image = pytest.importorskip("PIL.Image", reason="the extra vision is not installed")
    chance, made = random.Random(4), np.random.default_rng(1).integers(0, 255, (9, 7, 3)).astype(np.uint8)
    for kind in ("png", "jpeg", "gif", "bmp", "webp"):
        path = tmp_path / f"a.{kind}"
        image.fromarray(made).save(path, kind)
        content = path.read_bytes()
        for _ in range(60):
            changed = bytearray(content)
            for _ in range(chance.choice([1, 3, 20])):
                changed[chance.randrange(len(changed))] = chance.randrange(256)
            path.write_bytes(changed[: chance.choice([len(changed), chance.randrange(len(changed))])])
            with contextlib.suppress(InputError):
                assert read_images(path).ndim == 4
