import itertools
import json
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gearshift.errors import GearshiftError, InvalidInput, ModelFailed, NoAnswer
from gearshift.measuring.engines import order
from gearshift.measuring.engines.cost import CALLS_TO_REACH
from gearshift.measuring.engines.profile_language import profile_language
from gearshift.measuring.partial import kept_files
from gearshift.profiles.engines.engine_profile import EngineProfile, StepCurve, StepWork
from gearshift.profiles.engines.language_profile import AnswerRecords, LanguageProfile
from gearshift.profiles.engines.prompts import read_prompts
from gearshift.profiles.engines.store import write_language_profile
from gearshift.runtime.engines.replicas.identity import FINGERPRINT, said_before
from gearshift.verbs.tokens.replay import asking_of
from tests.stand_in_endpoint import Answer, as_words, asked_text, chunks, endpoint

QUICK = """
[profile]
prompt_tokens = [8, 32]
concurrency = [1, 2]
contexts = [16]
decoded_tokens = 6
repeats = 1
"""
SETTINGS = "context_tokens = 256\nlargest_running = 2\nlargest_batched_tokens = 32\nkv_tokens = 512\n"
ROOT = Path(__file__).parents[4]
CALLS = 2 + 2 + 2 * (1 + 2) + 4
"""Calls to one model: two to reach it, two prompts, one and two that decode, each twice, and four answers."""


def project(folder: Path, engines: dict[str, str], *, head: str = "", quick: str = QUICK, prompts: int = 4) -> Path:
    text = f'operator = "chat"\nprompts = "prompts.jsonl"\nmost_tokens = 8\n{head}\n'
    for name, where in engines.items():
        text += f"[models.{name}.engine]\n{where}\n{SETTINGS}\n"
    rows = [
        {"id": i, "messages": [{"role": "user", "content": f"question {i}"}], "reference": "yes so"}
        for i in range(prompts)
    ]
    (folder / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "gearshift.toml").write_text(text + quick)
    return folder / "gearshift.toml"


def at(url: str, model: str = "tiny") -> str:
    return f'url = "{url}"\nmodel = "{model}"'


def right_and_wrong(body: dict[str, Any]) -> Answer:
    """The small model knows odd questions, and is sure where it does."""
    if body.get("ignore_eos") or body["model"] == "big":
        return as_words(body, model=body["model"])
    knows = int(asked_text(body)[-1]) % 2
    return chunks(["yes" if knows else "no", " so"], model=body["model"], logprobs=[-0.1 if knows else -2.0, -0.2])


def test_engines_are_timed_and_answers_are_recorded_with_their_certainty(tmp_path: Path) -> None:
    said: list[str] = []
    shares: list[float] = []
    with endpoint(right_and_wrong) as url:
        path = project(tmp_path, {"small": at(url), "large": at(url, "big")}, prompts=8)
        made = profile_language(path, notice=said.append, progress=lambda what, share: shares.append(share))
    assert made.models == ("small", "large")
    assert made.answers.quality.mean(1).tolist() == [0.5, 1.0]
    assert made.answers.certainty[0, :2, 3].tolist() == pytest.approx([-1.1, -0.15])
    assert made.answers.certainty[0, :2, 0].tolist() == pytest.approx([-2.0, -0.1])
    assert made.answers.output_tokens[0, 0] == 2
    assert made.engines[0].kv_blocks == 32
    assert made.engines[0].context_tokens == 256
    assert made.engines[0].decode.tokens == (1, 2)
    assert made.ranks == ("small",)
    assert said[0].startswith("model 'small': 18 calls, about ")
    assert "s of timing, and up to about" in said[2]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_an_interrupted_profile_goes_on_where_it_stopped(tmp_path: Path) -> None:
    asked: list[str] = []

    def breaks(body: dict[str, Any]) -> Answer:
        asked.append(asked_text(body))
        return (401, "no money left") if asked[-1] == "question 3" and len(asked) < 20 else as_words(body)

    with endpoint(breaks) as url:
        path = project(tmp_path, {"small": at(url)}, head='certainty = "first_logprob"')
        with pytest.raises(GearshiftError, match="wants another key"):
            profile_language(path, folder=tmp_path / "profile")
        assert len(kept_files(tmp_path / "profile")) == 1
        asked += [""] * 20
        said: list[str] = []
        made = profile_language(path, folder=tmp_path / "profile", notice=said.append)
    again = asked[asked.index("") + 20 :]
    assert [one for one in again if one.startswith("question")] == ["question 3"]
    assert len(again) == 2 + 1  # the engine is reached anew
    assert any(one.startswith("going on with ") for one in said)
    assert made.answers.certainty[0, 0, 0] == -0.1


