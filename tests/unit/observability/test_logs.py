import json
import logging
import re
import subprocess
import sys
import warnings
from typing import Any

import pytest

from gearshift.observability.logs import (
    LONGEST_MESSAGE,
    MOST_LINES,
    SELDOM,
    WINDOW_S,
    LogSettings,
    facts,
    logging_to_stderr,
    settings_in_force,
)

log = logging.getLogger("gearshift.somewhere")


def json_lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_text_is_the_message_alone(capsys):
    with logging_to_stderr(LogSettings()):
        log.info("serving")
        log.warning("%d %% of %s", 100, "it")
    assert capsys.readouterr().err == "serving\n100 % of it\n"


def test_a_worker_names_its_process_in_text(capsys):
    with logging_to_stderr(LogSettings(), process="worker"):
        log.warning("a model failed")
    assert capsys.readouterr().err.startswith("gearshift worker ")


@pytest.mark.parametrize(("level", "written"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_less_urgent_messages_are_not_written(capsys, level, written):
    with logging_to_stderr(LogSettings(level)):
        for number in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
            log.log(number, "said")
    assert capsys.readouterr().err == "said\n" * written


@pytest.mark.parametrize("level", ["debug", "warning"])
def test_of_other_libraries_only_warnings_are_written(capsys, level):
    with logging_to_stderr(LogSettings(level, "json")):
        logging.getLogger("asyncio").info("started")
        logging.getLogger("asyncio").warning("careful")
    assert [line["message"] for line in json_lines(capsys)] == ["careful"]


def test_as_text_a_models_own_logging_stays_as_the_model_sets_it_up():
    code = """
import logging
from gearshift.observability.logs import LogSettings, logging_to_stderr
with logging_to_stderr(LogSettings(), process="worker"):
    logging.getLogger("theirs").warning("before")
    logging.basicConfig(level=logging.INFO, format="theirs: %(message)s")
    logging.getLogger("theirs").info("after")
    logging.getLogger("gearshift.somewhere").info("ours")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, after, ours = done.stderr.splitlines()
    assert (before, after) == ("before", "theirs: after")
    assert re.fullmatch(r"gearshift worker \d+: ours", ours)


def test_a_json_line_has_the_message_its_origin_and_its_facts(capsys):
    with logging_to_stderr(LogSettings(form="json")):
        log.info('a "quoted"\nmessage', extra=facts(request_id="7", status=200))
    (line,) = json_lines(capsys)
    assert line.pop("at") > 1e9
    assert line.pop("process") > 0
    assert line == {
        "level": "info",
        "logger": "gearshift.somewhere",
        "message": 'a "quoted"\nmessage',
        "request_id": "7",
        "status": 200,
    }


def test_a_json_line_holds_the_whole_traceback(capsys):
    with logging_to_stderr(LogSettings(form="json")):
        try:
            raise KeyError("x")
        except KeyError as error:
            log.error("fault", exc_info=error)
    (line,) = json_lines(capsys)
    assert line["traceback"].startswith("Traceback")
    assert line["traceback"].endswith("KeyError: 'x'")


def in_a_process_of_its_own(statement: str) -> dict[str, Any]:
    """The only JSON line that a process logs by `statement`."""
    code = f"""
import logging, warnings
from gearshift.observability.logs import LogSettings, logging_to_stderr
with logging_to_stderr(LogSettings(form="json")):
    {statement}
"""
    done = subprocess.run([sys.executable, "-W", "always", "-c", code], capture_output=True, text=True, check=True)
    (line,) = [json.loads(line) for line in done.stderr.splitlines()]
    return line


def test_text_that_is_no_unicode_does_not_break_a_json_line():
    line = in_a_process_of_its_own('logging.getLogger("gearshift").info(chr(0xD800))')
    assert line["message"] == "\\ud800"


def test_warnings_of_python_become_json_lines():
    line = in_a_process_of_its_own('warnings.warn("soon gone", DeprecationWarning)')
    assert line["level"] == "warning"
    assert "soon gone" in line["message"]


def test_afterwards_everything_is_as_it_was(capsys):
    root, ours = logging.getLogger(), logging.getLogger("gearshift")

    def state() -> list[object]:
        return [root.handlers[:], root.level, ours.handlers[:], ours.level, ours.propagate]

    before = state()
    showwarning = warnings.showwarning
    with logging_to_stderr(LogSettings("debug", "json")):
        assert settings_in_force() == LogSettings("debug", "json")
    assert state() == before
    with logging_to_stderr(LogSettings()):
        assert state() != before
    assert state() == before
    assert warnings.showwarning is showwarning
    assert settings_in_force() == LogSettings()


# What others have a part in ------------------------------------------------------------------------------------------

HOSTILE = "a\nserving demo\r\x1b]0;owned\x07\x1b[2J\u202e\u009b31m\u2028b"
HARMLESS = "a\\nserving demo\\r\\u001b]0;owned\\u0007\\u001b[2J\\u202e\\u009b31m\\u2028b"


def test_as_text_no_message_makes_a_second_line_or_does_anything_to_a_terminal(capsys):
    with logging_to_stderr(LogSettings()):
        log.error("request failed: %s", HOSTILE)
    assert capsys.readouterr().err == f"request failed: {HARMLESS}\n"


def test_no_line_of_a_traceback_looks_like_a_message(capsys):
    with logging_to_stderr(LogSettings(), process="worker"):
        try:
            raise ValueError("a\nserving demo at http://evil\x1b[2J")
        except ValueError:
            log.exception("fault")
    first, *others = capsys.readouterr().err.splitlines()
    assert first.endswith(": fault")
    assert len(others) > 3
    assert all(re.match(r"gearshift worker \d+:   \| ", line) for line in others)
    assert others[-1].endswith("serving demo at http://evil\\u001b[2J")


def test_json_shows_a_terminal_nothing_that_it_obeys(capsys):
    with logging_to_stderr(LogSettings(form="json")):
        log.error("request failed: %s", HOSTILE)
    line = capsys.readouterr().err
    assert line.rstrip("\n").isprintable()
    assert json.loads(line)["message"] == f"request failed: {HOSTILE}"


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_message_has_a_bounded_length(capsys, form):
    with logging_to_stderr(LogSettings(form=form)):
        log.error("failed: %s", "x" * (8 << 20))
    line = capsys.readouterr().err
    assert len(line) < 9000
    assert f" {(8 << 20) + len('failed: ') - LONGEST_MESSAGE} characters " in line


def test_a_flood_of_one_kind_is_bounded_and_counted_and_other_kinds_are_heard(capsys):
    with logging_to_stderr(LogSettings()):
        for number in range(1000):
            log.warning("nonsense: %s", number)
        log.warning("something else")
    lines = capsys.readouterr().err.splitlines()
    assert lines[:MOST_LINES] == [
        *(f"nonsense: {number}" for number in range(MOST_LINES - 1)),
        f"nonsense: {MOST_LINES - 1}; more of this kind are left out and counted for 10 s",
    ]
    assert lines[MOST_LINES:] == ["something else", f"{1000 - MOST_LINES} more lines were left out: nonsense: ..."]


def test_a_flood_is_summed_up_when_its_time_is_over_and_lines_are_heard_again(capsys):
    with logging_to_stderr(LogSettings(form="json")):
        for number in range(MOST_LINES + 5):
            log.error("nonsense: %s", number)
        (handler,) = [one for one in logging.getLogger().handlers if type(one).__name__ == "_FewLines"]
        timer = handler._timer
        assert timer.is_alive()
        assert timer.interval == WINDOW_S
        timer.cancel()
        timer.function()  # now, and not after ten seconds
        log.error("nonsense again")
    told = [line["message"] for line in json_lines(capsys)]
    assert told[MOST_LINES:] == ["5 more lines were left out: nonsense: ...", "nonsense again"]


def test_debug_writes_every_line(capsys):
    with logging_to_stderr(LogSettings("debug")):
        for number in range(100):
            log.warning("nonsense: %s", number)
    assert len(capsys.readouterr().err.splitlines()) == 100


def test_what_may_seldom_be_said_is_said_once_and_counted_beside_the_same_words_elsewhere(capsys):
    with logging_to_stderr(LogSettings()):
        for number in range(5):
            log.warning("gone: %d", number, extra=SELDOM)
            log.warning("gone: %d", number)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "gone: 0; more of this kind are left out and counted for 10 s"
    assert lines[1:] == [*(f"gone: {number}" for number in range(5)), "4 more lines were left out: gone: ..."]


def test_what_varies_of_left_out_lines_is_dots_and_all_else_as_it_was_written(capsys):
    with logging_to_stderr(LogSettings()):
        for number in range(2):
            log.warning("%5.1f %% of %r lost", number, "it", extra=SELDOM)
            log.warning("50% done", extra=SELDOM)
    assert capsys.readouterr().err.splitlines()[2:] == [
        "1 more lines were left out: ... % of ... lost",
        "1 more lines were left out: 50% done",
    ]
