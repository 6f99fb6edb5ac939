"""What was tried and how it ended, as a page."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

from attacks.command import Patience
from attacks.pool import Result
from attacks.trial import FAULTS, Verdict

SUBJECTS = {
    "1": "checkpoints that cannot be read are kept", "2": "damaged tokens are found", "3": "two writers of one file or folder",
    "4": "compressed files are read whole", "5": "foreign copies for CTranslate2", "6": "damage before and after opening",
    "7": "foreign modules", "8": "terminal escapes", "9": "folders that ask for memory", "10": "planted links",
    "11": "foreign libraries", "12": "Ctrl-C", "13": "closed pipes and full disks", "14": "ranges of flags",
    "15": "numbers that are not finite", "16": "no home, no user", "17": "odd file names and locales", "18": "hostile recipes",
    "19": "closed streams", "20": "little address space", "21": "long lines", "22": "what killed processes leave",
    "23": "numbers of threads", "24": "full disks, pauses, undefined behaviour in C", "bombs": "compressed bombs",
    "generate": "hostile input to `generate`", "classify": "hostile input to `classify`", "distill": "hostile input to `distill`",
    "paper": "hostile input to `paper`", "demo": "hostile input to `demo`", "threads": "one `Translator` in several threads",
    "rollback": "NaN over several checkpoints", "clock": "a clock that moves", "workers": "killed workers",
    "ray": "killed workers of Ray", "asan": "kernels under sanitizers",
}  # fmt: skip
"""What the attacks are about, by the keys in `Attack.faults`."""

TESTS = {
    "1": [
        "unit/training/test_checkpoint.py::test_where_none_can_be_read_it_is_an_error_that_names_them",
        "unit/training/test_checkpoint.py::test_prune_removes_nothing_that_cannot_be_read",
        "system/test_train_faults.py::test_a_run_whose_checkpoints_cannot_be_read_stops_and_can_be_restarted_beside_them",
    ],
    "2": [
        "unit/data/test_store_damage.py::test_every_flipped_bit_is_noticed",
        "unit/data/test_store_damage.py::test_ids_beyond_the_vocabulary_are_refused",
        "unit/nn/test_backend.py::test_a_label_outside_the_vocabulary_is_refused_and_nothing_is_written",
    ],
    "3": ["system/test_stops.py::test_two_that_write_the_same_file_leave_a_whole_one"],
    "4": [
        "unit/data/test_compressed.py::test_no_xz_stream_is_lost_behind_padding",
        "unit/data/test_compressed.py::test_joined_files_are_read_whole",
        "unit/data/test_compressed.py::test_truncated_files_are_refused",
    ],
    "5": ["unit/inference/test_engines.py::test_a_cache_that_is_not_only_ours_is_not_used"],
    "6": ["system/test_weights.py::test_weights_that_were_damaged_after_opening_are_refused_when_they_are_read"],
    "7": [
        "system/test_children.py::test_a_child_imports_nothing_from_the_working_directory",
        "system/test_children.py::test_workers_import_nothing_from_the_working_directory",
    ],
    "8": [
        "system/test_terminal.py::test_every_verb_with_escapes_in_every_string",
        "system/test_terminal.py::test_look_shows_a_language_without_its_escapes",
    ],
    "9": [
        "system/test_bad_actors.py::test_a_search_that_would_grow_without_end_is_refused_with_its_size",
        "system/test_bad_actors.py::test_heads_that_need_no_weights_are_refused_with_their_size",
        "system/test_environment.py::test_the_memory_of_a_container_counts",
    ],
    "10": [
        "system/test_bad_actors.py::test_workers_write_through_no_planted_link",
        "system/test_bad_actors.py::test_score_and_look_write_through_no_planted_link",
        "unit/core/test_files.py::test_nothing_is_written_through_a_link",
    ],
    "11": [
        "unit/nn/test_build.py::test_a_library_that_is_not_what_this_user_built_is_built_again",
        "unit/nn/test_build.py::test_kernels_are_loaded_from_the_file_that_was_checked",
    ],
    "12": [
        "system/test_stops.py::test_a_stop_signal_ends_a_fast_engine_in_time",
        "system/test_stops.py::test_what_was_finished_before_a_stop_signal_is_written",
        "system/test_stops.py::test_ctrl_c_while_python_ends_prints_no_traceback",
    ],
    "13": [
        "system/test_stops.py::test_a_reader_that_leaves_early_ends_no_process_by_abort",
        "system/test_stops.py::test_a_full_disk_ends_no_process_by_abort",
    ],
    "14": [
        "unit/config/test_ranges.py::test_the_largest_weight_is_quick",
        "unit/config/test_ranges.py::test_search_flags_have_ranges",
        "unit/config/test_ranges.py::test_threads_and_workers_have_ranges",
    ],
    "15": [
        "system/test_weights.py::test_weights_that_are_no_numbers_are_refused",
        "system/test_weights.py::test_a_search_that_meets_what_is_no_number_is_refused",
        "system/test_weights.py::test_single_stack_models_that_overflow_are_refused",
    ],
    "16": ["system/test_environment.py::test_no_home_and_no_entry_in_passwd"],
    "17": [
        "system/test_environment.py::test_corpora_whose_names_are_not_utf8",
        "system/test_environment.py::test_a_model_folder_must_have_a_utf8_name",
        "system/test_environment.py::test_text_and_names_in_the_c_locale",
    ],
    "18": [
        "unit/config/test_ranges.py::test_tags_are_refused",
        "unit/config/test_ranges.py::test_no_recipe_ends_in_a_traceback",
    ],
    "19": [
        "system/test_environment.py::test_results_for_a_closed_stdout_are_a_failure",
        "system/test_environment.py::test_messages_for_a_closed_stderr_are_dropped",
        "system/test_environment.py::test_no_file_becomes_stdout_or_stderr",
    ],
    "20": ["system/test_environment.py::test_too_little_address_space_is_said"],
    "21": [
        "unit/inference/test_long_lines.py::test_no_piece_is_above_the_limit_and_nothing_is_lost",
        "unit/inference/test_long_lines.py::test_one_long_line_does_not_refuse_the_file",
    ],
    "22": [
        "system/test_faults.py::test_the_next_run_removes_what_a_killed_one_left",
        "unit/core/test_files.py::test_the_part_of_a_killed_process_is_removed_by_the_next_that_writes_there",
    ],
    "23": ["unit/inference/test_engines.py::test_batches_for_ctranslate2_do_not_depend_on_the_number_of_threads"],
    "24": [
        "system/test_faults.py::test_a_score_on_a_full_disk_leaves_no_file",
        "unit/core/test_files.py::test_a_stream_replaces_a_file_at_its_end_and_leaves_nothing_after_an_error",
        "unit/core/test_files.py::test_a_folder_is_on_the_disk_before_it_takes_its_name",
        "unit/core/test_signals.py::test_time_in_which_a_process_is_stopped_is_no_work",
        "unit/nn/test_build.py::test_exponentials_of_nan_are_nan_without_undefined_behaviour",
        "unit/nn/test_backend.py::test_every_allocation_is_checked",
    ],
}
"""For each numbered fault the tests that fail without its mending."""


def describe(results: list[Result], command: str, sittings: list[float]) -> str:
    """The page."""
    total = sum(_tried(each) for each in results)
    counts = {fault: sum(each.verdicts[fault] for each in results) for fault in FAULTS}
    held = sum(each.verdicts[Verdict.HELD] for each in results)
    skipped = sum(each.verdicts[Verdict.SKIPPED] for each in results)
    failures = [" ".join(text.split()) for each in results for text in each.failures]
    broken = [f"- `{text[:120]} … {text[-300:]}`" for text in failures]
    in_parts = f" ({len(sittings)} sittings)" if len(sittings) > 1 else ""
    busy = f"; the machine was busy with other work, so time limits were {Patience.factor:.1f} × as long"
    return "\n".join(
        [
            "# Held against somebody who tries",
            "",
            f"Written by `{command}` (`make prove-adversary`) on {date.today().isoformat()}, "
            f"in {sum(sittings) / 60:.0f} minutes{in_parts}"
            f"{busy if Patience.factor > 1 else ''}.",
            "",
            f"**{total:,} trials: {held:,} held, " + ", ".join(f"{count} {fault}" for fault, count in counts.items()) + ".**",
            *([f"{skipped} could not be tried on this machine; the table says why."] if skipped else []),
            "",
            "A trial is one seeded attempt to do harm: to a folder, a file, a run, a process or its surroundings. It runs the",
            "command in a fork of a process that has imported everything, which ends as Python ends where that matters; what",
            "happens while Python starts is tried with processes of their own. `--only NAME --number N` repeats one.",
            "",
            "- *lost*: something that was there is gone, or something was written where it must not be",
            "- *wrong*: a result differs from the right one, a refusal has no sentence, a limit was passed",
            "- *abort*: a process ended by a signal that nobody sent, or a sanitizer reported",
            "- *traceback*, *hang*: as they say",
            "",
            "| attack | what is done, and what must hold | trials | did not hold | how they ended |",
            "|---|---|---|---|---|",
            *map(_row, results),
            "",
            "## By subject",
            "",
            "| subject | trials | held |",
            "|---|---|---|",
            *_subjects(results),
            "",
            "The numbered subjects were faults once. Each has tests in `tests` that fail without its mending:",
            "",
            "| subject | tests |",
            "|---|---|",
            *_tests(),
            *(["", "## Did not hold", "", *broken] if broken else []),
        ]
    )


def _tried(result: Result) -> int:
    return sum(result.verdicts.values()) - result.verdicts[Verdict.SKIPPED]


def _row(result: Result) -> str:
    ways = ", ".join(f"{way} ({count})" for way, count in result.ways.most_common(10 if "sanitized" in result.attack.name else 4))
    about = result.attack.about.replace("|", "\\|")
    return f"| {result.attack.name} | {about} | {_tried(result):,} | {result.broken} | {ways} |"


def _subjects(results: list[Result]) -> Iterable[str]:
    for key, name in SUBJECTS.items():
        chosen = [each for each in results if key in each.attack.faults.split()]
        held = sum(each.verdicts[Verdict.HELD] for each in chosen)
        yield f"| {f'{key}. ' if key.isdigit() else ''}{name} | {sum(map(_tried, chosen)):,} | {held:,} |"


def _tests() -> Iterable[str]:
    for key, names in TESTS.items():
        yield f"| {key}. {SUBJECTS[key]} | {'<br>'.join(f'`{name}`' for name in names)} |"
