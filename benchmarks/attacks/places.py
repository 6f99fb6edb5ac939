"""The machine and its places: planted links, no home, odd names and locales, little memory, foreign modules and libraries."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import stat
import subprocess
import sys
from pathlib import Path

from attacks.command import run_process
from attacks.folders import change_bytes
from attacks.trial import Attack, Trial, Verdict, judge

SECRET = "mine\n"


def plant_links(trial: Trial) -> str:
    """Links, second names, folders and pipes wherever a verb writes: nothing outside its own files changes."""
    chance = trial.chance
    home, elsewhere, tried = trial.folder / "home", trial.folder / "elsewhere", trial.folder / "tried"
    for folder in (home, elsewhere, tried):
        folder.mkdir()
    chosen = chance.randrange(10)
    first = trial.run(*writing_command(trial, chosen, tried), timeout=100)
    trial.check(first.code == 0, f"without any link: exit code {first.code}: {first.err[-300:]}")
    # Folders may be links: people keep models and runs on other disks.
    names = [path.relative_to(tried) for path in sorted(tried.rglob("*")) if not path.is_dir()]
    names += [Path("out.shards/joined"), Path("out.shards/worker-0.log"), Path("out.shards/lock")] if chosen == 0 else []
    victims = []
    for name in chance.sample(names, min(len(names), chance.choice([1, 1, 2, 5]))):
        place, victim = home / name, elsewhere / f"v{len(victims)}"
        if os.path.lexists(place) or any(
            parent.is_symlink() or not parent.is_dir()
            for parent in place.parents
            if parent.is_relative_to(home) and os.path.lexists(parent)
        ):
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        plant_one(chance, place, victim)
        victims.append(victim)
    before = contents(elsewhere)
    ended = trial.run(*writing_command(trial, chosen, home), timeout=100)
    after = contents(elsewhere)
    trial.check(
        after == before, f"changed elsewhere by {ended.command}: {sorted(set(after) ^ set(before)) or 'content'}", Verdict.LOST
    )
    return "written, not through the link" if ended.code == 0 else "refused"


def writing_command(trial: Trial, chosen: int, home: Path) -> list[str | Path]:
    world = trial.world
    model, text = world.model("transformer"), world.text
    few = [world.home / "few.src", world.home / "few.tgt"]
    commands: list[list[str | Path]] = [
        ["translate", model, text, "-o", home / "out", "--engine", "torch", "--threads", "1", "-q"],
        ["translate", model, text, "-o", home / "out", "--report", home / "r.html", "--engine", "torch", "--threads", "1", "-q"],
        ["score", *few, "--model", model, "-o", home / "out", "--threads", "1", "-q"],
        ["look", model, "The dog sees a tree.", "-o", home / "page.html"],
        ["look", model, "The dog.", "-o", home / "page.json", "--fast"],
        ["train", world.recipe, "--out", home / "run", "-q"],
        ["average", world.home / "run", "-o", home / "mean"],
        [
            "distill",
            model,
            "--train",
            *few,
            "--out",
            home / "student",
            "--max-steps",
            "1",
            "--vocab-size",
            "300",
            "-q",
            "--preset",
            "tiny",
        ],
        ["generate", world.model("drawing"), "zero", "-o", home / "a.png"],
        ["export", model, home / "exported", "--to", "ctranslate2"],
    ]
    return commands[chosen]


def plant_one(chance: random.Random, place: Path, victim: Path) -> None:
    """One obstacle."""
    kind = chance.choice(["link", "link", "twin", "dangling", "pipe", "folder"])
    if kind == "folder":
        victim.mkdir()
        (victim / "precious").write_text(SECRET)
        place.symlink_to(victim, target_is_directory=True)
    elif kind == "pipe":
        os.mkfifo(place)
    elif kind == "dangling":
        place.symlink_to(victim)
    else:
        victim.write_text(SECRET)
        if kind == "link":
            place.symlink_to(victim)
        else:
            os.link(victim, place)


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        if path.is_file()
        else stat.filemode(path.stat().st_mode)
        for path in folder.rglob("*")
    }


def no_home(trial: Trial) -> str:
    """No $HOME, no cache, a user number that nobody has, a folder that cannot be written."""
    if os.getuid():
        return "skipped: only root can become a user that nobody is"
    chance, world = trial.chance, trial.world
    uid = chance.randint(100_000, 2**31)
    env: dict[str, str | None] = {
        "HOME": chance.choice([None, "", "/nonexistent", "/proc", "relative"]),
        "USER": None,
        "LOGNAME": None,
    }
    env["XDG_CACHE_HOME"] = chance.choice([None, "", "/nonexistent/a", "/proc/1", str(trial.folder / "none")])
    env["TMPDIR"] = chance.choice([None, "/tmp", "/nonexistent"])
    # A user without a cache has no compiled kernels, and so no engine that is made of them, in a process of their own.
    by_process = chance.random() < 0.15 and shutil.which("setpriv") is not None and is_readable_by_others(Path(sys.base_prefix))
    engine = chance.choice([each for each in world.right["engines"] if not (by_process and each == "int8")])
    command: list[str | Path] = ["translate", world.model("transformer"), world.text, "--threads", "1", "--engine", engine]
    trial.folder.chmod(0o755)

    def become() -> None:
        from undivided.core.cache import cache_folder

        cache_folder.cache_clear()
        os.setgid(uid)
        os.setuid(uid)

    if by_process:
        env["UNDIVIDED_KERNELS"] = "0"
        starter = ["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups"]
        ended = judge(run_process(command, trial.folder, env=env, starter=starter))
    else:
        ended = trial.run(*command, env=env, before=become)
    trial.check(ended.code == 0, f"exit code {ended.code}: {ended.err[-400:]}")
    trial.check(ended.out.decode().splitlines() == world.right[engine], "another translation")
    return "same lines"


def is_readable_by_others(folder: Path) -> bool:
    """Whether any user can start what is there: a Python in somebody's home is theirs alone."""
    return all(each.stat().st_mode & 0o005 == 0o005 for each in (folder, *folder.parents))


