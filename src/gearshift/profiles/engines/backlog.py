"""How many requests to language models may wait: as many as the cheapest gear begins to answer within the objective."""

import math

import numpy as np

from gearshift.clock import NS_PER_S, to_ns
from gearshift.gear import GearPlan
from gearshift.policies.engines.deciding import DECIDES_AT_END, DECIDES_BY_ID
from gearshift.policies.engines.first_token import USABLE_PERCENT
from gearshift.profiles.backlog import MOST_WHERE_NONE, ON_TRACE, WHERE_NONE_S, Backlog
from gearshift.profiles.engines.engine_tables import EngineTables
from gearshift.profiles.engines.language_profile import DECIDE_AT_TOKENS, LanguageProfile

LEAST_PER_SLOT = 1
"""Requests that may wait at least, for each that engines decode at a time: a burst of short ones is soon worked off."""


def language_backlog(plan: GearPlan, tables: EngineTables, profile: LanguageProfile) -> Backlog:
    """The bound on requests that wait for engines, and those answered per second at that number.

    Recorded prompts and answers tell the mean work of a request at each model that the plan's last
    gear sends it to. As for rows, the bound is at least `ON_TRACE` times the most that waited when
    the plan was tried on its trace.
    """
    objective_s = plan.pipeline.objective.latency_s
    within_ns = to_ns(WHERE_NONE_S if objective_s is None else objective_s) * USABLE_PERCENT / 100
    each_ns = _each_ns(tables, profile)
    most = math.floor(within_ns / each_ns)
    if objective_s is None:
        most = min(most, MOST_WHERE_NONE)
    predicted = plan.predictions.get(tables.pipeline)
    on_trace = 0 if predicted is None else math.ceil(ON_TRACE * (predicted.most_waiting or 0))
    slots = LEAST_PER_SLOT * int(tables.slots.sum())
    return Backlog(max(1, most, on_trace, slots), NS_PER_S / each_ns)


def _each_ns(tables: EngineTables, profile: LanguageProfile) -> float:
    """Time that one more request takes of the busiest model's replicas, in the cheapest gear."""
    gear = len(tables.stage_count) - 1
    row, answers = gear * tables.most_stages, profile.answers
    reaches = np.ones(answers.output_tokens.shape[1])
    busiest_ns = 1.0
    for stage in range(int(tables.stage_count[gear])):
        model, at = int(tables.stage_models[row + stage]), int(tables.decide_at[row + stage])
        begin, end = tables.replica_begin[model : model + 2].tolist()
        is_last = stage == tables.stage_count[gear] - 1
        threshold, tokens = tables.thresholds[row + stage], answers.output_tokens[model]
        goes_on = np.zeros(len(reaches))
        runs = reaches
        if not is_last and at == DECIDES_BY_ID:
            runs, goes_on = reaches * (1 - threshold), reaches * threshold
        elif not is_last:
            place = DECIDE_AT_TOKENS.index(None if at == DECIDES_AT_END else at)
            goes_on = reaches * (answers.certainty[model, :, place] < threshold)
            if at != DECIDES_AT_END:
                tokens = np.where(goes_on > 0, np.minimum(tokens, at), tokens)
        prompt_ns = tables.reading_ns[begin] + answers.prompt_tokens[model] * tables.prompt_token_ns[begin]
        work_ns = runs * (prompt_ns + tokens * tables.output_token_ns[begin])
        busiest_ns = max(busiest_ns, float(work_ns.mean()) / max(1, end - begin))
        reaches = goes_on
    return busiest_ns
