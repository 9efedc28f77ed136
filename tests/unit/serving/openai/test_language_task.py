"""Which engines that run a plan adopts."""

import asyncio
from pathlib import Path

from gearshift.plans.plan_file import read_plan, write_plan
from gearshift.runtime.engines.engine_replica import EngineReplica
from gearshift.serving.door.settings import ServerSettings
from gearshift.serving.openai.language_task import LanguageTask, make_replicas, read_language_task
from tests.two_language_models import ALONE, SMALL_ALONE, language_plan, language_profile, write_language_plan

ENGINE = '[models.{model}.engine]\nmodel = "{model}"\ndevice_kind = "remote"\n{how}\n'
COMMAND = 'command = "engine --port {port} --memory {memory_share}"'


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


def test_a_lone_replica_is_served_by_the_command_that_was_profiled(tmp_path: Path) -> None:
    task, _ = tasks(tmp_path, f'{COMMAND[:-1]} --tp {{tp}}"\ntensor_parallel = [1, 2]', COMMAND)
    assert task.project is not None

    async def served() -> list[list[str]]:
        made = make_replicas(task, ServerSettings())
        return [list(one.origin[1]) for one in made]  # type: ignore[index]

    profiled = [one.engine.argv(port=0) for one in task.project.models.values()]
    assert asyncio.run(served()) == profiled
    assert profiled[0] == ["engine", "--port", "0", "--memory", "0.9", "--tp", "1"]


def test_endpoints_are_adopted_by_their_url(tmp_path: Path) -> None:
    urls = 'url = ["http://{model}-1/v1", "http://{model}-2/v1"]'
    assert adopted(*tasks(tmp_path, urls, urls)) == ["small-0", "large-0"]
    other = 'url = ["http://{model}-3/v1", "http://{model}-1/v1"]'
    assert adopted(*tasks(tmp_path, urls, other)) == ["large-0"]
