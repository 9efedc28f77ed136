"""The bounds of a server of language models."""

import json
from collections.abc import Coroutine
from pathlib import Path

import pytest

from gearshift.serving.door.settings import ServerSettings
from gearshift.serving.openai import language_server
from gearshift.serving.openai.language_server import serve_language, with_files_for_engines
from tests.two_language_models import SMALL_ALONE, language_profile, write_language_plan


@pytest.mark.parametrize(("files", "most"), [(1024, 256), (20_000, 9744), (65_536, 10_000)])
def test_each_connection_has_a_file_for_one_to_an_engine(files: int, most: int) -> None:
    settings, doubt = with_files_for_engines(ServerSettings(), files)
    assert settings.most_connections == most
    assert ("raise the bound" in doubt) == (most < 10_000)


def test_fewer_connections_are_told_in_the_form_of_all_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run_nothing(main: Coroutine[None, None, int]) -> int:
        main.close()
        return 0

    monkeypatch.setattr(language_server, "most_open_files", lambda: 1024)
    monkeypatch.setattr(language_server, "run_loop", run_nothing)
    settings = ServerSettings(port=0, log_format="json")
    serve_language(
        write_language_plan(tmp_path, [SMALL_ALONE], profile=language_profile()), settings=settings, backend="emulated"
    )
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["level"] for line in lines if "raise the bound" in line["message"]] == ["warning"]
