"""English constituency parsing: a model learns to write trees, and text is parsed with it. [paper 6.3]"""

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
from undivided.core.files import build_folder, sha256_of
from undivided.data.subwords import Subwords, Tokenizer, learn_subwords, learn_words, vocab_size_for
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
    """Trees to learn from, to choose by and to be judged on."""

    name: str
    train: list[Node]
    dev: list[Node]
    test: list[Node]
    digests: dict[str, str]
    grafts: int = 0
    """How many times every tree of `train` is learned from once more, with constituents of others in it."""


def open_treebank(folder: Path, first: int, console: Console, grafts: int = 0) -> Treebank:
    """The trees of `train`, `dev` and `test` in a folder; of each only the first so many, if not 0."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder of trees; it should hold train.mrg, dev.mrg and test.mrg")
    found = {part: [folder / (part + end) for end in SUFFIXES if (folder / (part + end)).is_file()] for part in PARTS}
    missing = [f"{folder}: holds no {part}.mrg ({', '.join(SUFFIXES)})" for part in PARTS if not found[part]]
    if missing:
        raise InputError(list_faults("the treebank has", missing))
    paths = [found[part][0] for part in PARTS]
    dev, test = read_trees(*paths[1:])
    train, faults = read_training_trees(paths[0])
    for fault in faults:
        console.warn(f"left out of training: {fault}")
    first = first or max(len(train), len(dev), len(test))
    console.say(f"{folder}: {len(train[:first]):,} + {len(dev[:first]):,} + {len(test[:first]):,} trees")
    return Treebank(folder.name, train[:first], dev[:first], test[:first], {path.name: sha256_of(path) for path in paths}, grafts)


@dataclass(frozen=True)
class TreeFormat:
    """How trees are written for a model."""

    form: Form = "compact"
    tags: Tags = "keep"


def train_parser(values: Values, bank: Treebank, tree_format: TreeFormat, out: Path, console: Console) -> Path:
    """Train a recipe to parse, or go on, or find it done: the model folder."""
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
    console.say(f"it writes trees; parse text with: undivided paper parse {model}")
    return model


def prepare_tokenizer(recipe: Recipe, bank: Treebank, tree_format: TreeFormat, home: Path) -> Tokenizer:
    """Subwords of the words, and one token for every token of the trees: learned once, then read."""
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
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def source_text(sentence: Sequence[str]) -> str:
    """The words of a sentence as the model reads them."""
    return " ".join(sentence)


def _targets(trees: Iterable[Node], source: Subwords, tree_format: TreeFormat) -> Iterator[str]:
    """Each tree as the text that the model learns to write."""
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
    """Whether the model ended it; if not, it was cut at the length limit."""
    pieces: int
    """More than one where the sentence is longer than what training saw."""
    rank: int
    """Where it stands among the hypotheses of the beam, the best being 0."""
    text: str


def generate_outputs(
    translator: Translator,
    sentences: Sequence[Sequence[str]],
    search: SearchConfig,
    advance: Callable[[int], None] = lambda count: None,
) -> Iterator[Output]:
    """What the model writes for each sentence.

    In form `compact` a search that writes nothing but trees over the words. Where that finds none, where a sentence is longer
    than training's, and in other forms: the best hypothesis of the beam that is such a tree, else the best.
    """
    found = _constrained_trees(translator, sentences, search, advance)
    left = [sentence for place, sentence in enumerate(sentences) if place not in found]
    # A sentence has one tree, however many full stops it has.
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
    """By the places of sentences, what a search finds that writes nothing but trees over their words."""
    tokenizer, found = translator.artifact.tokenizer, {}
    whole = TreeConstraint.of(tokenizer.target, translator.device)
    if whole is None:
        return {}
    rows = tokenizer.source.encode([source_text(sentence) for sentence in sentences])
    counts = [[len(row) - 1 for row in tokenizer.source.encode(sentence)] for sentence in sentences]
    spans = zip(rows, counts, strict=True)
    fit = [place for place, (row, each) in enumerate(spans) if 0 < sum(each) == len(row) - 1 < translator.longest]
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
    """A tree over exactly the words of each sentence, whatever the model writes."""
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
    """Raw text as words, about as treebanks cut it: punctuation, brackets, hyphens and slashes stand alone.

    Straight quotes become the treebank's: `` `` `` where they open, `''` where they close.
    """
    opened = re.sub(r'(^|[\s(\[{])"', r"\1`` ", text)
    return TOKEN.findall(opened.replace('"', " '' "))


def parse_lines(
    model: str, lines: Iterable[str], search: SearchChanges, *, ready: bool, device: str, threads: int, console: Console
) -> Iterator[Node | None]:
    """A tree for every line of text, None for an empty one; `ready` lines have spaces between their words already.

    `search` holds the settings that are not to be the model's own.
    """
    translator = Translator(model, device, threads)
    config = translator.search_config(**search)
    target = translator.artifact.tokenizer.target
    if not any(piece.startswith("▁(") for piece in target.pieces(range(len(target)))):
        raise InputError(f"{model}: this model does not write trees; train one with: undivided paper table4 RECIPE --trees DIR")
    batch: list[list[str]] = []
    for number, line in enumerate(lines, 1):
        batch.append([unescape_brackets(word) for word in line.split()] if ready else tokenise_text(line))
        if len(batch[-1]) > translator.longest:
            console.warn(f"line {number}: {plural(len(batch[-1]), 'word')}, more than training ever saw; parsed in pieces")
        if len(batch) == 500:
            yield from _parse_batch(translator, batch, config)
            batch = []
    yield from _parse_batch(translator, batch, config)


def _parse_batch(translator: Translator, batch: list[list[str]], search: SearchConfig) -> Iterator[Node | None]:
    for sentence, tree in zip(batch, parse(translator, batch, search), strict=True):
        yield tree if sentence else None
