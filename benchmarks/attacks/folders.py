"""Model folders from a stranger: damaged, changed and signed anew, with weights that are no numbers, asking for too much."""

from __future__ import annotations

import json
import math
import random
import shutil
from pathlib import Path
from typing import Any

from attacks.trial import Attack, Broken, Trial, Verdict

GIB = 1 << 30
TRANSLATORS = ["transformer", "learned", "recurrent", "convolutional"]


def sign(folder: Path) -> None:
    """Make the manifest agree with what is there, as whoever makes a folder can."""
    from undivided.core import manifest

    manifest.write(
        folder, [part for part in json.loads((folder / manifest.NAME).read_text())["sha256"] if (folder / part).exists()]
    )


def change_bytes(chance: random.Random, content: bytes) -> bytes:
    """Flip, cut, repeat or overwrite some bytes."""
    changed = bytearray(content)
    match chance.randrange(5):
        case 0:
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
        case 1:
            del changed[chance.randrange(len(changed)) :]
        case 2:
            at = chance.randrange(len(changed))
            changed[at : at + chance.randint(1, 64)] = bytes(chance.randrange(256) for _ in range(chance.randint(0, 64)))
        case 3:
            at, size = chance.randrange(len(changed)), chance.randint(1, 4096)
            changed[at:at] = changed[at : at + size]
        case _:
            at = chance.randrange(len(changed))
            changed[at : at + 8] = chance.choice([b"\0" * 8, b"\xff" * 8, b"\x7f" + b"\xff" * 7])
    return bytes(changed)


def damage(trial: Trial) -> str:
    """Any changed byte of any part of a folder is refused, and the part named."""
    kind = trial.chance.choice(trial.world.kinds)
    folder = trial.world.copy(kind, trial.folder / "m")
    part = trial.chance.choice(sorted(path for path in folder.iterdir() if path.is_file() and path.name != "README.md"))
    content = part.read_bytes()
    while (changed := change_bytes(trial.chance, content)) == content:
        pass
    part.write_bytes(changed)
    return trial.refused(trial.run(*trial.world.command(kind, folder)), part.name)


HUGE = [0, 1, -1, 2, 3, 7, 255, 1000, 4096, 65536, 10**6, 2**31 - 1, 2**31, 2**32, 2**63, 10**30, 1e30, 1e-30, 0.5, 1e308]
ODD: list[Any] = [None, True, "", "x", [], {}, [1], "\x00", "∞", "1e9", float("nan"), float("inf"), "\ud800", {"a": []}, ["a"] * 50]


def change_value(chance: random.Random, value: Any, depth: int = 0) -> Any:
    """The same JSON with one value replaced, removed or added, anywhere."""
    if isinstance(value, dict) and value and (depth == 0 or chance.random() < 0.85):
        key = chance.choice(sorted(value))
        roll = chance.random()
        if roll < 0.08:
            return {name: each for name, each in value.items() if name != key}
        if roll < 0.12:
            return value | {chance.choice(["", "x", "__class__", "d_model", "\x1b"]): chance.choice(ODD)}
        return value | {key: change_value(chance, value[key], depth + 1)}
    if isinstance(value, list) and value and chance.random() < 0.5:
        at = chance.randrange(len(value))
        return [*value[:at], change_value(chance, value[at], depth + 1), *value[at + 1 :]]
    if isinstance(value, int | float) and not isinstance(value, bool) and chance.random() < 0.75:
        return chance.choice(HUGE)
    return chance.choice([*ODD, *HUGE])


def within_memory(trial: Trial, kind: str, folder: Path, *more: str) -> str:
    """Use a folder where it may take 1 GiB: it is refused, or works, and never takes much more."""
    from undivided.artifact import demand

    def bound() -> None:
        demand.memory_limit = lambda: GIB

    ended = trial.run(*trial.world.command(kind, folder), *more, before=bound, timeout=100)
    taken = ended.peak - trial.world.right.get("base", 0)
    trial.check(taken < 2 * GIB, f"took {taken / GIB:.1f} GiB beyond what Python has: {ended.err[-300:]}")
    if ended.code == 0:
        return "used"
    trial.check(ended.code == 2 or "not enough memory" in ended.err, f"exit code {ended.code}: {ended.err[-500:]}")
    return "refused"


