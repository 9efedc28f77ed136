import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from gearshift.profiles.engines.store import read_language_profile
from tests.processes import ended
from tests.stand_in_endpoint import Answer, as_words, asked_text, endpoint
from tests.unit.cli.little import run
from tests.unit.measuring.engines.test_profile_language import QUICK, at, project, right_and_wrong


def test_profile_tells_costs_times_and_what_certainty_is_worth(tmp_path: Path) -> None:
    with endpoint(right_and_wrong) as url:
        path = project(tmp_path, {"small": at(url), "large": at(url, "big")}, prompts=8)
        done = run("profile", path, "--out", tmp_path / "profile", "--json", tmp_path / "profile.json")
    assert done.exit_code == 0, done.output
    for words in ("18 calls, about", "Engines of chat, 8 prompts", "What mean_logprob is worth", "wrote"):
        assert words in " ".join(done.output.split())
    facts = json.loads((tmp_path / "profile.json").read_text())
    assert facts["ranks"] == ["small"]
    assert [one["quality"] for one in facts["models"]] == [0.5, 1.0]
    assert len(facts["rankings"]) == 4
    assert read_language_profile(tmp_path / "profile").sha256 == facts["sha256"]
    assert not (tmp_path / "profile.partial").exists()


def test_what_was_answered_is_kept_after_an_error_and_told(tmp_path: Path) -> None:
    def fails(body: dict[str, Any]) -> Answer:
        return as_words(body) if body.get("ignore_eos") else (401, "")

    with endpoint(fails) as url:
        done = run("profile", project(tmp_path, {"small": at(url)}), "--out", tmp_path / "profile")
    assert done.exit_code == 2
    assert "wants another key" in done.output
    assert "profile.partial; the same command goes on from there" in done.output
    assert len(list((tmp_path / "profile.partial").iterdir())) == 1


def test_ctrl_c_keeps_what_was_answered(tmp_path: Path) -> None:
    held = threading.Event()

    def waits(body: dict[str, Any]) -> Answer:
        if not body.get("ignore_eos") and not asked_text(body).endswith("0"):
            held.wait(60)
        return as_words(body)

    with endpoint(waits) as url:
        path = project(tmp_path, {"small": at(url)}, quick=QUICK + "at_once = 1\n")
        command = [sys.executable, "-m", "gearshift", "profile", path, "--out", tmp_path / "profile"]
        with ended(subprocess.Popen(command, stderr=subprocess.PIPE, text=True)) as process:
            assert process.stderr is not None
            for line in process.stderr:
                if "small: answers" in line:  # the first is there, and the second is waited for
                    break
            process.send_signal(signal.SIGINT)
            said = process.stderr.read()
            code = process.wait(60)
        held.set()
    assert code != 0
    assert "profile.partial; the same command goes on from there" in said
    assert "Traceback" not in said
    (kept,) = (tmp_path / "profile.partial").iterdir()
    assert kept.read_text().count('"type":"answer"') == 1


WAITING_JUDGE = """
import signal, sys

def score(prompt, answer, reference):
    if prompt[-1]["content"] == "question 2":
        print("waiting", file=sys.stderr, flush=True)
        signal.pause()
    return 1
"""


@pytest.mark.long
def test_ctrl_c_keeps_what_was_judged(tmp_path: Path) -> None:
    (tmp_path / "judge.py").write_text(WAITING_JUDGE)
    with endpoint(as_words) as url:
        path = project(tmp_path, {"small": at(url)}, head='judge = "judge.py:score"')
        command = [sys.executable, "-m", "gearshift", "profile", path, "--out", tmp_path / "profile"]
        with ended(subprocess.Popen(command, stderr=subprocess.PIPE, text=True)) as process:
            assert process.stderr is not None
            assert any(line == "waiting\n" for line in process.stderr)
            process.send_signal(signal.SIGINT)
            said = process.stderr.read()
            assert process.wait(60) == 130
    assert "profile.partial; the same command goes on from there" in said
    (kept,) = (tmp_path / "profile.partial").glob("language-judged-*")
    assert [json.loads(line)["quality"] for line in kept.read_text().splitlines()] == [1, 1]


def test_a_folder_of_something_else_is_not_replaced(tmp_path: Path) -> None:
    done = run("profile", project(tmp_path, {"small": at("http://127.0.0.1:1/v1")}), "--out", tmp_path)
    assert done.exit_code == 2
    assert "is no part of a profile of language models" in " ".join(done.output.split())
