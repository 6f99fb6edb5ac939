"""The table of budgets is resumed, is written anew after each run, and marks what was found with other rules."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
import budget

MODEL = {"encoder_layers": 3, "decoder_layers": 3, "d_model": 128, "dropout": 0.1}
FACTS = {"steps": 9, "epochs": 2, "target_tokens": 6000, "seconds": 2.0, "threads": 1, "vocabulary": 4000}


@pytest.fixture
def trained(monkeypatch):
    """The commands that were run; the second training of a folder is stopped."""
    commands = []

    def undivided(*arguments):
        commands.append(arguments)
        if arguments[0] == "score":
            return "BLEU 21.50 nrefs:1\nBLEU-moses-lc 36.25 nrefs:1|lc\n"
        out = Path(arguments[arguments.index("--out") + 1])
        out.mkdir(parents=True, exist_ok=True)
        recipe = {"model": MODEL, "batches": {"tokens": 1024}}
        (out / "config.json").write_text(json.dumps({"facts": FACTS, "recipe": recipe}))
        return ""

    monkeypatch.setattr(budget, "undivided", undivided)
    return commands


def bench(monkeypatch, tmp_path, *flags):
    report = tmp_path / "report.md"
    monkeypatch.setattr(sys, "argv", ["budget.py", *flags, "--out", str(tmp_path / "m"), "--report", str(report)])
    budget.main()
    return [line for line in report.read_text().splitlines() if line.startswith(("| office", "| Multi30k", "* found"))]


def test_runs_are_not_repeated_and_none_is_lost(monkeypatch, tmp_path, trained, capsys):
    (row,) = bench(monkeypatch, tmp_path, "--minutes", "4", "--corpora", "office")
    assert row.startswith("| office help, English → German | 4 | 21.50 | ≥ 20 | 9 | 2 | 3,000 | ")
    assert "3 + 3 × 128, 4,000 subwords, dropout 0.1, batches of 1,024" in row
    train, _ = trained
    assert train[-4:-2] == ("--minutes", "4")
    assert not set(train) & {"--preset", "--model.dropout", "--valid"}, "defaults only"
    rows = bench(monkeypatch, tmp_path, "--minutes", "10", "--corpora", "office", "captions")
    assert [line.split(" | ")[1:4] for line in rows] == [
        ["4", "21.50", "≥ 20"], ["10", "21.50", "≥ 30 (missed)"], ["10", "36.25", "≥ 35"]
    ]  # fmt: skip
    assert len(trained) == 6, "the first run is not repeated, and stays in the table"


def test_what_other_rules_gave_is_marked_and_repeated_if_asked(monkeypatch, tmp_path, trained, capsys):
    bench(monkeypatch, tmp_path, "--minutes", "4", "--corpora", "office")
    monkeypatch.setattr(budget, "rules_now", lambda: "new")
    row, note = bench(monkeypatch, tmp_path, "--minutes", "4", "--corpora", "office")
    assert "21.50 * |" in row
    assert "earlier rules" in note
    (row,) = bench(monkeypatch, tmp_path, "--minutes", "4", "--corpora", "office", "--again")
    assert "21.50 |" in row
    assert trained[-2][-1].endswith("office-4-new"), "in a folder of its own, not resumed from the old rules"
