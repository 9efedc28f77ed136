"""A plan of language models that does not take over takes nothing from the one that goes on."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gearshift.errors import SwapFailed
from gearshift.observability.journal import Journal
from gearshift.runtime.engines.language_service import LanguageService
from gearshift.serving.openai.language_swap import LanguageSwaps
from gearshift.serving.operate.swap import SwapBody
from tests.emulated_service import EmulatedService
from tests.two_language_models import SMALL_ALONE, language_plan
from tests.unit.runtime.engines.test_language_service import SURE, served


def test_arrivals_are_recorded_on_where_a_plan_did_not_begin(tmp_path: Path) -> None:
    (tmp_path / "plan.json").touch()
    told: list[list[int]] = []

    async def use(service: EmulatedService) -> None:
        first = service.service
        first.trace.record = lambda requests, _: told.append(requests)
        await service.ask(SURE)
        second = LanguageService(service.tables, service, certainty_of=lambda *_: 0.0)
        stopped = asyncio.Event()

        async def stop() -> None:
            second.stop()
            stopped.set()

        async def start_engines() -> None:
            pass

        def serve() -> None:
            second.start()
            raise ZeroDivisionError

        task = SimpleNamespace(tables=service.tables, project=None, project_path=None)
        before = SimpleNamespace(service=first, task=task, all=())
        after = SimpleNamespace(service=second, task=task, start_engines=start_engines, serve=serve, stop=stop)
        swaps = LanguageSwaps(
            cast(Any, SimpleNamespace(plan=SimpleNamespace(path="before.json"))),
            cast(Any, None),
            cast(Any, before),
            plans=tmp_path,
            read=lambda _: cast(Any, task),
            make=lambda *_: cast(Any, after),
            metrics=first.metrics,
            journal=Journal(),
        )
        with pytest.raises(SwapFailed, match=r"before\.json goes on"):
            await swaps.swap(SwapBody(plan="plan.json"))
        assert stopped.is_set()
        await service.ask(SURE)
        first.trace.end(first.now_ns())

    served(language_plan([SMALL_ALONE]), use)
    assert sum(map(sum, told)) == 2
