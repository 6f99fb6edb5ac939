"""`undivided check`: what is wrong with a corpus, before training."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undivided.cli.options import add_quiet
from undivided.config import CorpusFiles
from undivided.config.settings import suggest
from undivided.core.console import Console, Progress, plural
from undivided.core.errors import InputError
from undivided.core.files import write_atomic

if TYPE_CHECKING:
    from undivided.data.check.corpus import PairSource
    from undivided.data.check.run import CheckOptions, CheckReport
    from undivided.data.check.seen import HeldOut

STRICT = 3
"""The exit code of `--strict` where something was found."""


def add_check(verbs: Any) -> None:
    """`undivided check`."""
    verb = verbs.add_parser(
        "check",
        help="what is wrong with a corpus, before training",
        description="Report misalignment, duplicates, leakage, wrong language, broken characters and encodings, odd lengths, "
        "untranslated and mangled pairs, and placeholders that do not match, with line numbers; with --clean, write the corpus "
        "without such pairs. Exit code: 0, or with --strict 3 where anything was found that --clean would remove.",
    )
    verb.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="the corpus: SOURCE TARGET, or one .tsv, .tmx, .po or the like, or a folder of catalogues",
    )
    for name, meaning in (
        ("train", "a corpus, as --train of `undivided train`; may be repeated"),
        ("valid", "validation files, which training data must not contain"),
        ("test", "test files, which training data must not contain"),
    ):
        verb.add_argument(f"--{name}", nargs="+", action="append", default=[], metavar="FILE", help=meaning)
    verb.add_argument("--source-lang", default="", metavar="LANG", help="source language (default: by names, or as most lines are)")
    verb.add_argument("--target-lang", default="", metavar="LANG", help="target language (default: by names, or as most lines are)")
    verb.add_argument("--encoding", default="", help="encoding of the text files (default: UTF-8)")
    verb.add_argument("--max-chars", type=int, default=5000, metavar="N", help="most characters of a line (default: 5000)")
    verb.add_argument("--clean", metavar="DIR", help="write the corpora without the pairs that break a rule into this folder")
    verb.add_argument("--remove", default="", metavar="RULES", help="rules by which --clean also removes, with commas between")
    verb.add_argument("--keep", default="", metavar="RULES", help="rules by which --clean removes nothing, with commas between")
    verb.add_argument("--report", metavar="FILE.html", help="write a page with pictures and examples")
    verb.add_argument("--json", action="store_true", help="print JSON, one object for each corpus")
    verb.add_argument("--strict", action="store_true", help="exit code 3 where anything was found that --clean would remove")
    verb.add_argument("--rules", action="store_true", help="list the rules and end")
    add_quiet(verb)
    verb.set_defaults(run=run_check)


def run_check(options: argparse.Namespace) -> int:
    """Check corpora, show what was found, and write what is left of them."""
    from undivided.cli.check.show import as_json, list_rules, show_report
    from undivided.data.check.rules import bits_of
    from undivided.data.check.run import CheckOptions, hold_out
    from undivided.data.encodings import check_encoding
    from undivided.formats.protection import find_placeholders

    if options.rules:
        print(list_rules())
        return 0
    check_encoding(options.encoding)
    removed = _removed_rules(options.remove, options.keep)
    if options.max_chars < 1:
        raise InputError(f"--max-chars {options.max_chars}: expected at least 1")
    trained = [_open_corpus(each, options) for each in [options.files, *options.train] if each]
    held = [_open_corpus(each, options) for each in [*options.valid, *options.test]]
    if not trained and not held:
        raise InputError("nothing to check; name a corpus: undivided check SOURCE TARGET")
    _check_outputs(options, [*trained, *held])
    console = Console(options.quiet)
    bits = bits_of(removed)
    progress = Progress(console, "checked pairs", None)
    settings = CheckOptions(options.max_chars, bits, find_placeholders, progress.advance)
    known = hold_out(held, options.max_chars) if trained else None
    reports = []
    for number, corpus in enumerate([*trained, *held]):
        report, written = _check_one(corpus, settings, known if number < len(trained) else None, options.clean)
        console.clear()
        reports.append(report)
        print(json.dumps(as_json(report, removed)) if options.json else show_report(report, removed))
        if written:
            console.say(written)
    if options.report:
        from undivided.cli.check.page import check_page

        write_atomic(Path(options.report), check_page(reports, removed))
        console.say(f"wrote {options.report}")
    return STRICT if options.strict and not all(report.is_clean for report in reports) else 0


def _check_one(corpus: PairSource, settings: CheckOptions, known: HeldOut | None, clean: str | None) -> tuple[CheckReport, str]:
    """The report of one corpus, and what was written of it."""
    from undivided.data.check.run import check_corpus, clean_corpus
    from undivided.data.check.seen import HeldOut, PairStore

    with PairStore() as store:
        report = check_corpus(corpus, settings, known or HeldOut(), store)
        if not report.pairs:
            raise InputError(f"{report.name}: holds no pairs")
        if not clean:
            return report, ""
        paths, kept = clean_corpus(corpus, store, report, settings.remove, Path(clean))
        names = " and ".join(map(str, paths))
        return report, f"wrote {names}: {plural(kept, 'pair')} kept, {report.pairs - kept:,} removed"


def _removed_rules(remove: str, keep: str) -> list[str]:
    """The rules by which pairs are removed."""
    from undivided.data.check.rules import RULES

    added, kept = ([name.strip() for name in given.split(",") if name.strip()] for given in (remove, keep))
    for flag, names in (("--remove", added), ("--keep", kept)):
        for name in names:
            if name not in RULES:
                raise InputError(f"{flag} {name}: no such rule{suggest(name, list(RULES))}; `undivided check --rules` lists them")
    return [name for name, rule in RULES.items() if (rule.removes or name in added) and name not in kept]


def _open_corpus(names: Sequence[str], options: argparse.Namespace) -> PairSource:
    from undivided.cli.check.documents import DocumentCorpus
    from undivided.data.check.corpus import TextCorpus

    if len(names) > 2:
        raise InputError(f"{' '.join(names)}: a corpus is one or two files; repeat --train for more")
    files = CorpusFiles(names[0], names[1] if len(names) == 2 else "")
    for name in names:
        if not Path(name).exists():
            raise InputError(f"{name}: no such file")
    if files.is_document:
        return DocumentCorpus(files, options.source_lang, options.target_lang)
    if faults := files.pairing_faults():
        raise InputError(f"{faults[0]}; name both files of the corpus")
    return TextCorpus(files, options.encoding, options.source_lang, options.target_lang)


def _check_outputs(options: argparse.Namespace, corpora: Sequence[PairSource]) -> None:
    """Refuse outputs that cannot be written, or that would replace an input or each other, before anything is read."""
    if options.report and not options.report.lower().endswith((".html", ".htm")):
        raise InputError(f"--report {options.report}: expected a name that ends in .html")
    if options.report and not Path(options.report).parent.is_dir():
        raise InputError(f"{Path(options.report).parent}: no such directory")
    if not options.clean:
        return
    if Path(options.clean).exists() and not Path(options.clean).is_dir():
        raise InputError(f"--clean {options.clean}: is no folder; name a folder for the files that are left")
    names = [name for corpus in corpora for name in corpus.output_names() if name]
    if len(set(names)) < len(names):
        raise InputError("--clean: two corpora have the same file name; check them one by one, into two folders")
    inputs = [Path(name) for each in [options.files, *options.train, *options.valid, *options.test] for name in each]
    for name in names:
        output = Path(options.clean) / name
        if any(output.exists() and path.exists() and output.samefile(path) for path in inputs):
            raise InputError(f"--clean {options.clean}: {output} is an input; choose another folder")
