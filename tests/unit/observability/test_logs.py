import json
import logging
import re
import subprocess
import sys
import warnings
from typing import Any

import pytest

from gearshift.observability.logs import LogSettings, facts, logging_to_stderr, settings_in_force

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
