import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.cascade import Cascade
from gearshift.clock import NS_PER_S as S
from gearshift.decisions import Decision, LogRow
from gearshift.profiles.engines.engine_tables import engine_tables
from gearshift.request import NO_DEADLINE_NS
from gearshift.runtime.engines.requests.engine_request import EngineRequest
from gearshift.runtime.engines.routing.rate_limits import Limits, RateLimits
from gearshift.runtime.engines.routing.router import EngineRouter
from tests.often import often
from tests.two_language_models import ALONE, LARGE, SMALL, SMALL_ALONE, cascade, language_plan, language_profile

PROFILE = language_profile()
ENQUEUE, SEND, ANSWER, CANCEL, SHIFT = (
    Decision.ENQUEUE, Decision.SEND, Decision.ANSWER, Decision.CANCEL, Decision.SHIFT,
)  # fmt: skip


class Ends:
    """A driver that notes what it is told."""

    def __init__(self) -> None:
        self.running: dict[EngineRequest, int] = {}
        self.cancelled: list[tuple[int, int]] = []
        self.shown: list[int] = []
        self.finishes: list[int] = []
        self.failures: list[int] = []

    def send(self, replica: int, request: EngineRequest) -> None:
        self.running[request] = replica

    def cancel(self, replica: int, request: EngineRequest) -> None:
        self.cancelled.append((replica, request.number))
        del self.running[request]

    def answered(self, request: EngineRequest) -> None:
        self.shown.append(request.number)

    def finished(self, request: EngineRequest) -> None:
        self.finishes.append(request.number)
        self.running.pop(request, None)

    def unanswered(self, request: EngineRequest) -> None:
        self.failures.append(request.number)
        self.running.pop(request, None)


def request(number: int, *, by_id: float = 0.5, prompt_tokens: int = 20, whole: bool = False) -> EngineRequest:
    return EngineRequest(number, by_id, (prompt_tokens, prompt_tokens), whole=whole)


class Router(EngineRouter):
    def __init__(self, *cascades: Cascade, starts: tuple[float, ...] = (0.0,), **asked: object) -> None:
        self.rows: list[LogRow] = []
        self.ends = Ends()
        plan = language_plan(cascades, starts, **asked)  # type: ignore[arg-type]
        super().__init__(engine_tables(plan, PROFILE), self.ends, log=self.rows.append)

    def begin(self, one: EngineRequest, now_ns: int = 0) -> None:
        self.arrive(one, now_ns)
        self.dispatch(now_ns)

    @property
    def is_idle(self) -> bool:
        work = self.work
        none = self.requests == work.prompt_tokens == 0
        return none and not any((*work.work_ns, *work.waiting_ns, *work.outstanding, *work.queues, *work.sent))


def test_a_sure_stage_answers_at_the_token_at_which_it_decides() -> None:
    router, one = Router(cascade(-0.5, 4)), request(7)
    router.begin(one)
    for token in range(1, 5):
        router.tokens(one, token, -0.4, token)
        assert one.answered is (token == 4)
    router.tokens(one, 5, None, 5)
    router.ended(one, None, 6)
    assert router.rows == [(0, ENQUEUE, 7, SMALL, 0), (0, SEND, 7, 0, 1), (4, ANSWER, 7, SMALL, 0)]
    assert (router.ends.shown, router.ends.finishes, one.decided_at) == ([7], [7], 4)
    assert router.is_idle


def test_an_unsure_stage_gives_way_and_the_last_answers_at_its_first_token() -> None:
    router, one = Router(cascade(-0.5, 4)), request(7)
    router.begin(one)
    router.tokens(one, 4, lambda at: {4: -0.6}[at], 4)
    router.dispatch(4)
    router.tokens(one, 1, None, 9)
    router.ended(one, None, 10)
    assert router.rows[2:] == [
        (4, CANCEL, 7, 0, 4),
        (4, ENQUEUE, 7, LARGE, 1),
        (4, SEND, 7, 1, 1),
        (9, ANSWER, 7, LARGE, 0),
    ]
    assert router.ends.cancelled == [(0, 7)]
    assert router.is_idle


def test_a_stage_decides_at_its_end_where_that_comes_first_and_nothing_is_cancelled() -> None:
    router, one = Router(cascade(-0.5, 16)), request(7)
    router.begin(one)
    router.tokens(one, 3, -1.0, 3)
    router.ended(one, -1.0, 3)
    assert router.rows[2:] == [(3, CANCEL, 7, 0, 3), (3, ENQUEUE, 7, LARGE, 1)]
    assert router.ends.cancelled == []


