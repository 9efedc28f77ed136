import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gearshift.plans.plan_tables import plan_tables
from gearshift.runtime.backends.local import LocalBackend
from gearshift.runtime.backends.workers_backend import OperatorSource
from gearshift.serving.operate.start_progress import Tell, _lines, share_done, start_told
from tests.conformance.test_backend_contract import Events
from tests.little_task import INPUTS, LOADING, closed, little_plan, write_little_task


def test_lines_begin_after_two_seconds_and_come_every_ten_with_the_time_left():
    said: list[str] = []
    seconds = iter([0.0, *range(1, 15)])
    tell = _lines(said.append, now_s=lambda: next(seconds))
    for second in range(1, 15):
        tell("loading", second / 20)
    assert said == ["loading (about 18 s left)", "loading (about 8 s left)"]


def test_lines_tell_no_time_where_none_is_known():
    said: list[str] = []
    seconds = iter([0.0, 2.0])
    _lines(said.append, now_s=lambda: next(seconds))("loading", 0.0)
    assert said == ["loading"]


@pytest.mark.parametrize(
    ("gone_s", "about_s", "ready", "share"),
    [(3.0, 12.0, 0.5, 0.25), (3.0, 0.0, 0.5, 0.5), (13.0, 12.0, 0.5, 0.5), (13.0, 12.0, 1.0, 0.99)],
)
def test_a_start_is_as_far_as_its_expected_time_or_else_as_what_is_ready(gone_s, about_s, ready, share):
    assert share_done(gone_s, about_s, ready) == share


def test_a_bar_is_told_how_many_replicas_of_a_starting_backend_are_loaded(tmp_path):
    write_little_task(tmp_path)
    plan = little_plan("")
    sources = [OperatorSource(project=tmp_path / "gearshift.toml", inputs=INPUTS)]
    backend = LocalBackend(plan_tables(plan), plan, operators=sources)
    told: list[str] = []

    async def main() -> None:
        one_is_loaded = asyncio.Event()

        @contextmanager
        def bar() -> Iterator[Tell]:
            def tell(what: str, share: float) -> None:
                told.append(what)
                if what == "1 of 2":
                    one_is_loaded.set()

            yield tell

        async with start_told("{} of {}", lambda: (backend.replicas_loaded, 2), 0.0, told.append, bar):
            with closed(tmp_path, LOADING):
                starting = asyncio.create_task(backend.start(Events()))
                async with asyncio.timeout(30):
                    await one_is_loaded.wait()
            await starting
        assert backend.replicas_loaded == 2
        await backend.stop()

    asyncio.run(main())
    assert told[0] == "0 of 2"
