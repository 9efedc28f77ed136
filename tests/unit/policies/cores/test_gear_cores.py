from gearshift.policies.cores.gear_cores import change_holds_ns, cores_in_gear


def test_cores_stand_gear_by_gear() -> None:
    cores = [1, 3, 2, 2]
    assert [cores_in_gear(cores, gear, 2, replica) for gear in (0, 1) for replica in (0, 1)] == cores


def test_fewer_cores_hold_at_once_and_more_when_they_are_there() -> None:
    assert change_holds_ns(100, 3, 2, 10) == 100
    assert change_holds_ns(100, 3, 3, 10) == 100
    assert change_holds_ns(100, 3, 4, 10) == 110
    assert change_holds_ns(100, 3, 4, 0) == 100
