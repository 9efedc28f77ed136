"""Random cases in which some requests are bulk work: each keeps the cascades of a gear, and has no deadline."""

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from gearshift.plans.plan_tables import plan_tables
from gearshift.request import NO_DEADLINE_NS, NOT_BULK
from tests.conformance.plans import Case


@st.composite
def with_bulk(draw: st.DrawFn, case: Case) -> Case:
    workload, pipelines = case.workload, plan_tables(case.plan).pipelines
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    first = np.arange(len(workload))
    if workload.continues is not None:
        first = np.maximum.accumulate(np.where(workload.continues, 0, first))
    pipeline = np.zeros(len(workload), dtype=np.int8) if workload.pipeline is None else workload.pipeline
    gears = generator.integers(0, np.array([each.gears for each in pipelines])[pipeline])
    is_bulk = generator.random(len(workload)) < draw(st.sampled_from([0.2, 0.5, 0.8]))
    bulk_gear = np.where(is_bulk, gears, NOT_BULK)[first].astype(np.int16)
    deadline_ns = workload.deadline_ns
    if deadline_ns is not None:
        deadline_ns = np.where(bulk_gear == NOT_BULK, deadline_ns, NO_DEADLINE_NS)
    return replace(case, workload=replace(workload, bulk_gear=bulk_gear, deadline_ns=deadline_ns))
