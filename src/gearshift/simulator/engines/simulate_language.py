"""Simulate a plan of language models on a workload."""

import numpy as np

from gearshift.errors import require
from gearshift.language_workload import LanguageWorkload
from gearshift.profiles.engines.engine_tables import EngineTables
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.simulator.engines.language_simulation import LanguageSimulation
from gearshift.simulator.engines.plain import PlainSimulation


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
    return PlainSimulation(tables, profile, workload).run(log)


def require_room(tables: EngineTables, profile: LanguageProfile, workload: LanguageWorkload) -> None:
    """Raise `InvalidInput` where a prompt and its answer take more than a replica of a gear's model holds."""
    used = {
        int(model)
        for row, stages in zip(tables.stage_models.reshape(-1, tables.most_stages), tables.stage_count, strict=True)
        for model in row[:stages]
    }
    for replica, (model, engine) in enumerate(zip(tables.replica_model, tables.engines, strict=True)):
        prompts = profile.answers.prompt_tokens[model] if workload.prompt_tokens is None else workload.prompt_tokens
        outputs = profile.answers.output_tokens[model] if workload.output_tokens is None else workload.output_tokens
        prompts = prompts[workload.record] if workload.prompt_tokens is None else prompts
        outputs = outputs[workload.record] if workload.output_tokens is None else outputs
        blocks, most = -(-(prompts + outputs) // engine.block_tokens), engine.kv_blocks - engine.watermark_blocks
        too_large = int(np.count_nonzero(blocks > most)) if int(model) in used else 0
        require(
            too_large == 0,
            f"{too_large} requests take more than the {most} blocks of {engine.block_tokens} tokens that replica "
            f"{tables.replicas[replica]!r} has",
            remedy="give it more memory (kv_tokens), or leave them out",
        )
