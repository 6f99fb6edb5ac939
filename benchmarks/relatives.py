"""Train the shipped recipes of what came after the Transformer, set each beside its baseline, write the report.

    python benchmarks/relatives.py [--out models/relatives] [--report docs/relatives.md] [--threads 1] [--only language vision …]

Needs scikit-learn (in the extra `dev`), the office help of UNDIVIDED_CORPORA, and for glosses Debian's `wordnet-base`, fetched with
apt-get unless --wordnet names the folder of its data files. After a stop it resumes; finished trainings are kept.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from kneser_ney import KneserNey
from sklearn.datasets import load_digits
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from torch import nn

from undivided.artifact import load_single_stack
from undivided.core.console import plural
from undivided.data.images import contact_sheet, encode_png, read_idx, read_images, read_labels, write_idx
from undivided.data.text_files import raw_lines
from undivided.inference.classify import Classifier, to_values
from undivided.inference.generate import Generator
from undivided.models import DecoderOnly, Drawing
from undivided.training.tasks.classes import shift_images

ROOT = Path(__file__).resolve().parent.parent
CORPORA = Path(os.environ.get("UNDIVIDED_CORPORA", ROOT.parent / "shared" / "corpora"))
DIGITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
PARTS = {"noun": "noun", "verb": "verb", "adj": "adjective", "adv": "adverb"}
LONGEST = 150
"""Characters of a gloss, so that each fits into the context of the recipe."""
DRAWN = 100
"""Images drawn of each digit."""


class Run:
    """Where things go, and how commands are run and remembered for the report."""

    def __init__(self, out: Path, threads: int, wordnet: str) -> None:
        self.out, self.threads, self.wordnet = out, threads, wordnet
        out.mkdir(parents=True, exist_ok=True)

    def train(self, recipe: str, name: str, train: list[Path], valid: list[Path], *more: str) -> tuple[Path, str]:
        """A model folder, trained now or before, and its command as a reader would type it."""
        model = self.out / name
        words = ["train", f"recipes/{recipe}.yaml", "--train", *map(str, train), "--valid", *map(str, valid), *more]
        words += ["--out", str(model)]
        log = model / "training" / "log.jsonl"
        if not log.exists() or '"final"' not in log.read_text():
            threads = ["--threads", str(self.threads)] if self.threads else []
            subprocess.run([sys.executable, "-m", "undivided", *words, *threads], cwd=ROOT, check=True)
        shown = " ".join(["undivided", *words]).replace(f"{self.out}/", "").replace(f"{CORPORA}/", "")
        return model, shown


def lines_of(path: Path) -> list[str]:
    return [line.decode("utf-8") for line in raw_lines(path)]


def facts(model: Path) -> str:
    found = json.loads((model / "config.json").read_text(encoding="utf-8"))["facts"]
    learned = f"{found['steps']:,} steps in {found['seconds'] / 60:.1f} minutes"
    return f"{found['parameters']:,} parameters, {learned}, {plural(found['threads'], 'CPU thread')}"


def write_lines(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def language(run: Run) -> list[str]:
    """GPT beside modified Kneser-Ney on the same subwords."""
    home = CORPORA / "libreoffice-help" / "en-de"
    if not home.is_dir():
        return ["## Decoder-only: left out", "", "The office help is not there (set UNDIVIDED_CORPORA)."]
    model, command = run.train("language-help", "language", [home / "train.en"], [home / "valid.en"])
    found = load_single_stack(model)
    assert isinstance(found.model, DecoderOnly)
    subwords = found.text.source
    train, test = (subwords.encode([line for line in lines_of(home / f"{part}.en") if line.strip()]) for part in ("train", "test"))
    ours = Generator(model).perplexity(lines_of(home / "test.en"))
    theirs = {order: KneserNey(train, len(subwords), order).perplexity(test) for order in (3, 5)}
    written = Generator(model).text(["To insert a", "If you want to"], n_best=2, seed=1)
    return [
        "## Decoder-only (GPT): perplexity of held-out text",
        "",
        f"`{command}`",
        "",
        f"{facts(model)}; {sum(map(len, train)):,} training subwords, {sum(map(len, test)):,} of the test split, "
        f"the same for all, each line a text of its own, vocabulary "
        f"{len(subwords):,}.",
        "",
        "| model | perplexity of a subword |",
        "|---|---:|",
        *(f"| {order}-gram, interpolated modified Kneser-Ney | {value:.2f} |" for order, value in theirs.items()),
        f"| decoder-only Transformer | **{ours:.2f}** |",
        "",
        "Drawn, with what was asked in front:",
        "",
        *(f"- {each.text}" for row in written for each in row),
    ]


def glosses(run: Run) -> dict[str, list[tuple[str, str]]]:
    """Glosses with the part of speech they define: many without labels, some with, all different."""
    home = Path(run.wordnet) if run.wordnet else fetched("wordnet-base", run.out / "wordnet") / "wordnet"
    chance = np.random.RandomState(1)
    seen: set[str] = set()
    parts: dict[str, list[tuple[str, str]]] = {"train": [], "valid": [], "test": [], "rest": []}
    for part, name in PARTS.items():
        found = []
        for line in lines_of(home / f"data.{part}"):
            # What comes after a semicolon is mostly an example; the definition is what tells.
            gloss = line.partition("|")[2].split(";")[0].strip()
            if line[:2] != "  " and 0 < len(gloss) <= LONGEST and gloss not in seen:
                seen.add(gloss)
                found.append((gloss, name))
        found = [found[place] for place in chance.permutation(len(found))]
        for split, size in (("test", 500), ("valid", 125), ("train", 500)):
            parts[split] += found[:size]
            found = found[size:]
        parts["rest"] += found
    return {name: [rows[place] for place in chance.permutation(len(rows))] for name, rows in parts.items()}


def fetched(package: str, home: Path) -> Path:
    """The folder with the data files of a Debian package."""
    data = home / "usr" / "share"
    if not data.is_dir():
        with tempfile.TemporaryDirectory() as scratch:
            subprocess.run(["apt-get", "download", package], cwd=scratch, check=True)
            subprocess.run(["dpkg-deb", "-x", str(next(Path(scratch).glob("*.deb"))), str(home)], check=True)
    return data


def words(run: Run) -> list[str]:
    """BERT beside bags of words."""
    parts = glosses(run)
    files = {
        split: [
            write_lines(run.out / f"{split}.{side}", [row[at] for row in parts[split]]) for at, side in ((0, "txt"), (1, "labels"))
        ]
        for split in ("train", "valid", "test")
    }
    unlabelled = [text for text, _ in parts["rest"] + parts["train"]]
    held_out = [files["valid"][0]]
    pretrained, first = run.train("glosses-hidden", "hidden", [write_lines(run.out / "glosses.txt", unlabelled)], held_out)
    model, second = run.train("glosses-classes", "classes", files["train"], files["valid"], "--from", str(pretrained))
    scratch, _ = run.train("glosses-classes", "scratch", files["train"], files["valid"], *SCRATCH)
    texts, labels = zip(*parts["test"], strict=True)
    rows = []
    for name, features in (("words", CountVectorizer()), ("words and pairs of words", CountVectorizer(ngram_range=(1, 2)))):
        rows.append((f"logistic regression on a bag of {name}", bag_accuracy(features, parts)))
    for name, folder in (("encoder-only, fresh", scratch), ("encoder-only, after guessing hidden words", model)):
        found = Classifier(folder).texts(texts)
        rows.append((name, 100 * float(np.mean([each.name == label for each, label in zip(found, labels, strict=True)]))))
    return [
        "## Encoder-only (BERT): which part of speech does a gloss of WordNet define?",
        "",
        f"`{first}`",
        "",
        f"`{second}`",
        "",
        f"Pretraining: {facts(pretrained)}; fine-tuning: {facts(model)}. {len(unlabelled):,} glosses without labels, "
        f"{len(parts['train']):,} with, {len(texts):,} to test, as many of each of four classes; the baselines' settings were "
        f"chosen on {len(parts['valid'])} others.",
        "",
        "| model | accuracy % |",
        "|---|---:|",
        *(f"| {name} | {value:.2f} |" for name, value in rows),
    ]


SCRATCH = (
    "--model.d_model=128", "--model.d_ff=512", "--model.n_heads=4", "--model.encoder_layers=4", "--model.norm=pre",
    "--model.activation=gelu", "--vocab-size=4000",
)  # fmt: skip
"""The model of recipes/glosses-hidden.yaml, to see what pretraining gives."""


def bag_accuracy(features: CountVectorizer, parts: dict[str, list[tuple[str, str]]]) -> float:
    """Test accuracy in percent of the penalty that is best on the validation texts."""
    best, value = -1.0, 0.0
    for penalty in (0.1, 0.3, 1.0, 3.0, 10.0, 30.0):
        model = make_pipeline(features, LogisticRegression(C=penalty, max_iter=2000))
        model.fit(*zip(*parts["train"], strict=True))
        valid, test = (100 * model.score(*zip(*parts[split], strict=True)) for split in ("valid", "test"))
        if valid > best:
            best, value = valid, test
    return value


def digit_files(run: Run) -> dict[str, list[Path]]:
    """scikit-learn's digits as IDX: 70 % to learn from, 10 % to choose on, 20 % to test."""
    digits = load_digits()
    order = np.random.RandomState(0).permutation(len(digits.target))
    images, cuts = np.round(digits.images * 255 / 16), [0, 1257, 1437, 1797]
    files = {}
    for split, (begin, end) in zip(("train", "valid", "test"), pairwise(cuts), strict=True):
        files[split] = [run.out / f"{split}-images.idx", run.out / f"{split}-labels.idx"]
        for path, values in zip(files[split], (images, digits.target), strict=True):
            write_idx(path, values[order[begin:end]].astype(np.uint8))
    return files


