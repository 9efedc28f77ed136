"""Simulate a plan of language models on a workload, by the compiled kernel."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    samples, n = make_samples(profile, workload), len(workload)
    lengths: Any = [each.reshape(len(tables.models), -1) for each in (samples.prompt_tokens, samples.output_tokens)]
    require_room(tables, *(each[:, samples.token_row] for each in lengths))
    engines, curve_s = make_engines(tables, int(samples.output_tokens.max()))
    plan = make_plan(tables, curve_s)
    shifts, rows = FIRST_SHIFTS, ROWS_OF_REQUEST * n if log else 0
    while True:
        state, out = make_state(tables, engines, n), make_outcome(tables, n, shifts=shifts, log_rows=rows)
        kernel.run(plan, state, samples, out)
        if state.run.shifts <= shifts and state.run.logged <= rows:
            break
        shifts, rows = max(shifts, int(state.run.shifts)), max(rows, int(state.run.logged))
    return LanguageSimulation(
        tables=tables,
        workload=workload,
        **{name: getattr(out, name) for name in out._fields if name not in ("shifts", "log")},
        output_tokens=samples.output_tokens[out.model.astype(np.int64) * samples.token_rows + samples.token_row],
        shifts=out.shifts[: state.run.shifts],
        log=[tuple(row) for row in out.log[: state.run.logged].tolist()],
        most_waiting=int(state.run.most_waiting),
    )


def require_room(tables: EngineTables, prompt_tokens: NDArray[np.int64], output_tokens: NDArray[np.int64]) -> None:
    """Raise `InvalidInput` where a prompt and its answer (models, n) take more than a replica of a gear holds."""
    used = {
        int(model)
        for row, stages in zip(tables.stage_models.reshape(-1, tables.most_stages), tables.stage_count, strict=True)
        for model in row[:stages]
    }
    for replica, model, engine in zip(tables.replicas, tables.replica_model.tolist(), tables.engines, strict=True):
        if model not in used:
            continue
        most = engine.kv_blocks - engine.watermark_blocks
        too_large = int(np.count_nonzero(prompt_tokens[model] + output_tokens[model] > most * engine.block_tokens))
        require(
            too_large == 0,
            f"{too_large} requests take more than the {most} blocks of {engine.block_tokens} tokens that replica "
            f"{replica!r} has",
            remedy="give it more memory (kv_tokens), or leave them out",
        )
