"""Simulate a plan of language models on a workload, by the compiled kernel."""

import numpy as np

from gearshift.errors import require
from gearshift.language_workload import LanguageWorkload
from gearshift.profiles.engines.engine_tables import EngineTables
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.simulator.engines.kernel import loop as kernel
from gearshift.simulator.engines.kernel.arrays import (
    make_engines,
    make_outcome,
    make_plan,
    make_samples,
    make_state,
)
from gearshift.simulator.engines.language_simulation import LanguageSimulation
from gearshift.support.compiling.by_address import by_address

FIRST_SHIFTS = 1 << 12
ROWS_OF_REQUEST = 16
"""Decisions to keep at first, for each request; a run that makes more is repeated with room for them."""


def simulate_language(
    tables: EngineTables, profile: LanguageProfile, workload: LanguageWorkload, *, log: bool = False
) -> LanguageSimulation:
    """Serve `workload` in virtual time, each request to its last token. Keeps no state from an earlier run.

    Raises `InvalidInput` where a replica could never hold a request that a gear may send to it.
    """
    require(tables.models == profile.models, "the tables are of another profile's models")
    named, known = int(workload.record.max()), len(profile.answers.part)
    require(
        named < known,
        f"the workload names prompt {named}, but there are records of {known} prompts",
        remedy="draw the workload from this profile",
    )
    require_room(tables, profile, workload)
    samples, n = make_samples(profile, workload), len(workload)
    longest = profile.answers.output_tokens if workload.output_tokens is None else workload.output_tokens
    engines, curve_s = make_engines(tables, int(longest.max()))
    plan = make_plan(tables, curve_s)
    shifts, rows = FIRST_SHIFTS, ROWS_OF_REQUEST * n if log else 0
    while True:
        state, out = make_state(tables, engines, n), make_outcome(tables, n, shifts=shifts, log_rows=rows)
        kernel.run(by_address(kernel.Given(plan, state, samples, out)))
        if state.run.shifts <= shifts and state.run.logged <= rows:
            break
        shifts, rows = max(shifts, int(state.run.shifts)), max(rows, int(state.run.logged))
    return LanguageSimulation(
        tables=tables,
        workload=workload,
        **{name: getattr(out, name) for name in out._fields if name not in ("shifts", "log")},
        shifts=out.shifts[: state.run.shifts],
        log=[tuple(row) for row in out.log[: state.run.logged].tolist()],
        most_waiting=int(state.run.most_waiting),
    )


def require_room(tables: EngineTables, profile: LanguageProfile, workload: LanguageWorkload) -> None:
    """Raise `InvalidInput` where a prompt and its answer take more than a replica of a gear's model holds."""
    used = {
        int(model)
        for row, stages in zip(tables.stage_models.reshape(-1, tables.most_stages), tables.stage_count, strict=True)
        for model in row[:stages]
    }
    answers, recorded = profile.answers, workload.prompt_tokens is None and workload.output_tokens is None
    for replica, model, engine in zip(tables.replicas, tables.replica_model.tolist(), tables.engines, strict=True):
        prompts, outputs = answers.prompt_tokens[model], answers.output_tokens[model]
        if not recorded:
            prompts = prompts[workload.record] if workload.prompt_tokens is None else workload.prompt_tokens
            outputs = outputs[workload.record] if workload.output_tokens is None else workload.output_tokens
        most = engine.kv_blocks - engine.watermark_blocks
        beyond = prompts + outputs > most * engine.block_tokens
        if model in used and bool(beyond.any()):
            too_large = int(np.count_nonzero(beyond[workload.record] if recorded else beyond))
            require(
                too_large == 0,
                f"{too_large} requests take more than the {most} blocks of {engine.block_tokens} tokens that replica "
                f"{replica!r} has",
                remedy="give it more memory (kv_tokens), or leave them out",
            )
