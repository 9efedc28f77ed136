from functools import partial
from pathlib import Path

import numpy as np
import pytest

from benchmarks.pipelines.certificates import AGREEMENT, BOTH, dear_calls, jointly, one_draw, split
from benchmarks.pipelines.filters import Filter, Kind, Query, drawn
from benchmarks.pipelines.peers import Asked, peer_outcomes
from gearshift.planner.joint.replay import replay

pytestmark = pytest.mark.long


def drawn_filter(name: str, seed: int, rows: int = 3000) -> Filter:
    """A cheap model that is right more often the further its score is from a half."""
    generator = np.random.default_rng(seed)
    score = generator.uniform(0.01, 1, rows)
    return Filter(name, {"cheap": score}, generator.random(rows) < np.clip(2 * score - 0.5, 0, 1))


def query(kind: Kind) -> Query:
    return Query((drawn_filter("a", 1), drawn_filter("b", 2)), kind)


@pytest.mark.parametrize("kind", ["and", "or"])
def test_the_dear_only_query_has_the_dear_results_and_calls(kind: Kind) -> None:
    asked = query(kind)
    made = drawn(asked, 400, 3, replace=True)
    over = made.over(np.arange(asked.rows))

    assert (made.reference(over) == asked.dear_results).all()
    work = replay(over, made.dear_only(over)).work_s
    assert 100 * float(work.mean()) == pytest.approx(dear_calls(asked))


def test_parts_are_the_halves_of_what_was_drawn() -> None:
    made = drawn(query("and"), 100, 3, replace=True)
    assert made.on_a.samples["a"].tolist() == made.labelled[:50].tolist()
    assert made.on_b.samples["b"].tolist() == made.labelled[50:].tolist()


@pytest.mark.parametrize("kind", ["and", "or"])
def test_a_joint_certificate_saves_calls_over_a_split_one_and_seldom_breaks(kind: Kind) -> None:
    found = [
        one_draw(query(kind), seed, kind=AGREEMENT, ways=(jointly, split), levels=(0.9,), labels=1000, replace=True)
        for seed in range(5)
    ]
    joint, apart = zip(*found, strict=True)

    assert all(each.passed for each in joint)
    assert np.mean([each.calls for each in joint]) < np.mean([each.calls for each in apart])
    assert sum(each.broken for each in joint) <= 2


def test_few_labels_leave_all_rows_to_the_dear_model() -> None:
    work = partial(one_draw, kind=BOTH, ways=(jointly,), levels=(0.9,), replace=False)
    (outcome,) = work(query("and"), 0, labels=40)

    assert not outcome.passed
    assert not outcome.broken
    assert 100 <= outcome.calls <= 200


def test_a_peer_that_is_not_installed_has_no_outcomes(tmp_path: Path) -> None:
    assert peer_outcomes(tmp_path, "lotus", [Asked(query("and"), BOTH, 0.9)], 0.05, 3) == [[]]