def test_the_budget_is_kept_before_the_first_call(tmp_path: Path) -> None:
    with endpoint(lambda body: pytest.fail("a call was made")) as url:
        path = project(tmp_path, {"small": at(url)}, quick=QUICK + f"most_calls = {CALLS - 1}\n")
        with pytest.raises(InvalidInput, match=f"{CALLS} calls are left to be made, and most_calls is {CALLS - 1}"):
            profile_language(path)


def refuses_ignore_eos(body: dict[str, Any]) -> Answer:
    return (400, "Unrecognized request argument: ignore_eos") if "ignore_eos" in body else long_words(body)


def long_words(body: dict[str, Any]) -> Answer:
    return as_words(body | {"ignore_eos": not asked_text(body).startswith("question")})


def test_an_endpoint_that_knows_no_ignore_eos_is_asked_without_it(tmp_path: Path) -> None:
    with endpoint(refuses_ignore_eos) as url:
        made = profile_language(project(tmp_path, {"small": at(url)}))
    assert made.engines[0].decode.tokens == (1, 2)


def test_an_engine_that_stumbles_over_made_up_words_is_asked_with_others(tmp_path: Path) -> None:
    asked: list[str] = []

    def stumbles(body: dict[str, Any]) -> Answer:
        asked.append(asked_text(body))
        return in_error(body) if len(asked) in (4, 6) else as_words(body)

    with endpoint(stumbles) as url:
        made = profile_language(project(tmp_path, {"small": at(url)}))
    assert made.engines[0].decode.tokens == (1, 2)
    assert len(set(asked)) == len(asked)


def without_logprobs(body: dict[str, Any]) -> Answer:
    return chunks(["a", "b"])


def of_another_model(body: dict[str, Any]) -> Answer:
    return as_words(body, model="other")


def without_usage(body: dict[str, Any]) -> Answer:
    return chunks(["a", "b"], logprobs=[-1, -1])[:-1]


def broken_off(body: dict[str, Any]) -> Answer:
    return chunks(["a"], logprobs=[-1], finish=None)


def in_error(body: dict[str, Any]) -> Answer:
    return [{"error": {"message": "out of memory"}}]


def too_long(body: dict[str, Any]) -> Answer:
    return (400, "this exceeds the context") if asked_text(body) == "question 2" else as_words(body)


def breaks_all(body: dict[str, Any]) -> Answer:
    return in_error(body) if asked_text(body).startswith("question") else as_words(body)


def breaks_one(body: dict[str, Any]) -> Answer:
    return broken_off(body) if asked_text(body) == "question 1" else too_long(body)


def short_answers_alone(body: dict[str, Any]) -> Answer:
    return (400, "maximum context length is 64") if body["max_tokens"] > 8 else as_words(body)


def refuses_all(body: dict[str, Any]) -> Answer:
    return (400, "no such thing") if asked_text(body).startswith("question") else as_words(body)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (without_logprobs, "gives no log-probabilities for model 'small', and certainty is made of them"),
        (of_another_model, "was asked for model 'tiny', and 'other' answered; set model of [models.small.engine]"),
        (without_usage, "does not say how many tokens a prompt of model 'small' has"),
        (broken_off, "broke off its answer"),
        (breaks_all, "model 'small' answered no prompt: "),
        (in_error, "ended its answer with an error ({'message': 'out of memory'})"),
        (refuses_all, "model 'small' answered no prompt"),
        (lambda body: (404, "no model tiny"), "answered with status 404: no model tiny"),
        (short_answers_alone, "lower context_tokens of [models.small.engine]"),
        (lambda body: (401, ""), "wants another key for model 'small'"),
    ],
)
def test_a_bad_endpoint_is_a_sentence(tmp_path: Path, answer: Callable[..., Answer], sentence: str) -> None:
    with endpoint(answer) as url:
        path = project(tmp_path, {"small": at(url)})
        with pytest.raises(GearshiftError) as caught:
            profile_language(path)
    assert sentence in str(caught.value)
    assert url in str(caught.value)


