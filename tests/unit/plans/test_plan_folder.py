from pathlib import Path

import pytest

from gearshift.errors import InvalidInput
from gearshift.plans.plan_folder import choose_plan, read_plans, write_plans
from tests.unit.planner.fake import frontier
from tests.unit.planner.little import little_request


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Plans of 10, 20 and 30 ms (interval to 11, 22 and 33) with accuracies .7, .8 and .87."""
    folder = tmp_path_factory.mktemp("frontier") / "plans"
    write_plans(frontier(little_request()), folder)
    return folder


@pytest.mark.parametrize(
    ("objective", "chosen"),
    [
        ({"latency_s": 0.033}, 2),
        ({"latency_s": 0.031}, 1),
        ({"latency_s": 0.021}, 0),
        ({"accuracy": 0.5}, 0),
        ({"accuracy": 0.75}, 1),
        ({"accuracy": 0.87}, 2),
        ({"latency_s": 0.1, "accuracy": 0.75}, 2),
    ],
)
def test_the_most_accurate_plan_within_the_latency_or_the_fastest_of_the_accuracy_is_chosen(
    folder: Path, objective: dict[str, float], chosen: int
) -> None:
    assert choose_plan(folder, **objective).name == f"plan-00{chosen}.json"


@pytest.mark.parametrize(
    ("objective", "told"),
    [
        ({}, "is a folder of plans; choose one of them with --p95-ms or --accuracy"),
        ({"latency_s": 0.01}, "lowest p95 is 11 ms and their highest accuracy 0.87"),
        ({"accuracy": 0.9}, "none of its plans meets the objective"),
        ({"latency_s": 0.022, "accuracy": 0.85}, "none of its plans meets the objective"),
    ],
)
def test_where_no_plan_can_be_chosen_it_says_what_there_is(
    folder: Path, objective: dict[str, float], told: str
) -> None:
    with pytest.raises(InvalidInput, match=told):
        choose_plan(folder, **objective)


def test_a_folder_without_plans_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no plans"):
        choose_plan(tmp_path, accuracy=0.5)


def test_a_shorter_frontier_leaves_no_plan_of_the_longer_one(tmp_path: Path) -> None:
    plans = frontier(little_request())
    write_plans(plans, tmp_path / "plans")
    paths = write_plans(plans[:1], tmp_path / "plans")
    assert read_plans(tmp_path / "plans") == {paths[0]: plans[0]}


def test_a_folder_with_other_files_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(InvalidInput, match=r"holds 'thesis.tex', which is no plan of a frontier"):
        write_plans(frontier(little_request()), tmp_path)
    assert (tmp_path / "thesis.tex").exists()