def change_config(trial: Trial) -> str:
    """Settings, sizes and facts of a folder changed and signed anew."""
    kind = trial.chance.choice(trial.world.kinds)
    folder = trial.world.copy(kind, trial.folder / "m")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    for _ in range(trial.chance.choice([1, 1, 1, 2, 4])):
        config = change_value(trial.chance, config)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8", errors="surrogatepass")
    sign(folder)
    return within_memory(trial, kind, folder)


GREEDY = {
    "model": [
        "n_heads",
        "d_k",
        "d_v",
        "d_ff",
        "max_positions",
        "window",
        "image_height",
        "image_width",
        "patch",
        "codes",
        "channels",
    ],
    "data": ["max_length"],
    "search": ["beam_size", "max_extra", "n_best", "top_k"],
}


def ask_for_memory(trial: Trial) -> str:
    """Settings that weights do not contradict ask for as much as they can."""
    chance, kind = trial.chance, trial.chance.choice(trial.world.kinds)
    folder = trial.world.copy(kind, trial.folder / "m")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    for _ in range(chance.randint(1, 3)):
        section = chance.choice(list(GREEDY))
        key = chance.choice(GREEDY[section])
        if key in config["recipe"].get(section, {}):
            config["recipe"][section][key] = int(2 ** chance.uniform(1, 40))
    (folder / "config.json").write_text(json.dumps(config))
    sign(folder)
    return within_memory(trial, kind, folder)


def change_subwords(trial: Trial) -> str:
    """A subword model or a shortlist with changed bytes, signed anew."""
    kind = trial.chance.choice([kind for kind in trial.world.kinds if kind != "vision"])
    folder = trial.world.copy(kind, trial.folder / "m")
    part = trial.chance.choice([path for path in (folder / "subwords.model", folder / "shortlist.safetensors") if path.exists()])
    for _ in range(trial.chance.choice([1, 1, 3, 10])):
        part.write_bytes(change_bytes(trial.chance, part.read_bytes()) or b"\0")
    sign(folder)
    return within_memory(trial, kind, folder)


def change_weights(trial: Trial) -> str:
    """Weights that are NaN, infinite or enormous, signed anew: refused, or the results are numbers."""
    from safetensors.torch import load_file, save_file

    chance, kind = trial.chance, trial.chance.choice(trial.world.kinds)
    folder = trial.world.copy(kind, trial.folder / "m")
    tensors = load_file(folder / "model.safetensors")
    value = chance.choice([math.nan, math.inf, -math.inf, 3e38, -3e38, 1e30, 1e20])
    for name in chance.sample(sorted(tensors), min(len(tensors), chance.choice([1, 1, 2, 50]))):
        flat = tensors[name].view(-1)
        if chance.random() < 0.3:
            flat.fill_(value)
        else:
            for _ in range(chance.choice([1, 1, 5])):
                flat[chance.randrange(len(flat))] = value
    save_file(tensors, folder / "model.safetensors")
    sign(folder)
    command = trial.world.command(kind, folder)
    verb = chance.randrange(3) if kind in TRANSLATORS else 0
    if verb == 1:
        command = ["look", folder, "The dog sees a tree today."]
    elif verb == 2:
        command = ["score", trial.world.home / "few.src", trial.world.home / "few.tgt", "--model", folder, "--threads", "1"]
    ended = trial.run(*command)
    trial.check(b"nan" not in ended.out.lower(), f"a result that is no number: {ended.out[-200:]!r}")
    return "used" if ended.code == 0 else trial.refused(ended)


