import io
import logging

import pytest

from undivided.core.console import Console, LimitedWarnings, LoggingConsole, Progress, duration, plural
from undivided.core.errors import InputError, UndividedError


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        raise OSError("no terminal here")


@pytest.mark.parametrize(("seconds", "text"), [(0, "0 s"), (59.4, "59 s"), (59.6, "1:00 min"), (185, "3:05 min"), (7380, "2:03 h")])
def test_duration(seconds, text):
    assert duration(seconds) == text


def test_plural():
    assert [plural(n, "line") for n in (0, 1, 2000)] == ["0 lines", "1 line", "2,000 lines"]


def test_exit_codes():
    assert (UndividedError.exit_code, InputError.exit_code) == (1, 2)


def test_quiet_keeps_warnings():
    stream = io.StringIO()
    console = Console(quiet=True, stream=stream)
    console.say("a line")
    console.warn("a warning")
    assert stream.getvalue() == "a warning\n"


def test_plain_stream_has_no_escape_codes():
    stream = io.StringIO()
    console = Console(stream=stream)
    console.status("working")
    console.warn("careful")
    console.clear()
    assert stream.getvalue() == "careful\n"


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_no_colour_where_not_wanted(monkeypatch, name, value):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert Console(stream=Terminal()).colour
    monkeypatch.setenv(name, value)
    assert not Console(stream=Terminal()).colour


def test_progress_tells_what_is_left():
    progress = Progress(Console(quiet=True), "translated lines", 100)
    progress.advance(50)
    assert progress.line(progress.started + 10) == "translated lines: 50 of 100, 5/s, 10 s left"
    assert Progress(Console(quiet=True), "pairs", None).line(0.0).startswith("pairs: 0, ")


def test_many_warnings_are_counted_and_not_all_shown(capsys):
    remarks = LimitedWarnings(Console(quiet=True))
    for number in range(1, 1001):
        remarks.add(f"line {number}: odd")
    remarks.close()
    remarks.close()
    lines = capsys.readouterr().err.splitlines()
    assert lines[: LimitedWarnings.LIMIT] == [f"line {number}: odd" for number in range(1, LimitedWarnings.LIMIT + 1)]
    assert lines[LimitedWarnings.LIMIT :] == [f"and {1000 - LimitedWarnings.LIMIT} more warnings of these kinds"]


def test_without_a_console_messages_go_to_the_logger(caplog, capsys):
    console = LoggingConsole()
    with caplog.at_level(logging.INFO, logger="undivided"):
        console.say("a line \x1b[31m")
        console.warn("a warning of 100%")
        console.status("working")
    assert [(each.name, each.levelname, each.getMessage()) for each in caplog.records] == [
        ("undivided", "INFO", "a line \\x1b[31m"),
        ("undivided", "WARNING", "a warning of 100%"),
    ]
    assert capsys.readouterr().err == ""
