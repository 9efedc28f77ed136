import msgspec
import pytest

from gearshift.measuring.engines.kept import Answered
from gearshift.measuring.engines.under_load import in_a_loop, under_load
from gearshift.profiles.engines.engine_profile import EngineProfile, StepCurve
from gearshift.profiles.engines.stepping import Engine, Generation

ENGINE = EngineProfile(
    model="small",
    device_kind="cpu",
    prefill=StepCurve(tokens=(1, 64), step_s=(0.001, 0.008)),
    decode=StepCurve(tokens=(1, 4), step_s=(0.001, 0.002)),
    kv_blocks=64,
    largest_batched_tokens=64,
    largest_running=4,
)
TOKENS = [(10 + i % 7, 3 + i % 5) for i in range(60)]
AT_ONCE = 8


def reading(read_s: float) -> EngineProfile:
    return msgspec.structs.replace(ENGINE, overhead_per_prompt_s=read_s)


def served(engine: EngineProfile, *, beside_s: float = 0.0, at_once: int = AT_ONCE) -> list[Answered]:
    """Answers that the engine gives in a loop, as a client hears them; each takes `beside_s` more elsewhere."""
    machine, now_s, left = Engine(engine), 0.0, [*enumerate(TOKENS)]
    sent_s, took_s, running = [0.0] * len(TOKENS), [0.0] * len(TOKENS), dict[int, Generation]()
    coming = [left.pop(0) for _ in range(at_once)]
    while running or coming:
        step = machine.begin_step()
        if step is None:
            now_s = max(now_s, min(sent_s[i] for i, _ in coming) + beside_s)
        else:
            now_s += engine.step_s(step.work)
        for i, (prompt, output) in [one for one in coming if sent_s[one[0]] + beside_s <= now_s + 1e-12]:
            running[i] = Generation(prompt, output)
            machine.add(running[i])
            coming.remove((i, (prompt, output)))
        told = [] if step is None else machine.end_step(step)
        for i in [i for i, one in running.items() if one in told and one.given == one.output_tokens]:
            took_s[i] = now_s - sent_s[i]
            del running[i]
            if left:
                coming.append(left.pop(0))
                sent_s[coming[-1][0]] = now_s
    return [
        Answered(prompt=str(i), prompt_tokens=prompt, output_tokens=output, took_s=took_s[i], at_once=at_once)
        for i, (prompt, output) in enumerate(TOKENS)
    ]


@pytest.mark.parametrize("read_s", [0.0, 0.002, 0.010])
def test_time_of_the_engine_for_each_request_is_found(read_s: float) -> None:
    found = under_load(ENGINE, 0.010, served(reading(read_s), beside_s=0.010 - read_s), AT_ONCE)
    assert found.engine.reading_s == pytest.approx(read_s, abs=0.0003)
    assert found.beside_s == pytest.approx(0.010 - read_s, abs=0.0003)


def test_time_beside_the_engine_is_not_taken_for_its_own() -> None:
    found = under_load(ENGINE, 0.010, served(ENGINE, beside_s=0.010), AT_ONCE)
    assert found.engine.reading_s < 0.0005
    assert found.beside_s == pytest.approx(0.010, abs=0.0005)


def test_more_than_a_lone_request_takes_is_the_engines() -> None:
    found = under_load(ENGINE, 0.001, served(reading(0.006)), AT_ONCE)
    assert found.engine.reading_s == pytest.approx(0.006, abs=0.0003)
    assert found.beside_s == 0.0
    assert found.ratio is not None
    assert found.ratio > 2
    assert found.warnings == []


def test_answers_that_come_faster_than_timed_are_told_of() -> None:
    quick = [msgspec.structs.replace(one, took_s=one.took_s / 2) for one in served(ENGINE)]
    found = under_load(ENGINE, 0.0, quick, AT_ONCE)
    assert found.engine.reading_s == 0
    assert found.warnings[0].startswith("model 'small' answered the prompts in 0.50 times the time")


def test_the_loop_takes_as_long_as_an_engine_that_is_asked_so() -> None:
    for beside_s in (0.0, 0.003, 0.1):
        answers = served(ENGINE, beside_s=beside_s)
        assert in_a_loop(ENGINE, beside_s, TOKENS, AT_ONCE) == pytest.approx(
            sum(one.took_s for one in answers), rel=0.002
        )


def test_few_answers_or_one_at_a_time_tell_nothing() -> None:
    answers = served(reading(0.005))
    for some, at_once in ((answers[:31], AT_ONCE), (served(reading(0.005), at_once=1), 1)):
        assert under_load(ENGINE, 0.001, some, at_once) == (ENGINE, 0.001, None)


def test_answers_that_the_engine_cannot_hold_or_were_timed_otherwise_are_left_out() -> None:
    answers = served(reading(0.005))
    one = answers[0]
    odd = [
        msgspec.structs.replace(one, prompt_tokens=5000),
        msgspec.structs.replace(one, took_s=0.0),
        msgspec.structs.replace(one, took_s=9.0, at_once=1),
    ]
    assert under_load(ENGINE, 0.001, [*odd, *answers], AT_ONCE) == under_load(ENGINE, 0.001, answers, AT_ONCE)
