"""The mutants of `formats`, of the account and of `check`: what is promised of translators' own files."""
# ruff: noqa: E501

from mutants import Mutant

FORMAT = "unit/formats/test_formats.py::"
WALK = "unit/formats/test_walk.py::"
PAGES = "unit/formats/test_pages.py::"
VERDICTS = "unit/inference/test_verdicts.py::"
CHECK = "unit/data/test_check.py::"

FILES = (
    Mutant(
        "xml-entities", "nothing is declared in XML from strangers", "formats/xml_file.py",
        "        if has_subset:\n            refuse()", "        pass", (f"{FORMAT}test_entities_are_refused",),
    ),
    Mutant(
        "xml-skipped-entities", "entities that nobody declared are refused", "formats/xml_file.py",
        "    parser.SkippedEntityHandler = parser.ExternalEntityRefHandler = refuse\n", "", (f"{FORMAT}test_entities_are_refused",),
    ),
    Mutant(
        "xml-depth", "XML is nested within bounds", "formats/xml_file.py",
        "MAX_DEPTH = 500", "MAX_DEPTH = 500_000", (f"{FORMAT}test_deep_xml_is_refused",),
    ),
    Mutant(
        "zip-slip", "no member leads out of its archive", "formats/archive.py",
        'or ".." in parts\n', "", (f"{PAGES}test_hostile_archives_are_refused",),
    ),
    Mutant(
        "zip-ratio", "members unpack to 200 times their size at most", "formats/archive.py",
        "MAX_RATIO = 200", "MAX_RATIO = 2_000_000", (f"{PAGES}test_zip_bombs_are_refused",),
    ),
    Mutant(
        "tmx-stream", "memory does not grow with a TMX to train from", "formats/tmx.py",
        "            reader.ready.clear()\n        parser", "        parser", ("unit/formats/test_pairs.py::test_memory_of_a_memory_does_not_grow",),
    ),
    Mutant(
        "broken-bytes", "bytes that are no UTF-8 come out as they were", "formats/text_file.py",
        'data.decode(codec, "surrogateescape" if carried else "strict")', 'data.decode(codec, "replace" if carried else "strict")',
        (f"{FORMAT}test_broken_bytes_are_carried_through",),
    ),
    Mutant(
        "po-fuzzy", "what a person must review is marked", "formats/po.py",
        'kept = [each for each in flags if each != "fuzzy"] if approve else ["fuzzy", *flags]', "kept = flags",
        (f"{FORMAT}test_what_is_untranslated_is_filled",),
    ),
    Mutant(
        "po-template-forms", "a message of a template gets as many plural forms as the language has", "formats/po.py",
        "for number in range(rule.forms)]", "for number in range(len(forms))]", (f"{FORMAT}test_a_template_gets_the_plural_forms_of_its_language",),
    ),
    Mutant(
        "protected-lost", "what is protected and lost is noticed", "formats/protection.py",
        "if wanted in (found, target.count(item)) or", "if found or", (f"{WALK}test_loss_and_repetition_are_noticed",),
    ),
    Mutant(
        "protected-put-back", "symbols become what they stand for", "formats/protection.py",
        "lambda found: known[found[0]], text)", "lambda found: found[0], text)", (f"{WALK}test_what_is_protected",),
    ),
    Mutant(
        "protected-pairs", "in training both sides get the same symbol", "formats/protection.py",
        "theirs = sorted((each[1], symbol) for each, symbol in named)", "theirs = sorted((each[1], symbols[0]) for each, symbol in named)",
        ("unit/inference/test_protection.py::test_a_pair_is_masked_where_both_sides_agree",),
    ),
    Mutant(
        "symbol-before-end", "no end before all symbols are there", "inference/restoration.py",
        "                    result[row, beam, EOS] = False", "                    pass",
        ("unit/inference/test_protection.py::test_the_constraint_lets_each_symbol_come_once_before_the_end",),
    ),
    Mutant(
        "tags-nested", "tags that would not be well nested come in the order of the source", "inference/restoration.py",
        "and not is_nested([tag for _, tag in tags])", "and False", ("unit/inference/test_protection.py::test_tags_are_well_nested_again",),
    ),
    Mutant(
        "tags-placed", "a tag goes to the words that alignment names", "formats/markup.py",
        "weight = inside[word] / total_of[word] - 0.5 if total_of[word] else -0.1", "weight = 0.1",
        (f"{WALK}test_tags_are_carried_to_the_words",),
    ),
    Mutant(
        "sentence-abbreviations", "an abbreviation ends no sentence", "data/sentences.py",
        "return word in _abbreviations(language)", "return False", (f"{WALK}test_sentences",),
    ),
    Mutant(
        "nothing-to-translate", "what has no words is kept", "formats/walk.py",
        "wanted = [has_tags and has_words(sentence.text)", "wanted = [has_tags and bool(sentence.text)",
        (f"{WALK}test_lost_placeholders_are_found_and_nothing_to_translate_is_kept",),
    ),
    Mutant(
        "loop-length", "a loop is noticed from its fourth repetition on", "inference/loops.py",
        "return longest + period if longest and longest + period >= needed else 0", "return longest if longest >= needed else 0",
        (f"{VERDICTS}test_loops",),
    ),
    Mutant(
        "verdict-script", "letters that training did not have are flagged", "inference/verdicts.py",
        "        or _judge_script(source, result)\n", "", (f"{VERDICTS}test_a_verdict_for_every_case",),
    ),
    Mutant(
        "verdict-end", "what was cut is flagged", "inference/verdicts.py",
        'return None if result.finished else Verdict("truncated"', 'return None if True else Verdict("truncated"',
        (f"{VERDICTS}test_a_verdict_for_every_case",),
    ),
    Mutant(
        "verdict-calibration", "one ordinary translation in two hundred is said to be improbable", "inference/verdicts.py",
        '"confidence": round(confidences[few], 4)', '"confidence": round(confidences[20 * few], 4)',
        (f"{VERDICTS}test_calibration_leaves_one_alarm_in_two_hundred",),
    ),
    Mutant(
        "account-escaped", "a text cannot become a part of the reviewers' page", "inference/report.py",
        "{html.escape(str(row[name]))}</td>", "{row[name]}</td>", (f"{VERDICTS}test_the_account_has_a_row_for_every_segment",),
    ),
    Mutant(
        "drift-line", "the line where two files drift apart is named", "data/check/alignment.py",
        "line = self.line + first + int(gain.argmax()) + 1", "line = self.line + start + 1",
        (f"{CHECK}test_the_line_where_two_files_drift_apart_is_found",),
    ),
    Mutant(
        "duplicates-in-parts", "duplicates are found also where hashes are sorted in parts", "data/check/seen.py",
        "% np.uint64(parts) == part)", "% np.uint64(parts) == 0)", (f"{CHECK}test_duplicates_are_found_in_memory_and_in_parts",),
    ),
    Mutant(
        "leak-either-side", "a held-out text is found on either side", "data/check/seen.py",
        " | np.isin(_text_hashes(target), self._sorted[1])", "", (f"{CHECK}test_leaks_are_found_on_either_side_whatever_the_case",),
    ),
)  # fmt: skip
