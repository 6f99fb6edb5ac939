"""Table 4: trained parsers and a grammar estimated from the same trees, scored and reported. [paper 6.3, Table 4]"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from undivided.config import SearchConfig, build_recipe
from undivided.config.settings import Values
from undivided.core.console import Console, Progress, plural
from undivided.core.errors import InputError
from undivided.data.store import open_store
from undivided.inference.translator import Translator
from undivided.paper import report
from undivided.paper.chart import Chart, Series
from undivided.paper.parsing.brackets import Agreement, Counts, compute_agreement, sentence_counts
from undivided.paper.parsing.cky import LONGEST, Parse, Parser
from undivided.paper.parsing.linear import FAULTS, Fault, repair_with_faults
from undivided.paper.parsing.parser import Output, Treebank, TreeFormat, generate_outputs, open_treebank, train_parser
from undivided.paper.parsing.pcfg import Grammar
from undivided.paper.parsing.trees import Node, leaves, parse_tree, retag, to_brackets, words, write_trees
from undivided.paper.runs import compute_lines, fingerprint, read_facts

PAPER: tuple[tuple[str, str, float], ...] = (
    ("Vinyals & Kaiser et al. (2014)", "WSJ only, discriminative", 88.3),
    ("Petrov et al. (2006)", "WSJ only, discriminative", 90.4),
    ("Zhu et al. (2013)", "WSJ only, discriminative", 90.4),
    ("Dyer et al. (2016)", "WSJ only, discriminative", 91.7),
    ("Transformer (4 layers)", "WSJ only, discriminative", 91.3),
    ("Zhu et al. (2013)", "semi-supervised", 91.3),
    ("Huang & Harper (2009)", "semi-supervised", 91.3),
    ("McClosky et al. (2006)", "semi-supervised", 92.1),
    ("Vinyals & Kaiser et al. (2014)", "semi-supervised", 92.1),
    ("Transformer (4 layers)", "semi-supervised", 92.7),
    ("Luong et al. (2015)", "multi-task", 93.0),
    ("Dyer et al. (2016)", "generative", 93.3),
)
"""The paper's own Table 4: F1 on section 23 of the Wall Street Journal treebank."""

LENGTHS = ((1, 10), (11, 20), (21, 30), (31, 40), (41, 60), (61, 10**9))

ENGINE = "torch"
"""The reference engine, so that F1 is that of the trained weights and not of 8-bit weights."""

MADE = ("parser", "parameters", "minutes of training", "threads", "steps", "passes", "training trees", "too long", "engine",
        "beam", "α", "longest output")  # fmt: skip
"""Columns on how each parser was trained and how it parsed."""

REPAIRS = ("parser", "outputs", "well-formed", "not the beam's first", "repaired", *FAULTS, "cut at the limit", "in pieces")
"""Columns on the outputs of the trained parsers for the test set."""


@dataclass(frozen=True)
class Entry:
    """One parser in the table."""

    name: str
    made: tuple[str, ...]
    """As in `MADE`."""
    dev: Agreement
    test: list[Counts | None]
    """With the tags of the reference, so that no sentence is excluded for a wrongly tagged comma."""
    own_tags: Agreement
    """On test, with the parser's own tags."""
    repairs: tuple[int, ...] = ()
    """As in `REPAIRS`, without the name; empty for a grammar, which only makes trees."""
    notes: tuple[str, ...] = ()

    @property
    def agreement(self) -> Agreement:
        """On test."""
        return compute_agreement(self.test)


def table4(
    recipes: dict[str, Values],
    trees: Path,
    tree_format: TreeFormat,
    out: Path,
    console: Console,
    *,
    first: int = 0,
    grafts: int = 0,
    grammar: bool = True,
) -> list[Entry]:
    """Train every recipe, estimate the grammar, parse dev and test with each, and score. Resumes after a stop."""
    if not recipes and not grammar:
        raise InputError("nothing to do: give a recipe, or remove --no-grammar")
    bank = open_treebank(trees, first, console, grafts)
    entries = []
    for name, values in recipes.items():
        entries.append(evaluate_recipe(name, values, bank, tree_format, out / name, console))
    if grammar:
        entries.append(evaluate_grammar(bank, out / "grammar", console))
    return entries