def test_whole_decides_at_the_end_alone() -> None:
    router, one = Router(cascade(-0.5, 1)), request(7, whole=True)
    router.begin(one)
    router.tokens(one, 9, -0.1, 3)
    assert not one.answered
    router.ended(one, lambda at: {-1: -0.2}[at], 4)
    assert one.answered
    assert router.ends.finishes == [7]


def test_a_split_by_id_asks_no_certainty() -> None:
    router = Router(cascade(0.75, 0))
    for number, by_id in enumerate((0.74, 0.75)):
        one = request(number, by_id=by_id)
        router.begin(one)
        router.tokens(one, 1, None, 1)
    assert [row[1:4] for row in router.rows if row[1] == ANSWER] == [(ANSWER, 0, LARGE), (ANSWER, 1, SMALL)]


def test_a_full_engine_gets_no_more_and_what_waits_goes_first_come_first_served() -> None:
    router = Router(ALONE, most_outstanding=1)
    first, second, third = (request(number) for number in range(3))
    for one in (first, second, third):
        router.begin(one)
    router.left(second, 0)
    router.ended(first, None, 2)
    router.dispatch(2)
    assert [row[2] for row in router.rows if row[1] == SEND] == [0, 2]
    router.left(third, 0)
    assert router.ends.cancelled == [(1, 2)]
    assert router.is_idle


def test_load_is_what_waits_and_what_is_sent_and_shifts_move_what_waits() -> None:
    router = Router(ALONE, SMALL_ALONE, starts=(0.0, 3.0), most_outstanding=1)
    asked = [request(number) for number in range(4)]
    for one in asked:
        router.begin(one)
    router.tick(100)
    router.dispatch(100)
    assert router.load == 4
    moved = [(100, SHIFT, 0, 1, 0), *((100, ENQUEUE, n, SMALL, 0) for n in (1, 2, 3)), (100, SEND, 1, 0, 1)]
    assert router.rows[-5:] == moved
    router.tokens(asked[0], 1, None, 101)
    assert asked[0].answered, "a model that the gear in force lacks answers"


def test_an_answer_that_repeats_its_prompt_is_not_judged_by_it_after_a_shift() -> None:
    turned = Cascade(models=("large", "small"), thresholds=(-0.5,), decide_at_tokens=(4,))
    for last_alone in (True, False):
        router, one = Router(cascade(-0.5, 4), turned, starts=(0.0, 9.0)), request(0)
        one.last_alone = last_alone
        router.pin(0 if last_alone else 1, 0)
        router.begin(one)
        assert one.model == LARGE
        router.pin(1, 1)
        router.tokens(one, 4, -0.9, 2)
        assert (one.answered, one.model) == ((True, LARGE) if last_alone else (False, SMALL))


def test_drain_counts_prompt_until_the_first_token_and_the_answer_until_its_end() -> None:
    router, one = Router(ALONE, load_unit="drain_s"), request(0, prompt_tokens=100)
    tables = router.tables
    expected = int(tables.expected_output[len(tables.bin_edges) + 2])
    router.begin(one)
    router.tick(0)
    prompt_ns, output_ns = 100 * tables.prompt_token_ns[1], expected * tables.output_token_ns[1]
    assert router.load == (prompt_ns + output_ns) / 1e9
    router.tokens(one, 1, None, 1)
    router.tick(2)
    assert router.load == output_ns / 1e9


# Faults ------------------------------------------------------------------------------------------


def test_what_a_lost_replica_had_goes_to_another_first() -> None:
    router = Router(SMALL_ALONE, replicas={"small": 2, "large": 1}, most_outstanding=1)
    asked = [request(number) for number in range(3)]
    for one in asked:
        router.begin(one)
    router.lost(0, 5)
    router.failed(asked[0], 5)
    router.dispatch(5)
    assert list(router.queues[SMALL]) == [asked[0], asked[2]]
    router.found(0, 0)
    router.dispatch(6)
    assert (asked[2].replica, asked[0].replica) == (-1, -1), "it waits for another than that which failed it"
    router.ended(asked[1], None, 7)
    router.dispatch(7)
    assert (asked[0].replica, asked[2].replica) == (1, 0)


def test_without_a_replica_the_next_stage_answers() -> None:
    router, one = Router(cascade(-0.5, 4)), request(0)
    router.begin(one)
    router.failed(one, 1)
    router.dispatch(1)
    assert (one.model, one.degraded) == (LARGE, False)
    router.tokens(one, 1, None, 2)
    assert one.answered


