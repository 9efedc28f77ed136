"""How the engines of a plan are started, and which of those that run it adopts."""

import asyncio
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from gearshift.hardware import identical_devices
from gearshift.placement import Placement, Replica
from gearshift.plans.plan_file import read_plan, write_plan
from gearshift.runtime.engines.replicas.engine_replica import EngineReplica
from gearshift.runtime.engines.replicas.own_key import own_key
from gearshift.serving.door.settings import ServerSettings
from gearshift.serving.openai.language_task import (
    LanguageTask,
    cores_left,
    make_replicas,
    read_language_task,
    served_path,
)
from tests.two_language_models import ALONE, SMALL_ALONE, language_plan, language_profile, write_language_plan

ENGINE = '[models.{model}.engine]\nmodel = "{model}"\ndevice_kind = "remote"\n{how}\n'
COMMAND = 'command = "engine --port {port} --memory {memory_share}"'

CHATS = "/v1/chat/completions"


def project(folder: Path, how: str) -> Path:
    path = folder / "gearshift.toml"
    engines = "".join(ENGINE.format(model=model, how=how.replace("{model}", model)) for model in ("small", "large"))
    path.write_text(f'operator = "chat"\nprompts = "prompts.jsonl"\n{engines}')
    return path


def tasks(folder: Path, before: str, after: str) -> tuple[LanguageTask, LanguageTask]:
    """Of a plan with one engine of each model, and of one with a second large one, by what the project says then."""
    profile = language_profile()
    first = write_language_plan(folder, [SMALL_ALONE], profile=profile)
    second = folder / "next.json"
    sha256 = read_plan(first).profile.sha256
    write_plan(language_plan([ALONE], replicas={"small": 1, "large": 2}, profile_sha256=sha256), second)
    one = read_language_task(first, "local", project_path=project(folder, before))
    return one, read_language_task(second, "local", project_path=project(folder, after))


def adopted(before: LanguageTask, after: LanguageTask) -> list[str]:
    """The replicas of the later task that are those of the earlier."""

    async def made() -> list[str]:
        running = make_replicas(before, ServerSettings())
        engines: list[EngineReplica] = make_replicas(after, ServerSettings(), running)
        assert len(set(engines)) == len(after.tables.replicas) == 3
        return [engine.id for engine in engines if engine in running]

    return asyncio.run(made())


def test_engines_that_would_be_started_alike_are_adopted(tmp_path: Path) -> None:
    assert adopted(*tasks(tmp_path, COMMAND, COMMAND)) == ["small-0", "large-0"]


def test_engines_whose_command_has_changed_are_not(tmp_path: Path) -> None:
    assert adopted(*tasks(tmp_path, COMMAND, COMMAND.replace("--memory", "--quantized --memory"))) == []


SEVERAL = f'{COMMAND[:-1]} --tp {{tp}}"\ntensor_parallel = [1, 2]'


def commands(task: LanguageTask) -> list[list[str]]:
    async def served() -> list[list[str]]:
        return [list(one.origin[1]) for one in make_replicas(task, ServerSettings())]  # type: ignore[index]

    return asyncio.run(served())


def test_what_tells_engines_apart_holds_no_key(tmp_path: Path) -> None:
    task, _ = tasks(tmp_path, COMMAND.replace("--memory", "--api-key {api_key} --memory"), COMMAND)

    async def origins() -> str:
        return repr([one.origin for one in make_replicas(task, ServerSettings())])

    assert own_key() not in asyncio.run(origins())
    assert commands(task)[0][3:5] == ["--api-key", ""]


def test_a_lone_replica_is_served_by_the_command_that_was_profiled(tmp_path: Path) -> None:
    task, _ = tasks(tmp_path, SEVERAL, COMMAND)
    assert task.project is not None
    profiled = [one.engine.argv(port=0) for one in task.project.models.values()]
    assert commands(task) == profiled
    assert profiled[0] == ["engine", "--port", "0", "--memory", "0.9", "--tp", "1"]


def test_a_replica_on_two_devices_is_started_with_the_tensor_parallel_of_the_plan(tmp_path: Path) -> None:
    task, _ = tasks(tmp_path, SEVERAL, COMMAND)
    wide = tuple(msgspec.structs.replace(one, tensor_parallel=2) for one in task.plan.placement.replicas)
    plan = msgspec.structs.replace(task.plan, placement=msgspec.structs.replace(task.plan.placement, replicas=wide))
    assert [words[-1] for words in commands(replace(task, plan=plan))] == ["2", "2"]


def test_endpoints_are_adopted_by_their_url(tmp_path: Path) -> None:
    urls = 'url = ["http://{model}-1/v1", "http://{model}-2/v1"]'
    assert adopted(*tasks(tmp_path, urls, urls)) == ["small-0", "large-0"]
    other = 'url = ["http://{model}-3/v1", "http://{model}-1/v1"]'
    assert adopted(*tasks(tmp_path, urls, other)) == ["large-0"]


