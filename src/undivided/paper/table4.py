"""Table 4: parsers taught by recipes beside a grammar read off the same trees, scored and reported. [paper 6.3, Table 4]"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from undivided.console import Console, InputError, Progress, duration, plural
from undivided.paper import report
from undivided.paper.brackets import Agreement, Counts, agreement, sentence_counts
from undivided.paper.cky import LONGEST, Parse, Parser
from undivided.paper.parsing import Treebank, Writing, open_treebank, parse, teach
from undivided.paper.pcfg import Grammar
from undivided.paper.runs import facts_of, fingerprint, line_by_line
from undivided.paper.trees import Node, leaves, parse_tree, retagged, words, write_trees, written
from undivided.settings import Values
from undivided.translate import Translator

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

LENGTHS = ((1, 10), (11, 20), (21, 40), (41, 10**9))


@dataclass(frozen=True)
class Entry:
    """One parser in the table."""

    name: str
    what: str
    dev: Agreement
    test: list[Counts | None]
    """With the tags of the reference, so that no sentence is left out for a mistaken comma."""
    own_tags: Agreement
    """Of test, with the parser's own tags."""
    notes: list[str]

    @property
    def agreement(self) -> Agreement:
        """On test."""
        return agreement(self.test)


def table4(
    recipes: dict[str, Values], trees: Path, writing: Writing, out: Path, console: Console, *, first: int = 0, grammar: bool = True
) -> list[Entry]:
    """Teach every recipe, read the grammar, parse dev and test with each, and score. Stopped, it goes on where it was."""
    if not recipes and not grammar:
        raise InputError("nothing to do: name a recipe, or leave out --no-grammar")
    bank = open_treebank(trees, first, console)
    entries = []
    for name, values in recipes.items():
        entries.append(taught_entry(name, values, bank, writing, out / name, console))
        console.say(f"{name}: {entries[-1].agreement}")
    if grammar:
        entries.append(grammar_entry(bank, out / "grammar", console))
        console.say(f"grammar: {entries[-1].agreement}")
    return entries


def taught_entry(name: str, values: Values, bank: Treebank, writing: Writing, out: Path, console: Console) -> Entry:
    """Train, parse and score one recipe."""
    model = teach(values, bank, writing, out, console)
    translator = Translator(model)
    config, facts = translator.search_config(), facts_of(model)
    key = fingerprint((model / "manifest.json").read_text(), config)
    notes: list[str] = []
    parsed = {}
    for part, gold in (("dev", bank.dev), ("test", bank.test)):
        progress = Progress(console, f"parsed {part} sentences", len(gold))

        def work(trees: Sequence[Node], progress: Progress = progress) -> Iterator[str]:
            return map(written, parse(translator, [words(tree) for tree in trees], progress.advance))

        parsed[part] = _read_back(line_by_line(out / f"{part}-{key}.mrg", gold, work, 250))
        console.clear()
    what = (
        f"{facts['parameters'] / 1e6:.1f} M parameters, {duration(facts['seconds'])} of training ({facts['steps']:,} steps, "
        f"{facts['epochs']} passes), beam {config.beam_size}, α {config.length_penalty:g}, at most input + {config.max_extra}"
    )
    return _entry(name, what, bank, parsed, out, notes)


def grammar_entry(bank: Treebank, out: Path, console: Console) -> Entry:
    """The grammar of the training trees, parsed with and scored."""
    parser = Parser(Grammar(bank.train))
    key = fingerprint(bank.digests, [len(bank.train), len(bank.dev), len(bank.test)])
    notes, parsed = [], {}
    for part, gold in (("dev", bank.dev), ("test", bank.test)):
        progress = Progress(console, f"parsed {part} sentences by the grammar", len(gold))

        def work(trees: Sequence[Node], progress: Progress = progress) -> Iterator[str]:
            for tree in trees:
                found: Parse = parser.parse(words(tree))
                yield f"{found.pieces}\t{found.failed}\t{written(found.tree)}"
                progress.advance(1)

        rows = [line.split("\t", 2) for line in line_by_line(out / f"{part}-{key}.tsv", gold, work, 10)]
        parsed[part] = _read_back([row[2] for row in rows])
        console.clear()
        cut, failed = sum(row[0] != "1" for row in rows), sum(row[1] != "0" for row in rows)
        notes.append(
            f"{part}: {plural(cut, 'sentence')} of more than {LONGEST} words parsed in pieces, {plural(failed, 'sentence')} "
            "without a tree under the grammar (at least in a piece), whose words stand side by side"
        )
    grammar = parser.grammar
    what = f"{len(grammar.symbols):,} symbols, {len(grammar.binary):,} binary and {len(grammar.unary):,} unary rules, CKY"
    return _entry("grammar (PCFG)", what, bank, parsed, out, notes)