def evaluate_recipe(name: str, values: Values, bank: Treebank, tree_format: TreeFormat, out: Path, console: Console) -> Entry:
    """Train, parse and score one recipe."""
    model = train_parser(values, bank, tree_format, out, console)
    asked = build_recipe(values)
    translator = Translator(model, asked.train.device, asked.train.threads, ENGINE)
    # An earlier training may have had other search settings than are requested now.
    search = translator.search_config(**{key: getattr(asked.search, key) for key in values.get("search") or {}})
    key = fingerprint((model / "manifest.json").read_text(), search, ENGINE, "nothing but trees")
    found, mends = {}, {}
    for part, gold in (("dev", bank.dev), ("test", bank.test)):
        progress = Progress(console, f"parsed {part} sentences", len(gold))
        found[part] = _outputs(translator, search, gold, out / f"{part}-{key}.tsv", progress)
        mends[part] = [repair_with_faults(output.text, words(tree)) for output, tree in zip(found[part], gold, strict=True)]
        console.clear()
    parsed = {part: [tree for tree, _ in each] for part, each in mends.items()}
    entry = _entry(name, _made(translator, model, search), bank, parsed, out)
    if bank.grafts:
        grafts = (out / "data" / "train.words").read_bytes().count(b"\n") - len(bank.train)
        entry = replace(entry, notes=(f"{grafts:,} of its training trees are augmented, with constituents of other trees",))
    return replace(entry, repairs=_repairs(found["test"], [faults for _, faults in mends["test"]]))


def _outputs(translator: Translator, search: SearchConfig, gold: Sequence[Node], path: Path, progress: Progress) -> list[Output]:
    """The model's outputs for the words of some trees, stored unrepaired so that faults can be counted."""

    def work(trees: Sequence[Node]) -> Iterator[str]:
        for each in generate_outputs(translator, [words(tree) for tree in trees], search, progress.advance):
            yield f"{int(each.finished)}\t{each.pieces}\t{each.rank}\t{each.text}"

    rows = [line.split("\t", 3) for line in compute_lines(path, gold, work, 250)]
    return [Output(finished == "1", int(pieces), int(rank), text) for finished, pieces, rank, text in rows]


def _made(translator: Translator, model: Path, search: SearchConfig) -> tuple[str, ...]:
    recipe, facts = translator.artifact.recipe, read_facts(model)
    store = open_store(model / "training", recipe.data.train, translator.artifact.tokenizer, recipe.data)
    counts = [facts["parameters"], facts["threads"], facts["steps"], facts["epochs"], len(store), sum(store.over_length)]
    parameters, *others = (f"{count:,}" for count in counts)
    limit = f"input + {search.max_extra}"
    return (parameters, _minutes(facts["seconds"]), *others, translator.engine.name,
            str(search.beam_size), f"{search.length_penalty:g}", limit)  # fmt: skip


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f}"


def _repairs(found: Sequence[Output], faults: Sequence[frozenset[Fault]]) -> tuple[int, ...]:
    """Count outputs, repairs and faults; one output may have several faults."""
    well = sum(not each for each in faults)
    kinds = [sum(kind in each for each in faults) for kind in FAULTS]
    cut, pieces = sum(not output.finished for output in found), sum(output.pieces > 1 for output in found)
    return (len(found), well, sum(output.rank > 0 for output in found), len(found) - well, *kinds, cut, pieces)


