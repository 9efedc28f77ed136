import pytest

from gearshift.simulator.engines.kernel import loop
from gearshift.simulator.engines.warm_up import warm_up


@pytest.mark.long  # it compiles the simulation
def test_warming_up_runs_the_kernel_once(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, served = loop.run, []

    def run(*arguments: object) -> None:
        kernel(*arguments)
        served.append(arguments[0]._named.state.run.done)  # type: ignore[attr-defined]

    monkeypatch.setattr(loop, "run", run)
    warm_up()
    assert served == [1]