def test_an_unsure_answer_is_given_where_no_later_model_has_a_replica() -> None:
    router, one = Router(cascade(-0.5, 4)), request(0)
    router.begin(one)
    router.lost(1, 1)
    router.tokens(one, 4, -0.9, 2)
    assert one.answered
    assert one.degraded


def test_the_whole_answer_of_an_earlier_stage_is_given_where_the_later_one_fails() -> None:
    router, one = Router(cascade(-0.5, None)), request(0)
    router.begin(one)
    router.tokens(one, 3, None, 1)
    router.ended(one, -0.9, 1)
    router.dispatch(1)
    router.failed(one, 2)
    assert (one.model, one.degraded, router.ends.finishes) == (SMALL, True, [0])
    assert router.is_idle


def test_an_earlier_stage_that_was_cut_runs_again() -> None:
    router, one = Router(cascade(-0.5, 1)), request(0)
    router.begin(one)
    router.tokens(one, 1, -0.9, 1)
    router.dispatch(1)
    router.failed(one, 2)
    router.dispatch(2)
    router.tokens(one, 1, -0.9, 3)
    assert (one.model, one.degraded, one.answered) == (SMALL, True, True)
    router.ended(one, None, 4)
    assert router.is_idle


def test_after_something_was_shown_a_fault_ends_the_request() -> None:
    router, one = Router(ALONE), request(0)
    router.begin(one)
    router.tokens(one, 1, None, 1)
    one.shown = True
    router.failed(one, 2)
    assert router.ends.failures == [0]
    assert router.is_idle


def test_until_something_was_shown_another_replica_answers_also_after_the_decision() -> None:
    router, one = Router(cascade(-0.5, 4), replicas={"small": 2, "large": 1}), request(0)
    router.begin(one)
    router.tokens(one, 6, -0.1, 1)
    assert one.answered
    router.failed(one, 2)
    router.dispatch(2)
    assert (one.answered, one.replica, one.tokens) == (False, 1, 0)
    router.tokens(one, 4, -0.1, 3)
    router.ended(one, None, 4)
    assert router.ends.finishes == [0]
    assert router.is_idle


def test_a_replica_that_fails_five_times_in_a_row_gets_nothing_more_but_one_try_after_a_second() -> None:
    router = Router(SMALL_ALONE, replicas={"small": 2, "large": 1}, most_outstanding=8)
    for number in range(5):
        one = request(number)
        router.begin(one, number)
        assert one.replica == 0
        router.failed(one, number)
        router.dispatch(number)
        assert one.replica == 1
        router.ended(one, None, number)
    later = [request(number) for number in range(5, 8)]
    for one in later:
        router.begin(one, 10)
    assert [one.replica for one in later] == [1, 1, 1]
    router.tick(S + 10)
    tries = [request(number) for number in range(8, 11)]
    for one in tries:
        router.begin(one, S + 10)
    assert [one.replica for one in tries] == [0, 1, 1]
    router.ended(tries[0], None, S + 11)
    again = request(11)
    router.begin(again, S + 12)
    assert again.replica == 0


def test_a_replica_whose_pause_is_over_is_tried_though_another_has_as_little_to_do() -> None:
    router = Router(SMALL_ALONE, replicas={"small": 2, "large": 1})
    for number in range(5):
        router.available.failed(1, number)
    for number, replica in enumerate((0, 1, 0)):
        one = request(number)
        router.tick(2 * number * S)
        router.begin(one, 2 * number * S)
        assert one.replica == replica
        router.ended(one, None, 2 * number * S)
    assert not router.available.ejections.is_failing(1)


def test_replicas_that_all_fail_are_tried_all_the_same() -> None:
    router = Router(SMALL_ALONE, replicas={"small": 2, "large": 0}, most_outstanding=8)
    for number in range(30):
        one = request(number)
        router.begin(one, number)
        while one.replica != -1:
            router.failed(one, number)
            router.dispatch(number)
    assert router.ends.failures == list(range(30)), "each was tried"


def test_a_replica_that_asks_for_a_pause_gets_nothing_until_it_is_over() -> None:
    router, one = Router(ALONE), request(0)
    router.begin(one)
    router.limited(one, 5 * S, S)
    for now_ns in (S, 3 * S, 5 * S - 1):
        router.tick(now_ns)
        router.dispatch(now_ns)
        assert (one.replica, router.ends.failures) == (-1, [])
    router.tick(5 * S)
    router.dispatch(5 * S)
    assert one.replica == 1


