"""Operators of a query whose samples were recorded in different orders, and joint records that say so."""

from pathlib import Path

import numpy as np
import pytest

from gearshift.hardware import identical_devices
from gearshift.pipeline import Edge, Node
from gearshift.profiles.pipelines.profile_folder import Profiles, RecordedPipeline, write_profiles
from gearshift.profiles.profile import PredictionRecords, Profile, split_parts
from gearshift.profiles.store import read_profile
from gearshift.profiles.tuples import Items
from gearshift.sql.optimizer import optimize
from gearshift.sql.recorded_together import recorded_together
from gearshift.sql.steps import Recorded, step_records
from tests.unit.planner.joint.strips import curve

REQUESTS = 2000
NODES = {"kind": Node(operator="kind"), "vendor": Node(operator="vendor")}
EDGES = (Edge(from_="kind", to="vendor"),)


def operator(name: str, right: np.ndarray, part: np.ndarray) -> Profile:
    """A cheap model that is right on some rows, of "yes" or "no", and a dear one that is right on all."""
    label = np.where(np.arange(len(part)) % 2 == 0, "yes", "no")
    guessed = np.where(right, label, np.where(label == "yes", "no", "yes"))
    return Profile(
        operator=name,
        curves=(curve(f"{name}-cheap", 1.0), curve(f"{name}-dear", 50.0)),
        predictions=PredictionRecords(
            models=(f"{name}-cheap", f"{name}-dear"),
            quality=np.stack([right, np.ones(len(part))]).astype(float),
            certainty=np.ones((2, len(part))),
            part=part,
            label=label,
            prediction=np.stack([guessed, label]),
        ),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both cheap models err on the same fifth of the requests; the second has its samples in another order."""
    generator = np.random.default_rng(0)
    part, right = split_parts(np.arange(REQUESTS), 0), generator.random(REQUESTS) >= 0.2
    order = generator.permutation(REQUESTS // 2) * 2
    place = np.stack([order, order + 1], axis=1).ravel()  # labels go by the parity of a place, and stay
    profiles = {
        "kind": operator("kind", right, part),
        "vendor": operator("vendor", right[place], part[place]),
    }
    rows = np.empty(REQUESTS, dtype=np.int64)
    rows[place] = np.arange(REQUESTS)
    items = Items(
        of_tuple=np.tile(np.arange(REQUESTS), 2),
        node=np.repeat([0, 1], REQUESTS),
        row=np.concatenate([np.arange(REQUESTS), rows]),
        around=np.full(2 * REQUESTS, -1),
    )
    joint = items.joint_records(NODES, EDGES, names=[str(t) for t in range(REQUESTS)], part=part)
    made = tmp_path_factory.mktemp("query") / "profile"
    recorded = RecordedPipeline(nodes=NODES, edges=EDGES, output="vendor", requests=REQUESTS)
    write_profiles(Profiles(operators=profiles, pipelines={"mail": recorded}, tuples={"mail": joint}), made)
    return made


def steps(folder: Path) -> list[Recorded]:
    device = identical_devices(1).devices[0]
    return [
        Recorded(step_records(name, read_profile(folder / name), device, keep), name, folder / name)
        for name, keep in (("kind", ("yes",)), ("vendor", None))
    ]


def test_rows_belong_together_as_the_joint_records_say(folder: Path) -> None:
    together = recorded_together(steps(folder))
    assert together is not None
    assert together.words == "2000 recorded requests of pipeline 'mail'"
    kind, vendor = together.records
    assert np.array_equal(kind.passes[0] == kind.truth, vendor.quality[0] == 1)
    assert np.array_equal(kind.part, vendor.part)


def test_an_error_that_comes_together_is_counted_once(folder: Path) -> None:
    """Each cheap model is right on 80 %, and both err on the same rows: so the query is right on 80 %, too."""
    together = recorded_together(steps(folder))
    assert together is not None
    chosen = optimize(together.records, 0.75)
    assert {one.cascade.models[0] for one in chosen.operators} == {"kind-cheap", "vendor-cheap"}
    assert chosen.accuracy == pytest.approx(0.8, abs=0.03)
    apart = optimize([one.records for one in steps(folder)], 0.75, assume_independent=True)
    assert apart.work_s > 5 * chosen.work_s


def test_operators_that_no_pipeline_recorded_have_no_rows_in_common(folder: Path, tmp_path: Path) -> None:
    kind, vendor = steps(folder)
    assert recorded_together([kind]) is None
    assert recorded_together([kind, vendor._replace(operator="other")]) is None
    assert recorded_together([kind, vendor._replace(folder=tmp_path / "vendor")]) is None
    assert recorded_together([kind._replace(folder=None), vendor._replace(folder=None)]) is None
