import re
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest

from gearshift.cascade import Cascade
from gearshift.gear import GearPrediction
from gearshift.language_workload import draw_language_workload
from gearshift.planner.language.compared.compare import LanguageComparison, LanguageRun
from gearshift.planner.one_alone import OneAlone
from gearshift.profiles.engines.engine_tables import engine_tables
from gearshift.profiles.profile import PART_B
from gearshift.reporting.drawing.page import html_page
from gearshift.reporting.language.comparison import frontier_chart
from gearshift.reporting.language.page import answered_shares, loads_of, tokens_sections, tokens_shown
from gearshift.simulator.engines.language_simulation import LanguageSimulation
from gearshift.simulator.engines.simulate_language import simulate_language
from gearshift.workload import Trace
from tests.two_language_models import SMALL_ALONE, cascade, language_plan, language_profile
from tests.unit.planner import fake

PROFILE = language_profile()
SPLIT = Cascade(models=("small", "large"), thresholds=(0.25,), decide_at_tokens=(0,))
PLAN = language_plan([cascade(-0.5, 4), SPLIT, SMALL_ALONE], [0.0, 4.0, 9.0])


def words_of(page: str) -> str:
    """What one reads: without tags and the data of the script."""
    return " ".join(re.sub(r"<(script|style).*?</\1>|<[^>]+>", " ", page, flags=re.S).split())


def page_of(run: LanguageSimulation | None = None, alone: Sequence[OneAlone] = ()) -> str:
    return html_page("", "", tokens_sections(tokens_shown(PLAN, PROFILE, run, alone), PROFILE))


def run_of() -> LanguageSimulation:
    trace = Trace((np.arange(300) * 5_000_000).astype(np.int64), 1.5)
    workload = draw_language_workload(trace, PROFILE.answers.indices(PART_B), seed=0)
    return simulate_language(engine_tables(PLAN, PROFILE), PROFILE, workload)


@pytest.fixture(scope="module")
def run() -> LanguageSimulation:
    return run_of()


def test_the_page_is_in_tokens_with_shares_of_models(run: LanguageSimulation) -> None:
    result = run.result(PROFILE, PLAN.pipeline.objective)
    said = words_of(page_of(run))
    assert result.tokens is not None
    assert f"{int(run.output_tokens.sum()):,} tokens were shown to clients" in said
    for part in ("TTFT p95", "per token p95", "whole answers p95", "outstanding work (requests)", "Times and tokens"):
        assert part in said
    share = float((run.model == 0).mean())
    assert f"small {100 * share:.1f} %" in said


def test_gears_are_in_words_over_the_load_that_the_meter_reads(run: LanguageSimulation) -> None:
    said = words_of(page_of(run))
    for text in ("small &lt;-0.5 at token 4 &gt; large", "75.0 % small &gt; large", "4 to 9", "9 and more"):
        assert text in said


def test_without_a_trace_the_page_has_no_run() -> None:
    said = words_of(page_of())
    assert "What happens over the trace" not in said


def test_the_objective_that_was_assumed_names_its_time_and_a_trace_of_unknown_hash_has_no_brackets() -> None:
    said = words_of(page_of())
    assert "objective of chat TTFT p95 within" in said
    assert "()" not in said


def test_shares_are_those_of_the_recorded_answers() -> None:
    records = PROFILE.answers.indices(PART_B)
    kept = float((PROFILE.answers.certainty[0, records, 1] >= -0.5).mean())
    assert answered_shares(cascade(-0.5, 4), PROFILE).tolist() == pytest.approx([kept, 1 - kept])
    assert answered_shares(SPLIT, PROFILE).tolist() == pytest.approx([0.75, 0.25])
    assert answered_shares(SMALL_ALONE, PROFILE).tolist() == [1.0, 0.0]


def test_no_axis_of_quality_goes_beyond_all() -> None:
    near = GearPrediction(load_qps=1.0, accuracy=0.998, latency_p95_s=0.1, share_late=0.0, utilisation=0.5)
    gears = tuple(msgspec.structs.replace(gear, predicted=near) for gear in PLAN.pipeline.gears)
    plan = msgspec.structs.replace(PLAN, pipelines={"chat": msgspec.structs.replace(PLAN.pipeline, gears=gears)})
    drawn = loads_of(tokens_shown(plan, PROFILE))
    assert drawn is not None
    (quality,) = (panel for panel in drawn.panels if panel.title == "quality (%)")
    assert quality.y.high == pytest.approx(100)

    one = LanguageRun(planner="optimal", devices=1, limit_s=0.3, planning_s=1.0, predicted=fake.result(0.1, 0.998))
    chart = frontier_chart(LanguageComparison(metric="ttft", percentile=0.95, runs=(one,), worth=()), 1)
    assert chart is not None
    assert chart.panels[0].y.high == pytest.approx(1)
