from gearshift.policies.sharing import settings_in_force

SHARES = [1, 0, 1, 1, 0, 0]
MINIMUM, LARGEST, WAIT_NS = [4, 1, 2, 3, 1, 1], [8, 4, 16, 2, 32, 64], [50, 10, 30, 70, 5, 1]


def settings(replica: int, *gear_rows: int) -> tuple[int, int, int]:
    return settings_in_force(replica, gear_rows, 2, SHARES, MINIMUM, LARGEST, WAIT_NS)


def test_the_gear_of_a_single_pipeline_is_in_force() -> None:
    assert settings(0, 1) == (2, 16, 30)


def test_of_gears_that_give_a_share_the_larger_batch_and_the_shorter_queue_and_wait_count() -> None:
    assert settings(0, 0, 1) == (2, 16, 30)


def test_a_gear_without_share_does_not_count() -> None:
    assert settings(1, 0, 1) == settings(1, 1, 0) == (3, 2, 70)


def test_without_any_share_all_gears_count() -> None:
    assert settings(1, 0, 2) == (1, 64, 1)