def test_an_endpoint_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(NoAnswer, match=r"cannot be reached.*start the engine of model 'small', or mend its url"):
        profile_language(project(tmp_path, {"small": at("http://127.0.0.1:1/v1")}))


@pytest.mark.parametrize(
    ("second", "sentence"),
    [
        (lambda body: as_words(body, model="other"), "was asked for model 'tiny', and 'other' answered"),
        (lambda body: chunks(["yes"], model="tiny"), "gives no log-probabilities for model 'small'"),
    ],
)
def test_every_url_of_a_model_is_asked_before_the_first_is_timed(
    tmp_path: Path, second: Callable[..., Answer], sentence: str
) -> None:
    with endpoint(lambda body: as_words(body, model=body["model"])) as url, endpoint(second) as lying:
        engines = {"small": f'url = ["{url}", "{lying}"]\nmodel = "tiny"', "large": at(url, "big")}
        with pytest.raises(InvalidInput, match=sentence) as raised:
            profile_language(project(tmp_path, engines))
    assert lying in str(raised.value)


def test_a_bad_last_model_is_told_before_the_first_is_timed(tmp_path: Path) -> None:
    asked: list[str] = []

    def counted(body: dict[str, Any]) -> Answer:
        asked.append(asked_text(body))
        return as_words(body)

    with (
        endpoint(counted) as url,
        endpoint(lambda body: chunks(["yes"], model="tiny")) as silent,
        pytest.raises(InvalidInput, match="gives no log-probabilities for model 'large'"),
    ):
        profile_language(project(tmp_path, {"small": at(url), "large": at(silent)}))
    assert asked == []


def test_a_judge_is_tried_on_the_first_models_answers(tmp_path: Path) -> None:
    (tmp_path / "judge.py").write_text("def score(prompt, answer, reference):\n    return 7\n")
    asked: list[str] = []

    def counted(body: dict[str, Any]) -> Answer:
        asked.append(asked_text(body))
        return as_words(body)

    with endpoint(as_words) as url, endpoint(counted) as second:
        engines = {"small": at(url), "large": at(second)}
        with pytest.raises(InvalidInput, match="gave 7"):
            profile_language(project(tmp_path, engines, head='judge = "judge.py:score"'))
    assert len(asked) == CALLS_TO_REACH


def test_a_judge_may_run_a_loop_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "judge.py").write_text(
        "import asyncio\n"
        "async def asked():\n    return 0.5\n"
        "def score(prompt, answer, reference):\n    return asyncio.run(asked())\n"
    )
    with endpoint(as_words) as url:
        made = profile_language(project(tmp_path, {"small": at(url)}, head='judge = "judge.py:score"'))
    assert made.answers.quality.tolist() == [[0.5] * 4]


def test_a_concurrency_that_could_not_be_timed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept_one = order.decode_times
    monkeypatch.setattr(order, "decode_times", lambda runs: [one for one in kept_one(runs) if one.requests == 1])
    with endpoint(as_words) as url:
        made = profile_language(project(tmp_path, {"small": at(url)}))
    assert any(
        one.startswith("steps of 2 requests of model 'small' together could not be timed") for one in made.warnings
    )


def test_a_second_url_that_is_busy_at_first_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gearshift.measuring.engines.endpoint.FIRST_PAUSE_S", 0.01)
    asked: list[str] = []

    def busy(body: dict[str, Any]) -> Answer:
        asked.append(asked_text(body))
        return (503, "loading") if len(asked) == 1 else as_words(body)

    with endpoint(as_words) as url, endpoint(busy) as other:
        profile_language(project(tmp_path, {"small": f'url = ["{url}", "{other}"]\nmodel = "tiny"'}))
    assert len(asked) == 2


