"""English constituency parsing: train a model to write trees, and parse text with it. [paper 6.3]"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from undivided.config import Recipe, SearchConfig, build_recipe
from undivided.config.settings import Values, as_values, list_faults, merge
from undivided.core.console import Console, plural
from undivided.core.errors import InputError
from undivided.core.files import build_folder, sha256_of, write_atomic
from undivided.data.subword_learning import learn_subwords, learn_words, vocab_size_for
from undivided.data.subwords import Subwords, Tokenizer
from undivided.inference.engines.torch import TorchEngine
from undivided.inference.search_settings import SearchChanges
from undivided.inference.translator import Translation, Translator
from undivided.paper.parsing.constraint import TreeConstraint
from undivided.paper.parsing.grafts import graft_trees
from undivided.paper.parsing.linear import Form, Tags, align_to_subwords, linearise, repair, repair_with_faults
from undivided.paper.parsing.trees import Node, read_training_trees, read_trees, unescape_brackets, words
from undivided.paper.runs import pin_settings, train_or_load

PARTS = ("train", "dev", "test")
SUFFIXES = (".mrg", ".trees", ".ptb", ".txt")


@dataclass(frozen=True)
class Treebank:
    """Trees for training, validation and test."""

    name: str
    train: list[Node]
    dev: list[Node]
    test: list[Node]
    digests: dict[str, str]
    grafts: int = 0
    """Augmented copies of every training tree."""


def open_treebank(folder: Path, first: int, console: Console, grafts: int = 0) -> Treebank:
    """Read `train`, `dev` and `test` of a folder; only the first N trees of each, if not 0."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; it should contain train.mrg, dev.mrg and test.mrg")
    found = {part: [folder / (part + end) for end in SUFFIXES if (folder / (part + end)).is_file()] for part in PARTS}
    missing = [f"{folder}: contains no {part}.mrg ({', '.join(SUFFIXES)})" for part in PARTS if not found[part]]
    if missing:
        raise InputError(list_faults("the treebank has", missing))
    paths = [found[part][0] for part in PARTS]
    dev, test = read_trees(*paths[1:])
    train, faults = read_training_trees(paths[0])
    for fault in faults:
        console.warn(f"skipped in training: {fault}")
    first = first or max(len(train), len(dev), len(test))
    console.say(f"{folder}: {len(train[:first]):,} + {len(dev[:first]):,} + {len(test[:first]):,} trees")
    return Treebank(folder.name, train[:first], dev[:first], test[:first], {path.name: sha256_of(path) for path in paths}, grafts)


@dataclass(frozen=True)
class TreeFormat:
    """How trees are written as text for a model."""

    form: Form = "compact"
    tags: Tags = "keep"


def train_parser(values: Values, bank: Treebank, tree_format: TreeFormat, out: Path, console: Console) -> Path:
    """Train a recipe to parse, resume it, or find it complete; the model folder."""
    facts: Values = {
        "form": tree_format.form,
        "tags": tree_format.tags,
        "trees": bank.digests,
        "sizes": [len(bank.train), len(bank.dev)],
    }
    if bank.grafts:
        facts["grafts"] = bank.grafts
    draft = build_recipe(values)
    pin_settings(out / "parsing.json", {**facts, "tokens": as_values(draft.tokens)}, "a parser")
    tokenizer = prepare_tokenizer(draft, bank, tree_format, out / "subwords")
    places: Values = {}
    grafts = list(graft_trees(bank.train, bank.grafts, draft.train.seed))
    for part, trees in (("train", [*bank.train, *grafts]), ("valid", bank.dev)):
        pair = [out / "data" / f"{part}.{side}" for side in ("words", "brackets")]
        if not all(path.exists() for path in pair):
            _write_pairs(pair, trees, tokenizer.source, tree_format)
        places[part] = [[str(path) for path in pair]]
    ready = {"ready": str(out / "subwords"), "joint": False}
    model = train_or_load(merge(values, {"data": places, "tokens": ready, "train": {"out": str(out / "model")}}), console)
    console.say(f"parse text with this model: undivided paper parse {model}")
    return model


def prepare_tokenizer(recipe: Recipe, bank: Treebank, tree_format: TreeFormat, home: Path) -> Tokenizer:
    """Subwords for the words, and one token for every token of the trees; learned once, then read."""
    if not home.is_dir():
        sources = [source_text(words(tree)) for tree in bank.train]
        size = recipe.tokens.vocab_size or vocab_size_for(len(sources))
        source = Subwords(learn_subwords(sources, recipe.tokens, size, recipe.train.seed))
        target = Subwords(learn_words(_targets(bank.train, source, tree_format), recipe.train.seed))
        with build_folder(home) as building:
            Tokenizer(source, target).save(building)
    return Tokenizer.load(home)


def _write_pairs(pair: Sequence[Path], trees: Sequence[Node], source: Subwords, tree_format: TreeFormat) -> None:
    pair[0].parent.mkdir(parents=True, exist_ok=True)
    sources = (source_text(words(tree)) for tree in trees)
    for path, lines in zip(pair, (sources, _targets(trees, source, tree_format)), strict=True):
        write_atomic(path, "".join(f"{line}\n" for line in lines))


def source_text(sentence: Sequence[str]) -> str:
    """The words of a sentence as the model reads them."""
    return " ".join(sentence)


def _targets(trees: Iterable[Node], source: Subwords, tree_format: TreeFormat) -> Iterator[str]:
    """Each tree as target text."""
    known: dict[str, int] = {}
    for tree in trees:
        tokens = linearise(tree, tree_format.form, tree_format.tags)
        if tree_format.form == "compact":
            sentence = words(tree)
            new = [word for word in sentence if word not in known]
            known.update(zip(new, (len(row) - 1 for row in source.encode(new)), strict=True))
            tokens = align_to_subwords(tokens, [known[word] for word in sentence])
        yield " ".join(tokens)


