"""Ask a server of language models at a trace's times, and measure its streams."""

import asyncio
import gc
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from gearshift.clock import NS_PER_S
from gearshift.language_workload import LanguageWorkload
from gearshift.measuring.engines.heard import Heard
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.profiles.engines.prompts import read_prompts
from gearshift.result import LatencySummary, latency_summary
from gearshift.runtime.engines.link import EngineLink, Fault
from gearshift.verbs.init.language import PROMPTS_FILE
from gearshift.verbs.init.order_lines import right

MOST_TOKENS = 40
GIVE_UP_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Of answered requests; `failed` have no answer, `lateness_p99_s` is how late they were sent."""

    quality: float
    ttft_s: LatencySummary
    total_s: LatencySummary
    requests: int
    failed: int
    lateness_p99_s: float


class _Answer:
    """One stream, as `EngineLink` hands it over."""

    def __init__(self, over: asyncio.Future[None]) -> None:
        self.heard, self.over, self.fault = Heard(), over, False

    def event(self, data: bytes) -> None:
        self.heard.event(data)

    def ended(self) -> None:
        self.over.set_result(None)

    def failed(self, fault: Fault) -> None:
        self.fault = True
        self.over.set_result(None)


def ask_all(
    url: str, model: str, folder: Path, profile: LanguageProfile, workload: LanguageWorkload, *, emulated: bool
) -> Asked:
    """Send each request of `workload` when it is due; the prompts are those of the project in `folder`.

    Emulated engines are asked for a record by its number, and its recorded quality counts.
    """
    prompts = read_prompts(folder / PROMPTS_FILE)
    texts = [str(one.messages[0]["content"]) for one in prompts]
    bodies = [
        msgspec.json.encode(
            {
                "model": model,
                "messages": [{"role": "user", "content": f"record {i}" if emulated else text}],
                "stream": True,
                "max_tokens": MOST_TOKENS,
                "temperature": 0,
            }
        )
        for i, text in enumerate(texts)
    ]
    collects = gc.isenabled()
    gc.disable()
    try:
        answers, late_s = asyncio.run(_ask(url, [bodies[i] for i in workload.record], workload))
    finally:
        if collects:
            gc.enable()
    done = [not one.fault and bool(one.heard.finish) for one in answers]
    came = [(one.heard, i) for one, i, ok in zip(answers, workload.record, done, strict=True) if ok]
    quality = [
        _recorded_quality(profile, heard.text) if emulated else right(heard.text, str(prompts[i].reference))
        for heard, i in came
    ]
    first = np.array([(heard.came_ns[0] - heard.sent_ns) / NS_PER_S for heard, _ in came if heard.came_ns])
    total = np.array([(heard.came_ns[-1] - heard.sent_ns) / NS_PER_S for heard, _ in came if heard.came_ns])
    return Asked(
        quality=float(np.mean(quality)) if quality else 0.0,
        ttft_s=latency_summary(first),
        total_s=latency_summary(total),
        requests=len(answers),
        failed=len(answers) - len(came),
        lateness_p99_s=float(np.quantile(late_s, 0.99)),
    )


async def _ask(url: str, bodies: list[bytes], workload: LanguageWorkload) -> tuple[list[_Answer], list[float]]:
    loop, link = asyncio.get_running_loop(), EngineLink(url)
    answers: list[_Answer] = []
    late_s = []
    begun_ns = time.perf_counter_ns() + NS_PER_S // 10
    for body, after_ns in zip(bodies, workload.arrivals_ns, strict=True):
        due_ns = begun_ns + int(after_ns)
        if (wait_ns := due_ns - time.perf_counter_ns()) > 0:
            await asyncio.sleep(wait_ns / NS_PER_S)
        answer = _Answer(loop.create_future())
        answer.heard.sent_ns = due_ns  # times count from when it was due
        late_s.append((time.perf_counter_ns() - due_ns) / NS_PER_S)
        link.post("/chat/completions", body, answer)
        answers.append(answer)
    waiting = [one.over for one in answers]
    await asyncio.wait(waiting, timeout=GIVE_UP_S)
    for one in answers:
        if not one.over.done():
            one.fault = True
    link.close()
    return answers, late_s


def _recorded_quality(profile: LanguageProfile, text: str) -> float:
    """Of the record that an emulated engine's answer names, as "small:7 1 2"."""
    model, _, record = text.partition(" ")[0].partition(":")
    return float(profile.answers.quality[profile.models.index(model), int(record)])
