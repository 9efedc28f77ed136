import json
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from msgspec import UNSET

from gearshift.errors import Infeasible, InvalidInput
from gearshift.gear import GearPlan
from gearshift.objective import Objective
from gearshift.pipeline import Edge, Node, When
from gearshift.planner.joint.candidates import candidates_of
from gearshift.planner.joint.certified import certified_tuples, with_certificate
from gearshift.planner.joint.replanning.search import plan_pipeline
from gearshift.planner.joint.request import PipelineRequest
from gearshift.plans.plan_file import read_plan, write_plan
from gearshift.profiles.pipelines.profile_folder import Profiles, RecordedPipeline, write_profiles
from gearshift.profiles.profile import PART_B, PredictionRecords, Profile
from gearshift.profiles.tuples import Items
from gearshift.result import share_bound
from gearshift.traces.generate import steady
from gearshift.traces.read import write_trace
from tests.unit.cli.little import run
from tests.unit.planner.joint.strips import EDGES, NODES, curve, strips

RIGHT = {"small": 0.85, "large": 0.99}
FILTERS = {"person": Node(operator="person"), "dog": Node(operator="dog")}
IF_PERSON = (Edge(from_="person", to="dog", when=When(output="label", one_of=("yes",))),)


def filters(requests: int, **asked: object) -> PipelineRequest:
    """Two filters, one after the other, each of a cheap and a dear model that say yes or no."""
    generator, part = np.random.default_rng(5), (np.arange(requests) % 2).astype(np.int8)

    def operator(name: str, share: float) -> Profile:
        label = np.where(generator.random(requests) < share, "yes", "no")
        right = np.array([generator.random(requests) < each for each in RIGHT.values()])
        models = tuple(f"{name}-{model}" for model in RIGHT)
        return Profile(
            operator=name,
            curves=tuple(curve(model, 1 + 5 * i) for i, model in enumerate(models)),
            predictions=PredictionRecords(
                models=models,
                quality=right.astype(float),
                certainty=np.where(right, 0.9, 0.4),
                part=part,
                label=label,
                prediction=np.where(right, label, np.where(label == "yes", "no", "yes")),
            ),
        )

    rows = np.arange(requests)
    items = Items(
        of_tuple=np.tile(rows, 2),
        node=np.repeat([0, 1], requests),
        row=np.tile(rows, 2),
        around=np.full(2 * requests, -1),
    )
    return replace(
        strips(latency_s=0.1),
        nodes=FILTERS,
        edges=IF_PERSON,
        output="dog",
        profiles={name: operator(name, 0.7) for name in FILTERS},
        records=items.joint_records(FILTERS, IF_PERSON, names=[str(row) for row in rows], part=part),
        objective=Objective(latency_s=0.1, **asked),  # type: ignore[arg-type]
    )


def test_each_gear_of_a_plan_keeps_what_its_certificate_says() -> None:
    request = strips(latency_s=0.1, accuracy=0.85, confidence=0.95)
    front = candidates_of(request)
    certified = certified_tuples(request, front)
    assert 0 < len(certified) < len(front), "some tuples are certified, and some are not"
    made = with_certificate(plan_pipeline(request, [one.candidate for one in certified]), request, certified)
    certificate = made.pipeline.certificate
    assert certificate is not UNSET
    (level,) = certificate.levels
    assert (level.measure, level.level, certificate.confidence) == ("accuracy", 0.85, 0.95)
    assert level.labels == len(request.records.indices(PART_B))
    wrong = round((1 - level.mean) * level.labels)
    assert level.bound == pytest.approx(share_bound(wrong, level.labels, 0.95))
    assert level.bound >= 0.85
    used = {id(c) for gear in made.pipeline.gears for one in certified if (c := one.candidate) and _uses(gear, c)}
    assert used
    assert min(v.bound for one in certified if id(one.candidate) in used for v in one.verdicts) == level.bound


def _uses(gear: object, candidate: object) -> bool:
    cascades = {node: each[0] for node, each in gear.cascades.items()}  # type: ignore[attr-defined]
    return cascades == dict(candidate.cascades)  # type: ignore[attr-defined]


def test_an_accuracy_that_too_few_labels_show_says_how_many_are_lacking() -> None:
    request = strips(latency_s=0.1, accuracy=0.92, confidence=0.99)
    with pytest.raises(Infeasible, match=r"accuracy 0\.92 cannot be certified with confidence 0\.99") as refused:
        certified_tuples(request, candidates_of(request))
    assert "200 labelled requests in part B show at least 0." in str(refused.value)
    assert "more labelled requests in part B are lacking" in str(refused.value)


def test_an_accuracy_that_is_not_there_needs_other_models_and_not_more_labels() -> None:
    request = strips(latency_s=0.1, accuracy=0.999, confidence=0.95)
    with pytest.raises(Infeasible, match="no number of labels would do"):
        certified_tuples(request, candidates_of(request))


