"""The bounds of a server of language models."""

import json
from collections.abc import Coroutine
from pathlib import Path

import msgspec
import pytest

from gearshift.errors import InvalidInput
from gearshift.serving import serve as serving
from gearshift.serving.door.settings import ServerSettings
from gearshift.serving.openai import served
from gearshift.serving.openai.served import LANGUAGE_MODELS, with_files_for_engines
from gearshift.serving.operate.swap import SwapBody
from tests.two_language_models import SMALL_ALONE, language_profile, write_language_plan


@pytest.mark.parametrize(("files", "most"), [(1024, 256), (20_000, 9744), (65_536, 10_000)])
def test_each_connection_has_a_file_for_one_to_an_engine(files: int, most: int) -> None:
    settings, doubt = with_files_for_engines(ServerSettings(), files)
    assert settings.most_connections == most
    assert ("raise the bound" in doubt) == (most < 10_000)


def test_fewer_connections_are_told_in_the_form_of_all_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run_nothing(main: Coroutine[None, None, int], **_: object) -> int:
        main.close()
        return 0

    monkeypatch.setattr(served, "most_open_files", lambda: 1024)
    monkeypatch.setattr(serving, "run_in_own_loop", run_nothing)
    settings = ServerSettings(port=0, log_format="json")
    plan = write_language_plan(tmp_path, [SMALL_ALONE], profile=language_profile())
    serving.serve(LANGUAGE_MODELS, plan, settings=settings, backend="emulated")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["level"] for line in lines if "raise the bound" in line["message"]] == ["warning"]


@pytest.mark.parametrize(
    ("asked", "name"),
    [(ServerSettings(front_ends=2), "front_ends is 2"), (SwapBody(plan="a.json", shadow=0.5), "shadow is 0.5")],
)
def test_what_language_models_are_served_without_is_refused_by_name(asked: msgspec.Struct, name: str) -> None:
    with pytest.raises(InvalidInput, match=f"{name}, and language models are served without; leave it out"):
        LANGUAGE_MODELS.require_has(asked)
    LANGUAGE_MODELS.require_has(ServerSettings(most_connections=7))
