"""Hostile input to the other verbs: prompts, texts and images, corpora for a student, trees, packages of the demo."""

from __future__ import annotations

import io
import json
import random
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np

from attacks.folders import change_bytes, change_value, sign
from attacks.trial import Attack, Trial
from attacks.world import make_pairs, odd_line

SCRAPS = [
    b"\x00",
    b"\xff",
    b"\xef\xbb\xbf",
    b"\r",
    b"\r\n",
    b"\n",
    b"\x85",
    "\u2028".encode(),
    b"\x1b[2J",
    b"\t",
    b" ",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"a",
    b"<unk>",
    b"</s>",
    b"<s>",
    b"<pad>",
    "▁".encode(),
    b"(",
    b")",
    b"((((((((",
    b"-LRB-",
    b"&lt;",
]


def odd_text(chance: random.Random, lines: int = 8, words: int = 12) -> bytes:
    """Lines of odd text and scraps of bytes; often without those that no text has, so that something else is reached."""
    scraps = (
        SCRAPS
        if chance.random() < 0.2
        else [each for each in SCRAPS if each.decode("utf-8", "ignore").encode() == each and each != b"\0"]
    )
    rows = []
    for _ in range(chance.randint(0, lines)):
        row = odd_line(chance, words).encode("utf-8", "surrogatepass")
        for _ in range(chance.randint(0, 4)):
            at = chance.randint(0, len(row))
            row = row[:at] + chance.choice(scraps) * chance.choice([1, 1, 2, 300 if words > 3 else 3]) + row[at:]
        rows.append(row)
    return b"\n".join(rows) + b"\n" * chance.randint(0, 2)


def continue_prompts(trial: Trial) -> str:
    """`generate` with odd prompts, from the command line and from stdin."""
    chance, text = trial.chance, odd_text(trial.chance, words=trial.chance.choice([1, 2, 12]))
    kind = chance.choice(["gpt", "gpt", "drawing", "bert", "transformer"])
    flags = chance.choice(
        [
            [],
            ["--n-best", "2"],
            ["--sample"],
            ["--sample", "--top-p", "0.5", "--seed", "3"],
            ["--max-extra", "1000"],
            ["--beam-size", "64"],
        ]
    )
    output = ["-o", trial.folder / "a.png"] if kind == "drawing" else []
    if chance.random() < 0.5:
        ended = trial.run("generate", trial.world.model(kind), "-", *flags, *output, "--threads", "1", stdin=text)
    else:
        prompts = text.replace(b"\0", b"").split(b"\n")[:4] or [b"a"]
        ended = trial.run("generate", trial.world.model(kind), *flags, *output, "--threads", "1", "--", *prompts)
    if ended.code == 0 and kind == "gpt":
        trial.check(len(ended.lines) % (2 if "--n-best" in flags else 1) == 0, f"{len(ended.lines)} lines")
        return "continued"
    return "refused" if ended.code else "drawn"


def classify_text(trial: Trial) -> str:
    """`classify` with odd text: a class for each line."""
    text = odd_text(trial.chance, 40)
    path = trial.folder / "in"
    path.write_bytes(text)
    ended = trial.run("classify", trial.world.model("bert"), path, "--threads", "1")
    if ended.code:
        return trial.refused(ended, str(path), "stdin")
    wanted = text.count(b"\n") + (not text.endswith(b"\n") and bool(text))
    trial.check(len(ended.lines) == wanted, f"{len(ended.lines)} classes for {wanted} lines")
    return "a class for each line"


def make_image(chance: random.Random) -> tuple[str, bytes]:
    """A picture of some format, or an IDX file, honest so far."""
    from PIL import Image

    kind = chance.choice(["png", "jpg", "gif", "bmp", "webp", "idx", "idx"])
    values = (
        np.random.default_rng(chance.randrange(1 << 30))
        .integers(0, 255, (chance.randint(1, 40), chance.randint(1, 40), 3))
        .astype(np.uint8)
    )
    if kind == "idx":
        shape = chance.choice([(2, 8, 8), (1, 5, 9), (3, 4, 4, 3), (0, 8, 8), (2, 0, 8), (4,), (1, 2, 3, 4, 5)])
        return kind, struct.pack(f">4B{len(shape)}I", 0, 0, 8, len(shape), *shape) + bytes(int(np.prod(shape)))
    sink = io.BytesIO()
    mode = chance.choice(["RGB", "L", "P", "1"]) if kind in ("png", "gif", "bmp") else "RGB"
    Image.fromarray(values).convert(mode).save(sink, {"jpg": "jpeg"}.get(kind, kind))
    return kind, sink.getvalue()


