"""A kernel with the code for everything, in place of one compiled for what a plan and its workload have.

Short tests take it, for all but the plainest plans, which it simulates at half the speed: each kernel
takes up to a minute to compile, and there are eight.  The result is the same.  Plans that refine have
one of their own, as they never have several nodes.
"""

import os

import numpy as np

from gearshift.plans.plan_tables import PlanTables
from gearshift.simulator.kernel.queues import NONE
from gearshift.simulator.kernel.recorded_rows import RecordedRows, Tuples

WHOLE_KERNEL = "GEARSHIFT_WHOLE_KERNEL"


def takes_whole_kernel() -> bool:
    return WHOLE_KERNEL in os.environ


def no_records(tables: PlanTables) -> RecordedRows:
    """For plans without graphs."""
    tuples = Tuples(
        scope=np.zeros(1, dtype=np.int64),
        items_of=np.zeros(0, dtype=np.int64),
        first=np.zeros(0, dtype=np.int32),
        items=np.zeros(0, dtype=np.int32),
        edges=np.zeros(0, dtype=np.int16),
        node=np.zeros(0, dtype=np.int16),
        sample=np.zeros(0, dtype=np.int32),
        inside=np.zeros(0, dtype=np.int32),
    )
    return RecordedRows(
        first_tuple=np.zeros(len(tables.pipelines), dtype=np.int64),
        tuples=tuples,
        condition=np.full(len(tables.graph.conditions), NONE, dtype=np.int64),
        holds=np.zeros((0, 0, 0), dtype=np.bool_),
    )