class Output(NamedTuple):
    """What a model wrote for one sentence."""

    finished: bool
    """Whether the model ended the output; if not, it was cut at the length limit."""
    pieces: int
    """More than one if the sentence is longer than those in training."""
    rank: int
    """Rank among the hypotheses of the beam; 0 is the best."""
    text: str


def generate_outputs(
    translator: Translator,
    sentences: Sequence[Sequence[str]],
    search: SearchConfig,
    advance: Callable[[int], None] = lambda count: None,
) -> Iterator[Output]:
    """The model's output for each sentence.

    In form `compact` the search is constrained to trees over the words. If that finds none, if a sentence is longer than those
    in training, and in other forms: the best hypothesis of the beam that is such a tree, else the best.
    """
    found = _constrained_trees(translator, sentences, search, advance)
    left = [sentence for place, sentence in enumerate(sentences) if place not in found]
    # A line is one sentence, however many full stops it has.
    wanted = as_values(search) | {"sentences": False, "n_best": search.beam_size}
    others = translator.stream([source_text(sentence) for sentence in left], advance=advance, **wanted)
    for place, sentence in enumerate(sentences):
        yield found[place] if place in found else _best(next(others), sentence)


def _best(result: Translation, sentence: Sequence[str]) -> Output:
    texts = [text for text, _ in result.alternatives] or [result.text]
    rank = next((place for place, text in enumerate(texts) if not repair_with_faults(text, sentence)[1]), 0)
    return Output(result.finished or rank > 0, result.pieces, rank, texts[rank])


def _constrained_trees(
    translator: Translator, sentences: Sequence[Sequence[str]], search: SearchConfig, advance: Callable[[int], None]
) -> dict[int, Output]:
    """Outputs of the constrained search, by the index of the sentence."""
    tokenizer, found = translator.artifact.tokenizer, {}
    whole = TreeConstraint.of(tokenizer.target, translator.device)
    if whole is None:
        return {}
    rows = tokenizer.source.encode([source_text(sentence) for sentence in sentences])
    counts = [[len(row) - 1 for row in tokenizer.source.encode(sentence)] for sentence in sentences]
    spans = zip(rows, counts, strict=True)
    fit = [place for place, (row, each) in enumerate(spans) if 0 < sum(each) == len(row) - 1 < translator.limits.longest]
    results = TorchEngine(translator.artifact).search(
        [rows[place] for place in fit],
        replace(search, n_best=1),
        [[]] * len(fit),
        fit,
        lambda batch: whole.rule([counts[fit[place]] for place in batch]),
    )
    for place, hypotheses in results:
        if hypotheses and hypotheses[0].finished:
            found[fit[place]] = Output(True, 1, 0, tokenizer.target.decode([hypotheses[0].tokens])[0])
            advance(1)
    return found


def parse(translator: Translator, sentences: Sequence[Sequence[str]], search: SearchConfig) -> Iterator[Node]:
    """A tree over exactly the words of each sentence, repaired if necessary."""
    for sentence, output in zip(sentences, generate_outputs(translator, sentences, search), strict=True):
        yield repair(output.text, sentence)


TOKEN = re.compile(
    r"""\.\.\.|--|``|''            # of more than one character
    | \d+(?:[.,]\d+)*              # numbers
    | (?:[^\W\d_]\.){2,}           # abbreviations such as e.g.
    | n't\b | '(?:s|m|d|ll|re|ve)\b # contractions
    | (?:[^\W_][\u0300-\u036f]*)+?(?=n't\b) | (?:[^\W_][\u0300-\u036f]*)+ # words, also with accents that stand apart
    | [^\s\u200b\u2060\ufeff]     # all else that can be seen, one by one""",
    re.VERBOSE | re.IGNORECASE,
)


def tokenise_text(text: str) -> list[str]:
    """Split raw text into words, about as treebanks do: punctuation, brackets, hyphens and slashes are separate.

    Straight quotes become the treebank's: `` `` `` where they open, `''` where they close.
    """
    opened = re.sub(r'(^|[\s(\[{])"', r"\1`` ", text)
    return TOKEN.findall(opened.replace('"', " '' "))


def parse_lines(
    model: str,
    lines: Iterable[str],
    search: SearchChanges,
    *,
    ready: bool,
    device: str,
    threads: int,
    console: Console,
    trust: bool = False,
) -> Iterator[Node | None]:
    """A tree for every line of text, None for an empty one; the words of `ready` lines are already separated by spaces.

    `search` holds the settings that differ from the model's own.
    """
    translator = Translator(model, device, threads, trust=trust)
    config = translator.search_config(**search)
    target = translator.artifact.tokenizer.target
    if not any(piece.startswith("▁(") for piece in target.pieces(range(len(target)))):
        raise InputError(f"{model}: this model does not write trees; train one with: undivided paper table4 RECIPE --trees DIR")
    batch: list[list[str]] = []
    for number, line in enumerate(lines, 1):
        batch.append([unescape_brackets(word) for word in line.split()] if ready else tokenise_text(line))
        if len(batch[-1]) > translator.limits.longest:
            console.warn(f"line {number}: {plural(len(batch[-1]), 'word')}, more than in training; parsed in pieces")
        if len(batch) == 500:
            yield from _parse_batch(translator, batch, config)
            batch = []
    yield from _parse_batch(translator, batch, config)


def _parse_batch(translator: Translator, batch: list[list[str]], search: SearchConfig) -> Iterator[Node | None]:
    for sentence, tree in zip(batch, parse(translator, batch, search), strict=True):
        yield tree if sentence else None
