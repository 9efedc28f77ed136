from pathlib import Path

from gearshift.runtime.engines.replicas.engine_process import free_port
from tests.unit.cli.little import run


def test_the_example_says_what_its_engines_need(tmp_path: Path) -> None:
    result = run("init", "--llm", tmp_path / "orders")
    assert result.exit_code == 0, result.output
    assert "or install the example's (pip install 'gearshift[llm-demo]'), then run `gearshift profile" in result.output


def test_what_endpoints_did_not_say_is_told(tmp_path: Path) -> None:
    urls = f"http://127.0.0.1:{free_port()}/v1,http://127.0.0.1:{free_port()}/v1"
    result = run("init", "--llm", tmp_path / "chat", "--endpoints", urls)
    assert result.exit_code == 0, result.output
    assert "guessed values, as an endpoint did not say them: 4; look for 'it did not say' in" in result.output
