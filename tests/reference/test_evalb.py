"""Our bracket scores are EVALB's on the same files (`make evalb` builds it from its C source)."""

import os
import random
import re
import subprocess
from pathlib import Path

import pytest

from made_trees import made_lines
from undivided.paper.parsing.brackets import score_trees
from undivided.paper.parsing.linear import linearise, repair
from undivided.paper.parsing.trees import leaves, parse_tree, read_trees, retag, simplify, words, write_trees

ROOT = Path(__file__).parents[2]
EVALB = Path(os.environ.get("UNDIVIDED_EVALB", ROOT / ".venv" / "evalb" / "evalb"))
CORPORA = Path(os.environ.get("UNDIVIDED_CORPORA", ROOT.parent / "shared" / "corpora"))
PARAMETERS = "DEBUG 0\nMAX_ERROR 100000\nCUTOFF_LEN 40\nLABELED 1\nEQ_LABEL ADVP PRT\n" + "".join(
    f"DELETE_LABEL {label}\n" for label in ("TOP", "-NONE-", ",", ":", "``", "''", ".")
)
FIGURES = {
    "Number of sentence": "sentences",
    "Number of Error sentence": "invalid",
    "Bracketing Recall": "recall",
    "Bracketing Precision": "precision",
    "Bracketing FMeasure": "f1",
    "Complete match": "exact",
    "Average crossing": "crossing",
    "No crossing": "no_crossing",
    "2 or less crossing": "few_crossing",
    "Tagging accuracy": "tagging",
}

pytestmark = pytest.mark.skipif(not EVALB.is_file(), reason=f"EVALB is not there: {EVALB} (make evalb, or set UNDIVIDED_EVALB)")


def evalb(folder, gold, ours):
    """What EVALB says of two lists of trees."""
    (folder / "collins.prm").write_text(PARAMETERS)
    write_trees(folder / "gold", gold)
    write_trees(folder / "ours", ours)
    command = [EVALB, "-p", folder / "collins.prm", folder / "gold", folder / "ours"]
    said = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", errors="replace", check=True).stdout
    summary = said.partition("-- All --")[2].partition("-- len")[0]
    figures = {" ".join(name.split()): float(value) for name, value in re.findall(r"^(.+?) *= *(\S+)$", summary, re.MULTILINE)}
    # It tells apart sentences whose words differ and sentences of which nothing is left; neither counts.
    return figures | {"Number of Error sentence": figures["Number of Error sentence"] + figures["Number of Skip sentence"]}


def agree(folder, gold, ours):
    theirs, found = evalb(folder, gold, ours), score_trees(gold, ours)
    for name, field in FIGURES.items():
        assert theirs[name] == pytest.approx(getattr(found, field), abs=0.00501), name
    return found


def damaged(tree, chance):
    """What a bad parser makes of a sentence: tokens lost, doubled and exchanged, then repaired."""
    tokens = linearise(tree, chance.choice(["compact", "vinyals"]))
    for _ in range(chance.randrange(6)):
        place, other = chance.randrange(len(tokens)), chance.randrange(len(tokens))
        tokens[place : place + chance.randrange(2)] = [tokens[other]] * chance.randrange(2)
        tokens = tokens or ["XX"]
    return repair(" ".join(tokens), words(tree))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_made_up_trees_under_their_own_tags(tmp_path, seed):
    chance = random.Random(seed)
    gold = [simplify(parse_tree(line)) for line in made_lines(300, seed)]
    found = agree(tmp_path, gold, [damaged(tree, chance) for tree in gold])
    assert 20 < found.f1 < 99
    assert found.invalid
    assert found.crossing


def test_made_up_trees_under_the_tags_of_the_reference(tmp_path):
    chance = random.Random(4)
    gold = [simplify(parse_tree(line)) for line in made_lines(300, 4)]
    ours = [retag(damaged(tree, chance), (leaf.tag for leaf in leaves(tree))) for tree in gold]
    assert agree(tmp_path, gold, ours).invalid == 0


def test_particles_chains_and_functions(tmp_path):
    gold = ["(TOP (S-1 (NP=2 (NP (NN a))) (PRT (RP up)) (ADVP (RB c))))", "(TOP (S (PRT (RP a)) (ADVP (PRT (RB c)))))"]
    ours = ["(TOP (S (NP (NN a)) (ADVP (RP up)) (PRT-X (RB c))))", "(TOP (S (ADVP (PRT (RP a))) (ADVP (RB c))))"]
    agree(tmp_path, [parse_tree(line) for line in gold], [parse_tree(line) for line in ours])


def test_a_real_treebank_with_long_sentences(tmp_path):
    if not (CORPORA / "craft-trees").is_dir():
        pytest.skip(f"the CRAFT trees are not there: {CORPORA} (set UNDIVIDED_CORPORA)")
    (gold,) = read_trees(CORPORA / "craft-trees" / "test.mrg")
    chance = random.Random(5)
    assert max(len(words(tree)) for tree in gold) > 200
    agree(tmp_path, gold, [damaged(tree, chance) for tree in gold])
    assert agree(tmp_path, gold, gold).f1 == 100.0
