"""Translation speed: ours and the peers with the same weights, the same sentences and the same length of every output.

    python benchmarks/translate.py [--sentences 1000] [--length 16] [--rounds 5] [--peers huggingface fairseq …]

The model is of the paper's base size with random weights, made so that it never ends a sentence by itself: every side writes
exactly `--length` tokens with a beam of four. Ours takes raw text and gives raw text; the peers have ready-made tokens.
`--model FOLDER --length 0` takes a trained model (post-norm, tied embeddings) and lets translations end where they end.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any, cast

import measure
import numpy as np
import torch
from measure import CORES, OURS, PRE_NORM_ONLY, ROOT, Piece, Series, table

from undivided import Translator
from undivided.artifact import Artifact, load_artifact, save_artifact
from undivided.config import build_recipe
from undivided.core.console import Console
from undivided.core.errors import InputError
from undivided.core.ids import EOS
from undivided.data.shortlist import Shortlist, learn_shortlist
from undivided.data.store import Store
from undivided.data.subwords import Tokenizer
from undivided.inference.engines import ctranslate2_convert as engine
from undivided.interop import bergamot_out
from undivided.models import make_model
from undivided.models.cost import model_cost

PEERS = ["huggingface", "fairseq", "joeynmt", "opennmt", "pymarian", "ctranslate2"]
REFERENCE = "undivided, torch engine"
ROUNDED = "undivided, torch-bfloat16 engine"
AUTO = "undivided, auto engine, raw text"
LISTED = "undivided, auto engine, raw text, --shortlist"
FAST = "undivided, auto engine, preset fast"
CLOSE = {REFERENCE: "ctranslate2 float32", AUTO: "ctranslate2 int8"}
"""Who is so near to whom that they meet once more, alone."""
SLOW = {"joeynmt": 10}
"""Several times slower than all others: of so many sentences it translates one."""
QUIET = Console(quiet=True, stream=io.StringIO())


@torch.no_grad()
def never_end(model: Any) -> None:
    """Give every state a direction that `</s>` points away from."""
    width = model.config.d_model
    away = torch.nn.functional.normalize(torch.randn(width), dim=0)
    model.decoder[-1].residuals[-1].norm.bias.add_(6 * away)
    model.output_weight[EOS] = -8 * away


class Encoded:
    """Lines of both sides as ids, as the shortlist is learned from a store of them."""

    def __init__(self, tokenizer: Tokenizer, files: list[str]) -> None:
        subwords = tokenizer.source, tokenizer.target
        texts = [Path(name).read_text(encoding="utf-8").splitlines() for name in files]
        self.sides = [[np.array(row) for row in each.encode(lines)] for each, lines in zip(subwords, texts, strict=True)]

    def __len__(self) -> int:
        return len(self.sides[0])

    def lengths(self, places: np.ndarray) -> list[np.ndarray]:
        return [np.array([len(side[place]) for place in places]) for side in self.sides]

    def rows(self, side: int, places: np.ndarray) -> list[np.ndarray]:
        return [self.sides[side][place] for place in places]


def make_folder(home: Path, preset: str, tokenizer: Tokenizer, shortlist: Shortlist, options: argparse.Namespace) -> Path:
    """A model folder with random weights."""
    torch.manual_seed(1)
    recipe = build_recipe({"preset": preset, "tokens": {"vocab_size": options.vocabulary}, "model": {"attention_bias": True}})
    model = make_model(recipe.model, len(tokenizer.source), len(tokenizer.target)).eval()
    never_end(model)
    save_artifact(Artifact(recipe, tokenizer, model, shortlist=shortlist), home / preset)
    return home / preset


def learn_subwords(home: Path, options: argparse.Namespace) -> tuple[Tokenizer, Shortlist]:
    files = measure.some_text(home, options.pairs)
    lines = [Path(name).read_text(encoding="utf-8").splitlines() for name in files]
    recipe = build_recipe({"tokens": {"vocab_size": options.vocabulary}})
    tokenizer = Tokenizer.learn(lambda: zip(*lines, strict=True), recipe.tokens, len(lines[0]), 1)
    sizes = len(tokenizer.source), len(tokenizer.target)
    return tokenizer, learn_shortlist(cast("Store", Encoded(tokenizer, files)), *sizes)


def some_sentences(home: Path, count: int) -> list[str]:
    """Different sentences: ours would translate one that occurs again only once."""
    names = [files[0] for part in ("test_2016_flickr", "val", "train") if (files := measure.multi30k(part))]
    names = names or [str(home / "part.a")]
    lines = (line.strip() for name in names for line in Path(name).read_text(encoding="utf-8").splitlines())
    return list(dict.fromkeys(line for line in lines if line))[:count]


class Contest:
    """The folders, sentences and jobs that all share."""

    def __init__(self, home: Path, options: argparse.Namespace) -> None:
        self.options = options
        learned = learn_subwords(home, options)
        self.folder = Path(options.model) if options.model else make_folder(home, options.preset, *learned, options)
        self.fast = make_folder(home, "fast", *learned, options) if options.preset == "base" and not options.model else None
        self.artifact = load_artifact(self.folder)
        self.model = self.artifact.recipe.model
        self.texts = some_sentences(home, options.sentences)
        self.ids = self.artifact.tokenizer.source.encode(self.texts)
        subwords = self.artifact.tokenizer.source
        self.pieces = [subwords.pieces(row[:-1]) for row in self.ids]
        target = self.artifact.tokenizer.target
        (home / "pieces.json").write_text(json.dumps(target.pieces(range(len(target)))))
        measure.export_weights(self.artifact.model, home / "weights.npz")
        self.absent: dict[str, str] = {}
        if "pymarian" in options.peers and (reason := self._export_to_marian(home / "marian")):
            self.absent["pymarian"] = reason
        for folder in filter(None, (self.folder, self.fast)):
            # Every side finds its weights converted, ours too.
            Translator(folder, console=QUIET)
        self.converted = {kind: engine._convert_with(self.artifact, self.folder, kind, QUIET) for kind in engine.WEIGHTS}
        self.job: dict[str, Any] = {
            "model": measure.shape_of(self.model),
            "vocabulary": len(target),
            "weights": str(home / "weights.npz"),
            "pieces": str(home / "pieces.json"),
            "threads": options.threads,
            "beam": options.beam,
            "length": options.length,
            "batch_tokens": options.batch_tokens,
            "marian": str(home / "marian"),
        }

    def _export_to_marian(self, folder: Path) -> str:
        """Write the same weights as Marian reads them, and its vocabulary; why not, where it cannot run them."""
        if self.options.length:
            return "it cannot be told to write exactly so many tokens (--length 0 with a trained --model)"
        try:
            bergamot_out.check_expressible(self.artifact, "float32")
        except InputError as error:
            return str(error)
        folder.mkdir()
        bergamot_out.export_bergamot(self.artifact, folder, "float32")
        (side, *more) = bergamot_out._sides(self.artifact)
        if more:
            return "separate vocabularies"
        pieces = self.artifact.tokenizer.target.pieces([max(token, 0) for token in side.rows])
        names = [name if token >= 0 else f"<filler {at}>" for at, (name, token) in enumerate(zip(pieces, side.rows, strict=True))]
        table = {name: place for place, name in enumerate(["</s>", "<unk>", *names[2:]])}
        (folder / "vocab.yml").write_text(json.dumps(table, ensure_ascii=False), encoding="utf-8")
        return ""

    def sides(self) -> list[tuple[str, str, dict[str, Any]]]:
        """Every side as (peer, label, job)."""
        ours = [
            (REFERENCE, "torch", self.folder),
            (ROUNDED, "torch-bfloat16", self.folder),
            (AUTO, "auto", self.folder),
            (LISTED, "auto", self.folder),
        ]
        ours += [(FAST, "auto", self.fast)] if self.fast else []
        found = [
            (OURS, label, self.job | {"engine": name, "folder": str(folder), "shortlist": label == LISTED})
            for label, name, folder in ours
        ]
        same = {peer for peer in self.options.peers if self.model.norm == "post"}
        others = [peer for peer in self.options.peers if peer in same and peer not in ("ctranslate2", "pymarian")]
        found += [side for peer in others for side in measure.in_every_way(peer, self.job, self.options.ways)]
        if "pymarian" in same and "pymarian" not in self.absent:
            for label, rounded in (("pymarian float32", False), ("pymarian int8", True)):
                found.append(("pymarian", label, self.job | {"rounded": rounded}))
        if "ctranslate2" in self.options.peers:
            for kind, (_, home) in self.converted.items():
                for workers, each in dict.fromkeys([(self.options.threads, 1), (1, self.options.threads)]):
                    job = self.job | {"converted": str(home), "workers": workers, "each": each}
                    found.append(("ctranslate2", f"ctranslate2 {kind}, {workers} × {each} threads", job))
        # What is compared most closely stands side by side.
        order = {REFERENCE: 0, "ctranslate2 float32": 1, AUTO: 2, "ctranslate2 int8": 3, ROUNDED: 4}
        found.sort(key=lambda side: order.get(side[1].partition(", 1 ×")[0].partition(", 2 ×")[0], 5))
        only = self.options.only
        return [
            side for side in found if not only or side[1] in (REFERENCE, ROUNDED, AUTO) or any(part in side[1] for part in only)
        ]

    def sources(self, name: str) -> list[Any]:
        """The sentences in the form that a side takes."""
        if name.startswith(OURS):
            return self.texts
        return self.pieces if name.startswith(("ctranslate2", "pymarian")) else self.ids[:: SLOW.get(name, 1)]

    def flops(self, share: float, target_tokens: int) -> float:
        """Of the products that float32 decoding of a share of the sources with a beam needs; the `fast` model needs fewer."""
        source_tokens = round(share * sum(map(len, self.ids)))
        cost = model_cost(self.model, self.job["vocabulary"], round(source_tokens / len(self.ids)))
        return source_tokens * cost.per_source_token + self.options.beam * target_tokens * cost.per_target_token


class Run:
    """The workers, what they wrote first, and how long single sentences took."""

    def __init__(self, event: Contest, problems: dict[str, str]) -> None:
        self.event = event
        self.workers = {worker.name: worker for worker in measure.start(event.sides(), "translate", problems)}
        self.outputs: dict[str, list[list[int]]] = {}
        self.single: dict[str, list[float]] = {}
        for worker in self.workers.values():
            worker.ask("translate", sources=event.sources(worker.name)[:8])

    def piece(self, name: str, number: int) -> Piece:
        worker, sources = self.workers[name], self.event.sources(name)
        done = worker.ask("translate", sources=sources)
        self.outputs.setdefault(name, done["outputs"])
        if name.startswith((OURS, "ctranslate2", "pymarian")) or number == 0:
            few = sources[: self.event.options.single]
            self.single.setdefault(name, []).extend(worker.ask("one by one", sources=few)["times"])
        written = self.event.options.length * len(sources) or sum(map(len, done["outputs"]))
        return Piece(done["seconds"], len(sources), self.event.flops(len(sources) / len(self.event.ids), written))

    def duel(self, pair: tuple[str, str]) -> tuple[list[float], dict[str, list[float]]]:
        """Two sides in turn, now one and now the other first: ratios of their speeds, and times of single sentences."""
        options, ratios = self.event.options, []
        times: dict[str, list[float]] = {name: [] for name in pair}
        for number in range(options.duels):
            seconds = {}
            for name in pair[:: 1 if number % 2 == 0 else -1]:
                seconds[name] = self.workers[name].ask("translate", sources=self.event.sources(name))["seconds"]
            ratios.append(seconds[pair[1]] / seconds[pair[0]])
            print(f"duel {number + 1}, {pair[0]} against {pair[1]}: {ratios[-1]:.3f}", file=sys.stderr)
        for place in range(2 * options.single):
            for name in pair[:: 1 if place % 2 == 0 else -1]:
                times[name] += self.workers[name].ask("one by one", sources=self.event.sources(name)[place : place + 1])["times"]
        return ratios, times

    def agreement(self, name: str) -> float:
        """Of how many sentences the output is that of our reference, as far as both go."""
        pairs = zip(self.outputs[name], self.outputs[REFERENCE][:: SLOW.get(name, 1)], strict=True)
        # A side whose `</s>` counts as a token of the forced length writes one less.
        return statistics.mean(one == other or one == other[:-1] for one, other in pairs)

    def close(self) -> None:
        for worker in self.workers.values():
            worker.close()


def percentile(times: list[float], share: float) -> float:
    return sorted(times)[min(len(times) - 1, math.floor(share * len(times)))]


def rows_of(run: Run, series: dict[str, Series]) -> list[list[str]]:
    rows = []
    for name, each in sorted(series.items(), key=lambda item: -item[1].rate):
        pairs = [zip(series[other].rates, each.rates, strict=True) for other in (REFERENCE, AUTO)]
        ratios = [statistics.median(one / other for one, other in pair) for pair in pairs]
        words = statistics.mean(map(len, run.outputs[name]))
        times = run.single.get(name, [])
        latency = [f"{1000 * percentile(times, share):.0f} ms" if times else "" for share in (0.5, 0.95)]
        same = "" if name in PRE_NORM_ONLY or name == FAST else f"{run.agreement(name):.0%}"
        share = "" if name == FAST else f"{each.share:.0%}"
        memory = f"{run.workers[name].peak_memory():,.0f} MB"
        ratios_text = [f"{ratio:.2f} ×" for ratio in ratios]
        rows.append([name, f"{each.rate:.1f}", *ratios_text, share, *latency, memory, f"{words:.1f}", same])
    return rows


def duels(run: Run, series: dict[str, Series]) -> list[str]:
    """Of sides that are close, the second table: what the rounds of all cannot tell apart on a machine that drifts."""
    rows = []
    for ours, kind in CLOSE.items():
        rivals = [name for name in series if name.startswith(kind)]
        if not rivals:
            continue
        rival = max(rivals, key=lambda name: series[name].rate)
        ratios, times = run.duel((ours, rival))
        latency = [f"{1000 * percentile(times[name], share):.0f} ms" for share in (0.5, 0.95) for name in (ours, rival)]
        spread = f"{min(ratios):.2f}–{max(ratios):.2f}"
        wins = f"{sum(ratio >= 1 for ratio in ratios)} of {len(ratios)}"
        rows.append([ours, rival, f"{statistics.median(ratios):.2f} ×", spread, wins, *latency])
    head = ["ours", "against", "ours is", "range", "ahead", "p50", "theirs", "p95", "theirs"]
    return ["## One against one", "", DUELS, "", *table(head, rows), ""] if rows else []


DUELS = """\
The same sentences by the two in turn, nobody else at work between them; then one sentence at a time, each by both, before
the next one."""


NOTES = """\
Sentences/s are medians over interleaved rounds, one side at work at a time; "our … is" are medians of the ratios of each round.
JoeyNMT, several times slower than all others, translates every tenth sentence. The share is that of the machine's float32
matrix-product rate (by MKL or oneDNN, whichever is faster), read around each piece; 8-bit arithmetic
may pass 100 %. One sentence at a time: p50 and p95 of single calls.
"Same output" is the share of sentences whose tokens are those of our PyTorch engine. OpenNMT-py 3.5 has the norm before each
sub-layer, so it has the same sizes but weights of its own. Peers other than CTranslate2 get batches sorted by length of at most
`--batch-tokens` source tokens, as many as ours. "torch-bfloat16" rounds the factors of all products but those that give logits.
The `fast` preset has eight encoder layers and one decoder layer. With `--shortlist` only target subwords are weighed that the
source subwords of a batch became in the corpus, so other words may win. "auto" takes our engine of 8 bits
where the CPU has AVX-512 VNNI (docs/engines.md), else CTranslate2. Hugging Face also computes with PyTorch's bfloat16 autocast,
with torch.compile, and with both; torch.nn.Transformer has no search. Marian, in float32 and with weights of 8 bits, takes part
where a trained model is one that it can express (--model.start zero, --model.positions marian, post-norm) and lengths are free."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--single", type=int, default=50, help="sentences that are translated one at a time, in each round")
    parser.add_argument("--length", type=int, default=16, help="tokens of every output; 0 lets them end by themselves")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--duels", type=int, default=7, help="rounds of the closest against each other alone")
    parser.add_argument("--model", default="", help="a trained model folder instead of random weights")
    parser.add_argument("--preset", default="base", help="size of the random model; with base, `fast` is measured too")
    parser.add_argument("--peers", nargs="*", default=PEERS, choices=PEERS)
    parser.add_argument("--ways", nargs="+", default=list(measure.WAYS), choices=list(measure.WAYS), help="of plain PyTorch")
    parser.add_argument("--only", nargs="*", default=[], help="beside our two, only sides whose name contains one of these")
    parser.add_argument("--pairs", type=int, default=29_000, help="how much of the corpus the subwords are learned from")
    parser.add_argument("--vocabulary", type=int, default=6000)
    parser.add_argument("--batch-tokens", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=CORES)
    parser.add_argument("--report", type=Path, default=ROOT / "docs" / "benchmarks" / "translate.md")
    options = parser.parse_args()
    problems: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as name:
        event = Contest(Path(name), options)
        run = Run(event, problems)
        series = measure.interleaved(run.workers, options.rounds, run.piece)
        head = ["side", "sentences/s", "our torch is", "our auto is", "share", "p50", "p95", "peak memory", "tokens", "same output"]
        problems |= event.absent
        lines = [*table(head, rows_of(run, series)), "", *(duels(run, series) if options.duels else [])]
        run.close()
    gaps = ", ".join(f"{kind} {gap:.3f}" for kind, (gap, _) in event.converted.items())
    products = [each for one in series.values() for each in one.more["product"]]
    facts = (
        f"{len(event.texts):,} sentences, {sum(map(len, event.ids)):,} source tokens, vocabulary {event.job['vocabulary']:,}, beam "
        f"{options.beam}, {options.length or 'free'} tokens out, {options.rounds} rounds; product rate "
        f"{statistics.median(products) / 1e9:.0f} GFLOP/s ({min(products) / 1e9:.0f} to {max(products) / 1e9:.0f}). Parity of the "
        f"converted models (mean difference of log-probabilities): {gaps}."
    )
    absent = [f"- {peer} took no part: {reason}" for peer, reason in problems.items()]
    body = [f"{facts} {NOTES}", "", *lines, *absent]
    measure.write_report(options.report, "Translation speed", "translate.py", sys.argv[1:], body)


if __name__ == "__main__":
    main()
