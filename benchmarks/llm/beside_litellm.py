"""Goodput at three times what the large model carries: a gear plan, and LiteLLM's router over the same models.

    python -m benchmarks.llm.beside_litellm --litellm VENV/bin/litellm [--folder DIR] [--seconds 30] [--rounds 3]

The tiny Llamas of `gearshift init --llm`, each in one llama.cpp server, share the last processor;
router or proxy, and the clients, have the others. Both are sent the same prompts at the same times.
LiteLLM is its proxy with all models behind one name, by each of these:

    shuffle        simple-shuffle, weighed by what each model carries
    least-busy     to the model with fewest requests
    latency        latency-based-routing
    overflow       the largest model up to as many requests as its engine runs, then the next, by fallback

Goodput counts answers whose first token came in time. Bars: at least 1.5 times that of LiteLLM's
best way, which is the one with most right answers in time, at no lower quality. LiteLLM goes into an
environment of its own (`pip install 'litellm[proxy]'`), as it asks for other versions of packages.
"""

import argparse
import json
import os
import secrets
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import gearshift
from benchmarks.shared.bars import Bars
from benchmarks.shared.machine import describe
from benchmarks.shared.tables import print_table, spread
from gearshift.demo.language import capacity_of_device_qps
from gearshift.errors import Infeasible
from gearshift.load_generator.language.stream_log import StreamReplay
from gearshift.models.language_config import EngineSettings, LanguageProject, read_language_project
from gearshift.objective import Objective
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.profiles.engines.store import is_language_profile, read_language_profile
from gearshift.runtime.engines.replicas.engine_process import engine_environment, free_port
from gearshift.traces.generate import steady
from gearshift.traces.read import write_trace
from gearshift.verbs.common.served_apart import served_apart
from gearshift.verbs.plan import plan
from gearshift.verbs.profile import profile as measure
from gearshift.verbs.replay import replay

OVERLOAD, LEAST_GAIN, LEAST_MARGIN = 3.0, 1.5, 1.35
KEY = f"sk-{secrets.token_hex(16)}"
"""LiteLLM's proxy does not start without one."""
GIVE_UP_S, START_S = 30.0, 600.0
WAYS = ("shuffle", "least-busy", "latency", "overflow")
STRATEGY = {"least-busy": "least-busy", "latency": "latency-based-routing"}
PLANNED = "gear plan"


@dataclass(frozen=True)
class Setting:
    folder: Path
    project: LanguageProject
    profile: LanguageProfile
    ttft_s: float
    seconds: float
    overload: float
    litellm: Path

    @property
    def largest(self) -> str:
        return self.profile.models[-1]

    @property
    def rate_qps(self) -> float:
        return self.overload * capacity_of_device_qps(self.profile, self.largest)


def sent(at: Setting, url: str) -> StreamReplay:
    return replay(
        url,
        at.folder / "trace.csv",
        at.profile,
        project=at.folder,
        objective=Objective(metric="ttft", latency_s=at.ttft_s),
        api_key=KEY,
        longest_s=GIVE_UP_S,
        seed=1,
    )


# LiteLLM -------------------------------------------------------------------------------------------------------------


def configuration(at: Setting, way: str, urls: Mapping[str, str]) -> dict[str, Any]:
    """The proxy's, as JSON, which is YAML."""
    name = at.project.operator
    models: list[dict[str, Any]] = [
        {
            "model_name": name,
            "litellm_params": {
                "model": f"openai/{at.project.models[model].engine.model}",
                "api_base": url,
                "api_key": "none",
                "weight": round(capacity_of_device_qps(at.profile, model)),
            },
        }
        for model, url in urls.items()
    ]
    router: dict[str, Any] = {"routing_strategy": STRATEGY.get(way, "simple-shuffle"), "num_retries": 0}
    if way == "overflow":
        steps = [*at.profile.models[:-1], name]
        for step, model, one in zip(steps, at.profile.models, models, strict=True):
            one["model_name"] = step
            if step != steps[0]:
                one["litellm_params"]["max_parallel_requests"] = at.project.models[model].engine.largest_running
        router["fallbacks"] = [{name: steps[-2::-1]}]
    return {
        "model_list": models,
        "router_settings": router,
        "litellm_settings": {"telemetry": False, "num_retries": 0, "request_timeout": GIVE_UP_S},
    }


