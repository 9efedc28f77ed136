"""The arrays that the kernel for language models reads and changes, and its log."""

from typing import Any, NamedTuple, TypeVar, get_type_hints

import numpy as np

from gearshift.support.compiled import inlined

NONE = -1


class Run:
    """Where a run stands: requests `arrived`, `done` and `waiting`, rows in `log` and in `shifts`.

    `prompt_tokens` are those of prompts that no first token came for; `touched` counts groups of
    devices on which a step may begin or has ended. The replica `begun` has begun a step last, which is not in
    `State.ends_ns` yet, so that finding the next of the others does not wait for its computation.
    Requests that are not finished have a place among `used` ones; those that are free again are
    chained from `free`.
    """

    next_tick_ns: int
    begun: int
    begun_ends_ns: int
    gear: int
    eased_ticks: int
    arrived: int
    done: int
    waiting: int
    most_waiting: int
    prompt_tokens: int
    touched: int
    used: int
    free: int
    logged: int
    shifts: int


class Queue:
    """Requests that wait for an engine of a model, by their places, chained by `Request.following`."""

    first: int
    last: int
    waiting_ns: int


class Engine:
    """The engine of one replica: what it is, and where it stands.

    Its running requests are chained by entry from `oldest` to `newest`, those that wait in it from
    `first_waiting`. Each request that decodes gets a token in a decoding step, so it is enough to
    count them: `count` is the number of such steps, `kv_tokens` the sum of the contexts that
    decode, and `phases` from `first_phase` says how many of them fill their last block at which
    count, modulo the tokens of a block: `phase` is that of the next step. `owed` blocks are taken
    for tokens that came with a prompt's last step. The request `filling` has a part of its prompt
    computed; those from `first_chunk` on have tokens of prompts in the step that runs.
    """

    model: int
    group: int
    block_tokens: int
    watermark_blocks: int
    largest_batched_tokens: int
    largest_running: int
    prefill_first: int
    prefill_gives_token: int
    prefill_curve: int
    decode_curve: int
    per_kv_token_s: float
    per_attention_token_s: float
    overhead_per_step_s: float
    overhead_per_request_s: float
    overhead_per_prompt_s: float
    reading_ns: int
    prompt_token_ns: int
    output_token_ns: int
    free_blocks: int
    oldest: int
    newest: int
    first_waiting: int
    last_waiting: int
    running: int
    entered: int
    decoding: int
    count: int
    kv_tokens: int
    first_phase: int
    phase: int
    owed: int
    filling: int
    first_chunk: int
    step_decodes: int
    first_slot: int
    slots: int


class Request:
    """A request that is not finished, `number` in the workload, at its present model.

    Few are in memory at a time: their places are used again, so that they stay in the processor's cache.

    While it `decodes`, `given` is less by the engine's `count`, and so need not change; `begun` is
    the count at which that began, `phase` its place among the engine's. `entry` is its rank among
    the running. `blocks` are those that its entry takes. It is chained by `before` and `following`,
    and in a ring with those of which something happens at the same count, in slot `at`, by `below`
    and `above`.
    """

    given: int
    begun: int
    number: np.int32
    visited: np.int32
    expected: np.int32
    prompt: np.int32
    output: np.int32
    phase: np.int32
    blocks: np.int32
    before: np.int32
    following: np.int32
    below: np.int32
    above: np.int32
    entry: np.int32
    at: np.int32
    computed: np.int32
    model: np.int8
    answered: np.int8
    decodes: np.int8


R = TypeVar("R", Run, Queue, Engine, Request)


def records(kind: type[R], count: int) -> Any:
    """Records (count,) of the fields of `kind`, all 0: Python and compiled code change them in place."""
    fields = [(name, np.dtype(of)) for name, of in get_type_hints(kind).items()]
    return np.zeros(count, np.dtype(fields, align=True)).view(np.recarray)


class Plan(NamedTuple):
    """The arrays of `EngineTables`; `stage_of` (gears x models,) is a model's place in a gear's cascade.

    `bin_edges` are repeated for each model. `certainty_of` has the column of each stage's certainty,
    `curve_s` the times of engines by tokens, `members` the replicas of each group of devices from
    `first_member` on; `factors` are those of `EngineTables.sharing`, and
    the replicas of a group take turns in steps where it is `in_turn`.
    """

    models: int
    replicas: int
    most_stages: int
    bins: int
    replica_begin: Any
    stage_count: Any
    stage_models: Any
    stage_of: Any
    thresholds: Any
    decide_at: Any
    certainty_of: Any
    range_starts: Any
    shares: Any
    most_outstanding: Any
    load_unit: int
    upshift_margin: float
    bin_edges: Any
    expected_output: Any
    curve_s: Any
    members: Any
    first_member: Any
    factors: Any
    in_turn: Any


class Samples(NamedTuple):
    """The workload (n,), and recorded answers: row `m * rows + row[i]` is model m's to request i.

    `answers` has in each row the tokens of the prompt (`PROMPT`) and of the answer (`OUTPUT`), those
    that are expected of it (`EXPECTED`), and the certainties from `CERTAINTY` on: together, as
    reading them is mostly waiting for memory. `prompt_tokens` and `output_tokens` (n,) take the
    place of the former where they are not empty.
    """

    arrivals_ns: Any
    by_id: Any
    row: Any
    rows: int
    answers: Any
    prompt_tokens: Any
    output_tokens: Any


PROMPT, OUTPUT, EXPECTED, CERTAINTY = 0, 1, 2, 3


class State(NamedTuple):
    """The changing state of a run.

    `soonest` has for each count the oldest request of which something happens then, of an engine
    from `first_slot` on and modulo its `slots`. Per replica `ends_ns` of its step, `outstanding`
    requests and their `work_ns`, and whether a step is `at_work`: one on shared devices had
    `left_ns` to do at `since_ns`, and takes `stretch` times as long (0 before that is known). Per
    group of devices the place among `Plan.members` of the one that stepped `last`, and whether it
    `is_touched`; `touched` lists those; `busy_since_ns` is of those whose time replicas share.
    """

    run: Run
    queues: Any
    engines: Any
    requests: Any
    phases: Any
    soonest: Any
    ends_ns: Any
    outstanding: Any
    work_ns: Any
    lost: Any
    at_work: Any
    left_ns: Any
    since_ns: Any
    stretch: Any
    busy_since_ns: Any
    last: Any
    touched: Any
    is_touched: Any


class Outcome(NamedTuple):
    """The results of a run, as in `LanguageSimulation`; `shifts` (capacity, 2) and `log` (capacity, 5)."""

    model: Any
    gear: Any
    answered_ns: Any
    finished_ns: Any
    output_tokens: Any
    decided_at_token: Any
    discarded_tokens: Any
    preempted: Any
    busy_ns: Any
    steps: Any
    shifts: Any
    log: Any


@inlined
def write(state: State, out: Outcome, now_ns: int, kind: int, a: int, b: int, c: int) -> None:
    """Keep a row while there is room; all are counted."""
    if out.log.shape[0] > 0:
        row = state.run.logged
        if row < out.log.shape[0]:
            out.log[row, 0] = now_ns
            out.log[row, 1] = kind
            out.log[row, 2] = a
            out.log[row, 3] = b
            out.log[row, 4] = c
        state.run.logged = row + 1


@inlined
def touch(state: State, group: int) -> None:
    if state.is_touched[group] == 0:
        state.is_touched[group] = 1
        state.touched[state.run.touched] = group
        state.run.touched += 1
