"""Questions that endpoints have answered are not asked, and paid for, again."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

import gearshift
from gearshift.errors import InvalidInput, ModelFailed
from gearshift.measuring.paid import KeptAnswers, KeptRun, PaidWork, answers_key, runs_key, sample_names
from gearshift.measuring.partial import forget
from gearshift.measuring.profile_project import profile_project
from gearshift.models.config import Project, read_project
from gearshift.models.samples import Samples
from gearshift.profiles.profile import Profile
from gearshift.runtime.wire.messages import Done
from tests.processes import ended
from tests.unit.runtime.remote.endpoints import Answer, Endpoint, as_json, endpoint

TASK = """
import gearshift
import numpy as np

TEXTS = np.array([f"{word} {i}" for i in range(8) for word in ("fine", "doubtful")], dtype=object)

def samples():
    return gearshift.Samples({"text": TEXTS}, np.array(["good", "bad"] * 8, dtype=object))

def small():
    return lambda texts: ({"label": np.full(len(texts), "good", dtype=object)}, np.ones(len(texts)))
"""
PROJECT = """
operator = "copy"
samples = "task.py:samples"
[profile]
batch_sizes = [1, 4]
repeats = 3
[models.large.remote]
url = "URL/v1"
protocol = "openai"
model = "judge"
prompt = "Good or bad? {text}"
classes = ["good", "bad"]
longest_s = 20.0
"""
TIMED = 4 * (1 + 4)
"""Requests of the batches that are timed; the first of each size does not count."""
ALL = TIMED + 16


def judge(path: str, body: bytes) -> Answer:
    return said("good" if b"fine" in body else "bad")


def said(text: str | None) -> Answer:
    logprobs = {"content": [{"token": text or "", "logprob": -0.1}]}
    return as_json({"choices": [{"message": {"content": text}, "logprobs": logprobs}]})


def after(requests: int, then: Answer) -> Callable[[str, bytes], Answer]:
    """A judge that answers this number of requests, and all later ones with `then`."""
    lock, count = threading.Lock(), 0

    def answer(path: str, body: bytes) -> Answer:
        nonlocal count
        with lock:
            count += 1
            over = count > requests
        return then if over else judge(path, body)

    return answer


def written(folder: Path, there: Endpoint, changed: tuple[str, str] = ("", ""), task: str = TASK) -> Path:
    (folder / "gearshift.toml").write_text(PROJECT.replace("URL", there.url).replace(*changed))
    (folder / "task.py").write_text(task)
    return folder / "gearshift.toml"


def profiled(folder: Path, notice: Callable[[str], None] = lambda text: None) -> Profile:
    """The project in `folder`, profiled alone, whose profile is to be written into its folder `profile`."""
    path, to = folder / "gearshift.toml", folder / "profile"
    return profile_project(path, progress=lambda what, share: None, folder=to, notice=notice)


FULL = as_json({"error": "the account is empty"}, 402)


@pytest.mark.parametrize("answered", [pytest.param(7, marks=pytest.mark.long), TIMED + 9])
def test_a_profile_that_failed_goes_on_where_it_was(tmp_path, answered):
    notices: list[str] = []
    with endpoint(after(answered, FULL)) as there:
        written(tmp_path, there)
        with pytest.raises(ModelFailed, match=r"status 402: .*the account is empty"):
            profiled(tmp_path, notices.append)
        assert notices == []
        there.asked.clear()
        there.answer = judge
        profile = profiled(tmp_path, notices.append)
        assert (
            ALL - answered <= len(there.asked) <= ALL - answered + 4 + 4
        )  # a batch was under way, one finds no connection
        assert re.fullmatch(r"going on with \d+ timed batches and \d+ answers in \S+profile.partial", notices[-1])
        assert profile.predictions.quality.tolist() == [[1.0] * 16]


def test_what_local_models_do_is_not_kept(tmp_path):
    local = ("[models.large.remote]", '[models.small]\nload = "task.py:small"\n[models.large.remote]')
    with endpoint(lambda path, body: FULL) as there:
        written(tmp_path, there, local)
        with pytest.raises(ModelFailed, match="status 402"):
            profiled(tmp_path)
    assert not (tmp_path / "profile.partial").exists()


@pytest.mark.long
def test_nothing_is_asked_again_where_all_was_answered_and_the_labels_were_wrong(tmp_path):
    any_answer = ('classes = ["good", "bad"]', "")
    with endpoint(judge) as there:
        project = written(tmp_path, there, any_answer, TASK.replace('["good", "bad"]', '["Good", "Bad"]'))
        notices: list[str] = []
        with pytest.raises(InvalidInput, match="no output"):
            gearshift.profile(project, out=tmp_path / "profile", notice=notices.append)
        (kept,) = notices
        assert re.search(r"is kept in \S+profile.partial; the same command goes on from there", kept)
        there.asked.clear()
        (tmp_path / "mended.py").write_text(TASK)
        project.write_text(project.read_text().replace("task.py", "mended.py"))
        profile = profiled(tmp_path)
        assert there.asked == []
    assert profile.predictions.quality.all()


def test_an_answer_that_does_not_count_is_wrong_and_counted(tmp_path):
    odd = iter([said("I cannot tell."), said(None), as_json({"error": "filtered"}, 400)])

    def answer(path: str, body: bytes) -> Answer:
        return next(odd) if len(there.asked) > TIMED and b"fine 1" in body else judge(path, body)

    with endpoint(answer) as there:
        written(tmp_path, there, task=TASK.replace("{i}", "{i % 6}"))
        profile = profiled(tmp_path)
    wrong = [text % 6 == 1 and text_word == 0 for text in range(8) for text_word in range(2)]
    assert profile.predictions.quality[0].tolist() == [float(not one) for one in wrong]
    assert (profile.predictions.certainty[0] == 0).tolist() == wrong
    assert "2 of 16 answers of model 'large' were none of the classes, or none at all, and count as wrong" in (
        profile.warnings
    )


def test_an_endpoint_of_which_no_answer_counts_is_given_up_early(tmp_path):
    with endpoint(lambda path, body: said("As a language model")) as there:
        written(tmp_path, there)
        with pytest.raises(ModelFailed, match=r"none of the first 2. answers of model 'large' counts: .*'As a lang"):
            profiled(tmp_path)
        assert len(there.asked) < 30


@pytest.mark.parametrize(
    ("changed", "task", "told"),
    [
        (('"good", "bad"', '"Good", "bad"'), TASK, r"remote.classes: the samples are labelled 'good', .*'Good', 'bad'"),
        (("{text}", "{words}"), TASK, r"remote.prompt: the prompt names \{words\}, and the inputs .* are text"),
        (("longest_s", 'api_key_env = "NOT_THERE"\nlongest_s'), TASK, "'NOT_THERE' holds no key"),
    ],
)
def test_what_does_not_fit_is_told_before_the_first_request(tmp_path, changed, task, told):
    with endpoint(judge) as there:
        written(tmp_path, there, changed, task)
        with pytest.raises(InvalidInput, match=told):
            profiled(tmp_path)
        assert there.asked == []


@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_profile_that_is_interrupted_or_killed_goes_on_where_it_was(tmp_path, how):
    command = [sys.executable, "-P", "-m", "gearshift", "profile", str(tmp_path), "--out", str(tmp_path / "profile")]
    reached, go_on = threading.Event(), threading.Event()

    def answer(path: str, body: bytes) -> Answer:
        if len(there.asked) > TIMED + 6:
            reached.set()
            go_on.wait(60)
        return judge(path, body)

    with endpoint(answer) as there:
        written(tmp_path, there)
        with ended(subprocess.Popen(command, stderr=subprocess.PIPE, text=True)) as process:
            assert reached.wait(60)
            os.kill(process.pid, how)
            process.wait(60)
            assert process.stderr is not None
            said = process.stderr.read()
        assert how == signal.SIGKILL or "goes on from there" in said
        assert "Traceback" not in said
        go_on.set()
        before = len(there.asked)
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        assert re.search(r"going on with 8 timed batches and \d+ answers", done.stderr)
        assert len(there.asked) - before <= 12, done.stderr
    assert not (tmp_path / "profile.partial").exists()


# What is kept, and under which names ----------------------------------------------------------------------------------


def project_of(tmp_path: Path, changed: tuple[str, str] = ("", "")) -> Project:
    (tmp_path / "gearshift.toml").write_text(PROJECT.replace("URL", "http://127.0.0.1:1").replace(*changed))
    return read_project(tmp_path / "gearshift.toml")


SAMPLES = Samples({"text": np.array(["a", "b", "a"], dtype=object), "x": np.zeros((3, 2))})


@pytest.mark.parametrize(
    ("changed", "answers", "runs"),
    [
        (("Good or bad?", "Bad or good?"), False, False),
        (('model = "judge"', 'model = "other"'), False, False),
        (('["good", "bad"]', '["bad", "good"]'), False, False),
        (("longest_s", "temperature = 0.5\nlongest_s"), False, False),
        (("longest_s = 20.0", "longest_s = 10.0"), True, False),
        (("longest_s", "most_requests = 2\nlongest_s"), True, False),
        (("[1, 4]", "[1, 8]"), True, False),
        (("longest_s", "most_attempts = 9\nlongest_asking_s = 9.0\nlongest_s"), True, True),
        (("longest_s", 'api_key_env = "KEY"\nlongest_s'), True, True),
    ],
)
def test_what_answers_and_run_times_depend_on_names_them(tmp_path, changed, answers, runs):
    before, after = project_of(tmp_path), project_of(tmp_path, changed)
    assert (answers_key(before, tmp_path, "large") == answers_key(after, tmp_path, "large")) == answers
    assert (runs_key(before, ["large"], SAMPLES, 0) == runs_key(after, ["large"], SAMPLES, 0)) == runs


def test_a_certainty_of_the_projects_own_is_named_by_its_content(tmp_path):
    before = project_of(tmp_path)
    operators = {name: msgspec.structs.replace(one, certainty="sure.py:sure") for name, one in before.operators.items()}
    project = msgspec.structs.replace(before, operators=operators)
    (tmp_path / "sure.py").write_text("1")
    before = answers_key(project, tmp_path, "large")
    (tmp_path / "sure.py").write_text("2")
    assert answers_key(project, tmp_path, "large") != before


def test_samples_are_named_by_their_content_and_equal_ones_by_their_order():
    first, second, third = sample_names(SAMPLES.arrays)
    assert first != second
    assert (first.removesuffix(".0"), "1") == tuple(third.split("."))
    others = Samples({"x": np.zeros((2, 2)), "text": np.array([b"b", "c"], dtype=object)})
    assert sample_names(others.arrays)[0] == second
    assert sample_names({"x": np.zeros((1, 2), np.float32)}) != sample_names({"x": np.zeros((1, 2))})
    assert sample_names({"t": np.array([["ab", "c"]])}) != sample_names({"t": np.array([["a", "bc"]])})


KEY = "0123456789abcdef01234567"
ANSWERS = KeptAnswers(samples=("a",), done=Done(batch=1, run_s=0.1, parts=()))


def test_what_was_kept_comes_back_and_what_cannot_be_read_is_passed_over(tmp_path):
    work = PaidWork(tmp_path / "profile")
    work.keep_run(KEY, 3, KeptRun(rows=4, run_s=(0.5,), trip_s=0.6))
    work.keep_answers(KEY, ANSWERS, b"\n\0body")
    work = PaidWork(tmp_path / "profile")
    work.keep_answers(KEY, ANSWERS, b"")
    (tmp_path / "profile.partial" / f"answers-{KEY}-000002.bin").write_bytes(b"{")
    (tmp_path / "profile.partial" / f"run-{KEY}-000004.json").write_bytes(b"")
    assert work.runs(KEY) == {3: KeptRun(rows=4, run_s=(0.5,), trip_s=0.6)}
    assert [(kept, bytes(body)) for kept, body in work.answers(KEY)] == [(ANSWERS, b"\n\0body"), (ANSWERS, b"")]
    assert work.runs(KEY.replace("0", "1")) == {}


def test_only_what_was_kept_is_forgotten(tmp_path):
    work = PaidWork(tmp_path / "profile")
    work.keep_answers(KEY, ANSWERS, b"")
    folder = tmp_path / "profile.partial"
    (folder / f".answers-{KEY}-000001.bin.x7_a").write_bytes(b"of a writer that was killed")
    (folder / "notes.txt").write_text("mine")
    forget(tmp_path / "profile")
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
    (folder / "notes.txt").unlink()
    forget(tmp_path / "profile")
    assert not folder.exists()
    forget(tmp_path / "profile")


def test_without_a_folder_nothing_is_kept():
    work = PaidWork(None)
    work.keep_answers("", ANSWERS, b"")
    assert (list(work.answers("")), work.runs("")) == ([], {})