@contextmanager
def litellm_proxy(at: Setting, way: str) -> Iterator[str]:
    """The URL of the proxy, over engines of its own."""
    with ExitStack() as stack:
        urls = {
            model: stack.enter_context(running_engine(settings.engine, at.folder))
            for model, settings in at.project.models.items()
        }
        path = at.folder / f"litellm-{way}.yaml"
        path.write_text(json.dumps(configuration(at, way, urls), indent=1))
        port = free_port()
        command = [str(at.litellm), "--config", str(path), "--host", "127.0.0.1", "--port", str(port)]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        environment["LITELLM_MASTER_KEY"] = KEY
        environment["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it would look prices up elsewhere
        with running(command, environment, Path(path.parent), f"http://127.0.0.1:{port}/health/liveliness"):
            yield f"http://127.0.0.1:{port}/v1"


@contextmanager
def running_engine(settings: EngineSettings, folder: Path) -> Iterator[str]:
    port = free_port()
    last = max(os.sched_getaffinity(0))
    command = ["taskset", "-c", str(last), *settings.argv(port=port)]
    with running(command, engine_environment(None, 1), folder, f"http://127.0.0.1:{port}/health"):
        yield f"http://127.0.0.1:{port}/v1"


@contextmanager
def running(command: list[str], environment: Mapping[str, str], folder: Path, health: str) -> Iterator[None]:
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=said, stderr=said)
        try:
            due_s = time.monotonic() + START_S
            while not answers(health):
                if process.poll() is not None or time.monotonic() > due_s:
                    said.seek(0)
                    raise SystemExit(f"{command[0]} does not answer: {said.read()[-2000:]}")
                time.sleep(0.2)
            yield
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


# Both ----------------------------------------------------------------------------------------------------------------


def prepared(options: argparse.Namespace) -> Setting:
    folder = options.folder or Path(tempfile.mkdtemp(prefix="beside-litellm-"))
    if not (folder / "gearshift.toml").exists():
        gearshift.init(folder, llm=True)
    if is_language_profile(folder / "profile"):
        profile = read_language_profile(folder / "profile")
    else:
        profile = measure(folder, out=folder / "profile", seed=1)
    project = read_language_project(folder / "gearshift.toml")
    return Setting(
        folder, project, profile, options.ttft_ms / 1e3, options.seconds, options.overload, options.litellm.absolute()
    )


def planned(at: Setting) -> Path:
    write_trace(steady(at.rate_qps, at.seconds, seed=1), at.folder / "trace.csv")
    path = at.folder / "plan.json"
    plan(
        at.folder / "profile", at.folder / "trace.csv", ttft_s=at.ttft_s, devices=1, least_margin=LEAST_MARGIN, out=path
    )
    return path


def in_time(replay: StreamReplay) -> float:
    """Right answers in time, a second."""
    return replay.result.goodput_qps * replay.result.accuracy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--litellm", type=Path, required=True, help="the command of an environment of its own")
    parser.add_argument("--folder", type=Path, help="keep project, profile and plan here, and use those that it has")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--ttft-ms", type=float, default=250.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--overload", type=float, default=OVERLOAD, help="times what the large model carries")
    options = parser.parse_args()
    print(describe())
    at = prepared(options)
    try:
        path = planned(at)
    except Infeasible as error:
        raise SystemExit(f"{error}; the small model carries too little for this load: see --overload") from None
    print(
        f"{at.rate_qps:.0f} requests/s for {at.seconds:g} s, of which model {at.largest!r} carries "
        f"{at.rate_qps / at.overload:.0f}; first token within {options.ttft_ms:g} ms",
        flush=True,
    )
    found: dict[str, list[StreamReplay]] = {name: [] for name in (PLANNED, *WAYS)}
    for number in range(options.rounds):
        with served_apart(path, backend="local") as server:
            found[PLANNED].append(sent(at, server.url))
        for way in WAYS:
            with litellm_proxy(at, way) as url:
                found[way].append(sent(at, url))
        print(f"round {number + 1} of {options.rounds}", flush=True)
    report(found)


def report(found: Mapping[str, list[StreamReplay]]) -> None:
    columns = ("", "goodput, 1/s", "quality", "right in time, 1/s", "TTFT p95, s", "no whole answer", "late sending")
    rows = []
    for name, replays in found.items():
        results = [one.result for one in replays]
        rows.append(
            (
                name if name == PLANNED else f"LiteLLM, {name}",
                spread(np.array([one.goodput_qps for one in results])),
                spread(np.array([one.accuracy for one in results])),
                spread(np.array([in_time(one) for one in replays])),
                spread(np.array([one.latency_s.p95 for one in results])),
                str(sum(sum(one.problems.values()) for one in replays)),
                "" if all(one.valid for one in replays) else "yes",
            )
        )
    print_table(columns, rows)
    middle = {name: float(np.median([in_time(one) for one in replays])) for name, replays in found.items()}
    best = max(WAYS, key=lambda way: middle[way])
    goodput, quality = (
        {name: float(np.median([getattr(one.result, field) for one in replays])) for name, replays in found.items()}
        for field in ("goodput_qps", "accuracy")
    )
    bars = Bars()
    bars.at_least(f"goodput beside LiteLLM's best way, {best}", goodput[PLANNED] / goodput[best], LEAST_GAIN)
    bars.at_least(f"quality beside that of {best}", quality[PLANNED] - quality[best], 0.0)
    print(bars)


if __name__ == "__main__":
    main()