@pytest.mark.parametrize("objective_ns", [0, 2 * S])
def test_a_request_that_is_told_to_wait_again_and_again_ends_after_the_time_for_retries(objective_ns: int) -> None:
    router, one = Router(cascade(-0.5, 4)), request(0)
    router._placing._objective_ns = objective_ns
    router.begin(one)
    for second in range(100):
        if one.replica != -1:
            router.limited(one, (second + 1) * S, second * S)
        router.tick(second * S)
        router.dispatch(second * S)
    assert router.ends.failures == [0]
    assert router.is_idle


def test_an_unsure_request_waits_for_a_large_model_that_pauses_unless_its_deadline_is_before() -> None:
    for deadline_ns, waits in ((NO_DEADLINE_NS, True), (4 * S, False), (9 * S, True)):
        router, blocked, one = Router(cascade(-0.5, 4)), request(0, by_id=0.1), request(1)
        blocked.last_alone = True
        router.begin(blocked)
        router.limited(blocked, 5 * S, 0)
        one.deadline_ns = deadline_ns
        router.begin(one, 1)
        router.tokens(one, 4, -0.9, 2)
        router.dispatch(2)
        assert (one.answered, one.degraded) == (not waits, not waits)
        router.tick(5 * S)
        router.dispatch(5 * S)
        assert (one.model, one.replica != -1) == ((LARGE, True) if waits else (SMALL, True))


def test_the_earliest_deadline_goes_first() -> None:
    router = Router(SMALL_ALONE, most_outstanding=1)
    asked = [request(number) for number in range(4)]
    for one, deadline_s in zip(asked, (9, 8, 9, 5), strict=True):
        one.deadline_ns = deadline_s * S
        router.begin(one)
    assert list(router.queues[SMALL]) == [asked[3], asked[1], asked[2]]


def test_a_request_that_may_be_late_is_ordered_by_its_deadline_and_sent_all_the_same() -> None:
    router, asked = Router(SMALL_ALONE, most_outstanding=1), [request(number) for number in range(3)]
    router.begin(request(3))
    for one, deadline_ns in zip(asked, (9 * S, 8 * S, 1), strict=True):
        one.deadline_ns = deadline_ns
        router.begin(one, 2)
    assert list(router.queues[SMALL]) == [asked[2], asked[1], asked[0]]
    router.ended(next(iter(router.ends.running)), None, 200)
    router.dispatch(200)
    assert (asked[2].late, list(router.ends.running)) == (False, [asked[2]])


def test_a_request_whose_deadline_cannot_be_kept_is_sent_nowhere() -> None:
    router = Router(SMALL_ALONE, most_outstanding=1)
    running, late = request(0), request(1)
    late.deadline_ns = late.refuse_after_ns = 100
    router.begin(running)
    router.begin(late, 1)
    router.ended(running, None, 200)
    router.dispatch(200)
    assert (late.late, router.ends.failures) == (True, [1])
    assert router.is_idle


def test_a_second_engine_is_asked_where_the_first_token_is_late_and_the_first_to_answer_goes_on() -> None:
    router = Router(SMALL_ALONE, replicas={"small": 2, "large": 1})
    for wins in (False, True):
        one = request(int(wins))
        router.begin(one)
        hedging, first = router.hedging, one.replica
        assert not hedging.is_due(one, S // 5)
        assert hedging.is_due(one, S)
        hedge = hedging.begin(one, S)
        assert hedge is not None
        assert {hedge.replica, first} == {0, 1}
        assert not hedging.is_due(one, 2 * S)
        assert router.outstanding[:2] == [1, 1]
        if wins:
            hedging.won(one, S, first_failed=False)
        else:
            hedging.dropped(one, S)
        assert one.replica == (hedge.replica if wins else first)
        router.tokens(one, 1, None, S)
        router.ended(one, None, S)
        assert router.is_idle


def test_a_later_stage_is_asked_as_well_where_the_model_has_no_other_replica() -> None:
    router, one = Router(cascade(-0.5, 4)), request(0)
    router.begin(one)
    hedge = router.hedging.begin(one, S)
    assert hedge is not None
    assert hedge.model == LARGE
    router.hedging.won(one, S, first_failed=True)
    router.tokens(one, 1, None, S)
    assert (one.answered, one.model, one.visited) == (True, LARGE, 3)


def test_a_model_with_a_limit_per_minute_gets_no_more() -> None:
    tables = engine_tables(language_plan([SMALL_ALONE], most_outstanding=500), PROFILE)
    router = EngineRouter(tables, Ends(), limits=RateLimits(2, [Limits(requests_per_minute=60), Limits()]))
    for number in range(100):
        router.arrive(request(number), 0)
    sent = []
    for second in range(30):
        router.dispatch(second * S)
        sent.append(router.outstanding[0])
    assert sent[0] == 6
    assert sent[-1] == 6 + 29


def test_without_any_replica_a_request_is_not_taken() -> None:
    router = Router(cascade(-0.5, 1))
    router.lost(0, 0)
    router.lost(1, 0)
    router.begin(request(0), 1)
    assert router.ends.failures == [0]
    assert router.is_idle


def test_a_deadline_takes_what_there_is() -> None:
    router = Router(cascade(-0.5, 16), most_outstanding=1)
    running, waiting = request(0), request(1)
    router.begin(running)
    router.begin(waiting)
    router.tokens(running, 2, -1.0, 1)
    router.expired(running, 2)
    router.expired(waiting, 2)
    assert (running.answered, running.degraded, router.ends.failures) == (True, True, [1])
    router.ended(running, None, 3)
    assert router.is_idle


EVENTS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 30), st.floats(-1, 0)), max_size=120)