def png_bomb(chance: random.Random) -> bytes:
    """A PNG of a few kilobytes that says it has very many pixels."""
    width, height = chance.choice(
        [(4096, 4096), (5000, 5000), (20_000, 20_000), (65_535, 65_535), (2**31 - 1, 2**31 - 1), (2**31 - 1, 1), (0, 5)]
    )
    rows = zlib.compress(bytes(min(width * height, 1 << 24)), 9)
    chunks = [(b"IHDR", struct.pack(">2I5B", width, height, 8, 0, 0, 0, 0)), (b"IDAT", rows), (b"IEND", b"")]
    if chance.random() < 0.4:
        chunks.insert(1, (chance.choice([b"zTXt", b"iTXt", b"iCCP"]), b"a\0\0" + zlib.compress(bytes(1 << 26), 9)))
    parts = [struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def classify_images(trial: Trial) -> str:
    """`classify` and `score` with broken pictures, IDX files with headers that lie, and decompression bombs."""
    import gzip
    import lzma

    from undivided.data.text_files import zstd_module

    chance = trial.chance
    if chance.random() < 0.2:
        kind, content = "png", png_bomb(chance)
    else:
        kind, content = make_image(chance)
        for _ in range(chance.choice([0, 1, 1, 3, 10])):
            content = change_bytes(chance, content or b"\0")
        if kind == "idx" and chance.random() < 0.6:
            count = chance.choice([0, 1, 3, 4, 33, 65, 255])
            shape = [chance.choice([0, 1, 2, 8, 255, 65_536, 2**32 - 1]) for _ in range(count)]
            content = struct.pack(f">4B{count}I", 0, 0, 8, count, *shape) + content[:100]
    packed = chance.choice(["", "", ".gz", ".xz", ".zst"]) if kind == "idx" else ""
    content = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstd_module().compress}[packed](content)
    if packed and chance.random() < 0.5:
        content = change_bytes(chance, content)
    path = trial.folder / f"i.{kind}{packed}"
    path.write_bytes(content)
    model, labels = trial.world.model("vision"), trial.world.home / "labels"
    commands = [
        ["classify", model, path],
        ["classify", model, path],
        ["score", path, labels, "--model", model],
        ["score", trial.world.home / "images.idx", path, "--model", model],
        ["train", "--model.kind", "vision", "--train", path, labels, "--out", trial.folder / "m", "--max-steps", "1"],
    ]
    ended = trial.run(*chance.choice(commands))
    trial.check(ended.peak - trial.world.right["base"] < 1500 << 20, f"took {ended.peak >> 20} MiB: {ended.command}")
    return "refused" if ended.code else "classified"


def teach(trial: Trial) -> str:
    """`distill` with odd corpora, or with a teacher whose settings were changed and signed anew."""
    from undivided.artifact import demand

    chance, world = trial.chance, trial.world
    teacher, pairs = world.model("transformer"), [trial.folder / "s", trial.folder / "t"]
    rows = make_pairs(20, chance.randrange(1000))
    for side, path in enumerate(pairs):
        good = "".join(f"{pair[side]}\n" for pair in rows).encode()
        path.write_bytes(
            good
            if chance.random() < 0.6
            else chance.choice([good + odd_text(chance), odd_text(chance, 40), b"", change_bytes(chance, good)])
        )
    if chance.random() < 0.4:
        teacher = world.copy(chance.choice(world.kinds), trial.folder / "teacher")
        config = change_value(chance, json.loads((teacher / "config.json").read_text(encoding="utf-8")))
        (teacher / "config.json").write_text(json.dumps(config), errors="surrogatepass")
        sign(teacher)

    def bound() -> None:
        demand.memory_limit = lambda: 1 << 30

    flags = ["--max-steps", "1", "--vocab-size", str(chance.choice([280, 300, 320])), "--preset", "tiny", "-q", "--threads", "1"]
    ended = trial.run("distill", teacher, "--train", *pairs, "--out", trial.folder / "student", *flags, before=bound, timeout=100)
    return "refused" if ended.code else "taught"


TREES = [
    "(S (NP (DT the) (NN dog)) (VP (VBZ sees) (NP (DT a) (NN tree))))",
    "(S (NP (PRP I)) (VP (VBP go)))",
    "(TOP (S (VP (VB Go))))",
    "()",
    "(",
    ")",
    "(S",
    "(S ())",
    "(S a b)",
    "((S (X y)))",
    "(-NONE- *)",
    "(S (-NONE- *T*-1))",
    "(S|<X> (Y z))",
]


