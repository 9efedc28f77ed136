from pathlib import Path

from tests.unit.cli.little import run


def test_the_example_says_what_its_engines_need(tmp_path: Path) -> None:
    result = run("init", "--llm", tmp_path / "orders")
    assert result.exit_code == 0, result.output
    assert "or install the example's (pip install 'gearshift[llm-demo]'), then run `gearshift profile" in result.output