def evaluate_grammar(bank: Treebank, out: Path, console: Console) -> Entry:
    """Estimate, parse with and score the grammar of the training trees."""
    begin = time.perf_counter()
    parser = Parser(Grammar(bank.train))
    minutes = _minutes(time.perf_counter() - begin)
    key = fingerprint(bank.digests, [len(bank.train), len(bank.dev), len(bank.test)])
    grammar = parser.grammar
    rules = f"{len(grammar.binary):,} binary and {len(grammar.unary):,} unary rules"
    notes, parsed = [f"{len(grammar.symbols):,} symbols, {rules}"], {}
    for part, gold in (("dev", bank.dev), ("test", bank.test)):
        progress = Progress(console, f"parsed {part} sentences by the grammar", len(gold))

        def work(trees: Sequence[Node], progress: Progress = progress) -> Iterator[str]:
            for tree in trees:
                found: Parse = parser.parse(words(tree))
                yield f"{found.pieces}\t{found.failed}\t{to_brackets(found.tree)}"
                progress.advance(1)

        rows = [line.split("\t", 2) for line in compute_lines(out / f"{part}-{key}.tsv", gold, work, 10)]
        parsed[part] = [parse_tree(row[2]) for row in rows]
        console.clear()
        cut, failed = sum(row[0] != "1" for row in rows), sum(row[1] != "0" for row in rows)
        notes.append(
            f"{part}: {plural(cut, 'sentence')} of more than {LONGEST} words parsed in pieces, {plural(failed, 'sentence')} "
            "without a tree under the grammar (at least in one piece), whose words became siblings"
        )
    made = (*["–", minutes, "1", "–", "–"], f"{len(bank.train):,}", *["0", "CKY", "–", "–", "–"])
    return replace(_entry("grammar (PCFG)", made, bank, parsed, out), notes=tuple(notes))


def _entry(name: str, made: tuple[str, ...], bank: Treebank, parsed: dict[str, list[Node]], out: Path) -> Entry:
    """Score, and write files for EVALB: the reference, and ours with its tags and with our own."""
    dev = compute_agreement(_counts(bank.dev, with_gold_tags(bank.dev, parsed["dev"])))
    ours = with_gold_tags(bank.test, parsed["test"])
    write_trees(out / "test.gold", bank.test)
    write_trees(out / "test.parsed", ours)
    write_trees(out / "test.own-tags", parsed["test"])
    return Entry(name, made, dev, _counts(bank.test, ours), compute_agreement(_counts(bank.test, parsed["test"])))


def _counts(gold: Sequence[Node], ours: Sequence[Node]) -> list[Counts | None]:
    return [sentence_counts(*both) for both in zip(gold, ours, strict=True)]


def with_gold_tags(gold: Sequence[Node], ours: Sequence[Node]) -> list[Node]:
    """Our trees with the tags of the reference."""
    return [retag(mine, (leaf.tag for leaf in leaves(right))) for right, mine in zip(gold, ours, strict=True)]


def f1_of(sums: np.ndarray) -> float:
    """Labelled F1 from summed `Counts`."""
    return 200 * float(sums[2]) / max(1.0, float(sums[0] + sums[1]))


def write_report(entries: Sequence[Entry], trees: Path, tree_format: TreeFormat, path: Path, arguments: Sequence[str]) -> None:
    """Write the table beside the paper's, the repairs, and F1 by sentence length with a picture."""
    bins = [each for each in LENGTHS if _of_length(entries[0], *each)]
    lines = report.head(f"Table 4 on {trees.name}: English constituency parsing", arguments)
    lines += [_introduction(entries[0]), "", _results(entries), "", "How each parser was trained, and how it parsed:", ""]
    lines += [report.table(MADE, [[entry.name, *entry.made] for entry in entries]), ""]
    lines += [f"- {entry.name}: {'; '.join(entry.notes)}." for entry in entries if entry.notes]
    lines += ["", *_repair_table(entries, tree_format)]
    lines += ["F1 by sentence length (scored words):", "", _by_length(entries, bins), ""]
    lines += [f"![F1 by length of the sentence]({path.stem}-length.svg)", ""]
    lines += [
        "The paper's Table 4, on another treebank (section 23 of the Wall Street Journal), so not directly comparable:",
        "",
    ]
    lines.append(report.table(["parser", "training", "F1"], [[name, kind, f"{f1:.1f}"] for name, kind, f1 in PAPER]))
    _length_chart(entries, bins).write(path.with_name(f"{path.stem}-length.svg"))
    report.write(path, lines)


