from pathlib import Path

import numpy as np
import pytest

from gearshift.demo.asking import Asked, ask_all
from gearshift.demo.language import alone, why_no_engine
from gearshift.language_workload import LanguageWorkload
from gearshift.profiles.engines.engine_tables import engine_tables
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.profiles.engines.store import read_language_profile
from gearshift.verbs.init.order_lines import order_lines
from gearshift.verbs.init.write_project import init
from gearshift.verbs.language.plan import plan_language
from gearshift.workload import Trace
from tests.llama import why_no_llama
from tests.stand_in_endpoint import Answer, asked_text, chunks, endpoint

RECORDED = Path(__file__).parents[3] / "src/gearshift/demo/recorded_orders"


@pytest.fixture(scope="module")
def profile() -> LanguageProfile:
    return read_language_profile(RECORDED)


def workload(count: int) -> LanguageWorkload:
    return LanguageWorkload(
        arrivals_ns=np.arange(count, dtype=np.int64) * 2_000_000,
        record=np.arange(count, dtype=np.int32),
        by_id=np.zeros(count),
        duration_s=1.0,
    )


def test_the_recorded_profile_is_of_the_models_that_come_with_the_project(profile: LanguageProfile) -> None:
    quality = profile.answers.quality.mean(1)
    assert profile.models == (*profile.ranks, "medium") == ("small", "medium")
    assert quality.shape == (2,)
    assert 0.4 < quality[0] < 0.9 < quality[1]


def test_engines_are_found_as_the_tests_find_them() -> None:
    assert bool(why_no_engine()) == bool(why_no_llama())


def ask(folder: Path, profile: LanguageProfile, answer: object, *, emulated: bool) -> Asked:
    init(folder, llm=True)
    with endpoint(answer) as url:  # type: ignore[arg-type]
        return ask_all(url, "orders", folder, profile, workload(20), emulated=emulated)


def test_answers_are_judged_and_failures_counted(tmp_path: Path, profile: LanguageProfile) -> None:
    known = {line.text: line.answer for line in order_lines(400, 1)}
    right = [*known][:5]

    def answer(body: dict[str, object]) -> Answer:
        text = asked_text(body)
        if text == [*known][7]:
            return 503, "busy"
        return chunks([known[text] if text in right else "?", " "])

    made = ask(tmp_path, profile, answer, emulated=False)
    assert (made.requests, made.failed) == (20, 1)
    assert made.quality == pytest.approx(5 / 19)
    assert 0 < made.ttft_s.p50 <= made.total_s.p50 < 5


def test_an_emulated_answer_counts_as_the_record_that_it_names(tmp_path: Path, profile: LanguageProfile) -> None:
    def answer(body: dict[str, object]) -> Answer:
        return chunks([f"small:{asked_text(body).removeprefix('record ')}", " 1"])

    made = ask(tmp_path, profile, answer, emulated=True)
    assert made.quality == pytest.approx(profile.answers.quality[0, :20].mean())


@pytest.mark.long  # it compiles the simulation
def test_a_model_alone_has_every_device(profile: LanguageProfile) -> None:
    trace = Trace(arrivals_ns=np.arange(40, dtype=np.int64) * 50_000_000, duration_s=2.0)
    made = plan_language(profile, trace, planner="optimal", ttft_s=1.0, devices=2)
    single = alone(made, profile, "small")
    assert [one.model for one in single.placement.replicas] == ["small", "small"]
    tables = engine_tables(single, profile)
    assert tables.stage_count.tolist() == [1]
    assert tables.shares.tolist()[0] == tables.shares.tolist()[1] > 0