def _read_back(lines: Sequence[str]) -> list[Node]:
    return [parse_tree(line) for line in lines]


def _entry(name: str, what: str, bank: Treebank, parsed: dict[str, list[Node]], out: Path, notes: list[str]) -> Entry:
    """Score, and leave files that EVALB takes: the reference, and ours under its tags and under our own."""
    dev = agreement(_counts(bank.dev, with_gold_tags(bank.dev, parsed["dev"])))
    ours = with_gold_tags(bank.test, parsed["test"])
    write_trees(out / "test.gold", bank.test)
    write_trees(out / "test.parsed", ours)
    write_trees(out / "test.own-tags", parsed["test"])
    return Entry(name, what, dev, _counts(bank.test, ours), agreement(_counts(bank.test, parsed["test"])), notes)


def _counts(gold: Sequence[Node], ours: Sequence[Node]) -> list[Counts | None]:
    return [sentence_counts(*both) for both in zip(gold, ours, strict=True)]


def with_gold_tags(gold: Sequence[Node], ours: Sequence[Node]) -> list[Node]:
    """Our trees under the tags of the reference."""
    return [retagged(mine, (leaf.tag for leaf in leaves(right))) for right, mine in zip(gold, ours, strict=True)]


def f1_of(sums: np.ndarray) -> float:
    """Labelled F1 from summed `Counts`."""
    return 200 * float(sums[2]) / max(1.0, float(sums[0] + sums[1]))


def write_report(entries: Sequence[Entry], trees: Path, writing: Writing, path: Path, arguments: Sequence[str]) -> None:
    """The table beside the paper's, what EVALB is told, and F1 by length."""
    lines = report.head(f"Table 4 on {trees.name}: English constituency parsing", arguments)
    lines += [_introduction(entries[0]), "", _results(entries), ""]
    lines += [f"- {entry.name}: {entry.what}" + "".join(f"; {note}" for note in entry.notes) + "." for entry in entries]
    if len(entries) > 1 or not entries[0].name.startswith("grammar"):
        lines.append(f"- The parsers that were taught write trees in the form `{writing.form}`, tags `{writing.tags}`.")
    lines += ["", "F1 by length of the sentence in words that count:", "", _by_length(entries), ""]
    lines += [
        "The paper's Table 4, on another treebank (section 23 of the Wall Street Journal), so not to be compared digit by digit:",
        "",
    ]
    lines.append(report.table(["parser", "training", "F1"], [[name, kind, f"{f1:.1f}"] for name, kind, f1 in PAPER]))
    report.write(path, lines)


def _introduction(entry: Entry) -> str:
    return (
        f"Labelled brackets by EVALB's conventions (COLLINS.prm: punctuation and `TOP` do not count, PRT is ADVP) on all "
        f"{plural(len(entry.test), 'test sentence')}, none left out. The interval holds 95 % of the F1 of 1,000 resamplings of "
        "the sentences. Trees are scored under the reference's tags, as is usual for parsers that are judged by brackets; under "
        "a parser's own tags EVALB refuses sentences where punctuation is tagged otherwise, and the last columns say how many."
    )


def _results(entries: Sequence[Entry]) -> str:
    header = ["parser", "F1", "95 %", "precision", "recall", "exact", "crossing", "none crossing", "F1 dev"]
    rows = []
    for entry in entries:
        right = entry.agreement
        low, high = report.resampled(f1_of, np.array([each for each in entry.test if each is not None], dtype=np.int64))
        figures = [right.precision, right.recall, right.exact, right.crossing, right.no_crossing, entry.dev.f1]
        own = [f"{entry.own_tags.tagging:.2f}", f"{entry.own_tags.f1:.2f}", f"{entry.own_tags.invalid}"]
        rows.append([entry.name, f"**{right.f1:.2f}**", report.interval(low, high), *(f"{each:.2f}" for each in figures), *own])
    return report.table([*header, "own tags right", "F1 under own tags", "refused"], rows)


def _by_length(entries: Sequence[Entry]) -> str:
    header = ["words", "sentences", *(entry.name for entry in entries)]
    rows = []
    for low, high in LENGTHS:
        chosen = [[each for each in entry.test if each is not None and low <= each.words <= high] for entry in entries]
        name = f"{low}–{high}" if high < 10**9 else f"{low} and more"
        rows.append([name, str(len(chosen[0])), *(f"{agreement(part).f1:.2f}" if part else "–" for part in chosen)])
    return report.table(header, rows)