def damage_later(trial: Trial) -> str:
    """A folder that is damaged, replaced or removed after it was opened, before its weights are read."""
    from undivided.artifact import open_artifact
    from undivided.core.errors import UndividedError
    from undivided.inference.translator import Translator

    folder = trial.world.copy("transformer", trial.folder / "m")
    part = folder / trial.chance.choice(["model.safetensors", "model.safetensors", "config.json", "manifest.json"])
    artifact = open_artifact(folder, "cpu", 1)
    what = trial.chance.randrange(4)
    if what == 0:
        part.unlink()
    elif what == 1:
        shutil.rmtree(folder)
        trial.world.copy("learned", folder)
    elif what == 2:
        part.write_bytes(change_bytes(trial.chance, part.read_bytes()))
    else:
        content = part.read_bytes()
        part.write_bytes(content[: len(content) // 2] + bytes(len(content) - len(content) // 2))
    try:
        translator = Translator(artifact)
        found = translator.translate(Path(trial.world.text).read_text(encoding="utf-8").splitlines())
    except UndividedError as error:
        trial.check(str(folder) in str(error), f"the sentence does not name the folder: {error}")
        return "refused"
    trial.check(found == trial.world.right["torch"], "another translation after the folder was changed")
    return "same result"


def bring_a_copy(trial: Trial) -> str:
    """A converted copy that came with a model, or one in the cache that was changed: the right translation all the same."""
    folder, cache = trial.world.copy("transformer", trial.folder / "m"), trial.folder / "cache"
    shutil.copytree(trial.world.home.parent / "cache", cache, copy_function=shutil.copy2)
    engine = trial.chance.choice([each for each in trial.world.right["engines"] if each != "torch"])
    copies = sorted((cache / "undivided" / engine).glob(f"*/{engine}*"))
    trial.check(bool(copies), "there is no converted copy to harm")
    copy = trial.chance.choice(copies)
    if trial.chance.random() < 0.4:
        for name in ("ctranslate2-int8", "ctranslate2-float32", "int8"):
            copy = shutil.copytree(copies[0], folder / name, dirs_exist_ok=True)
    part = trial.chance.choice(sorted(path for path in copy.iterdir() if path.is_file()))
    for _ in range(trial.chance.choice([1, 3, 20])):
        part.write_bytes(change_bytes(trial.chance, part.read_bytes() or b"\0"))
    if trial.chance.random() < 0.3:
        (copy / "vmap.txt").write_text("a\tb c d\n" * trial.chance.randint(1, 1000))
    from undivided.core.cache import cache_folder

    command = ["translate", folder, trial.world.text, "--threads", "1", "--engine", engine]
    ended = trial.run(*command, env={"XDG_CACHE_HOME": str(cache)}, before=cache_folder.cache_clear, to_the_end=False)
    trial.check(ended.code == 0, f"exit code {ended.code}: {ended.err[-500:]}")
    right = trial.world.right[engine]
    if ended.out.decode().splitlines() != right:
        raise Broken(Verdict.WRONG, f"another translation: {ended.out.decode().splitlines()} instead of {right}")
    return "same result"


ATTACKS = [
    Attack(
        "damaged folders", "6",
        "a byte of any part of a model folder changed: refused, the part named",
        250, damage,
    ),
    Attack(
        "re-signed settings", "9 15",
        "`config.json` of all eight kinds of model with values replaced, signed anew: refused or used, within the memory "
        "it may take",
        300, change_config, 120,
    ),
    Attack(
        "greedy settings", "9",
        "heads, lengths, beams up to 2⁴⁰, signed anew: refused, or within memory",
        100, ask_for_memory, 120,
    ),
    Attack(
        "re-signed subwords", "9",
        "bytes of subword models and shortlists changed, signed anew",
        100, change_subwords, 120,
    ),
    Attack(
        "weights that are no numbers", "15",
        "NaN, infinite, enormous weights, signed anew: translate, look, score, generate, classify",
        120, change_weights, 80,
    ),
    Attack(
        "damaged after opening", "6",
        "a folder damaged, replaced or removed between opening and reading its weights",
        50, damage_later,
    ),
    Attack(
        "converted copies", "5",
        "a changed copy for CTranslate2 beside the model or in the cache: same translation",
        40, bring_a_copy,
    ),
]  # fmt: skip