def odd_name(chance: random.Random) -> bytes:
    """A file name of any bytes but / and NUL."""
    pieces = [
        b"\xff",
        b"\xfe\xfa",
        "é".encode(),
        "漢".encode(),
        b"\x1b[2J",
        b"\n",
        b" ",
        b"-",
        b"a",
        b"%s",
        b"{0}",
        b"'",
        b'"',
        b"$(x)",
        b"*",
        b"\\",
        b"\xc3",
    ]
    return b"n" + b"".join(chance.choices(pieces, k=chance.randint(1, 6)))


def odd_names(trial: Trial) -> str:
    """Names of corpora, texts and outputs that are not UTF-8 or full of signs; some in the C locale."""
    chance, world = trial.chance, trial.world
    home = os.fsencode(trial.folder)
    text, out, folder = (home + b"/" + odd_name(chance) + suffix for suffix in (b".txt", b".out", b""))
    shutil.copy(world.text, text)
    pairs = [home + b"/" + odd_name(chance) + suffix for suffix in (b".src", b".tgt")]
    for source, target in zip(("few.src", "few.tgt"), pairs, strict=True):
        shutil.copy(world.home / source, target)
    commands: list[list[str | bytes | Path]] = [
        ["translate", world.model("transformer"), text, "-o", out, "--threads", "1", "--engine", "torch", "-q"],
        ["translate", world.model("transformer"), text, "--threads", "1", "--engine", "torch", "-q"],
        ["train", world.recipe, "--train", *pairs, "--out", folder, "--max-steps", "2", "-q"],
        ["score", text, text],
        ["classify", world.model("bert"), text, "-o", out],
        ["look", world.model("transformer"), "The dog", "-o", out + b".html"],
        ["average", world.home / "run", "-o", folder],
    ]
    command = chance.choice(commands)
    if chance.random() < 0.1:
        ended = judge(run_process(command, trial.folder, env={"LC_ALL": "C", "PYTHONUTF8": "0"}))
    else:
        ended = trial.run(*command)
    if ended.code == 2:
        trial.check(
            "must be UTF-8" in ended.err or "cannot be a file name" in ended.err, f"refused for another reason: {ended.err[-300:]}"
        )
        return "refused with the reason"
    trial.check(ended.code == 0, f"exit code {ended.code}: {ended.err[-300:]}")
    if command[0] == "translate":
        lines = Path(os.fsdecode(out)).read_bytes() if b"-o" in [os.fsencode(each) for each in command] else ended.out
        trial.check(lines.decode().splitlines() == world.right["torch"], "another translation")
    return "done"


def little_memory(trial: Trial) -> str:
    """`ulimit -v` from 100 MB to 6 GB, in a process of its own: a sentence, or the right lines."""
    chance, world = trial.chance, trial.world
    kilobytes = int(2 ** chance.uniform(16.6, 22.6))
    engine = chance.choice(trial.world.right["engines"])
    command = ["translate", world.model("transformer"), world.text, "--engine", engine, "--threads", str(chance.choice([1, 2, 4]))]
    if chance.random() < 0.3:
        command = ["train", world.recipe, "--out", trial.folder / "run", "-q"]
    ended = run_process(command, trial.folder, shell=f"ulimit -v {kilobytes}; …")
    if kilobytes < 200_000 and ended.code in (1, 127, 134, 139) and "undivided" not in ended.err:
        # Python itself does not start.
        return "Python does not start"
    judge(ended)
    if ended.code == 0:
        trial.check(command[0] == "train" or ended.out.decode().splitlines() == world.right[engine], "another translation")
        return "enough"
    trial.check(
        ended.code == 1 and ("memory" in ended.err or "address space" in ended.err), f"exit code {ended.code}: {ended.err[-300:]}"
    )
    return "a sentence"


