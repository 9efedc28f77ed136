from gearshift.policies.engines.deciding import DECIDES_AT_END, DECIDES_BY_ID, decides_now, first_stage


def test_a_stage_by_id_keeps_numbers_from_its_threshold() -> None:
    assert first_stage(0.3, 2, [0.3, 0.0], [DECIDES_BY_ID, DECIDES_AT_END], 0) == 0
    assert first_stage(0.29, 2, [0.3, 0.0], [DECIDES_BY_ID, DECIDES_AT_END], 0) == 1


def test_other_stages_begin_at_the_first() -> None:
    assert first_stage(0.0, 3, [0.9, 0.9, 0.0], [4, DECIDES_BY_ID, DECIDES_AT_END], 0) == 0


def test_a_stage_decides_at_its_token_or_where_the_answer_ends() -> None:
    assert not decides_now(0, 2, 3, False, [4, DECIDES_AT_END], 0)
    assert decides_now(0, 2, 4, False, [4, DECIDES_AT_END], 0)
    assert decides_now(0, 2, 3, True, [4, DECIDES_AT_END], 0)
    assert not decides_now(0, 2, 900, False, [DECIDES_AT_END, DECIDES_AT_END], 0)
    assert decides_now(1, 2, 1, False, [4, DECIDES_AT_END], 0)
    assert decides_now(0, 2, 1, False, [DECIDES_BY_ID, DECIDES_AT_END], 0)