def fashion_files(run: Run) -> dict[str, list[Path]]:
    """Debian's Fashion-MNIST: 55,000 images to learn from, 5,000 to choose on, its own 10,000 to test."""
    home = fetched("dataset-fashion-mnist", run.out / "fashion-mnist")
    found = {kind: [next(home.rglob(f"{kind}-{what}-idx*-ubyte*")) for what in ("images", "labels")] for kind in ("train", "t10k")}
    files = {"test": found["t10k"]}
    for split, part in (("train", slice(0, 55_000)), ("valid", slice(55_000, None))):
        files[split] = [run.out / f"fashion-{split}-images.idx", run.out / f"fashion-{split}-labels.idx"]
        for path, origin in zip(files[split], found["train"], strict=True):
            write_idx(path, read_idx(origin)[part])
    return files


def arrays(files: list[Path], classes: list[str]) -> tuple[np.ndarray, list[str]]:
    return read_images(files[0]), read_labels(files[1], classes)


def vision(run: Run) -> list[str]:
    """ViT on two sets of images."""
    fashion = compared(run, "Fashion-MNIST", "vision-fashion", fashion_files(run), 70)
    return [*fashion, "", *compared(run, "scikit-learn's digits", "vision-digits", digit_files(run), 70)]


def compared(run: Run, title: str, recipe: str, files: dict[str, list[Path]], width: int) -> list[str]:
    """ViT beside a linear classifier and a CNN of about the same size, which is set by its width."""
    model, command = run.train(recipe, recipe.replace("vision-digits", "vision"), files["train"], files["valid"])
    found = load_single_stack(model)
    classes = list(found.recipe.data.classes)
    (train, names), (test, wanted) = arrays(files["train"], classes), arrays(files["test"], classes)
    linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=5000, C=1.0, tol=1e-3))
    linear.fit(train.reshape(len(train), -1) / 255, names)
    size = sum(parameter.numel() for parameter in found.model.parameters())
    network, steps = Convolutions(len(classes), width, train.shape[-1]), found.recipe.train.max_steps
    teach(network, train, [classes.index(name) for name in names], steps, found.recipe.data.shift)
    with torch.no_grad():
        places = [place for part in to_values(test).split(500) for place in network.eval()(part).argmax(dim=1).tolist()]
    pixels = train[0].size
    rows = {
        f"linear (logistic regression, {(pixels + 1) * len(classes):,} parameters)": list(
            linear.predict(test.reshape(len(test), -1) / 255)
        ),
        f"CNN of {sum(p.numel() for p in network.parameters()):,} parameters": [classes[place] for place in places],
        f"vision Transformer of {size:,} parameters": [each.name for each in Classifier(model).images(test)],
    }
    return [
        f"## Vision (ViT): {title}",
        "",
        f"`{command}`",
        "",
        f"{facts(model)}; {len(train):,} images to learn from, {len(test):,} to test. The CNN saw as many batches of 64, moved as "
        "much.",
        "",
        "| model | accuracy % |",
        "|---|---:|",
        *(f"| {name} | {accuracy(labels, wanted):.2f} |" for name, labels in rows.items()),
    ]


