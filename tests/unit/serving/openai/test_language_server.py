"""The bounds of a server of language models."""

import pytest

from gearshift.serving.door.settings import ServerSettings
from gearshift.serving.openai.language_server import with_files_for_engines


@pytest.mark.parametrize(("files", "most"), [(1024, 256), (20_000, 9744), (65_536, 10_000)])
def test_each_connection_has_a_file_for_one_to_an_engine(
    files: int, most: int, caplog: pytest.LogCaptureFixture
) -> None:
    assert with_files_for_engines(ServerSettings(), files).most_connections == most
    assert any("raise the bound" in one.getMessage() for one in caplog.records) == (most < 10_000)