MODULES = [
    "sentencepiece",
    "torch",
    "numpy",
    "json",
    "ctypes",
    "undivided",
    "filelock",
    "safetensors",
    "ctranslate2",
    "random",
    "os",
    "yaml",
    "sitecustomize",
    "usercustomize",
    "PIL",
    "ray",
    "sacrebleu",
]


def foreign_modules(trial: Trial) -> str:
    """Modules in the working directory with the names of those that the package imports, while it starts processes."""
    chance, world = trial.chance, trial.world
    here, trace = trial.folder / "here", trial.folder / "ran"
    here.mkdir()
    for name in chance.sample(MODULES, chance.randint(3, len(MODULES))):
        program = f"open({str(trace)!r}, 'a').write({name!r})\n"
        if chance.random() < 0.3:
            (here / name).mkdir()
            (here / name / "__init__.py").write_text(program)
        else:
            (here / f"{name}.py").write_text(program)
    command = ["translate", world.model("transformer"), world.text, "-o", trial.folder / "out", "--workers", "1", "-q"]
    ended = judge(run_process([*command, "--engine", chance.choice(trial.world.right["engines"])], here))
    trial.check(not trace.exists(), f"executed: {trace.read_text() if trace.exists() else ''}", Verdict.LOST)
    trial.check(ended.code == 0, f"exit code {ended.code}: {ended.err[-300:]}")
    return "not imported"


EVIL = (
    '#include <stdio.h>\n__attribute__((constructor)) static void sing(void) {{ FILE *f = fopen("{0}", "a"); if (f) fclose(f); }}\n'
)


def foreign_library(trial: Trial) -> str:
    """The compiled kernels in the cache changed, linked, given to others, replaced by a library that runs code when loaded."""
    chance, cache, trace = trial.chance, trial.folder / "cache" / "undivided", trial.folder / "sang"
    known = sorted((Path(os.environ["XDG_CACHE_HOME"]) / "undivided").glob("kernels-*.so"))
    if not known:
        return "skipped: there are no compiled kernels here"
    cache.mkdir(parents=True, mode=0o700)
    for path in (known[0], known[0].with_name(f"{known[0].name}.sha256")):
        shutil.copy2(path, cache)
    library = cache / known[0].name
    what = chance.randrange(6)
    if what == 0:
        library.write_bytes(change_bytes(chance, library.read_bytes()))
    elif what in (1, 2, 3):
        source = trial.folder / "evil.c"
        source.write_text(EVIL.format(trace))
        made = trial.folder / "evil.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", made, source], check=True)
        library.unlink()
        if what == 1:
            library.symlink_to(made)
        elif what == 2:
            shutil.copy(made, library)
        else:
            shutil.copy(made, library)
            library.with_name(f"{library.name}.sha256").write_text(hashlib.sha256(made.read_bytes()).hexdigest())
            library.chmod(0o777)
    elif what == 4:
        library.chmod(0o722)
    else:
        os.link(library, trial.folder / "twin")

    def fresh() -> None:
        from undivided.core.cache import cache_folder
        from undivided.nn import library as kernels

        for each in (cache_folder, kernels.load_library, kernels._load_or_say_why):
            each.cache_clear()

    env = {"XDG_CACHE_HOME": str(trial.folder / "cache")}
    ended = trial.run("train", trial.world.recipe, "--out", trial.folder / "run", "-q", env=env, before=fresh, timeout=100)
    trial.check(not trace.exists(), "a foreign library was loaded", Verdict.LOST)
    trial.check(ended.code == 0, f"exit code {ended.code}: {ended.err[-300:]}")
    found = hashlib.sha256((trial.folder / "run" / "model.safetensors").read_bytes()).hexdigest()
    trial.check(found == trial.world.right["weights"], "other weights")
    return "built again, same weights"


ATTACKS = [
    Attack(
        "planted links", "10",
        "links, second names, pipes and folders wherever one of ten commands writes: nothing elsewhere changes",
        60, plant_links, 150,
    ),
    Attack(
        "no home", "16",
        "no $HOME, no cache, a user number that nobody has: the same lines",
        20, no_home, 150,
    ),
    Attack(
        "odd names", "17",
        "file names of any bytes, some in the C locale: done, or refused with the reason",
        40, odd_names, 150,
    ),
    Attack(
        "little memory", "20",
        "`ulimit -v` of 100 MB to 6 GB, processes of their own: a sentence, or the right lines",
        8, little_memory, 150,
    ),
    Attack(
        "foreign modules", "7",
        "modules in the working directory while workers are started: none is imported",
        4, foreign_modules, 150,
    ),
    Attack(
        "foreign libraries", "11",
        "the compiled kernels in the cache changed, linked, replaced: not loaded, the same weights",
        6, foreign_library, 150,
    ),
]  # fmt: skip