DEVICE_BYTES, TP = 1 << 30, 2


def planned_on_two_devices(folder: Path, backend: str, *, kv_tokens: bool = True) -> LanguageTask:
    """Of both models beside each other on two devices; `small` takes a quarter of them, `large` a half."""
    known = {"small": (128 << 20, 1 << 10), "large": (512 << 20, 2 << 10)}
    profile = language_profile()
    engines = tuple(
        msgspec.structs.replace(
            one, device_kind="cpu", tensor_parallel=TP, weights_bytes=known[one.model][0],
            kv_bytes_per_token=known[one.model][1],
        )
        for one in profile.engines
    )  # fmt: skip
    path = write_language_plan(folder, [ALONE], profile=replace(profile, engines=engines))
    tokens = {"small": (384 << 20) // (1 << 10), "large": (512 << 20) // (2 << 10)}
    replicas = tuple(
        Replica(
            id=f"{model}-0",
            model=model,
            device_ids=("cpu-0", "cpu-1"),
            tensor_parallel=TP,
            **({"kv_tokens": tokens[model]} if kv_tokens else {}),
        )
        for model in known
    )
    hardware = identical_devices(TP, memory_bytes=DEVICE_BYTES)
    write_plan(
        msgspec.structs.replace(read_plan(path), hardware=hardware, placement=Placement(replicas=replicas)), path
    )
    command = 'command = "engine --port {port} --memory {memory_share} --tokens {kv_tokens} --tp {tp}"'
    return read_language_task(path, backend, project_path=project(folder, command))  # type: ignore[arg-type]


def commands_on_eight_cores(task: LanguageTask) -> list[list[str]]:
    return commands(replace(task, available=tuple(range(8))))


def test_the_server_keeps_to_the_processors_that_engines_leave(tmp_path: Path) -> None:
    task = planned_on_two_devices(tmp_path, "local")
    assert cores_left(task.plan, task.project, range(8)) == frozenset(range(6))
    assert cores_left(task.plan, None, range(8)) is None


def test_engines_are_given_the_memory_that_was_planned(tmp_path: Path) -> None:
    small, large = commands_on_eight_cores(planned_on_two_devices(tmp_path, "local"))
    assert small[3:] == ["--memory", "0.25", "--tokens", str(384 << 10), "--tp", "2"]
    assert large[3:] == ["--memory", "0.5", "--tokens", str(256 << 10), "--tp", "2"]


def test_engines_of_a_plan_that_does_not_say_share_their_devices_alike(tmp_path: Path) -> None:
    task = planned_on_two_devices(tmp_path, "local", kv_tokens=False)
    assert [command[4] for command in commands_on_eight_cores(task)] == ["0.45", "0.45"]


def test_emulated_engines_on_the_same_devices_know_of_each_other(tmp_path: Path) -> None:
    small, large = commands_on_eight_cores(planned_on_two_devices(tmp_path, "emulated"))
    assert small[small.index("--board") + 1] == large[large.index("--board") + 1]
    assert [one[one.index("--place") + 1] for one in (small, large)] == ["0", "1"]
    assert [one[one.index("--factors") + 1] for one in (small, large)] == ["1.0,1.0", "1.0,1.0"]


def test_an_emulated_engine_that_has_its_devices_for_itself_has_no_board(tmp_path: Path) -> None:
    task = read_language_task(write_language_plan(tmp_path, [SMALL_ALONE], profile=language_profile()), "emulated")

    async def commands() -> list[str]:
        return [str(engine.origin) for engine in make_replicas(task, ServerSettings())]

    assert not [command for command in asyncio.run(commands()) if "--board" in command]


def test_emulated_engines_hold_the_contexts_that_were_planned(tmp_path: Path) -> None:
    small, _ = commands_on_eight_cores(planned_on_two_devices(tmp_path, "emulated"))
    assert small[small.index("--kv-tokens") + 1] == str(384 << 10)


@pytest.mark.parametrize(
    ("first", "path"),
    [
        (b'{"prompt": "a"}', "/v1/completions"),
        (b'{"messages": []}', CHATS),
        (b'{"\xff": 1}', CHATS),
        (b'{"prompt": "\xff"}', "/v1/completions"),
        (b'{"a": ' + b"[" * 100_000, CHATS),
    ],
    ids=["text", "chat", "a key that is no UTF-8", "a prompt that is no UTF-8", "too deep"],
)
def test_a_pipeline_is_shown_with_the_path_of_its_first_prompt_whatever_that_has(
    tmp_path: Path, first: bytes, path: str
) -> None:
    task, _ = tasks(tmp_path, COMMAND, COMMAND)
    (tmp_path / "prompts.jsonl").write_bytes(first + b"\n")
    assert served_path(task) == path
