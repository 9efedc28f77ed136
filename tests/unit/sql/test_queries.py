"""Queries of several operators, planned on their profiles and run on real models."""

from pathlib import Path

import duckdb
import msgspec
import numpy as np
import pyarrow as pa
import pytest

from gearshift.errors import InvalidInput
from gearshift.profiles.profile import PredictionRecords
from gearshift.profiles.store import write_profile
from gearshift.sql import Step, plan_query
from gearshift.sql.steps import recorded
from tests.little_task import PROJECT, little_plan, little_profile, renamed, write_little_task

SAMPLES = 400


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Operators `first` and `second`, recorded on the same samples, whose label is the model's name in `by`."""
    made = {}
    generator = np.random.default_rng(0)
    certainty = generator.random((2, SAMPLES))
    for number, name in enumerate(("first", "second")):
        folder = tmp_path_factory.mktemp(name)
        write_little_task(folder)
        (folder / "gearshift.toml").write_text(PROJECT.replace('"sums"', f'"{name}"'))
        truth = np.where(np.arange(SAMPLES) % (3 + 7 * number) == 0, "small", "large")
        guessed = np.where(generator.random(SAMPLES) < 0.1, "other", truth)
        profile = little_profile()
        records = PredictionRecords(
            models=("small", "large"),
            quality=np.stack([guessed == truth, np.ones(SAMPLES)]).astype(float),
            certainty=certainty,
            part=(np.arange(SAMPLES) // 2 % 2).astype(np.int8),
            label=truth,
            prediction=np.stack([guessed, truth]),
        )
        fields = {one: getattr(profile, one) for one in ("curves", "inputs", "outputs", "project")}
        written = write_profile(type(profile)(operator=name, predictions=records, **fields), folder / "profile")
        plan = renamed(little_plan(written.sha256), name)
        (folder / "plan.json").write_bytes(msgspec.json.encode(plan))
        made[name] = folder / "plan.json"
    return made


def test_a_query_runs_as_it_was_planned(plans):
    steps = [
        Step(plan=plans["first"], label="sum"),
        Step(plan=plans["second"], keep=("large",), label="by", columns={"x": "x"}),
    ]
    query = plan_query(steps, accuracy=0.99)
    assert [one.name for one in query.choice.operators] == ["second", "first"]
    assert query.explain().startswith("1. filter second: ")
    cascade = query.choice.operators[0].cascade
    x = np.array([[2.0, i] for i in range(3000)] + [[0.0, i] for i in range(3000)])
    with duckdb.connect() as connection:
        relation = pa.table({"x": pa.FixedSizeListArray.from_arrays(x.ravel(), 2), "i": np.arange(6000)})
        stream = query.run(relation, workers=1)
        assert stream.schema.names == ["x", "i", "first_label", "first_certainty", "first_outcome"]
        kept = connection.sql("SELECT i, first_label FROM stream ORDER BY i").fetchall()
    by_large = 0 if cascade.models == ("large",) else 3000
    assert kept == [(i, float(x[i].sum())) for i in range(by_large, 6000)]


def test_an_empty_relation_and_null_are_kept_out(plans):
    query = plan_query([Step(plan=plans["second"], keep=("large",), label="by")], accuracy=0.99)
    empty = pa.table({"x": pa.array([], pa.list_(pa.float64()))})
    assert query.run(empty, workers=1).read_all().num_rows == 0
    nulls = pa.table({"x": pa.array([None, [666.0, 1.0], [0.0, 1.0]], pa.list_(pa.float64()))})
    assert query.run(nulls, workers=1).read_all()["x"].to_pylist() == [[0.0, 1.0]]


def test_a_filter_on_an_unknown_label_or_without_labels_is_refused(plans, tmp_path):
    with pytest.raises(InvalidInput, match="keeps 'cat', which no model of pipeline 'first' has answered"):
        recorded(Step(plan=plans["first"], keep=("cat",)))
    with pytest.raises(InvalidInput, match="has no labels or no predictions"):
        recorded(Step(plan=write_little_task(tmp_path), keep=("small",)))
    with pytest.raises(InvalidInput, match="the query has no operators"):
        plan_query([], accuracy=0.9)