def read_trees(trial: Trial) -> str:
    """`paper`: broken trees, odd text to parse, hostile numbers for tables."""
    chance, world = trial.chance, trial.world
    folder = trial.folder / "trees"
    folder.mkdir()
    for name in ("train", "dev", "test"):
        rows = [chance.choice(TREES[:3] if chance.random() < 0.8 else TREES) for _ in range(chance.randint(0, 30))]
        if chance.random() < 0.1:
            rows.append("(S " * chance.choice([200, 3000, 50_000]) + "(X y)" + ")" * chance.choice([0, 200, 3000, 50_000]))
        content = "\n".join(rows).encode()
        (folder / f"{name}.mrg").write_bytes(change_bytes(chance, content or b"(") if chance.random() < 0.3 else content)
    if chance.random() < 0.1:
        (folder / "dev.mrg").unlink()
    odd = trial.folder / "odd"
    odd.write_bytes(odd_text(chance))
    number = lambda: chance.choice(["0", "1", "-1", "nan", "1e9", "99999999999", "", "2,2", ","])  # noqa: E731
    commands: list[list[str | Path]] = [
        ["paper", "table4", "--trees", folder, "--out", trial.folder / "o"],
        ["paper", "table4", "--trees", folder, "--out", trial.folder / "o", "--first", number(), "--grafts", number()],
        ["paper", "parse", world.model(chance.choice(world.kinds)), odd, "--threads", "1"],
        [
            "paper",
            "table1",
            "--n",
            number(),
            "--d",
            number(),
            "--batch",
            number(),
            "--repetitions",
            number(),
            "--report",
            trial.folder / "r.md",
        ],
        ["paper", "table3", odd, "--out", trial.folder / "o", "--seeds", number(), "--rows", number()],
        ["paper", "table2", "--data", folder, "--out", trial.folder / "o"],
        ["paper", "race", "--train", odd, odd, "--models", number(), "--out", trial.folder / "o", "--seeds", number()],
        ["paper", "faq", "--only", number() or "x", "--out", trial.folder / "o", "--quick"],
    ]
    from attacks.texts import limited

    return limited(trial, chance.choice([*commands[:3], *commands]))


def make_wheel(chance: random.Random) -> bytes:
    """A package with translations, honest so far."""
    texts = [odd_line(chance) for _ in range(20)]
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as package:
        for lang in ("en", "de"):
            value: object = {f"k{number}": text for number, text in enumerate(texts)}
            deep = chance.choice([0, 0, 1, 900, 100_000])
            content = '{"a":' * deep + json.dumps(value) + "}" * deep
            package.writestr(f"a/translations/{lang}.json", content)
            if chance.random() < 0.2:
                package.writestr(f"../../translations/{lang}.json", bytes(chance.choice([10, 9 << 20])))
    return sink.getvalue()


def feed_demo(trial: Trial) -> str:
    """`demo` with packages that are damaged, nested too deep, or full of links and huge pages."""
    chance = trial.chance
    wheel, use_pages = make_wheel(chance), chance.random() < 0.5
    for _ in range(chance.choice([0, 1, 3])):
        wheel = change_bytes(chance, wheel)
    page = b"<html>" + b"".join(
        b'<p id="par_id%d">%s</p><h1 id=hd_id%d>%s' % (n, odd_text(chance, 1), n, odd_text(chance, 1)) for n in range(20)
    )

    def run(command: list[str], folder: Path) -> None:
        from undivided.cli.demo import corpus

        if command[0] == "apt-get":
            if not use_pages:
                raise corpus.Unavailable("not here")
            for lang in ("en-US", "de"):
                text = folder / "usr" / "help" / lang / "text"
                text.mkdir(parents=True, exist_ok=True)
                for number in range(3):
                    (text / f"{number}.html").write_bytes(change_bytes(chance, page))
                (text / "link.html").unlink(missing_ok=True)
                (text / "link.html").symlink_to("/etc/passwd")
        elif command[0] != "dpkg-deb":
            (folder / "x.whl").write_bytes(wheel)

    def patch() -> None:
        from undivided.cli.demo import corpus

        corpus.run = run
        corpus.ENOUGH_PAIRS = chance.choice([1, 2500])
        corpus.HELD_OUT = 2

    ended = trial.run(
        "demo",
        "--out",
        trial.folder / "demo",
        "--minutes",
        chance.choice(["0.005", "nan", "-1", "1e300"]),
        before=patch,
        timeout=100,
    )
    return "refused" if ended.code else "trained"


ATTACKS = [
    Attack(
        "prompts", "generate",
        "`generate` with odd prompts by flag and stdin, odd search settings, models of other kinds",
        70, continue_prompts, 100,
    ),
    Attack(
        "texts to classify", "classify",
        "`classify` with odd text: a class for each line, or refused",
        50, classify_text, 80,
    ),
    Attack(
        "images to classify", "classify",
        "broken PNG, JPEG, GIF, BMP, WebP, IDX files whose headers lie, bombs; `classify`, `score`, `train`",
        150, classify_images, 80,
    ),
    Attack(
        "students", "distill",
        "`distill` from odd corpora and from teachers with changed settings, signed anew",
        30, teach, 130,
    ),
    Attack(
        "trees and tables", "paper",
        "`paper` with broken trees, odd text to parse, hostile numbers",
        60, read_trees, 90,
    ),
    Attack(
        "packages of the demo", "demo",
        "`demo` with damaged packages, links, deep nesting, hostile minutes",
        30, feed_demo, 130,
    ),
]  # fmt: skip
