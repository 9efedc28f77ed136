"""`gearshift validate` and `gearshift replay` of language models, over emulated engines in processes of their own."""

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from gearshift.cascade import Cascade
from gearshift.errors import InvalidInput, ModelFailed, NoAnswer
from gearshift.objective import Objective
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.traces.read import write_trace
from gearshift.verbs.replay import replay
from gearshift.verbs.simulate import simulate
from gearshift.verbs.tokens import replay as of_tokens
from gearshift.verbs.tokens.replay import Asking
from gearshift.verbs.validate import validate
from gearshift.workload import Trace
from tests.language_server import serving
from tests.often import first_short
from tests.two_language_models import SMALL_ALONE, cascade, language_profile, write_language_plan

THRESHOLD = -0.5
PROFILE: LanguageProfile = language_profile(step_s=(0.002, 0.01), output_tokens=20)


def trace_of(count: int, gap_s: float) -> Trace:
    return Trace((np.arange(count) * gap_s * 1e9).astype(np.int64), count * gap_s)


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("language")
    return write_language_plan(folder, [cascade(THRESHOLD, 4), SMALL_ALONE], [0.0, 1e6], profile=PROFILE)


def test_the_same_models_answer_as_is_predicted(plan: Path) -> None:
    run = validate(plan, trace_of(30, 0.05), backend="emulated")
    predicted, measured = run.predicted.tokens, run.measured.tokens
    assert run.replay.problems == {}
    assert run.errors["quality"] == pytest.approx(0, abs=1e-9)
    assert predicted.answered_by == measured.answered_by  # type: ignore[union-attr]
    assert predicted.discarded_tokens == measured.discarded_tokens  # type: ignore[union-attr]
    assert predicted.output_tokens == measured.output_tokens  # type: ignore[union-attr]
    assert run.drift.before >= 0.9  # emulated steps are never shorter than the profile's


@pytest.mark.long
def test_a_running_server_is_sent_a_trace(plan: Path, tmp_path: Path) -> None:
    write_trace(trace_of(10, 0.03), tmp_path / "trace.csv")
    with serving(plan, "--backend", "emulated") as server:
        run = replay(server.url, tmp_path / "trace.csv", PROFILE)
        assert run.problems == {}
        assert run.result.requests == 10
        assert run.result.tokens.output_tokens == 200  # type: ignore[union-attr]
        unknown = replay(server.url, tmp_path / "trace.csv", PROFILE, model="other")
        assert [*unknown.problems.values()] == [10]
        assert next(iter(unknown.problems)).startswith("status 404, such as \"model: there is no model 'other'")
        assert not unknown.valid


@pytest.mark.long
def test_tokens_of_a_trace_bound_answers(plan: Path, tmp_path: Path) -> None:
    trace = Trace(np.arange(6) * 50_000_000, 1.0, prompt_tokens=np.full(6, 30), output_tokens=np.full(6, 5))
    with serving(plan, "--backend", "emulated") as server:
        run = replay(server.url, trace, PROFILE)
    assert run.result.tokens.output_tokens == 30  # type: ignore[union-attr]


@pytest.mark.long
def test_requests_with_the_tokens_of_a_trace_are_simulated_as_they_are_sent(tmp_path: Path) -> None:
    """Prompts, lengths of answers beyond those recorded, certainty, and the split by id."""
    gears = [Cascade(models=("small", "large"), thresholds=(0.5,), decide_at_tokens=(0,)), cascade(THRESHOLD, 4)]
    for gear in gears:
        folder = tmp_path / str(gear.decide_at_tokens[0])
        folder.mkdir()
        path = write_language_plan(folder, [gear], profile=PROFILE)
        counts = np.arange(30)
        trace = Trace(counts * 50_000_000, 1.5, prompt_tokens=1 + 3 * counts, output_tokens=17 + counts)
        run = validate(path, trace, backend="emulated")
        predicted, measured = run.predicted.tokens, run.measured.tokens
        assert run.replay.problems == {}
        assert 0 < measured.answered_by["small"] < 1  # type: ignore[union-attr]
        assert predicted.answered_by == measured.answered_by  # type: ignore[union-attr]
        assert predicted.output_tokens == measured.output_tokens == trace.output_tokens.sum()  # type: ignore[union-attr]
        assert run.errors["quality"] == pytest.approx(0, abs=1e-9)


