import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gearshift.errors import InvalidInput
from gearshift.gear import SCHEMA_VERSION, GearPlan
from gearshift.plans.plan_file import encode_plan, read_plan, write_plan
from tests.conformance.plans import Case, cases
from tests.conformance.small import small_gear, small_plan
from tests.little_task import little_plan
from tests.often import often

SCHEMA_1 = Path(__file__).parent / "schema_1.json"
"""As written when schema 1 was the present one."""
PLACED = {"a0": "d0", "b0": "d0 d1"}


def some_plan() -> GearPlan:
    gears = (
        small_gear(PLACED, "a b", (0.1,), load=(0.0, 33.3)),
        small_gear(PLACED, "a", load=(33.3, None), largest=3, wait_ms=0.7),
    )
    return small_plan(PLACED, *gears, starvation_s=2.5)


def changed(path: Path, change: Any) -> Path:
    """A plan's file with its decoded JSON changed."""
    content = json.loads(encode_plan(some_plan()))
    change(content)
    path.write_text(json.dumps(content))
    return path


def refusal(path: Path) -> str:
    with pytest.raises(InvalidInput) as caught:
        read_plan(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


@settings(max_examples=often(60), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(case=cases())
def test_a_plan_read_back_is_the_same_plan_and_gives_the_same_bytes(tmp_path: Path, case: Case) -> None:
    write_plan(case.plan, tmp_path / "plan.json")
    again = read_plan(tmp_path / "plan.json")
    assert again == case.plan
    assert encode_plan(again) == (tmp_path / "plan.json").read_bytes()


def test_a_plan_file_is_json_that_a_person_can_read_line_by_line() -> None:
    lines = encode_plan(some_plan()).decode().splitlines()
    assert len(lines) > 50
    assert max(map(len, lines)) < 120
    assert encode_plan(some_plan()).endswith(b"}\n")


def test_a_load_range_is_written_as_from_and_to() -> None:
    content = json.loads(encode_plan(some_plan()))
    assert content["pipelines"]["task"]["gears"][1]["load_range"] == {"from": 33.3, "to": None}


def test_a_misspelt_key_is_refused_with_its_path(tmp_path: Path) -> None:
    def misspell(content: Any) -> None:
        content["pipelines"]["task"]["gears"][1]["replicas"][0]["longest_wiat_s"] = 1.0

    sentence = refusal(changed(tmp_path / "plan.json", misspell))
    assert "longest_wiat_s" in sentence
    assert "$.pipelines[...].gears[1].replicas[0]" in sentence


def test_a_misspelt_key_at_the_top_is_refused(tmp_path: Path) -> None:
    sentence = refusal(changed(tmp_path / "plan.json", lambda content: content.update(unfinnished=True)))
    assert "unfinnished" in sentence


def test_a_missing_key_is_refused_with_its_path(tmp_path: Path) -> None:
    sentence = refusal(changed(tmp_path / "plan.json", lambda content: content["hardware"].pop("devices")))
    assert "`devices` - at `$.hardware`" in sentence


def test_a_value_of_the_wrong_type_is_refused_with_its_path(tmp_path: Path) -> None:
    sentence = refusal(changed(tmp_path / "plan.json", lambda content: content["pipelines"]["task"].update(alpha="8")))
    assert "$.pipelines[...].alpha" in sentence


def test_a_value_out_of_range_is_refused_with_its_path_and_itself(tmp_path: Path) -> None:
    def break_it(content: Any) -> None:
        content["pipelines"]["task"]["gears"][0]["replicas"][1]["largest_batch_size"] = 0

    sentence = refusal(changed(tmp_path / "plan.json", break_it))
    assert "largest_batch_size is 0, needs 1 to 65536" in sentence
    assert "$.pipelines[...].gears[0].replicas[1]" in sentence


def test_a_refused_plan_file_names_the_remedy(tmp_path: Path) -> None:
    sentence = refusal(changed(tmp_path / "plan.json", lambda content: content.pop("planner")))
    assert sentence.endswith("; mend the file, or make the plan anew with `gearshift plan`")


def test_a_plan_file_without_shared_cores_reads_as_before(tmp_path: Path) -> None:
    path = changed(tmp_path / "plan.json", lambda content: content["hardware"].pop("pool_cores"))
    assert read_plan(path) == some_plan()


def test_gears_of_more_cores_than_are_shared_are_refused(tmp_path: Path) -> None:
    def share(content: Any) -> None:
        content["hardware"]["pool_cores"] = 4
        content["pipelines"]["task"]["gears"][1]["replicas"][0]["cores"] = 4

    assert "replicas have 5 cores, and share 4" in refusal(changed(tmp_path / "plan.json", share))


def test_a_plan_that_contradicts_itself_is_refused(tmp_path: Path) -> None:
    def break_it(content: Any) -> None:
        content["placement"]["replicas"][0]["device_ids"] = ["d9"]

    assert "replica 'a0' is on device 'd9'" in refusal(changed(tmp_path / "plan.json", break_it))


@settings(max_examples=often(60), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(share=st.floats(0, 1, exclude_max=True))
def test_a_plan_file_cut_short_anywhere_is_refused(tmp_path: Path, share: float) -> None:
    whole = encode_plan(some_plan()).rstrip()
    (tmp_path / "plan.json").write_bytes(whole[: int(share * len(whole))])
    refusal(tmp_path / "plan.json")


@pytest.mark.parametrize("content", [b"", b" \n"])
def test_an_empty_plan_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "plan.json").write_bytes(content)
    assert refusal(tmp_path / "plan.json").endswith("the file is empty; make a plan with `gearshift plan`")


def test_a_missing_plan_file_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path / "plan.json").endswith("no such file; make a plan with `gearshift plan`")


def test_a_folder_for_a_plan_file_is_refused(tmp_path: Path) -> None:
    assert "is a folder, needs a file" in refusal(tmp_path)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b'{"planner": "\xff"}', b"[]", b"null", b"[1, 2"])
