"""What the benchmarks share: venvs of the peers, workers that take turns, the machine's product rate, medians, reports."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from threads import made_up_corpus

from undivided.artifact.weights import weights

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".venv-peers"
CORPORA = Path(os.environ.get("UNDIVIDED_CORPORA", ROOT.parent / "shared" / "corpora"))
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
OURS = "undivided"


class Peer(NamedTuple):
    """A peer: its adapter under `peers/`, and what is given to `pip install`, one time after the other."""

    adapter: str
    installs: tuple[str, ...]
    needs_torch: bool = True


PEERS = {
    "huggingface": Peer("with_huggingface", ("transformers==5.22.2",)),
    # Pins torch<2.3, which has no build for every Python we run on: its own code runs with ours, its other pins are not needed.
    "opennmt": Peer(
        "with_opennmt",
        (
            "--no-deps OpenNMT-py==3.5.1",
            "configargparse pyyaml sacrebleu six pyonmttok tensorboard rapidfuzz pyahocorasick ctranslate2==4.8.4",
        ),
    ),
    "joeynmt": Peer(
        "with_joeynmt",
        (
            "--no-deps joeynmt==2.3.0",
            "sacrebleu sentencepiece subword-nmt pyyaml packaging importlib_metadata tensorboard matplotlib",
        ),
    ),
    # omegaconf 2.0.6 has metadata that newer pips refuse to resolve, so nothing of it is resolved. Built in isolation, without
    # torch: with it, setup.py compiles extensions whose sources the release lacks and translation does not need.
    "fairseq": Peer(
        "with_fairseq",
        (
            "setuptools==80.9.0 cython cffi regex sacrebleu tqdm bitarray pyyaml antlr4-python3-runtime==4.8",
            "--no-deps omegaconf==2.0.6 hydra-core==1.0.7",
            "--no-deps fairseq==0.12.2",
        ),
    ),
    "torch": Peer("with_torch", ("torch==2.13.0 numpy==2.4.6",)),
    # Its pipeline for translation is gone in version 5.
    "transformers4": Peer("with_pipeline", ("transformers==4.57.6 sentencepiece==0.2.2 sacremoses==0.1.1",)),
    # What splits text into sentences there is imported, but not run.
    "argos": Peer(
        "with_argos",
        (
            "--no-deps argostranslate==1.11.0 stanza==1.10.1 minisbd==0.9.5",
            "ctranslate2==4.8.4 sentencepiece==0.2.2 sacremoses==0.1.1 onnxruntime==1.31.1",
            "packaging requests emoji tqdm networkx protobuf",
        ),
    ),
    "pymarian": Peer("with_marian", ("pymarian==1.12.42",), needs_torch=False),
    "ctranslate2": Peer("with_ctranslate2", ("ctranslate2==4.8.4",), needs_torch=False),
}


WAYS: dict[str, dict[str, bool]] = {
    "float32": {},
    "autocast": {"autocast": True},
    "compile": {"compile": True},
    "autocast and compile": {"autocast": True, "compile": True},
}
"""How a peer that is plain PyTorch computes: as it does by default, with bfloat16 autocast, with torch.compile, with both."""

PLAIN_PYTORCH = ("huggingface", "torch")
"""Peers that can compute in all these ways."""


def in_every_way(peer: str, job: dict[str, Any], ways: Sequence[str]) -> list[tuple[str, str, dict[str, Any]]]:
    """A peer as (peer, label, job), once for each way in which it can compute."""
    if peer not in PLAIN_PYTORCH:
        return [(peer, peer, job)]
    return [(peer, peer if way == "float32" else f"{peer}, {way}", job | WAYS[way]) for way in ways]


PRE_NORM_ONLY = {"opennmt"}
"""Peers that cannot take our post-norm weights; they have the same sizes and weights of their own."""


class CannotRun(Exception):
    """Why a peer takes no part."""


def python_of(name: str) -> Path:
    """The Python of a peer's venv, which is set up the first time; torch is there once and all others see it."""
    if name == OURS:
        return Path(sys.executable)
    home, peer = CACHE / name, PEERS[name]
    python = home / "bin" / "python"
    wanted = json.dumps(peer.installs)
    done = home / "installed.json"
    if done.exists() and done.read_text() == wanted:
        return python
    print(f"setting up {home.relative_to(ROOT)} (once) …", file=sys.stderr)
    venv.create(home, with_pip=True)
    if peer.needs_torch and name != "torch":
        _share_torch(python_of("torch"), python)
    for packages in peer.installs:
        command = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *packages.split()]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode:
            raise CannotRun(f"pip install {packages} failed: {_last_line(ran.stderr)}")
    done.write_text(wanted)
    return python


