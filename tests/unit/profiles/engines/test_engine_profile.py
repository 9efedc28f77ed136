"""The time of a step, and engines that make no sense."""

import msgspec
import pytest

from gearshift.errors import InvalidInput
from gearshift.profiles.engines.engine_profile import EngineProfile, Sharing, StepCurve, StepWork, curve_from_rows
from tests.language_task import small_engine

ENGINE = small_engine(
    "small",
    prefill=StepCurve(tokens=(1, 11, 32), step_s=(0.010, 0.020, 0.041)),
    decode=StepCurve(tokens=(1, 32), step_s=(0.001, 0.032)),
    per_kv_token_s=1e-6,
    per_attention_token_s=1e-7,
    overhead_per_step_s=0.002,
    overhead_per_request_s=0.0001,
)


def test_each_prompt_that_enters_takes_its_reading() -> None:
    reads = msgspec.structs.replace(ENGINE, overhead_per_prompt_s=0.25)
    begins = work(prompt_tokens=10, prompts=2, entering=2)
    goes_on = work(prompt_tokens=10, prompts=2)
    assert reads.step_s(begins) == pytest.approx(ENGINE.step_s(goes_on) + 0.5)
    assert reads.step_s(goes_on) == ENGINE.step_s(goes_on)
    assert reads.lone_prompt_s(10) == pytest.approx(ENGINE.lone_prompt_s(10) + 0.25)


def work(**fields: int) -> StepWork:
    empty = {"prompt_tokens": 0, "prompts": 0, "decoding": 0, "kv_tokens": 0, "attention_pairs": 0}
    return StepWork(**{**empty, **fields})


def test_a_step_takes_its_curve_and_what_is_added() -> None:
    assert ENGINE.step_s(work(decoding=5, kv_tokens=1000)) == pytest.approx(0.005 + 0.001 + 0.002 + 0.0005)
    mixed = work(prompt_tokens=6, prompts=1, decoding=5, kv_tokens=1000, attention_pairs=21)
    assert ENGINE.step_s(mixed) == pytest.approx(0.020 + 0.001 + 21e-7 + 0.002 + 0.0006)


def test_times_between_points_are_on_a_line_and_below_the_first_that_of_the_first() -> None:
    curve = curve_from_rows([(20, 0.03), (10, 0.01)])
    assert curve.tokens == (10, 20)
    assert (curve.seconds(15), curve.seconds(2)) == (pytest.approx(0.02), 0.01)


@pytest.mark.parametrize(
    ("tokens", "step_s", "message"),
    [
        ((1, 2), (0.1,), "needs one time for each number of tokens"),
        ((), (), "needs one time for each number of tokens"),
        ((2, 2), (0.1, 0.2), r"the tokens of a step curve are \[2, 2\]; give rising numbers from 1"),
        ((0, 2), (0.1, 0.2), "give rising numbers from 1"),
        ((1, 2), (0.1, 0.0), r"the times of a step curve are \[0.1, 0.0\]"),
        ((1, 2), (0.1, float("inf")), r"the times of a step curve are \[0.1, inf\]"),
        ((1, 2), (0.1, float("nan")), "the times of a step curve"),
        ((1, 10**25), (0.1, 0.2), "the tokens of a step curve"),
    ],
)
def test_curves_that_do_not_rise_from_one_are_refused(tokens, step_s, message) -> None:
    with pytest.raises(InvalidInput, match=message):
        StepCurve(tokens=tokens, step_s=step_s)


@pytest.mark.parametrize("field", ["block_tokens", "kv_blocks"])
def test_an_engine_that_holds_nothing_is_refused(field: str) -> None:
    with pytest.raises(InvalidInput, match="an engine holds nothing"):
        msgspec.structs.replace(ENGINE, **{field: 0})


@pytest.mark.parametrize("seconds", [-1e-9, float("inf"), float("nan")])
@pytest.mark.parametrize("field", ["per_kv_token_s", "overhead_per_step_s"])
def test_times_beside_the_curves_are_plain_seconds(field: str, seconds: float) -> None:
    with pytest.raises(InvalidInput, match="beside its step curves"):
        msgspec.structs.replace(ENGINE, **{field: seconds})


@pytest.mark.parametrize("field", ["per_kv_token_s", "per_attention_token_s"])
def test_added_times_that_make_a_step_endless_are_refused(field: str) -> None:
    with pytest.raises(InvalidInput, match="a step of model 'small' with all that it holds would take"):
        msgspec.structs.replace(ENGINE, kv_blocks=1000, **{field: 3600.0})


@pytest.mark.parametrize("factor", [0.0, -1.0, 101.0, 1e300, float("inf"), float("nan")])
def test_a_factor_that_no_engine_has_is_refused_with_its_range(factor: float) -> None:
    with pytest.raises(InvalidInput, match=r"the factor of 'a' beside 'b' is .* give more than 0 and at most 100"):
        Sharing(model="a", beside="b", device_kind="cpu", factor=factor)


def test_an_engine_is_written_and_read_as_it_was() -> None:
    assert msgspec.json.decode(msgspec.json.encode(ENGINE), type=EngineProfile) == ENGINE


@pytest.mark.parametrize("rows", [[], [(0, 0.1)], [(1, 0.1), (1, 0.2)], [(1, 0.0)]])
def test_curves_that_say_nothing_are_refused(rows: list[tuple[int, float]]) -> None:
    with pytest.raises(InvalidInput, match="step curve"):
        curve_from_rows(rows)


def test_a_curve_is_linear_between_its_points() -> None:
    curve = curve_from_rows([(512, 0.1), (256, 0.06)])
    assert curve.seconds(384) == pytest.approx(0.08)
    assert curve.seconds(1) == 0.06
