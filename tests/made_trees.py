"""A made-up treebank: sentences drawn from a small grammar, with traces, functions and punctuation as treebanks have them."""

from __future__ import annotations

import random
from pathlib import Path

RULES = {
    "S": [["NP-SBJ", "VP", "."], ["NP-SBJ", "ADVP", "VP", "."], ["S", ",", "CC", "S"], ["PP", ",", "NP-SBJ", "VP", "."]],
    "NP": [["DT", "NN"], ["DT", "JJ", "NN"], ["NP", "PP"], ["NNS"], ["NP", "PRN"]],
    "VP": [["VBZ", "NP"], ["VBZ", "PRT", "NP"], ["VBZ", "NP", "PP"], ["MD", "VP"], ["VBZ", "S-TPC-1", "*"]],
    "PP": [["IN", "NP"]],
    "ADVP": [["RB"]],
    "PRT": [["RP"]],
    "PRN": [["-LRB-", "NP", "-RRB-"]],
}
WORDS = {
    "DT": ["the", "a", "every"], "NN": ["dog", "cell", "gene", "tree", "assay"], "NNS": ["mice", "cells"], "JJ": ["old", "mutant"],
    "VBZ": ["sees", "binds", "finds"], "MD": ["may", "can"], "IN": ["in", "of", "near"], "RB": ["often", "never"],
    "RP": ["up", "out"], "CC": ["and", "but"], ".": ["."], ",": [","], "-LRB-": ["-LRB-"], "-RRB-": ["-RRB-"],
}  # fmt: skip


def made_tree(chance: random.Random, label: str = "S", depth: int = 0) -> str:
    """One tree as text; deep ones end soon."""
    base = label.split("-", maxsplit=1)[0] if label[0] != "-" else label
    if base == "*":
        return "(-NONE- *T*-1)"
    if base in WORDS:
        return f"({label} {chance.choice(WORDS[base])})"
    rules = RULES[base]
    rule = chance.choice(rules if depth < 3 else rules[:1])
    return f"({label} {' '.join(made_tree(chance, child, depth + 1) for child in rule)})"


def made_lines(count: int, seed: int = 1) -> list[str]:
    chance = random.Random(seed)
    return [f"( {made_tree(chance)} )" for _ in range(count)]


def write_treebank(folder: Path, train: int = 200, held_out: int = 12) -> Path:
    """`train.mrg`, `dev.mrg` and `test.mrg` in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed, (part, count) in enumerate((("train", train), ("dev", held_out), ("test", held_out)), 1):
        (folder / f"{part}.mrg").write_text("".join(f"{line}\n" for line in made_lines(count, seed)), encoding="utf-8")
    return folder