def accuracy(found: list[str], wanted: list[str]) -> float:
    return 100 * float(np.mean([a == b for a, b in zip(found, wanted, strict=True)]))


class Convolutions(nn.Module):
    """Three convolutions with norms, the mean over the image, a linear layer; large images are halved after the first too."""

    def __init__(self, classes: int, width: int, side: int) -> None:
        super().__init__()
        widths = [1, width, width, 2 * width]
        layers: list[nn.Module] = []
        for number, (before, after) in enumerate(pairwise(widths)):
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
            layers += [nn.MaxPool2d(2)] if number or side > 16 else []
        self.layers = nn.Sequential(*layers)
        self.output = nn.Linear(2 * width, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.output(self.layers(images).mean(dim=(2, 3)))


def teach(network: nn.Module, images: np.ndarray, labels: list[int], steps: int, shift: int) -> None:
    """Plain training of the CNN, with the same movement of images."""
    torch.manual_seed(1)
    values, wanted = to_values(images), torch.tensor(labels)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for step in range(steps):
        chosen = torch.randint(0, len(values), (64,))
        loss = F.cross_entropy(
            network(shift_images(values[chosen], shift, step, np.arange(len(chosen)))), wanted[chosen], label_smoothing=0.1
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


def drawing(run: Run, report: Path) -> list[str]:
    """Digits drawn from words, judged by classifiers that saw only real ones."""
    files = digit_files(run)
    model, command = run.train("drawing-digits", "drawing", files["train"], files["valid"])
    judge, _ = run.train("vision-digits", "vision", files["train"], files["valid"])
    (train, names), (test, wanted) = arrays(files["train"], DIGITS), arrays(files["test"], DIGITS)
    images = Generator(model).images(DIGITS, n_best=DRAWN, seed=1)
    asked = [name for name in DIGITS for _ in range(DRAWN)]
    machine = SVC(gamma="scale").fit(train.reshape(len(train), -1) / 255, names)
    judges: dict[str, Callable[[np.ndarray], list[str]]] = {
        "vision Transformer": lambda values: [each.name for each in Classifier(judge).images(values)],
        "support vector machine": lambda values: list(machine.predict(values.reshape(len(values), -1) / 255)),
    }
    rows = [(name, accuracy(see(test), wanted), accuracy(see(images), asked)) for name, see in judges.items()]
    sheet = report.with_name(f"{report.stem}-digits.png")
    first = [number for number in range(len(images)) if number % DRAWN < 20]
    sheet.write_bytes(encode_png(contact_sheet(images[first, 0], 20, 4)))
    return [
        "## Text to image tokens (the idea of DALL·E): digits drawn on request",
        "",
        f"`{command}`",
        "",
        f"{facts(model)}. {DRAWN} of each digit were drawn, at temperature {load_single_stack(model).recipe.search.temperature:g}; "
        f"{copies(model, images, train)} of {len(images):,} have the same codes as an image of the training split. "
        "The classifiers learned from real images alone.",
        "",
        "| judge | real test images % | drawn images % |",
        "|---|---:|---:|",
        *(f"| {name} | {real:.2f} | **{drawn:.2f}** |" for name, real, drawn in rows),
        "",
        f"![twenty drawings of each digit]({sheet.name})",
    ]


def copies(model: Path, images: np.ndarray, train: np.ndarray) -> int:
    """How many images have codes that a training image has, in the same places."""
    found = load_single_stack(model).model
    assert isinstance(found, Drawing)
    with torch.no_grad():
        drawn, real = (found.codebook.tokens(to_values(values)).tolist() for values in (images, train))
    known = {tuple(row) for row in real}
    return sum(tuple(row) in known for row in drawn)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="models/relatives")
    parser.add_argument("--report", default="docs/relatives.md")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads of the trainings; 0 is all cores")
    parser.add_argument("--wordnet", default="", help="folder with data.noun, data.verb, data.adj and data.adv")
    names = ["language", "words", "vision", "drawing"]
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="which of them")
    options = parser.parse_args()
    run, report = Run(Path(options.out).resolve(), options.threads, options.wordnet), Path(options.report).resolve()
    parts: dict[str, Any] = {"language": language, "words": words, "vision": vision, "drawing": lambda run: drawing(run, report)}
    typed = " ".join(["python benchmarks/relatives.py", *(["--only", *options.only] if options.only != names else [])])
    where = f"{os.cpu_count()} CPU cores, {platform.machine()}, Python {platform.python_version()}, torch {torch.__version__}"
    text = ["# What came after the Transformer, from the same layers", ""]
    text += [f"Written by `{typed}` on {date.today().isoformat()} ({where}).", ""]
    chosen = "Settings were chosen on validation; the test images of the digits were looked at more than once on the way."
    text += [f"One seed each. {chosen}", ""]
    for name in options.only:
        found = parts[name](run)
        print("\n".join(found), flush=True)
        text += [*found, ""]
    report.write_text("\n".join(text).rstrip("\n") + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