@settings(max_examples=often(200), deadline=None)
@given(EVENTS, st.sampled_from([None, 0, 1, 4]), st.integers(1, 3))
def test_whatever_happens_each_request_ends_once_and_nothing_is_left(
    events: list[tuple[int, int, float]], decide_at: int | None, most: int
) -> None:
    router = Router(
        ALONE, cascade(-0.5, decide_at), SMALL_ALONE, starts=(0.0, 2.0, 4.0), most_outstanding=most,
        replicas={"small": 2, "large": 2},
    )  # fmt: skip
    ends, number, left = router.ends, 0, set[int]()
    for now_ns, (kind, place, certainty) in enumerate(events):
        running = [one for queue in router.sent for one in queue]
        waiting = [one for queue in router.queues for one in queue]
        if kind <= 1:
            router.arrive(request(number, by_id=place / 31), now_ns)
            number += 1
        elif kind == 2:
            router.tick(now_ns)
        elif kind == 3 and waiting:
            one = waiting[place % len(waiting)]
            router.left(one, now_ns)
            left.add(one.number)
        elif kind == 4:
            router.lost(place % 4, now_ns)
        elif kind == 5 and running:
            one = running[place % len(running)]
            if one.hedge:
                router.hedging.won(one, now_ns, first_failed=True)
            else:
                router.failed(one, now_ns)
        elif kind == 8:
            router.found(place % 4, now_ns)
        elif kind == 9 and (running or waiting):
            router.expired([*running, *waiting][place % len([*running, *waiting])], now_ns)
        elif kind == 6 and running:
            one = running[place % len(running)]
            if one.hedge:
                router.hedging.dropped(one, now_ns)
            router.tokens(one, one.tokens + 1, certainty, now_ns)
        elif kind == 7 and running:
            one = running[place % len(running)]
            if one.hedge:
                router.hedging.dropped(one, now_ns)
            router.ended(one, certainty, now_ns)
        elif kind == 10 and running:
            router.limited(running[place % len(running)], now_ns + place, now_ns)
        elif kind == 11 and running:
            one = running[place % len(running)]
            if one.hedge is None and one.tokens == 0:
                router.hedging.begin(one, now_ns)
        elif kind == 12 and (hedged := [one for one in running if one.hedge]):
            one, how = hedged[place % len(hedged)], place % 3
            if how == 2:
                router.hedging.failed(one, now_ns)
            else:
                router.hedging.won(one, now_ns, first_failed=how == 0)
        router.dispatch(now_ns)
        assert max(router.outstanding) <= most
        hedges = [one.hedge.replica for queue in router.sent for one in queue if one.hedge]
        assert router.outstanding == [len(queue) + hedges.count(r) for r, queue in enumerate(router.sent)]
        open_now = sum(map(len, router.sent)) + sum(map(len, router.queues))
        assert router.requests == open_now == number - len(left) - len(ends.finishes) - len(ends.failures)
    for replica in range(4):
        router.found(replica, 0)
    now_ns = len(events) + 100 * S
    router.tick(now_ns)
    while router.requests:
        router.dispatch(now_ns)
        running = [one for queue in router.sent for one in queue]
        assert running, "something waits although there are replicas"
        for one in running:
            if one.hedge:
                router.hedging.dropped(one, now_ns)
            router.ended(one, math.inf, now_ns)
    assert sorted([*ends.finishes, *ends.failures, *left]) == list(range(number))
    assert router.is_idle


def test_a_router_that_takes_over_begins_in_the_gear_for_the_load() -> None:
    for load, gear in ((1.0, 0), (7.0, 1)):
        router = Router(cascade(-0.5, 4), SMALL_ALONE, starts=(0.0, 5.0))
        router.begin_at(load)
        assert (router.gear, router.load) == (gear, load)
