from gearshift.policies.watch.lost_workers import SILENCE_LASTS_NS, SILENT_AFTER
from gearshift.request import Request, Sample
from gearshift.runtime.service.readiness import Silence


def batch(*unreached: bool) -> list[Sample]:
    request = Request(id=1, operator="o", arrived_ns=0, rows=len(unreached))
    return [Sample(request, row, row, unanswered=True, unreached=one) for row, one in enumerate(unreached)]


def silenced() -> Silence:
    silence = Silence(("small", "large"))
    for now_ns in range(SILENT_AFTER):
        silence.samples_finished("large", batch(True, True), now_ns)
    return silence


def test_a_model_is_silent_after_some_batches_in_a_row_that_nothing_answered():
    silence = Silence(("small", "large"))
    for now_ns in range(SILENT_AFTER):
        assert not list(silence.ticked(now_ns))
        silence.samples_finished("large", batch(True), now_ns)
    assert list(silence.ticked(SILENT_AFTER)) == [("large", True)]
    assert silence.models == {"large"}
    assert not list(silence.ticked(SILENT_AFTER + 1))


def test_one_answer_ends_it():
    silence = silenced()
    assert list(silence.ticked(5)) == [("large", True)]
    silence.samples_finished("large", batch(True, False), 6)
    assert list(silence.ticked(7)) == [("large", False)]
    assert not silence.models


def test_answers_that_do_not_count_are_no_silence():
    silence = Silence(("large",))
    for now_ns in range(2 * SILENT_AFTER):
        silence.samples_finished("large", batch(False), now_ns)
    assert not list(silence.ticked(2 * SILENT_AFTER))


def test_nothing_is_known_of_a_model_that_was_not_asked_for_long():
    silence = silenced()
    list(silence.ticked(5))
    assert list(silence.ticked(SILENCE_LASTS_NS + 5)) == [("large", False)]