@pytest.mark.parametrize("status", [429, 503])
def test_an_endpoint_that_limits_its_requests_is_timed_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr("gearshift.measuring.engines.endpoint.FIRST_PAUSE_S", 0.001)
    asked = itertools.count()

    def limited(body: dict[str, Any]) -> Answer:
        return (status, "slow down") if next(asked) % 3 == 0 else as_words(body)

    with endpoint(limited) as url:
        made = profile_language(project(tmp_path, {"small": at(url)}))
    assert made.answers.quality.shape == (1, 4)


def test_what_endpoints_say_of_themselves_is_noted_and_doubted_where_it_differs(tmp_path: Path) -> None:
    def as_fp(name: str) -> Callable[..., Answer]:
        return lambda body: [{**chunk, "system_fingerprint": name} for chunk in as_words(body, model=body["model"])]

    with endpoint(as_fp("fp_1")) as url, endpoint(as_fp("fp_2")) as other:
        engines = {"small": f'url = ["{url}", "{other}"]\nmodel = "tiny"', "large": at(url, "big")}
        made = profile_language(project(tmp_path, engines))
    assert made.notes["large: its fingerprint"] == "fp_1"
    assert said_before("small", made.notes) == {FINGERPRINT: ["fp_1", "fp_2"]}
    (doubt,) = [text for text in made.warnings if "fp_2" in text]
    assert f"'fp_2' at {other}, and 'fp_1' at {url}" in doubt


def test_a_dated_name_of_the_model_is_the_same_model(tmp_path: Path) -> None:
    with endpoint(lambda body: as_words(body, model="tiny-2026-11-27")) as url:
        assert profile_language(project(tmp_path, {"small": at(url)})).models == ("small",)


def test_a_prompt_that_one_model_refuses_is_left_out_and_told(tmp_path: Path) -> None:
    def answer(body: dict[str, Any]) -> Answer:
        return too_long(body) if body["model"] == "tiny" else as_words(body, model="big")

    with endpoint(answer) as url:
        made = profile_language(project(tmp_path, {"small": at(url), "large": at(url, "big")}))
    assert len(made.answers.part) == 3
    (warning,) = (one for one in made.warnings if "left out" in one)
    assert warning.startswith("1 of 4 prompts were left out, as not every model answered them: prompt 2 (not 'small': ")
    assert "status 400: this exceeds the context" in warning
    assert made.prompt_keys == tuple(one.key for one in read_prompts(tmp_path / "prompts.jsonl") if one.id != 2)


def test_prompts_that_no_model_takes_or_whose_answer_breaks_are_left_out_and_named(tmp_path: Path) -> None:
    with endpoint(breaks_one) as url:
        made = profile_language(project(tmp_path, {"small": at(url)}))
    (warning,) = (one for one in made.warnings if "left out" in one)
    assert len(made.answers.part) == 2
    assert "prompt 1 (no model: " in warning
    assert "broke off its answer" in warning
    assert "prompt 2 (no model: " in warning
    profile, prompts = tmp_path / "profile", read_prompts(tmp_path / "prompts.jsonl")
    write_language_profile(profile, made)
    assert [one.id for one in asking_of(tmp_path, made).prompts or ()] == [0, 3]
    assert len(prompts) == 4


def test_prompts_without_an_answer_are_asked_again_where_a_profile_goes_on(tmp_path: Path) -> None:
    asked: list[str] = []

    def answer(body: dict[str, Any]) -> Answer:
        asked.append(asked_text(body))
        return breaks_all(body) if "mended" not in asked else as_words(body)

    with endpoint(answer) as url:
        path = project(tmp_path, {"small": at(url)})
        with pytest.raises(InvalidInput, match="answered no prompt"):
            profile_language(path, folder=tmp_path / "profile")
        asked.append("mended")
        made = profile_language(path, folder=tmp_path / "profile")
    assert len(made.answers.part) == 4
    assert len(asked[asked.index("mended") + 1 :]) == 2 + 4  # the engine is reached anew; its times were kept