def _share_torch(base: Path, python: Path) -> None:
    """Let one venv see the packages of another, behind its own."""
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    theirs, own = (subprocess.check_output([str(each), "-c", ask], text=True).strip() for each in (base, python))
    (Path(own) / "shared-torch.pth").write_text(theirs + "\n")


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "no message"


def our_environment() -> dict[str, str]:
    """The environment in which Python finds the source beside this script, whatever is installed."""
    return os.environ | {"PYTHONPATH": str(ROOT / "src")}


class Worker:
    """A process that answers one command at a time and waits, asleep, while others are measured."""

    def __init__(self, peer: str, task: str, job: dict[str, Any], label: str = "") -> None:
        self.name = label or peer
        adapter = "with_undivided" if peer == OURS else PEERS[peer].adapter
        command = [str(python_of(peer)), "-W", "ignore", str(ROOT / "benchmarks" / "peers" / f"{adapter}.py"), task]
        environment = our_environment() if peer == OURS else {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True, env=environment
        )
        self.facts: dict[str, Any] = {}
        self.send("prepare", job=job)

    def send(self, do: str, **more: Any) -> None:
        """Give a command."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps({"do": do, **more}) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended; `receive` says why

    def ask(self, do: str, **more: Any) -> dict[str, Any]:
        """Give a command and wait for its answer."""
        self.send(do, **more)
        return self.receive()

    def receive(self) -> dict[str, Any]:
        """The answer to the command that was given."""
        assert self.process.stdout is not None
        answer = self.process.stdout.readline()
        if not answer:
            self.process.wait()
            self.errors.seek(0)
            raise CannotRun(f"{self.name} ended: {_last_line(self.errors.read())}")
        found = json.loads(answer)
        if "error" in found:
            self.close()
            raise CannotRun(f"{self.name}: {found['error']}")
        return found

    def peak_memory(self) -> float:
        """MB that the process has had at most."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) * 1024 / 1e6 for line in status.splitlines() if line.startswith("VmHWM:"))

    def close(self) -> None:
        """End the process by closing what it reads from."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.wait()


def start(peers: Sequence[tuple[str, str, dict[str, Any]]], task: str, problems: dict[str, str]) -> list[Worker]:
    """A worker for each (peer, label, job), made ready side by side; what cannot run is noted with its reason."""
    started, workers = [], []
    for peer, label, job in peers:
        with _noted(label or peer, problems):
            started.append(Worker(peer, task, job, label))
    for worker in started:
        with _noted(worker.name, problems):
            worker.facts = worker.receive()
            workers.append(worker)
    return workers


@contextmanager
def _noted(name: str, problems: dict[str, str]) -> Iterator[None]:
    try:
        yield
    except (CannotRun, subprocess.CalledProcessError, OSError) as error:
        problems[name] = str(error)
        print(f"{name} takes no part: {error}", file=sys.stderr)


@functools.cache
def _products(side: int) -> list[Callable[[], object]]:
    """A large float32 product by each library that PyTorch has: on some processors MKL, on others oneDNN is the faster one."""
    square, out = torch.randn(side, side), torch.empty(side, side)
    found: list[Callable[[], object]] = [lambda: torch.mm(square, square, out=out)]
    if torch.backends.mkldnn.is_available():
        packed = torch.ops.mkldnn._reorder_linear_weight(square)
        found.append(lambda: torch.ops.mkldnn._linear_pointwise(square, packed, None, "none", [], ""))
    return found


def product_rate(threads: int = CORES, side: int = 1024, seconds: float = 0.15) -> float:
    """FLOP/s of a large float32 matrix product, now: the median of some, by the library that is faster."""
    torch.set_num_threads(threads)
    best = 0.0
    with torch.inference_mode():
        for multiply in _products(side):
            multiply()
            rates: list[float] = []
            end = time.monotonic() + seconds / 2
            while len(rates) < 3 or time.monotonic() < end:
                began = time.perf_counter()
                multiply()
                rates.append(2 * side**3 / (time.perf_counter() - began))
            best = max(best, statistics.median(rates))
    return best


@dataclass
class Series:
    """What the rounds gave for one competitor: speeds, and shares of the product rate read around each piece."""

    rates: list[float] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    more: dict[str, list[float]] = field(default_factory=dict)

    def add(self, rate: float, flop_rate: float, product: float) -> None:
        self.rates.append(rate)
        self.shares.append(flop_rate / product)

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)

    @property
    def share(self) -> float:
        return statistics.median(self.shares)


class Piece(NamedTuple):
    """One measured piece of work."""

    seconds: float
    amount: float
    """Of whatever the rate counts: tokens, sentences."""
    flops: float


def interleaved(names: Iterable[str], rounds: int, piece: Callable[[str, int], Piece]) -> dict[str, Series]:
    """Every competitor once in each round, the order turned by one each time, the product rate read before and after each."""
    names = list(names)
    series = {name: Series() for name in names}
    for number in range(rounds):
        turn = number % max(1, len(names))
        for name in [*names[turn:], *names[:turn]]:
            before = product_rate()
            done = piece(name, number)
            product = (before + product_rate()) / 2
            series[name].add(done.amount / done.seconds, done.flops / done.seconds, product)
            series[name].more.setdefault("product", []).append(product)
            print(
                f"round {number + 1}, {name}: {done.amount / done.seconds:,.1f}/s, {done.flops / done.seconds / product:.1%} of "
                f"{product / 1e9:.0f} GFLOP/s",
                file=sys.stderr,
            )
    return series


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows)]


def plot(path: Path, over: str, curves: dict[str, tuple[list[Any], list[float]]], unit: str, *, straight: bool = False) -> None:
    """Curves in a picture; sizes grow by factors unless `straight`, values begin at 0."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 3.5))
    for name, (places, values) in curves.items():
        axes.plot(places, values, "o-", label=name)
    axes.set(xlabel=over, ylabel=unit, xscale="linear" if straight else "log", ylim=(0, None))
    axes.legend()
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def machine() -> str:
    """What it was measured on."""
    model = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        names = [line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    return f"{CORES} cores of {model}, Python {platform.python_version()}, torch {torch.__version__}"


def write_report(path: Path, title: str, script: str, arguments: Sequence[str], body: Sequence[str]) -> None:
    """The dated Markdown file, also printed."""
    command = " ".join(["python", f"benchmarks/{script}", *arguments])
    intro = f"Written by `{command}` on {date.today().isoformat()}: {machine()}."
    text = "\n".join([f"# {title}", "", intro, "", *body]) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    print(text)


def multi30k(part: str) -> list[str] | None:
    """The English and German file of a part of Multi30k, or None where the corpus is absent."""
    files = [CORPORA / "multi30k" / f"{part}.{language}" for language in ("en", "de")]
    return [str(each) for each in files] if all(each.is_file() for each in files) else None


MULTI30K_TEST = "test_2016_flickr"


def whole_multi30k() -> dict[str, list[str]]:
    """Its files by part: what is learned from, validated on and tested on."""
    corpus = {part: files for part in ("train", "val", MULTI30K_TEST) if (files := multi30k(part))}
    if len(corpus) < 3:
        raise SystemExit(f"Multi30k is not in {CORPORA} (set UNDIVIDED_CORPORA)")
    return corpus


def lowercased(corpus: dict[str, list[str]], folder: Path) -> dict[str, list[str]]:
    """The same files in small letters."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in (Path(name) for files in corpus.values() for name in files):
        (folder / name.name).write_text(name.read_text(encoding="utf-8").lower(), encoding="utf-8")
    return {part: [str(folder / Path(name).name) for name in files] for part, files in corpus.items()}


def code_digest() -> str:
    """Of what decides how a model translates and goes out: results of other code are not read again."""
    parts = ("core", "config", "data", "nn", "models", "artifact", "inference", "interop")
    files = [
        path for part in parts for path in (ROOT / "src" / "undivided" / part).rglob("*") if path.suffix in (".py", ".c", ".h")
    ]
    content = b"".join(hashlib.sha256(path.read_bytes()).digest() for path in sorted(files))
    return hashlib.sha256(content).hexdigest()[:12]


def undivided(*arguments: str) -> str:
    """What one command of ours prints."""
    command = [sys.executable, "-m", "undivided", *arguments]
    return subprocess.run(command, env=our_environment(), stdout=subprocess.PIPE, text=True, check=True).stdout


def some_text(home: Path, pairs: int) -> list[str]:
    """The first pairs of Multi30k's training part, or made-up ones where it is absent."""
    files = multi30k("train") or list(made_up_corpus(home, pairs))
    for name in files:
        lines = Path(name).read_text(encoding="utf-8").splitlines(keepends=True)[:pairs]
        (home / f"part{Path(name).suffix}").write_text("".join(lines), encoding="utf-8")
    return [str(home / f"part{Path(name).suffix}") for name in files]


def export_weights(model: Any, path: Path) -> None:
    """Our weights by their names, and the table of positions, for the adapters to copy from."""
    positions = model.target_embedding.positions.rows(512).detach().numpy()
    np.savez(path, positions=positions, **{name: tensor.numpy() for name, tensor in weights(model).items()})


SHAPE = ("d_model", "d_ff", "n_heads", "encoder_layers", "decoder_layers")


def shape_of(model: Any) -> dict[str, Any]:
    """What an adapter needs to know of our model's settings to build the same."""
    return {name: getattr(model, name) for name in (*SHAPE, "dropout")}
