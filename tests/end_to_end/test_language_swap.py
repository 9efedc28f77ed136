"""Plans of language models that are swapped while serving, over engines that a project's command starts."""

import http.client
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from gearshift.cascade import Cascade
from gearshift.plans.plan_file import read_plan, write_plan
from tests.language_server import LONGEST_S, LanguageServer, chat, serving, streamed, text_of
from tests.two_language_models import ALONE, SMALL_ALONE, language_plan, language_profile, write_language_plan

PROFILE = language_profile(step_s=(0.002, 0.02), output_tokens=20)
LAUNCH = """
import sys
from pathlib import Path
from gearshift.runtime.engines.emulated.__main__ import main
sys.exit("this engine does not come up") if Path("broken").exists() else sys.exit(main())
"""


@dataclass
class Plans:
    """A folder of plans, and a server of its first."""

    folder: Path
    server: LanguageServer

    def add(self, name: str, cascade: Cascade, **replicas: int) -> None:
        sha256 = read_plan(self.folder / "plan.json").profile.sha256
        plan = language_plan([cascade], replicas=replicas, profile_sha256=sha256)
        write_plan(plan, self.folder / name)

    def swap(self, name: str, **fields: Any) -> tuple[int, Any]:
        return self.server.post("/v2/gearshift/swap", {"plan": name, **fields})

    @property
    def engines(self) -> set[int]:
        """The processes of the engines."""
        return {pid for pid in self.server.descendants() if "launch.py" in psutil.Process(pid).cmdline()[1]}

    @property
    def status(self) -> Any:
        return self.server.get("/v2/gearshift/status")


@pytest.fixture
def plans(tmp_path: Path) -> Iterator[Plans]:
    plan = write_language_plan(tmp_path, [SMALL_ALONE], profile=PROFILE)
    (tmp_path / "launch.py").write_text(LAUNCH)
    models = "".join(
        f'[models.{model}.engine]\nmodel = "{model}"\ndevice_kind = "remote"\n'
        f'command = "{sys.executable} launch.py profile --model {model} --port {{port}}"\n'
        for model in ("small", "large")
    )
    project = tmp_path / "gearshift.toml"
    project.write_text(f'operator = "chat"\nprompts = "prompts.jsonl"\n{models}')
    with serving(plan, "--project", str(project), "--plans", str(tmp_path), "--probe-s", "0.2") as server:
        yield Plans(tmp_path, server)


@pytest.mark.long
def test_requests_end_on_the_plan_they_began_with_and_engines_that_both_have_run_on(plans: Plans) -> None:
    plans.add("next.json", ALONE, small=1, large=2)
    before, url = plans.engines, plans.server.port
    with ThreadPoolExecutor(40) as threads:
        body = chat(3, ignore_eos=True, max_tokens=600)
        long = [threads.submit(streamed, url, body) for _ in range(4)]
        while plans.status["open_requests"] < 4:
            pass
        short = [threads.submit(streamed, url, chat(number)) for number in range(30)]
        status, result = plans.swap("next.json")
        answers = [each.result() for each in (*long, *short)]
    assert (status, result["taken_over"], Path(result["plan"]["path"]).name) == (200, True, "next.json")
    assert all(chunks[-1] == {} for _, chunks in answers)
    for headers, chunks in answers[:4]:
        assert headers["x-gearshift-model"] == "small"
        assert len(text_of(chunks).split()) == 600
    headers, chunks = streamed(url, chat(5))
    assert (headers["x-gearshift-model"], text_of(chunks).partition(" ")[0]) == ("large", "large:5")
    assert before < plans.engines
    assert len(plans.engines) == 3
    assert [replica["id"] for replica in plans.status["replicas"]] == ["small-0", "large-0", "large-1"]
    metrics = plans.server.get("/metrics")
    assert 'gearshift_requests_total{operator="chat",outcome="failed"} 0.0' in metrics
    assert f'gearshift_requests_total{{operator="chat",outcome="answered"}} {len(answers) + 1}.0' in metrics
    assert 'gearshift_outstanding{replica="large-1"} 0.0' in metrics
    assert plans.swap("plan.json")[0] == 200
    assert plans.engines == before
    assert streamed(url, chat(5))[0]["x-gearshift-model"] == "small"


@pytest.mark.long
def test_a_plan_whose_engines_do_not_come_up_is_refused_and_the_plan_before_goes_on(plans: Plans) -> None:
    plans.add("next.json", ALONE, small=1, large=2)
    before = plans.engines
    (plans.folder / "broken").touch()
    status, answer = plans.swap("next.json")
    assert status == 409
    assert "this engine does not come up" in answer["error"]
    assert "plan.json goes on" in answer["error"]
    assert plans.engines == before
    assert streamed(plans.server.port, chat(5))[0]["x-gearshift-model"] == "small"
    assert plans.server.get("/readyz")["ready"]
    (plans.folder / "broken").unlink()
    assert plans.swap("next.json")[0] == 200
    metrics = plans.server.get("/metrics")
    assert 'gearshift_swaps_total{outcome="failed"} 1.0' in metrics
    assert 'gearshift_swaps_total{outcome="taken_over"} 1.0' in metrics


@pytest.mark.long
def test_what_cannot_be_swapped_in_is_refused(plans: Plans) -> None:
    plans.add("next.json", ALONE, small=1, large=1)
    other = language_plan([ALONE], profile_sha256="0" * 64)
    write_plan(other, plans.folder / "other.json")
    for name, fields, status, said in (
        ("absent.json", {}, 400, "no plan"),
        ("../plan.json", {}, 400, "no plan"),
        ("next.json", {"shadow": 0.5}, 400, "are served without"),
        ("other.json", {}, 409, "another profile"),
    ):
        answered, answer = plans.swap(name, **fields)
        assert (answered, said in answer["error"]) == (status, True), answer
    assert Path(plans.status["plan"]["path"]).name == "plan.json"


@pytest.mark.long
def test_a_server_that_ends_amid_a_swap_answers_what_it_has_and_leaves_nothing(plans: Plans) -> None:
    plans.add("next.json", ALONE, small=1, large=2)
    connection = http.client.HTTPConnection("127.0.0.1", plans.server.port, timeout=LONGEST_S)
    with closing(connection), ThreadPoolExecutor(1) as threads:
        connection.request("POST", "/v1/chat/completions", json.dumps(chat(5, stream=True)))
        response = connection.getresponse()
        swapped = threads.submit(plans.swap, "next.json")
        while len(plans.engines) < 3:
            pass
        started = plans.server.descendants()
        plans.server.process.terminate()
        assert response.read().endswith(b"data: [DONE]\n\n")
        assert swapped.result()[0] in (200, 503)
    assert plans.server.process.wait(LONGEST_S) == 0
    assert not any(psutil.pid_exists(pid) for pid in started)