def test_a_file_that_is_no_plan_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "plan.json").write_bytes(content)
    refusal(tmp_path / "plan.json")


def test_a_plan_of_another_schema_version_is_refused_by_its_version_though_its_fields_are_unknown(
    tmp_path: Path,
) -> None:
    (tmp_path / "plan.json").write_text('{"schema_version": 3, "gearboxes": []}')
    assert refusal(tmp_path / "plan.json").endswith(
        "schema_version is 3, this version of gearshift reads 1 to 2; make the plan anew with `gearshift plan`"
    )


def test_a_plan_without_a_schema_version_is_refused(tmp_path: Path) -> None:
    assert "schema_version" in refusal(changed(tmp_path / "plan.json", lambda content: content.pop("schema_version")))


def test_a_failed_write_leaves_the_old_plan(tmp_path: Path) -> None:
    write_plan(some_plan(), tmp_path / "plan.json")
    with pytest.raises(InvalidInput):
        write_plan(some_plan(), tmp_path / "plan.json" / "below-a-file.json")
    assert read_plan(tmp_path / "plan.json") == some_plan()


def of_schema_1(path: Path, change: Any) -> Path:
    content = json.loads(SCHEMA_1.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return path


def test_a_plan_of_schema_1_is_read_as_pipelines_of_one_node() -> None:
    assert read_plan(SCHEMA_1) == some_plan()


def test_a_plan_of_schema_1_is_written_again_in_the_present_schema(tmp_path: Path) -> None:
    write_plan(read_plan(SCHEMA_1), tmp_path / "plan.json")
    assert json.loads((tmp_path / "plan.json").read_text())["schema_version"] == SCHEMA_VERSION
    assert read_plan(tmp_path / "plan.json") == some_plan()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda plan: plan.update(gearboxes=1), "unknown field `gearboxes`"),
        (lambda plan: plan.pop("trace"), "missing required field `trace`"),
        (lambda plan: plan["operators"]["task"]["gears"][1].pop("cascade"), "gears[1].cascades"),
        (lambda plan: plan["operators"]["task"]["gears"][0].update(gaer=1), "unknown field `gaer`"),
        (lambda plan: plan["operators"]["task"].update(gears=[1]), "Expected `object`, got `int`"),
        (lambda plan: plan["operators"]["task"].update(gears="none"), "Expected `array`, got `str`"),
        (lambda plan: plan["operators"]["task"].update(output="task"), "unknown field `output`"),
        (lambda plan: plan["operators"]["task"]["gears"][0].update(cascades=5), "unknown field `cascades`"),
        (lambda plan: plan["operators"].clear(), "a plan has no pipelines"),
        (lambda plan: plan.update(hardware={}), "Expected `array`, got `null`"),
        (lambda plan: plan["hardware"].update(devices={"gpu-0": 1}), "Expected `array`, got `object`"),
        (lambda plan: plan["hardware"].update(devices=["gpu-0"]), "Expected `object`, got `str`"),
    ],
)
def test_a_damaged_plan_of_schema_1_is_refused_with_what_is_wrong(tmp_path: Path, change: Any, sentence: str) -> None:
    assert sentence in refusal(of_schema_1(tmp_path / "old.json", change))


def test_two_pipelines_of_one_name_are_refused(tmp_path: Path) -> None:
    text = encode_plan(little_plan("")).decode()
    pipeline = json.dumps(json.loads(text)["pipelines"]["sums"])
    (tmp_path / "plan.json").write_text(text.replace('"pipelines": {', f'"pipelines": {{"sums": {pipeline},', 1))
    with pytest.raises(InvalidInput, match=r"plan.json: the name 'sums' stands twice in one object"):
        read_plan(tmp_path / "plan.json")
