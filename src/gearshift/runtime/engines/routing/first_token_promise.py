"""Whether the first token of a request is in time: by its deadline, or by the objective."""

from collections import deque

from gearshift.clock import NS_PER_S
from gearshift.errors import QueueFull
from gearshift.policies.deadlines import aimed_ns, margin_ns
from gearshift.policies.engines.first_token import USABLE_PERCENT, in_time
from gearshift.request import NO_DEADLINE_NS
from gearshift.runtime.engines.requests.asked import Asked
from gearshift.runtime.engines.requests.engine_request import EngineRequest
from gearshift.runtime.engines.routing.router import EngineRouter
from gearshift.runtime.service.room import whole_seconds

WAY_NS = 2_000_000
"""From this process to its client and back."""
MOST_OVERSHOOTS = 100


class FirstTokenPromise:
    """`objective_ns` is the plan's, None where it has none; `of_whole` where that is of the whole answer."""

    def __init__(
        self, objective_ns: int | None = None, *, of_whole: bool = False, gives_late_answers: bool = True
    ) -> None:
        self.objective_ns, self._of_whole, self.gives_late_answers = objective_ns, of_whole, gives_late_answers
        self._overshoots_ns: deque[int] = deque(maxlen=MOST_OVERSHOOTS)

    def require_in_time(self, request: EngineRequest, asked: Asked, router: EngineRouter, now_ns: int) -> None:
        """Set the request's deadline; raises `QueueFull` where what is there already would make it late.

        An answer that is not streamed is seen when it is whole, which counts where it could be in time.
        """
        left_ns, percent, has_deadline = self.objective_ns, USABLE_PERCENT, asked.deadline_ns != NO_DEADLINE_NS
        request.seen_whole = not asked.streamed
        if has_deadline:
            request.deadline_ns = aimed_ns(asked.deadline_ns, margin_ns(self._overshoots_ns, WAY_NS))
            if self.gives_late_answers:
                return
            request.refuse_after_ns = request.deadline_ns
            left_ns, percent = max(0, request.deadline_ns - now_ns), 100
        if left_ns is None:
            return
        predicted_ns, alone_ns, whole_ns = router.predicted_ns(request, now_ns)
        of_whole = request.seen_whole or (self._of_whole and not has_deadline)
        if of_whole and in_time(alone_ns + whole_ns, left_ns, 100):
            percent = 100
            predicted_ns, alone_ns = predicted_ns + whole_ns, alone_ns + whole_ns
        if predicted_ns <= alone_ns or in_time(predicted_ns, left_ns, percent):
            return
        again_s = whole_seconds(predicted_ns - left_ns * percent // 100)
        predicted = f"its first token is expected after {predicted_ns / NS_PER_S:.2g} s"
        raise QueueFull(
            f"{router.waiting} requests wait already, and {predicted}, which is too late; try again in {again_s} s",
            again_s,
        )

    def expired(self, overshoot_ns: int) -> None:
        """A deadline was noticed so much later than it was aimed at."""
        self._overshoots_ns.append(overshoot_ns)
