import asyncio

import pytest

from gearshift.measuring.engines.endpoint import BrokenAnswer, Endpoint, Refused
from gearshift.measuring.engines.kept import TimedBeside
from gearshift.measuring.engines.sharing import (
    beside_of,
    doubts_about_sharing,
    factors_of,
    may_share,
    steps_of,
    timed_beside,
)
from gearshift.measuring.engines.timing import EngineTimer, Work
from gearshift.models.language_config import EngineMeasuring, EngineSettings
from gearshift.profiles.engines.engine_profile import EngineProfile, StepCurve
from tests.stand_in_endpoint import Answer, as_words, chunks, endpoint

WORK = Work(lengths=(16,), together=((2, 16),))
KNOWN = EngineSettings(command="engine {port}", model="a", weights_bytes=10, kv_bytes_per_token=1, device_kind="cpu")


def engines(kind: str) -> tuple[EngineProfile, EngineProfile]:
    def one(model: str, step_s: float) -> EngineProfile:
        curve = StepCurve(tokens=(1, 4), step_s=(step_s, step_s))
        return EngineProfile(
            model=model, device_kind=kind, prefill=curve, decode=curve, kv_blocks=8, largest_batched_tokens=4,
            largest_running=4,
        )  # fmt: skip

    return one("small", 0.001), one("large", 0.1)


def rows(*factors: tuple[float, float]) -> list[TimedBeside]:
    return [
        TimedBeside(other="x", repeat=i, alone=(0.001, 0.1), together=(0.002 * small, 0.2 * large))
        for i, (small, large) in enumerate(factors)
    ]


def test_a_factor_is_the_median_of_the_repeats_with_the_least_and_the_greatest() -> None:
    small, large = factors_of(engines("cuda"), rows((1.1, 0.7), (1.5, 0.9), (1.2, 0.8)))
    assert (small.model, small.beside) == (large.beside, large.model) == ("small", "large")
    assert (small.factor, large.factor) == pytest.approx((1.2, 0.8))
    assert small.interval == pytest.approx((1.1, 1.5))


def test_processors_give_two_engines_no_more_than_half_each() -> None:
    _, large = factors_of(engines("cpu"), rows((1.1, 0.7), (1.5, 0.95), (1.2, 0.8)))
    assert large.factor == 1.0
    assert large.interval == pytest.approx((0.7, 0.95))


@pytest.mark.parametrize(("kind", "doubted"), [("cpu", True), ("cuda", False)])
def test_factors_that_only_a_busy_machine_gives_are_doubted(kind: str, doubted: bool) -> None:
    doubts = doubts_about_sharing(factors_of(engines(kind), rows((1.0, 0.7), (1.0, 0.8))))
    assert len(doubts) == doubted
    if doubted:
        assert doubts[0].startswith("steps of model 'large' beside 'small' took at most 1.60 times as long as alone")


def test_as_many_requests_are_at_work_as_were_timed_together_with_all_the_context_that_is_left() -> None:
    settings = EngineSettings(url="http://a/v1", model="a", context_tokens=512, largest_running=4, kv_tokens=1200)
    one = beside_of("a", settings, Work(lengths=(16,), together=((1, 64), (1, 300), (4, 64), (4, 128))))
    assert (one.requests, one.context) == (4, 64)
    assert one.tokens == 300 - 64 - 16


def test_each_engine_is_timed_for_as_long_as_the_slower_one_needs_or_its_context_allows() -> None:
    work = Work(lengths=(16,), together=((1, 64),))
    pair = (beside_of("small", KNOWN, work), beside_of("large", KNOWN, work))
    assert steps_of(pair, engines("cpu")) == (3200, 32)
    short = pair[0]._replace(tokens=500)
    assert steps_of((short, pair[1]), engines("cpu")) == (500, 32)


@pytest.mark.parametrize(
    ("fields", "may"),
    [
        ({}, True),
        ({"weights_bytes": 0}, False),
        ({"kv_bytes_per_token": 0}, False),
        ({"device_kind": "cuda"}, False),
        ({"tensor_parallel": 2}, False),
        ({"command": "", "url": "http://a/v1"}, False),
    ],
)
def test_engines_may_share_devices_that_a_plan_may_put_both_on(fields: dict[str, object], may: bool) -> None:
    other = EngineSettings(**{name: getattr(KNOWN, name) for name in KNOWN.__struct_fields__} | fields)  # type: ignore[arg-type]
    assert may_share(KNOWN, other) == may


@pytest.mark.parametrize(
    ("answer", "raised"),
    [((400, "not beside another"), Refused), (chunks(["yes"], logprobs=[-0.1], finish=None), BrokenAnswer)],
)
def test_a_pair_that_cannot_be_timed_is_one_error(answer: Answer, raised: type[Exception]) -> None:
    settings = EngineSettings(url="http://a/v1", model="tiny", largest_running=2)
    pair = beside_of("small", settings, WORK), beside_of("large", settings, WORK)

    async def timed(*urls: str) -> None:
        ends = [Endpoint(one.name, settings, url) for one, url in zip(pair, urls, strict=True)]
        first, second = (EngineTimer(one, EngineMeasuring(), chat=True) for one in ends)
        try:
            await timed_beside(pair, (first, second), (8, 8))
        finally:
            for one in ends:
                one.close()

    with endpoint(as_words) as works, endpoint(lambda _: answer) as breaks, pytest.raises(raised):
        asyncio.run(timed(breaks, works))
