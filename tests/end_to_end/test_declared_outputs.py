"""Rows of one request that models of different outputs answer, in real workers."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

from gearshift.plans.plan_tables import plan_tables
from gearshift.request import Answer
from gearshift.runtime.backends.local import LocalBackend
from gearshift.runtime.backends.workers_backend import OperatorSource
from gearshift.runtime.service.service import Service
from tests.little_task import INPUTS, OUTPUTS, TASK, little_plan, write_little_task

SURE, UNSURE = [1.0, 2.0], [0.0, 2.0]
"""Rows that `small` answers, and `large`."""
RICHER = """
def small():
    def model(x):
        outputs = {"extra": x, "sum": x.sum(axis=1).astype(np.float32), "by": np.array([b"small"] * len(x))}
        return outputs, (x[:, 0] >= 1).astype(float)
    return model
"""
POORER = """
def large():
    return lambda x: ({"sum": x.sum(axis=1)}, np.ones(len(x)))
"""


def answered(folder: Path, task: str, *requests: list[list[float]]) -> list[Answer]:
    write_little_task(folder)
    (folder / "task.py").write_text(task)
    plan = little_plan("")
    tables = plan_tables(plan)
    backend = LocalBackend(
        tables, plan, operators=[OperatorSource(project=folder / "gearshift.toml", inputs=INPUTS, outputs=OUTPUTS)]
    )

    async def main() -> list[Answer]:
        service = Service(tables, backend)
        await service.start()
        try:
            return [await service.pipeline.infer({"x": np.array(rows)}) for rows in requests]
        finally:
            await service.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


def test_whichever_model_answers_the_outputs_are_those_that_are_published(tmp_path: Path) -> None:
    requests = [SURE, UNSURE], [UNSURE, SURE], [SURE], [UNSURE]
    for rows, answer in zip(requests, answered(tmp_path, TASK + RICHER, *requests), strict=True):
        assert answer.outcome == "answered"
        outputs: Any = answer.outputs
        assert list(outputs) == ["sum", "by"]
        assert outputs["sum"].tolist() == [sum(row) for row in rows]
        assert outputs["sum"].dtype == np.float64


def test_a_model_that_no_longer_answers_an_output_fails_its_rows(tmp_path: Path) -> None:
    (answer,) = answered(tmp_path, TASK + POORER, [UNSURE])
    assert answer.outcome == "failed"