@pytest.mark.long
def test_each_tensor_parallel_is_timed_and_answers_are_asked_once(tmp_path: Path) -> None:
    said: list[str] = []
    code = shlex.quote(f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tests.stand_in_engine import main; main()")
    command = f"{shlex.quote(sys.executable)} -c {code} {{port}} {{tp}} {{memory_share}} asked.txt"
    engine = f'command = """{command}"""\nmodel = "tiny"\ntensor_parallel = [1, 2]'
    made = profile_language(project(tmp_path, {"small": engine}), notice=said.append)
    assert [(one.model, one.tensor_parallel) for one in made.engines] == [("small", 1), ("small", 2)]
    lines = (tmp_path / "asked.txt").read_text().splitlines()
    assert {line.split()[0] for line in lines} == {"1", "2"}
    assert {line.split()[1] for line in lines} == {"0.9"}
    assert sorted(line for line in lines if "question" in line) == [f"1 0.9 question {i}" for i in range(4)]
    assert said[0].startswith("model 'small', tensor_parallel 1: 14 calls")
    assert said[1].startswith("model 'small', tensor_parallel 2: 10 calls")


JUDGES = {
    "raises": (
        "return 1 / 0",
        "the judge judge.py:score raised ZeroDivisionError: division by zero (judge.py, line 2)",
    ),
    "above": ("return 8", "prompt 0: the judge judge.py:score gave 8; have it return a number in [0, 1]"),
    "below": ("return -0.1", "gave -0.1"),
    "nothing": ("return None", "gave None"),
    "text": ("return 'good'", "gave 'good'"),
    "nan": ("return float('nan')", "gave nan"),
}


@pytest.mark.parametrize("case", JUDGES)
def test_a_bad_judge_is_a_sentence(tmp_path: Path, case: str) -> None:
    code, sentence = JUDGES[case]
    (tmp_path / "judge.py").write_text(f"def score(prompt, answer, reference):\n    {code}\n")
    with endpoint(as_words) as url:
        path = project(tmp_path, {"small": at(url)}, head='judge = "judge.py:score"')
        with pytest.raises((InvalidInput, ModelFailed)) as caught:
            profile_language(path)
    assert sentence in str(caught.value)


def test_a_judge_sees_prompt_answer_and_reference(tmp_path: Path) -> None:
    (tmp_path / "judge.py").write_text(
        "def score(prompt, answer, reference):\n"
        "    assert answer == reference == 'yes so'\n"
        "    return int(prompt[-1]['content'][-1]) / 10\n"
    )
    with endpoint(as_words) as url:
        path = project(tmp_path, {"small": at(url)}, head='judge = "judge.py:score"\ncertainty = "judge"')
        made = profile_language(path)
    assert made.answers.quality.tolist() == [[0.0, 0.1, 0.2, 0.3]]
    assert [one.model for one in made.judges] == ["small"]


COUNTING_JUDGE = """
from pathlib import Path

HERE = Path(__file__).parent

def score(prompt, answer, reference):
    with (HERE / "judged.txt").open("a") as file:
        file.write(prompt[-1]["content"][-1])
    assert (HERE / "paid").exists() or not prompt[-1]["content"].endswith("2"), "no money left"
    return 0.5
"""


@pytest.mark.parametrize(("edited", "judged"), [("", "23"), ("# stricter\n", "0123")])
def test_judging_goes_on_where_it_stopped_unless_the_judge_was_edited(tmp_path: Path, edited: str, judged: str) -> None:
    said: list[str] = []
    shares: list[float] = []
    (tmp_path / "judge.py").write_text(COUNTING_JUDGE)
    with endpoint(as_words) as url:
        path = project(tmp_path, {"small": at(url)}, head='judge = "judge.py:score"')
        with pytest.raises(ModelFailed, match="no money left"):
            profile_language(path, folder=tmp_path / "profile")
        (tmp_path / "paid").touch()
        (tmp_path / "judge.py").write_text(COUNTING_JUDGE + edited)
        forget_judges()
        made = profile_language(
            path, folder=tmp_path / "profile", notice=said.append, progress=lambda what, share: shares.append(share)
        )
    assert (tmp_path / "judged.txt").read_text() == "012" + judged
    assert made.answers.quality.tolist() == [[0.5] * 4]
    assert said[1] == "judge.py:score: at most 4 answers to judge"
    assert (", and 2 answers that are judged, in " in said[2]) == (not edited)
    every = CALLS + 4
    assert shares[0] == pytest.approx((every - 2 - len(judged)) / every)  # the engine is reached anew
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def forget_judges() -> None:
    """As a new process, which has imported none of the user's files."""
    for name in [name for name in sys.modules if name.startswith("gearshift_user_")]:
        del sys.modules[name]


def test_a_small_model_that_is_better_is_told(tmp_path: Path) -> None:
    with endpoint(right_and_wrong) as url:
        made = profile_language(project(tmp_path, {"a": at(url, "big"), "b": at(url)}))
    assert any(one.startswith("model 'a' is better than 'b' (1.000 and 0.500)") for one in made.warnings)


def test_an_engine_command_that_exits_is_told_with_what_it_said(tmp_path: Path) -> None:
    (tmp_path / "engine.py").write_text("import sys\nprint('no GPU found')\nsys.exit(3)\n")
    command = f'command = "{shlex.quote(sys.executable)} engine.py {{port}}"\nmodel = "tiny"'
    with pytest.raises(ModelFailed, match=r"engine of replica 'small' does not answer.*no GPU found"):
        profile_language(project(tmp_path, {"small": command}))


def test_an_engine_that_is_not_installed_is_told_with_what_to_do(tmp_path: Path) -> None:
    command = 'command = "no-such-engine --port {port}"\nmodel = "tiny"'
    with pytest.raises(
        ModelFailed, match=r"no-such-engine cannot be started .*; install it, or mend the engine's command"
    ):
        profile_language(project(tmp_path, {"small": command}))


@pytest.mark.parametrize(("kind", "pinned"), [("cpu", True), ("cuda", False)])
def test_an_engine_on_processors_is_measured_on_those_of_one_device(tmp_path: Path, kind: str, pinned: bool) -> None:
    (tmp_path / "engine.py").write_text("import os\nprint(sorted(os.sched_getaffinity(0)))\n")
    command = f'command = "{shlex.quote(sys.executable)} engine.py {{port}}"\nmodel = "tiny"\ndevice_kind = "{kind}"'
    there = sorted(os.sched_getaffinity(0))
    with pytest.raises(ModelFailed) as caught:
        profile_language(project(tmp_path, {"small": command}))
    assert f"it said: {there[-1:] if pinned else there}" in str(caught.value)


def test_more_cores_than_there_are_is_a_sentence(tmp_path: Path) -> None:
    command = 'command = "engine {port}"\nmodel = "tiny"\ndevice_kind = "cpu"\ncores = 4096'
    with pytest.raises(InvalidInput, match="the engine of model 'tiny' has 4096 cores, and this machine has"):
        profile_language(project(tmp_path, {"small": command}))


@pytest.mark.long
def test_the_emulated_engine_comes_back_as_it_is(tmp_path: Path) -> None:
    true = EngineProfile(
        model="small",
        device_kind="cuda",
        prefill=StepCurve(tokens=(1, 64, 256), step_s=(0.050, 0.075, 0.200)),
        decode=StepCurve(tokens=(1, 4), step_s=(0.050, 0.065)),
        per_kv_token_s=2.5e-5,
        kv_blocks=400,
        largest_batched_tokens=256,
        largest_running=4,
    )
    answers = AnswerRecords(
        models=("small",),
        quality=np.ones((1, 4)),
        certainty=np.full((1, 4, 4), -0.5),
        prompt_tokens=np.full((1, 4), 20),
        output_tokens=np.full((1, 4), 3),
        part=np.array([0, 1, 0, 1], dtype=np.int8),
    )
    write_language_profile(tmp_path / "true", LanguageProfile(operator="chat", engines=(true,), answers=answers))
    command = f"{shlex.quote(sys.executable)} -m gearshift.runtime.engines.emulated true --model small --port {{port}}"
    quick = (
        "[profile]\nprompt_tokens = [16, 64]\nconcurrency = [1, 2, 4]\ncontexts = [32, 400]\ndecoded_tokens = 8\n"
        "repeats = 3\n"
    )
    path = project(tmp_path, {"small": f'command = "{command}"\nmodel = "small"'}, quick=quick)
    path.write_text(
        path.read_text().replace(
            SETTINGS,
            SETTINGS.replace("256", "1024").replace("= 32", "= 256").replace("= 2\n", "= 4\n").replace("512", "6400"),
        )
    )
    made = profile_language(path)
    found = made.engines[0]
    assert made.overhead_s < 0.02
    for requests, context in [(1, 40), (1, 400), (4, 40), (4, 400), (3, 200)]:
        work = StepWork(
            prompt_tokens=0, prompts=0, decoding=requests, kv_tokens=requests * context, attention_pairs=0
        )  # fmt: skip
        assert found.step_s(work) == pytest.approx(true.step_s(work), rel=0.08)
    for tokens in (16, 64, 150, 256):
        first_token_s = found.prefill.seconds(tokens) + made.overhead_s
        assert first_token_s == pytest.approx(true.prefill.seconds(tokens), rel=0.1, abs=0.01)
    assert made.answers.output_tokens.tolist() == [[3] * 4]
    assert made.answers.certainty[0, :, 3].tolist() == pytest.approx([-0.5] * 4)


@pytest.mark.long
def test_engines_that_may_share_a_device_are_timed_beside_each_other(tmp_path: Path) -> None:
    curve = {"prefill": StepCurve(tokens=(1, 32), step_s=(0.004, 0.008))}
    bounds = {"kv_blocks": 64, "largest_batched_tokens": 32, "largest_running": 2, "device_kind": "cuda"}
    engines = tuple(
        EngineProfile(model=model, decode=StepCurve(tokens=(1, 2), step_s=(step_s, step_s)), **curve, **bounds)  # type: ignore[arg-type]
        for model, step_s in (("small", 0.005), ("large", 0.015))
    )
    answers = AnswerRecords(
        models=("small", "large"),
        quality=np.ones((2, 4)),
        certainty=np.full((2, 4, 4), -0.5),
        prompt_tokens=np.full((2, 4), 20),
        output_tokens=np.full((2, 4), 3),
        part=np.array([0, 1, 0, 1], dtype=np.int8),
    )
    write_language_profile(tmp_path / "true", LanguageProfile(operator="chat", engines=engines, answers=answers))
    python = f"{shlex.quote(sys.executable)} -m gearshift.runtime.engines.emulated true --port {{port}} --board board"
    more = "weights_bytes = 1000\nkv_bytes_per_token = 8\n"
    small = f'command = "{python} --model small --place 0 --factors 1,1.5"\nmodel = "small"\n{more}'
    large = f'command = "{python} --model large --place 1 --factors 1.0,1"\nmodel = "large"\n{more}'
    path = project(tmp_path, {"small": small, "large": large}, quick=QUICK.replace("repeats = 1", "repeats = 3"))
    said: list[str] = []
    made = profile_language(path, folder=tmp_path / "profile", notice=said.append)
    assert [(one.model, one.beside) for one in made.sharing] == [("small", "large"), ("large", "small")]
    assert [one.factor for one in made.sharing] == pytest.approx(
        [1.5, 1.0], rel=0.2
    )  # a busy machine slows the test, too
    for one in made.sharing:
        assert one.interval is not None
        assert one.interval[0] <= one.factor <= one.interval[1]
    assert said[2] == (
        "models 'small' and 'large' beside each other: at most 124 calls, 1,920 tokens of prompts and 26,880 of answers"
    )
    said.clear()
    again = profile_language(path, folder=tmp_path / "profile", notice=said.append)  # all times are kept
    assert again.sharing == made.sharing
    assert not any("beside each other: about" in text for text in said)


def test_the_budget_counts_the_calls_of_engines_beside_each_other(tmp_path: Path) -> None:
    more = "weights_bytes = 1000\nkv_bytes_per_token = 8\n"
    engines = {name: f'command = "none {{port}}"\nmodel = "{name}"\n{more}' for name in ("small", "large")}
    alone, pair = 2 * CALLS, 4 + 2 * 20
    path = project(tmp_path, engines, quick=QUICK + f"most_calls = {alone + pair - 1}\n")
    with pytest.raises(InvalidInput, match=f"{alone + pair} calls are left to be made"):
        profile_language(path)
    path = project(tmp_path, engines, quick=QUICK + f"sharing = false\nmost_calls = {alone - 1}\n")
    with pytest.raises(InvalidInput, match=f"{alone} calls are left to be made"):
        profile_language(path)
