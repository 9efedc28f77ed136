import json
from pathlib import Path

from gearshift.observability.journal import Journal, JournalFile
from gearshift.runtime.actuators.base import EmulatedActuator
from gearshift.runtime.cores.scaler import Scaler, give_all


class Kept(Journal):
    """The changes of cores, from and to."""

    def __init__(self) -> None:
        self.changes: list[tuple[object, object]] = []

    def write(self, event: str, **facts: object) -> None:
        self.changes.append((facts["before"], facts["cores"]))


def test_changes_are_made_once_and_stand_in_the_journal(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path / "journal.jsonl")
    one = Scaler("m-0", EmulatedActuator(cores=1, most=4), cores=1, journal=journal)
    assert one.give(1) is None
    effect = one.give(6)
    assert effect is not None
    assert one.give(6) is not None
    assert one.cores == 4
    journal.close()
    (line,) = (tmp_path / "journal.jsonl").read_text().splitlines()
    event = json.loads(line)
    assert {name: event[name] for name in ("event", "replica", "before", "asked", "cores")} == {
        "event": "cores", "replica": "m-0", "before": 1, "asked": 6, "cores": 4,
    }  # fmt: skip
    assert "there are 4" in event["problem"]


def test_cores_that_somebody_else_takes_away_are_asked_for_again() -> None:
    actuator = EmulatedActuator(cores=4)
    one = Scaler("m-0", actuator, cores=4, journal=Journal())
    assert one.give(4) is None
    actuator.cores = 2
    assert one.give(4) is not None
    assert actuator.cores == one.cores == 4


def test_cores_that_a_worker_took_as_soon_as_it_was_told_are_a_change_all_the_same() -> None:
    actuator, journal = EmulatedActuator(cores=4), Kept()
    one = Scaler("m-0", actuator, cores=4, journal=journal)
    actuator.cores = 2
    assert one.give(2) is not None
    assert one.give(2) is None
    assert journal.changes == [(4, 2)]


def test_a_worker_that_is_started_again_on_the_cores_that_it_is_to_have_is_no_change() -> None:
    journal = Kept()
    one = Scaler("m-0", EmulatedActuator(cores=2), cores=2, journal=journal)
    one.act_through(EmulatedActuator(cores=2))
    assert one.give(2) is None
    one.act_through(EmulatedActuator(cores=4))
    assert one.give(2) is not None
    assert journal.changes == [(4, 2)]


def test_who_shrinks_goes_first() -> None:
    order: list[str] = []

    class Noting(EmulatedActuator):
        def apply(self, cores: float):  # type: ignore[no-untyped-def]
            order.append(f"{cores:g}")
            return super().apply(cores)

    scalers = [
        Scaler(name, Noting(cores=cores), cores=cores, journal=Journal())
        for name, cores in (("grows", 1), ("shrinks", 7))
    ]
    give_all(scalers, [6, 2])
    assert order == ["2", "6"]
    assert [one.cores for one in scalers] == [6, 2]