def test_recall_and_precision_are_of_the_answers_of_the_whole_query() -> None:
    request = filters(2_000, recall=0.9, precision=0.9, positive="yes", confidence=0.95)
    front = candidates_of(request)
    found = certified_tuples(request, front)
    assert 0 < len(found) < len(front)
    labels = [request.profiles[name].predictions.label[1::2] == "yes" for name in FILTERS]  # type: ignore[index]
    positives = int(np.count_nonzero(labels[0] & labels[1]))
    for one in found:
        recall, precision = one.verdicts
        assert (recall.name, recall.trials) == ("recall", positives)
        assert precision.name == "precision"
        assert min(recall.bound, precision.bound) >= 0.9


def test_recall_names_the_positives_that_are_lacking() -> None:
    request = filters(60, recall=0.9, positive="yes", confidence=0.95)
    with pytest.raises(Infeasible, match="more requests of class 'yes' in part B are lacking"):
        certified_tuples(request, candidates_of(request))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"confidence": 0.95}, "nothing that must be certain"),
        ({"recall": 0.9, "confidence": 0.95}, "recall is given, and no class that it is of"),
        ({"recall": 0.9, "positive": "yes"}, "recall is given without a confidence"),
        ({"recall": 0.9, "positive": "cat", "confidence": 0.9}, "no label of operator 'dog' is 'cat'; name one of no"),
        ({"accuracy": 1.0, "confidence": 0.95}, "accuracy 1 can never be certified"),
    ],
)  # fmt: skip
def test_what_cannot_be_tested_is_said(asked: dict[str, object], message: str) -> None:
    request = filters(60, **asked)
    with pytest.raises(InvalidInput, match=message):
        certified_tuples(request, candidates_of(request))


def test_recall_needs_labels_at_the_node_that_answers() -> None:
    objective = Objective(latency_s=0.1, recall=0.9, positive="7", confidence=0.95)
    request = replace(strips(latency_s=0.1), objective=objective)
    with pytest.raises(InvalidInput, match="operator 'join' answers, and has no labels"):
        certified_tuples(request, candidates_of(request))


def test_operators_that_are_assumed_independent_have_no_certificate() -> None:
    request = strips(latency_s=0.1, accuracy=0.5, confidence=0.9)
    assumed = replace(request, records=replace(request.records, assumed_independent=True))
    with pytest.raises(InvalidInput, match="assume that operators err independently"):
        certified_tuples(assumed, candidates_of(assumed))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A profile of strips and a trace."""
    folder, request = tmp_path_factory.mktemp("strips"), strips(latency_s=0.1)
    pipeline = RecordedPipeline(output="join", nodes=NODES, edges=EDGES, requests=len(request.records))
    profiles = Profiles(
        operators=dict(request.profiles), pipelines={"strips": pipeline}, tuples={"strips": request.records}
    )
    write_profiles(profiles, folder / "profile")
    write_trace(steady(30, 10, seed=1), folder / "t.csv")
    return folder


def test_a_certificate_is_written_into_the_plan_and_inspected(place: Path) -> None:
    asked = ["--trace", place / "t.csv", "--p95-ms", 100, "--accuracy", 0.8, "--confidence", 0.95, "--ranges", 3]
    done = run("plan", place / "profile", *asked, "--out", place / "plan.json", "--json", place / "out.json")
    assert done.exit_code == 0, done.output
    said = "certified with confidence 0.95: accuracy is at least 0.8 in each gear"
    assert said in done.output
    made = read_plan(place / "plan.json")
    assert made.pipeline.certificate is not UNSET
    told = json.loads((place / "out.json").read_text())["certificate"]
    assert told == json.loads(msgspec.json.encode(made.pipeline.certificate))
    inspected = run("inspect", place / "plan.json")
    assert inspected.exit_code == 0, inspected.output
    assert said in inspected.output
    assert "split: cut; read: " in inspected.output


def test_a_plan_that_cannot_be_certified_is_refused_as_infeasible(place: Path) -> None:
    asked = ["--trace", place / "t.csv", "--p95-ms", 100, "--accuracy", 0.92, "--confidence", 0.99]
    done = run("plan", place / "profile", *asked, "--out", place / "none.json")
    assert done.exit_code == Infeasible.exit_code
    assert "cannot be certified with confidence 0.99" in done.output
    assert not (place / "none.json").exists()


def test_options_of_a_query_are_not_for_one_operator(place: Path) -> None:
    done = run("plan", place / "profile" / "read", "--trace", place / "t.csv", "--p95-ms", 100, "--recall", 0.9)
    assert done.exit_code == 2
    assert "--recall is given, which plans of one operator do not have" in done.output


def test_a_plan_without_a_certificate_is_written_as_before(tmp_path: Path) -> None:
    request = strips(latency_s=0.1)
    plan: GearPlan = plan_pipeline(request, candidates_of(request))
    write_plan(plan, tmp_path / "plan.json")
    assert "certificate" not in (tmp_path / "plan.json").read_text()
    assert read_plan(tmp_path / "plan.json") == plan