def _introduction(entry: Entry) -> str:
    return (
        f"Labelled brackets by EVALB's conventions (COLLINS.prm: punctuation and `TOP` do not count, PRT is ADVP) on all "
        f"{plural(len(entry.test), 'test sentence')}, none left out. The 95 % interval is from 1,000 bootstrap samples of the "
        "sentences. Trees are scored with the reference's tags, as is usual for bracket scores; with a parser's own tags EVALB "
        "rejects sentences whose punctuation is tagged differently, and the last columns say how many."
    )


def _results(entries: Sequence[Entry]) -> str:
    header = ["parser", "F1", "95 %", "precision", "recall", "exact match", "crossing", "none crossing", "at most 2 crossing",
              "F1 dev", "own tags right", "F1 under own tags", "refused"]  # fmt: skip
    rows = []
    for entry in entries:
        right, own = entry.agreement, entry.own_tags
        figures = [right.precision, right.recall, right.exact, right.crossing, right.no_crossing, right.few_crossing, entry.dev.f1]
        figures += [own.tagging, own.f1]
        low_high = report.interval(*_spread([each for each in entry.test if each is not None]))
        rows.append([entry.name, f"**{right.f1:.2f}**", low_high, *(f"{each:.2f}" for each in figures), str(own.invalid)])
    return report.table(header, rows)


def _spread(counts: Sequence[Counts]) -> tuple[float, float]:
    return report.bootstrap_interval(f1_of, np.array(counts, dtype=np.int64))


def _repair_table(entries: Sequence[Entry], tree_format: TreeFormat) -> list[str]:
    """How the trained parsers write trees, and how their outputs were repaired; empty if there are none."""
    taught = [entry for entry in entries if entry.repairs]
    if not taught:
        return []
    said = (
        f"The trained parsers write trees in the form `{tree_format.form}`, tags `{tree_format.tags}`, and are decoded by the "
        f"reference engine `{ENGINE}`, with the arithmetic of training. In form `compact` the search is constrained to trees: a "
        "word may not close more brackets than are open, and the last word closes all. In the other form, and where the "
        "constrained search finds nothing, the best hypothesis of the beam that is a tree over exactly the words is used, or the "
        "best of all if none is. The table counts, for the test set: outputs; outputs that were such trees; those that were not "
        "first in the beam; outputs that had to be repaired, and why (one may have several faults); outputs cut at the "
        "length limit; and sentences so long that they were parsed in pieces."
    )
    return [said, "", report.table(REPAIRS, [[entry.name, *entry.repairs] for entry in taught]), ""]


def _of_length(entry: Entry, low: int, high: int) -> list[Counts]:
    return [each for each in entry.test if each is not None and low <= each.words <= high]


def _bin_name(low: int, high: int) -> str:
    return f"{low}–{high}" if high < 10**9 else f"{low} and more"


def _by_length(entries: Sequence[Entry], bins: Sequence[tuple[int, int]]) -> str:
    rows = []
    for each in bins:
        chosen = [_of_length(entry, *each) for entry in entries]
        rows.append([_bin_name(*each), str(len(chosen[0])), *(f"{compute_agreement(part).f1:.2f}" for part in chosen)])
    return report.table(["words", "sentences", *(entry.name for entry in entries)], rows)


def _length_chart(entries: Sequence[Entry], bins: Sequence[tuple[int, int]]) -> Chart:
    series = []
    for entry in entries:
        parts = [_of_length(entry, *each) for each in bins]
        points = [(float(place), compute_agreement(part).f1) for place, part in enumerate(parts)]
        series.append(Series(entry.name, points, [_spread(part) for part in parts]))
    names = [_bin_name(*each) for each in bins]
    return Chart("F1 by length of the sentence", "scored words", "labelled F1", series, names=names)