def in_contexts_of(tokens: int) -> LanguageProfile:
    return replace(
        PROFILE, engines=tuple(msgspec.structs.replace(engine, context_tokens=tokens) for engine in PROFILE.engines)
    )


@pytest.mark.long
def test_requests_beyond_every_context_are_part_of_neither_figure(tmp_path: Path) -> None:
    profile = in_contexts_of(40)
    path = write_language_plan(tmp_path, [SMALL_ALONE], profile=profile)
    long = np.arange(8) % 4 == 1
    trace = Trace(np.arange(8) * 20_000_000, 0.2, prompt_tokens=np.where(long, 37, 30), output_tokens=np.full(8, 5))
    with serving(path, "--backend", "emulated") as server:
        run = validate(path, trace, url=server.url, backend="emulated")
        replayed = replay(server.url, trace, profile)
    assert (run.predicted.requests, run.measured.requests, run.replay.left_out) == (6, 6, 2)
    assert (replayed.result.requests, replayed.left_out) == (6, 2)
    assert run.replay.problems == replayed.problems == {}
    assert simulate(path, trace).result(profile, Objective(metric="ttft")).requests == 6


def test_requests_that_no_memory_holds_are_refused_before_any_is_sent(plan: Path) -> None:
    trace = Trace(np.arange(2), 1.0, prompt_tokens=np.array([5, 20_000]), output_tokens=np.array([5, 5]))
    with pytest.raises(InvalidInput, match="1 requests take more than the 1000 blocks"):
        validate(plan, trace, url="http://127.0.0.1:9/v1", backend="emulated")


def test_no_server_and_no_prompts_are_told(plan: Path) -> None:
    with pytest.raises(NoAnswer, match="cannot be reached"):
        replay("http://127.0.0.1:9/v1", trace_of(2, 0.01), PROFILE)
    with pytest.raises(InvalidInput, match="names no project"):
        validate(plan, trace_of(2, 0.01))


@pytest.mark.long
def test_a_server_with_keys_is_validated_with_one(plan: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys.txt"
    keys.write_text("a-longer-user-key\n")
    with serving(plan, "--backend", "emulated", "--api-keys", str(keys)) as server:
        with pytest.raises(InvalidInput, match="status 401"):
            validate(plan, trace_of(2, 0.01), url=server.url, backend="emulated")
        run = validate(plan, trace_of(5, 0.03), url=server.url, backend="emulated", api_key="a-longer-user-key")
        assert run.replay.problems == {}


@pytest.mark.parametrize("faulty", first_short([1, 4]))
def test_a_judge_that_fails_is_told_before_the_run_or_costs_no_measurement(
    faulty: int, plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It raises at each answer from the given one on; the first is the sample."""
    judged = 0

    def judge(record: int, text: str) -> float:
        nonlocal judged
        judged += 1
        if judged >= faulty:
            raise ModelFailed("the judge raised ZeroDivisionError")
        return 0.25

    with serving(plan, "--backend", "emulated") as server:
        monkeypatch.setattr(of_tokens, "asking_of", lambda *_: Asking(None, judge))
        if faulty == 1:
            with pytest.raises(ModelFailed, match="ZeroDivisionError"):
                replay(server.url, trace_of(10, 0.01), PROFILE, project=plan)
            assert 'outcome="answered"} 1.0' in server.get("/metrics")
            return
        run = replay(server.url, trace_of(10, 0.01), PROFILE, project=plan)
    assert run.result.requests == 10
    ((problem, count),) = run.problems.items()
    assert (count, "recorded quality: the judge raised ZeroDivisionError" in problem) == (8, True)
