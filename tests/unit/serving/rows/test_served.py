"""What a server asks of plans of operators."""

import asyncio
from dataclasses import replace

import msgspec
import pytest

from gearshift.errors import InvalidInput
from gearshift.models.config import read_project
from gearshift.models.loaded_from import LoadedFrom, fingerprint, settings_of
from gearshift.observability.journal import Journal
from gearshift.plans.plan_file import read_plan, write_plan
from gearshift.plans.plan_tables import plan_tables
from gearshift.profiles.profile import Profile
from gearshift.runtime.backends.local import LocalBackend
from gearshift.runtime.backends.workers_backend import OperatorSource
from gearshift.serving.door.settings import ServerSettings
from gearshift.serving.rows import served
from gearshift.serving.rows.served import ROWS, expected_start_s, needed_bytes, require_replannable
from gearshift.serving.rows.task import read_task
from tests.little_task import INPUTS, little_plan, little_profile, under_other_names, write_little_task
from tests.unit.serving.swap_worlds import shared_by


def test_a_model_that_was_replaced_since_profiling_is_told(tmp_path):
    task = read_task(write_little_task(tmp_path), "local")
    operator = task.operators["sums"]
    settings = settings_of(read_project(operator.project), "small")
    before = LoadedFrom(model="small", settings=settings, files={"task.py": fingerprint(tmp_path / "task.py")})
    measured = replace(operator, profile=replace(operator.profile, loaded_from=(before,)))
    task = replace(task, operators={"sums": measured})
    assert not list(ROWS.doubts(task))
    (tmp_path / "task.py").write_text("")
    (told,) = ROWS.doubts(task)
    assert told.startswith("model 'small' may have been replaced since profiling: task.py changed")


def test_a_quota_below_the_plans_cores_is_told(tmp_path, monkeypatch):
    task = replace(read_task(write_little_task(tmp_path), "local"), device_cores={})
    monkeypatch.setattr(served, "quota_cores", lambda: 2.0)
    assert not list(ROWS.doubts(task))
    monkeypatch.setattr(served, "quota_cores", lambda: 1.5)
    (told,) = ROWS.doubts(task)
    assert told.startswith("the plan takes 2 processors with the router's, and a control group holds this process to")


def test_an_operator_under_another_name_cannot_be_planned_anew_while_serving(tmp_path):
    plan, offers = write_little_task(tmp_path), ServerSettings(replan="offer", plans=".")
    require_replannable(read_task(plan, "emulated"), offers)
    write_plan(under_other_names(read_plan(plan)), plan)
    renamed = read_task(plan, "emulated")
    require_replannable(renamed, ServerSettings())
    with pytest.raises(InvalidInput, match=r"pipeline 'shop' has the nodes \['look'\]"):
        require_replannable(renamed, offers)


def test_a_plan_runs_no_other_code_than_that_of_the_project_that_is_served(tmp_path):
    task = read_task(write_little_task(tmp_path), "local")
    operator = task.operators["sums"]
    evil = replace(task, operators={"sums": replace(operator, project=tmp_path / "evil" / "gearshift.toml")})
    ROWS.require_compatible(task, task, "next.json")
    with pytest.raises(InvalidInput, match=r"next.json: the plan's models are those of another project"):
        ROWS.require_compatible(task, evil, "next.json")


def test_emulated_devices_take_no_memory(tmp_path):
    assert needed_bytes(read_task(write_little_task(tmp_path), "emulated")) == 0


def profiled(load_s: dict[str, float]) -> Profile:
    profile = little_profile()
    curves = [msgspec.structs.replace(curve, load_s=load_s.get(curve.model, msgspec.UNSET)) for curve in profile.curves]
    return Profile(operator=profile.operator, curves=tuple(curves), predictions=profile.predictions)


@pytest.mark.parametrize(
    ("load_s", "longest_start_s", "expected_s"),
    [({"small": 3.0, "large": 4.0}, 4.0, 9.0), ({"small": 3.0}, 4.0, 0.0)],
)
def test_a_start_takes_as_long_as_loading_did_and_warm_up_may(tmp_path, load_s, longest_start_s, expected_s):
    plan = little_plan("")
    tables = plan_tables(plan)
    run_ns = [[10**9] * 99] * 2
    sources = [OperatorSource(project=tmp_path / "gearshift.toml", inputs=INPUTS)]
    backend = LocalBackend(tables, plan, operators=sources, run_ns=run_ns, longest_start_s=longest_start_s)
    assert expected_start_s(backend, [profiled(load_s)]) == expected_s


def test_only_the_plan_in_force_says_that_its_load_drifts(tmp_path):
    task, told = read_task(write_little_task(tmp_path), "emulated"), []
    shared = shared_by(ROWS, task, ServerSettings(), Journal(), drifted=lambda: told.append(True))

    async def main():
        first = ROWS.deploy(task, shared, Journal())
        second = ROWS.deploy(task, shared, Journal(), first)
        for deployment in (first, second):
            await deployment.start()
        second.operated.pipeline.adapting._drifts()
        assert not told
        second.take_over_from(first)
        for deployment in (first, second):
            deployment.operated.pipeline.adapting._drifts()
            await deployment.stop()
        assert told == [True]

    asyncio.run(main())
