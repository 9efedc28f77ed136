import numpy as np
import pytest

from gearshift.errors import ModelFailed
from gearshift.model import Predicted
from gearshift.models.certainty import top_two_difference
from gearshift.models.function_model import FunctionModel
from gearshift.models.user_model import EarlyExitModel
from gearshift.observability.logs import LogSettings, logging_to_stderr
from gearshift.request import Request, Sample
from gearshift.runtime.wire.batch_messages import LARGE_ROW_BYTES, assemble, settle
from gearshift.runtime.wire.messages import (
    Done,
    Run,
)
from gearshift.runtime.wire.transport import encode_frame, unpack_tensors
from gearshift.runtime.workers.batch_run import describe, run_batch


class Doubles:
    """Doubles x; raises where a row is negative, is not certain where it is 13, answers too little where it is 99."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def run(self, inputs) -> Predicted:
        x = inputs["x"]
        self.calls.append(len(x))
        if (x < 0).any():
            raise ModelFailed("negative")
        if (x == 99).any():
            return Predicted({"y": x[:-1]}, np.ones(len(x) - 1))
        return Predicted({"y": 2 * x, "certainty": x}, np.where(x.reshape(len(x), -1)[:, 0] == 13, np.nan, 0.5))


def run(*payloads: np.ndarray) -> tuple[list[Sample], Doubles, Done]:
    model = Doubles()
    samples, done = run_through(model, *payloads)
    return samples, model, done


def run_through(model, *payloads: np.ndarray, through: bool = False) -> tuple[list[Sample], Done]:
    samples, told = run_telling(model, *payloads, through=through)
    return samples, told[-1][0]


def run_telling(
    model, *payloads: np.ndarray, through: bool = False, name: str = "m"
) -> tuple[list[Sample], list[tuple[Done, list[int]]]]:
    """The samples, and what was told in turn, with the rows that it told of."""
    request = Request(id=1, operator="o", arrived_ns=0, rows=len(payloads))
    samples = [Sample(request, row, row, {"x": payload}) for row, payload in enumerate(payloads)]
    parts, buffers = assemble(samples)
    body = memoryview(bytearray(b"".join(bytes(buffer) for buffer in buffers)))
    told: list[tuple[Done, list[int]]] = []

    def send(done: Done, out) -> None:
        settled = settle(samples, done, memoryview(b"".join(bytes(buffer) for buffer in out)), name)
        told.append((done, [sample.row for sample in settled]))

    message = Run(batch=1, replica=0, parts=parts, through=through)
    run_batch(name, model, message, body, send)
    return samples, told


def test_what_a_model_raises_may_be_no_unicode():
    class Fails:
        def run(self, inputs):
            raise ValueError("no file a\udcff")

    _, done = run_through(Fails(), *rows(1.0))
    assert done.first_failure == "raised ValueError: no file a\\udcff"
    encode_frame(done)


def test_why_a_model_has_no_answer_may_be_no_unicode():
    class Lacks:
        def run(self, inputs):
            return Predicted({"y": np.zeros(1)}, np.full(1, np.nan), "no \udcff")

    _, done = run_through(Lacks(), *rows(1.0))
    encode_frame(done)


def rows(*values: float) -> list[np.ndarray]:
    return [np.array([value]) for value in values]


def test_a_batch_is_one_call_and_each_sample_gets_its_row():
    samples, model, done = run(*rows(1.0, 2.0, 3.0))
    assert model.calls == [3]
    assert [sample.result["y"].tolist() for sample in samples] == [[2.0], [4.0], [6.0]]
    assert [sample.certainty for sample in samples] == [0.5] * 3
    assert done.run_s > 0


def test_what_a_model_raises_is_told_in_one_line_of_bounded_length():
    told = describe("m", ValueError("a\n\x1b[31mb" * 1000))
    assert told.startswith("raised ValueError: a [31mba [31mb")
    assert len(told) < 1100


def test_an_output_may_be_called_certainty():
    samples, _, _ = run(*rows(1.0, 2.0))
    assert [sample.result["certainty"].tolist() for sample in samples] == [[1.0], [2.0]]


@pytest.mark.parametrize("bad", [-1.0, 13.0, 99.0])
@pytest.mark.parametrize("at", range(5))
def test_only_the_sample_that_fails_fails(bad, at, caplog):
    values = [1.0, 2.0, 3.0, 4.0, 5.0]
    values[at] = bad
    samples, _, _ = run(*rows(*values))
    assert [bool(sample.error) for sample in samples] == [i == at for i in range(5)]
    assert samples[at].error == "model 'm' failed on this sample"
    assert [s.result["y"][0] for s in samples if not s.error] == [2 * v for v in values if v != bad]
    assert "failed on 1 of 5 samples of a batch" in caplog.text


@pytest.mark.parametrize("dtype", [np.float64, object])
def test_rows_that_run_again_are_as_they_came_whatever_the_model_did_to_its_arrays(dtype):
    class Spoils:
        """Overwrites its input with its answer, and raises for an input of 13."""

        def run(self, inputs) -> Predicted:
            x = inputs["x"]
            bad = (x == (13.0 if dtype == np.float64 else "13")).any()
            x[:] = x + x
            if bad:
                raise ValueError("13")
            return Predicted({"y": x}, np.ones(len(x)))

    values = [1.0, 2.0, 13.0, 4.0, 5.0]
    given = [np.array([value if dtype == np.float64 else f"{value:g}"], dtype=dtype) for value in values]
    samples, _ = run_through(Spoils(), *given)
    assert [sample.result["y"][0] for sample in samples if not sample.error] == [
        (array + array)[0] for array in given[:2] + given[3:]
    ]


def test_rows_that_are_left_behind_an_exit_run_again_as_they_came():
    class Spoils(Leaves):
        def exits(self, x):
            try:
                yield from super().exits(x)
            finally:
                x += 100

    samples, _ = run_telling(EarlyExitModel("m", Spoils(), top_two_difference), *(np.array([[v]]) for v in (0.5, 7, 3)))
    assert [sample.result and float(sample.result["y"][0, 0]) for sample in samples] == [0.5, None, 3.0]


def test_answers_stay_as_they_were_given_where_the_model_uses_their_arrays_again():
    class Reuses:
        def __init__(self) -> None:
            self.y, self.sure = np.zeros(8), np.zeros(8)

        def run(self, inputs) -> Predicted:
            x = inputs["x"].reshape(len(inputs["x"]), -1).sum(axis=1)
            if (x == 13).any():
                raise ValueError("13")
            self.y[: len(x)], self.sure[: len(x)] = x, x / 10
            return Predicted({"y": self.y[: len(x)]}, self.sure[: len(x)])

    shapes = np.ones((1, 2)), np.ones((1, 3)), 2 * np.ones((1, 2))
    for payloads, answers in ((rows(1.0, 13.0, 3.0), [1.0, 3.0]), (shapes, [2.0, 3.0, 4.0])):
        samples, _ = run_through(Reuses(), *payloads)
        good = [sample for sample in samples if not sample.error]
        assert [(sample.result["y"].tolist(), sample.certainty) for sample in good] == [([a], a / 10) for a in answers]


def test_all_samples_may_fail():
    samples, _, done = run(*rows(-1.0, -2.0, 13.0))
    assert all(sample.error for sample in samples)
    assert done.parts == ()


def test_rows_of_different_shapes_run_in_parts_and_come_back_in_their_places():
    samples, model, _ = run(np.ones((1, 2)), np.ones((1, 3)), 2 * np.ones((1, 2)))
    assert sorted(model.calls) == [1, 2]
    assert [sample.result["y"].tolist() for sample in samples] == [[[2, 2]], [[2, 2, 2]], [[4, 4]]]


def test_large_rows_are_one_tensor_without_being_copied():
    x = np.arange(3 * LARGE_ROW_BYTES, dtype=np.uint8).reshape(3, 1, -1)
    request = Request(id=1, operator="o", arrived_ns=0, rows=3)
    (part,), buffers = assemble([Sample(request, row, row, {"x": x[row]}) for row in range(3)])
    assert [np.shares_memory(buffer, x[row]) for row, buffer in enumerate(buffers)] == [True] * 3
    (crossed,) = unpack_tensors(part.tensors, memoryview(b"".join(bytes(buffer) for buffer in buffers))).values()
    np.testing.assert_array_equal(crossed, x[:, 0])


def test_large_rows_of_different_shapes_run_in_parts():
    long, longer = np.ones((1, LARGE_ROW_BYTES)), np.ones((1, LARGE_ROW_BYTES + 1))
    samples, model, _ = run(long, longer, 2 * long)
    assert sorted(model.calls) == [1, 2]
    assert [sample.result["y"].sum() for sample in samples] == [2 * long.size, 2 * longer.size, 4 * long.size]


def test_rows_of_which_a_model_says_why_it_has_no_answer_are_told_apart():
    class Away:
        """Is there for positive numbers alone."""

        def run(self, inputs) -> Predicted:
            x = inputs["x"]
            if (x == 0).any():
                raise ModelFailed("zero")
            return Predicted({"y": x}, np.where(x < 0, np.nan, 1.0), "away" if (x < 0).any() else "")

    samples, done = run_through(Away(), *rows(1.0, -1.0, 0.0, 2.0))
    assert [(sample.unanswered, sample.unreached, bool(sample.error)) for sample in samples] == [
        (False, False, False), (True, True, False), (False, False, True), (False, False, False),
    ]  # fmt: skip
    assert (set(done.failed), done.unanswered) == ({1, 2}, (1,))


def test_batches_that_nothing_answers_are_logged_seldom_and_other_failures_each_time(caplog):
    class Away:
        def run(self, inputs) -> Predicted:
            x = inputs["x"]
            return Predicted({"y": x}, np.where(x < 0, np.nan, 1.0), "away" if (x < 0).any() else "")

    run_telling(Away(), *rows(-1.0))
    run_telling(Away(), *rows(-1.0, 1.0))
    told = [(record.getMessage(), getattr(record, "most_lines", None)) for record in caplog.records]
    failed = "model 'm' failed on 1 of {} samples of a batch; the first failure: away"
    assert told == [(failed.format(1), 1), (failed.format(2), None)]


def test_lines_of_one_silent_model_leave_room_for_those_of_another(capsys):
    class Away:
        def run(self, inputs) -> Predicted:
            return Predicted({"y": inputs["x"]}, np.full(len(inputs["x"]), np.nan), "away")

    with logging_to_stderr(LogSettings()):
        for _ in range(2):
            for name in ("one", "100 %d"):
                run_telling(Away(), *rows(-1.0), name=name)
    assert [line.split(" batch")[0] for line in capsys.readouterr().err.splitlines()] == [
        "model 'one' failed on 1 of 1 samples of a",
        "model '100 %d' failed on 1 of 1 samples of a",
        "1 more lines were left out: model 'one' failed on ... of ... samples of a",
        "1 more lines were left out: model '100 %d' failed on ... of ... samples of a",
    ]


def test_rows_whose_answer_does_not_count_are_told_apart_and_waiting_is_no_time_of_the_model():
    class Remote:
        waited_s = 0.0

    class Waiting:
        model = Remote()

        def run(self, inputs) -> Predicted:
            self.model.waited_s += 100.0
            unknown, unusable = np.array([np.nan, np.nan, 0.5]), np.array([True, False, False])
            return Predicted({"y": inputs["x"]}, unknown, "none of the classes", unusable=unusable)

    samples, done = run_through(Waiting(), *(np.ones((1, 1)) * i for i in range(3)))
    assert [sample.unreached for sample in samples] == [False, True, False]
    assert (done.failed, done.unanswered, done.unusable) == ((0, 1), (0, 1), (0,))
    assert done.waited_s == 100.0
    assert done.run_s < 0  # as nothing has really waited


def test_what_a_model_raised_is_told_once_with_its_name(caplog):
    _, _, done = run(*rows(-1.0))
    assert done.first_failure == "negative"
    assert "'m' failed on 1 of 1 samples of a batch; the first failure: negative\n" in caplog.text
    assert (
        describe("m", ModelFailed("model 'm' raised OSError: no disk in predict"))
        == "raised OSError: no disk in predict"
    )
    assert describe("m", KeyError("x")) == "raised KeyError: 'x'"


def test_each_sample_is_told_after_which_segment_it_left():
    class Leaves:
        def run(self, inputs) -> Predicted:
            x = inputs["x"]
            sure = np.where(x == 13, np.nan, 0.5)
            return Predicted({"y": x}, sure, exit_segment=x.astype(np.int64))

    samples, _ = run_through(Leaves(), *rows(2.0, 13.0, 0.0))
    assert [sample.exit_segment for sample in samples if not sample.error] == [2, 0]


class Leaves:
    """Rows below 1 leave after the first of two segments; a 7 makes the second fail."""

    segments = 2

    def __init__(self) -> None:
        self.second: list[int] = []

    def exits(self, x):
        early = x[:, 0] < 1
        if early.any():
            yield (
                np.flatnonzero(early),
                {"certainty": x[early, 0], "y": x[early], "exit_segment": np.zeros(early.sum(), int)},
            )
        rest = np.flatnonzero(~early)
        self.second.append(len(rest))
        if (x[rest] == 7).any():
            raise ValueError("seven")
        if len(rest):
            yield rest, {"certainty": x[rest, 0], "y": x[rest], "exit_segment": np.ones(len(rest), int)}

    def through(self, x):
        return {"certainty": x[:, 0], "y": x, "exit_segment": np.ones(len(x), int)}, [0.25, 0.5]

    def predict(self, x):
        raise AssertionError("rows leave one exit at a time")


def leaving(*values: float, through: bool = False) -> tuple[list[tuple[bool, list[int]]], list[Sample], Leaves, Done]:
    """What was told in turn (whether more follows, the rows), the samples, the model and the last `Done`."""
    model = Leaves()
    runnable = EarlyExitModel("m", model, top_two_difference)
    samples, told = run_telling(runnable, *(np.array([[value]]) for value in values), through=through)
    return [(done.more, settled) for done, settled in told], samples, model, told[-1][0]


def test_rows_are_told_as_they_leave():
    told, samples, _, _ = leaving(0.5, 3.0, 0.25)
    assert told == [(True, [0, 2]), (False, [1])]
    assert [sample.exit_segment for sample in samples] == [0, 1, 0]
    assert [float(sample.result["y"][0, 0]) for sample in samples] == [0.5, 3.0, 0.25]


def test_a_batch_that_leaves_as_a_whole_is_told_once():
    assert leaving(0.5, 0.25)[0] == [(False, [0, 1])]


def test_rows_that_have_left_are_safe_from_a_failure_behind_their_exit(caplog):
    told, samples, model, done = leaving(0.5, 7.0, 3.0)
    assert told == [(True, [0]), (False, [1, 2])]
    assert [bool(sample.error) for sample in samples] == [False, True, False]
    assert model.second == [2, 1, 1]
    assert done.first_failure == "raised ValueError: seven in exits"


def test_a_batch_that_goes_through_is_told_once_with_the_time_of_each_segment():
    told, samples, _, done = leaving(0.5, 3.0, through=True)
    assert told == [(False, [0, 1])]
    assert [sample.exit_segment for sample in samples] == [1, 1]
    assert done.segment_s == (0.25, 0.5)


def test_a_functions_rows_of_several_shapes_come_back_each_with_its_own():
    def split(x):
        if (x < 0).any():
            raise ValueError("negative")
        return {"parts": [np.full(int(n), n) for n in x]}

    function = FunctionModel("split", split, top_two_difference, inputs=("x",))
    samples, done = run_through(function, *rows(2.0, -1.0, 0.0, 2.0))
    assert [None if s.result is None else s.result["parts"].shape for s in samples] == [(1, 2), None, (1, 0), (1, 2)]
    assert samples[3].result["parts"].tolist() == [[2.0, 2.0]]
    assert (samples[0].certainty, samples[1].error) == (1.0, "model 'm' failed on this sample")
    assert "raised ValueError: negative" in done.first_failure
    assert done.run_s > 0


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [1, 0, 3, 2]])
def test_rows_that_lack_an_input_with_a_default_are_run_without_it(order):
    function = FunctionModel("add", lambda x, y=100.0: {"sum": x + y}, top_two_difference, inputs=("x",), others=("y",))
    payloads = [{"x": np.array([1.0])}, {"x": np.array([2.0]), "y": np.array([5.0])}, {"x": np.array([3.0])}]
    payloads.append({"x": np.array([4.0]), "y": np.array([7.0])})
    samples = [
        Sample(Request(id=1, operator="o", arrived_ns=0, rows=4), row, row, payloads[at])
        for row, at in enumerate(order)
    ]
    parts, buffers = assemble(samples)
    body = memoryview(bytearray(b"".join(bytes(buffer) for buffer in buffers)))
    run_batch(
        "m",
        function,
        Run(batch=1, replica=0, parts=parts),
        body,
        lambda done, out: settle(samples, done, memoryview(b"".join(bytes(buffer) for buffer in out)), "m"),
    )
    assert [sample.result["sum"][0] for sample in samples] == [[101.0, 7.0, 103.0, 11.0][at] for at in order]
