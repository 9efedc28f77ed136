from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gearshift.errors import InvalidInput
from gearshift.request import NO_DEADLINE_NS
from gearshift.traces.generate import bursty, steady
from gearshift.traces.read import doubts_about_trace, read_trace, write_trace
from gearshift.workload import Trace


def trace_file(folder: Path, text: str) -> Path:
    path = folder / "trace.csv"
    path.write_bytes(text.encode())
    return path


def counts_file(folder: Path, counts: list[int]) -> Path:
    rows = "".join(f"{second},{count}\n" for second, count in enumerate(counts))
    return trace_file(folder, "second,requests\n" + rows)


def test_arrivals_are_read_to_the_nanosecond_and_last_to_the_end_of_their_last_second(tmp_path: Path) -> None:
    trace = read_trace(trace_file(tmp_path, "arrival_s\n0\n0.000000001\n1.5\n3\n"))
    assert trace.arrivals_ns.tolist() == [0, 1, 1_500_000_000, 3_000_000_000]
    assert trace.duration_s == 4


@given(times=st.lists(st.integers(0, 10**15), min_size=1, max_size=50).map(sorted))
def test_a_written_trace_reads_back_equal(tmp_path_factory: pytest.TempPathFactory, times: list[int]) -> None:
    path = tmp_path_factory.mktemp("round") / "trace.csv"
    written = Trace(arrivals_ns=np.array(times, dtype=np.int64), duration_s=times[-1] // 10**9 + 1.0)
    write_trace(written, path)
    read = read_trace(path)
    assert read.arrivals_ns.tolist() == times
    assert read.duration_s == written.duration_s


def test_line_ends_of_windows_a_byte_order_mark_quotes_and_no_last_line_end_are_fine(tmp_path: Path) -> None:
    trace = read_trace(trace_file(tmp_path, '\ufeff"arrival_s"\r\n0.5\r\n0.75'))
    assert trace.arrivals_ns.tolist() == [500_000_000, 750_000_000]


@pytest.mark.parametrize("text", ['"arrival_s"\r\n"0.5"\r\n"0.75"\r\n', '"arrival_s"\n0.5\n"0.75"'])
def test_numbers_may_stand_in_quotes(tmp_path: Path, text: str) -> None:
    assert read_trace(trace_file(tmp_path, text)).arrivals_ns.tolist() == [500_000_000, 750_000_000]


def test_counts_in_quotes_and_in_utf_16_are_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes('"second","requests"\r\n"0","4"\r\n"2","1"\r\n'.encode("utf-16"))
    assert read_trace(path, arrivals="uniform").counts_per_second().tolist() == [4, 0, 1]


def test_uniform_counts_are_spread_evenly_and_exact(tmp_path: Path) -> None:
    trace = read_trace(counts_file(tmp_path, [4, 0, 2]), arrivals="uniform")
    assert (trace.arrivals_ns / 1e9).tolist() == [0.125, 0.375, 0.625, 0.875, 2.25, 2.75]
    assert trace.duration_s == 3


def test_columns_may_stand_in_either_order_and_missing_seconds_have_no_requests(tmp_path: Path) -> None:
    trace = read_trace(trace_file(tmp_path, "requests,second\n1,1\n2,4\n"), arrivals="uniform")
    assert trace.counts_per_second().tolist() == [0, 1, 0, 0, 2]


@given(counts=st.lists(st.integers(0, 50), min_size=1, max_size=20).filter(any), scale=st.floats(0.5, 5))
def test_uniform_running_totals_are_the_scaled_ones_rounded(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], scale: float
) -> None:
    path = counts_file(tmp_path_factory.mktemp("counts"), counts)
    totals = np.cumsum(np.array(counts) * scale)
    if np.floor(totals[-1] + 0.5) == 0:
        with pytest.raises(InvalidInput, match="no requests are left"):
            read_trace(path, rate_scale=scale, arrivals="uniform")
        return
    trace = read_trace(path, rate_scale=scale, arrivals="uniform")
    assert np.abs(np.cumsum(trace.counts_per_second()) - totals).max() <= 0.5 + 1e-6


def test_poisson_counts_have_the_scaled_rate_and_follow_the_seed(tmp_path: Path) -> None:
    path = counts_file(tmp_path, [100] * 100 + [0] * 50 + [300] * 100)
    trace = read_trace(path, rate_scale=2, seed=1)
    counts = trace.counts_per_second()
    assert counts[:100].mean() == pytest.approx(200, rel=0.03)
    assert counts[100:150].sum() == 0
    assert counts[150:].mean() == pytest.approx(600, rel=0.03)
    assert counts[:100].var() == pytest.approx(200, rel=0.5)
    assert np.array_equal(trace.arrivals_ns, read_trace(path, rate_scale=2, seed=1).arrivals_ns)
    assert not np.array_equal(trace.arrivals_ns, read_trace(path, rate_scale=2, seed=2).arrivals_ns)


def test_a_window_is_cut_and_counted_from_its_start(tmp_path: Path) -> None:
    path = trace_file(tmp_path, "arrival_s\n0.5\n1\n1.5\n2\n3.5\n")
    window = read_trace(path, start_s=1, duration_s=1)
    assert window.arrivals_ns.tolist() == [0, 500_000_000]
    assert window.duration_s == 1
    assert read_trace(path, start_s=1).duration_s == 3


def test_a_window_of_counts_may_begin_within_a_second(tmp_path: Path) -> None:
    trace = read_trace(counts_file(tmp_path, [2, 4, 4, 2]), start_s=1.5, duration_s=1, arrivals="uniform")
    assert (trace.arrivals_ns / 1e9).tolist() == [0.125, 0.375, 0.625, 0.875]


@pytest.mark.parametrize("scale", [0.25, 1.5, 3.0])
def test_scaled_arrivals_keep_the_shape_of_the_load(tmp_path: Path, scale: float) -> None:
    path = trace_file(tmp_path, "arrival_s\n" + "".join(f"{i / 1000}\n" for i in range(20_000)) + "30\n")
    trace = read_trace(path, rate_scale=scale, seed=3)
    counts = trace.counts_per_second()
    assert counts[:20].mean() == pytest.approx(1000 * scale, rel=0.02)
    assert counts[20:25].sum() <= scale + 1
    assert trace.duration_s == 31


def test_doubled_arrivals_keep_every_original_and_stay_near_it(tmp_path: Path) -> None:
    path = trace_file(tmp_path, "arrival_s\n1\n2\n2\n10\n")
    times = read_trace(path, rate_scale=2).arrivals_ns
    assert len(times) == 8
    assert set(times.tolist()) >= {1_000_000_000, 2_000_000_000, 10_000_000_000}
    assert times[-2] >= 6_000_000_000


def test_the_hash_tells_files_and_options_apart_and_ignores_a_seed_without_effect(tmp_path: Path) -> None:
    path = trace_file(tmp_path, "arrival_s\n0.5\n1.5\n")
    whole = read_trace(path)
    assert whole.sha256 == read_trace(path, seed=5, arrivals="uniform").sha256
    assert whole.sha256 != read_trace(path, start_s=0.25).sha256
    assert read_trace(path, rate_scale=2, seed=0).sha256 != read_trace(path, rate_scale=2, seed=5).sha256
    assert whole.sha256 != read_trace(trace_file(tmp_path, "arrival_s\n0.5\n1.6\n")).sha256


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "the file is empty"),
        ("arrival_s\n", "there are no rows"),
        ("time\n1\n", "line 1: the columns are 'time'"),
        ("arrival_s,extra\n1,2\n", "line 1: the columns are"),
        ("second\n1\n", "line 1: the columns are"),
        ("second;requests\n0;1\n", "line 1: the header has no commas"),
        ("0.5\n1.5\n", "line 1: there is no header, but '0.5'"),
        ('10.0.0.1 - - [03/Nov/2025:09:59:30 +0100] "POST / HTTP/1.1" 200 4\n\n', "this is an access log"),
        ("arrival_s\n0,5\n", "line 2: '0,5' is not a number; write a point for the decimal comma: 0.5"),
        ('arrival_s\n"0,5"\n', "write a point for the decimal comma: 0.5"),
        ("arrival_s\n250 ms\n", "write seconds without their unit: 0.25"),
        ("second,requests\n0,1 200\n", "leave out what parts thousands"),
        ("arrival_s\n1\n\nx\n", "line 4: 'x' is not a number"),
        ("arrival_s\n1\n2,3\n", "line 3: '2,3' is not a number"),
        ("arrival_s\n1,2\n2,3\n", "line 2: '1,2' is not a number"),
        ("arrival_s\n-1\n", "line 2, field 'arrival_s': -1 is negative"),
        ("arrival_s\n1\nnan\n", "line 3, field 'arrival_s': nan is not finite"),
        ("arrival_s\n1\ninf\n", "line 3, field 'arrival_s': inf is not finite"),
        ("arrival_s\n1\n\n3\n2\n", "line 5, field 'arrival_s': 2 is before the time above it"),
        ("arrival_s\n1700000000.5\n", "since the trace began, not since 1970"),
        ("arrival_s\n10.25\n10", "may be cut off"),
        ("second,requests\n0,1\n1,", "may be cut off"),
        ("second,requests\n0,1\n1\n", "line 3: '1' is not two fields"),
        ("second,requests\n0,1\n1,x\n", "line 3, field 'requests': 'x' is not a number"),
        ("second,requests\n,1\n", "line 2, field 'second': '' is not a number"),
        pytest.param("arrival_s\n1\n" + "9" * 140_000 + "x\n", "line 3: '9999", id="a line beyond csv's bound"),
        pytest.param("second,requests\n" + "x" * 140_000 + ",1\n", "line 2: 'xxxx", id="a long line of two"),
        ("second,requests\n0,1\n0,2\n", "line 3, field 'second': 0 is there twice"),
        ("second,requests\n1,1\n0,2\n", "line 3, field 'second': 0 is before"),
        ("second,requests\n0.5,1\n", "line 2, field 'second': 0.5 is not a whole second"),
        ("second,requests\n0,-1\n", "line 2, field 'requests': -1 is negative"),
        ("second,requests\n0,1.5\n", "line 2, field 'requests': 1.5 is not a whole number"),
        ("second,requests\n0,inf\n", "line 2, field 'requests': inf is not finite"),
        ("second,requests\n0,1e300\n", "more than 200 million requests"),
        ("second,requests\n0,150000000\n1,150000000\n", "more than 200 million"),
        ("second,requests\n0,0\n", "no requests are left"),
    ],
)
def test_a_bad_file_is_refused_with_its_place(tmp_path: Path, text: str, sentence: str) -> None:
    path = trace_file(tmp_path, text)
    with pytest.raises(InvalidInput) as error:
        read_trace(path)
    assert str(path) in str(error.value)
    assert sentence in str(error.value)
    assert error.value.remedy


def test_a_missing_file_and_one_of_bytes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no such file"):
        read_trace(tmp_path / "none.csv")
    path = tmp_path / "bytes.csv"
    path.write_bytes(b"arrival_s\n\xff\xfe\x00\n")
    with pytest.raises(InvalidInput, match="line 2"):
        read_trace(path)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"start_s": 4.0}, "after the trace's end"),
        ({"start_s": -1.0}, "start_s is -1"),
        ({"start_s": 1.0, "duration_s": 5.0}, "ends after the trace"),
        ({"duration_s": 0.0}, "duration_s is 0"),
        ({"start_s": 1.0, "duration_s": 1.0}, "no requests are left"),
        ({"rate_scale": 0.0}, "rate_scale is 0"),
        ({"rate_scale": float("nan")}, "rate_scale is nan"),
        ({"rate_scale": 1e9}, "more than 200 million"),
    ],
)
def test_bad_options_are_refused(tmp_path: Path, options: dict[str, float], sentence: str) -> None:
    path = trace_file(tmp_path, "arrival_s\n0.5\n2.5\n")
    with pytest.raises(InvalidInput, match=sentence):
        read_trace(path, **options)


@pytest.mark.long
def test_a_million_arrivals_are_read_in_seconds(tmp_path: Path) -> None:
    written = steady(100_000, 10, seed=1)
    write_trace(written, tmp_path / "big.csv")
    assert np.array_equal(read_trace(tmp_path / "big.csv").arrivals_ns, written.arrivals_ns)


# Deadlines -----------------------------------------------------------------------------------------------------------


def test_requests_may_say_within_which_time_they_want_their_answer(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("deadline_s,arrival_s\n0.25,0.5\n,1\n2,1.5\n")
    trace = read_trace(path)
    assert trace.left_ns is not None
    assert trace.left_ns.tolist() == [250_000_000, NO_DEADLINE_NS, 2_000_000_000]
    assert trace.deadline_ns is not None
    assert trace.deadline_ns.tolist() == [750_000_000, NO_DEADLINE_NS, 3_500_000_000]
    later = read_trace(path, start_s=1.0)
    assert later.left_ns is not None
    assert later.left_ns.tolist() == [NO_DEADLINE_NS, 2_000_000_000]
    write_trace(trace, tmp_path / "again.csv")
    again = read_trace(tmp_path / "again.csv")
    assert (again.arrivals_ns.tolist(), again.left_ns) == (trace.arrivals_ns.tolist(), pytest.approx(trace.left_ns))


def test_copies_of_a_request_have_its_deadline(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("arrival_s,deadline_s\n" + "".join(f"{second},{1 + second}\n" for second in range(50)))
    trace = read_trace(path, rate_scale=2.5, seed=3)
    assert trace.left_ns is not None
    assert len(trace) > 110
    nearest_s = np.abs(trace.arrivals_ns / 1e9 - (trace.left_ns / 1e9 - 1))
    assert nearest_s.max() <= 0.5


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ("0,0\n", "line 2, field 'deadline_s': 0 is no time to answer in"),
        ("0,1\n1,-2\n", "line 3, field 'deadline_s': -2 is no time to answer in"),
        ("0,86401\n", "86401 is more than a day"),
        ("0,soon\n", "line 2, field 'deadline_s': 'soon' is not a number; write seconds, or leave the field empty"),
        ("0,1\n1,nan\n", "line 3, field 'deadline_s': 'nan' is not a number"),
        ("0,\n1,inf\n", "line 3, field 'deadline_s': 'inf' is not a number"),
        ("0,1_0\n", "line 2, field 'deadline_s': '1_0' is not a number"),
        ("0,\u0661\n", "line 2, field 'deadline_s': '\u0661' is not a number"),
        ("0,250 ms\n", "write seconds without their unit: 0.25"),
        ("0,1\n,1\n", "line 3, field 'arrival_s': '' is not a number; mend the line"),
        ("0,1\n1\n", "line 3: '1' is not two fields"),
    ],
)
def test_a_deadline_that_is_none_is_named_with_its_line(tmp_path: Path, rows: str, says: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text("arrival_s,deadline_s\n" + rows)
    with pytest.raises(InvalidInput) as caught:
        read_trace(path)
    assert says in str(caught.value)


def stamped_every(step_s: float, trace: Trace) -> Trace:
    step_ns = round(step_s * 1e9)
    return Trace(arrivals_ns=trace.arrivals_ns // step_ns * step_ns, duration_s=trace.duration_s)


def test_arrivals_that_were_stamped_in_whole_seconds_are_told() -> None:
    (told,) = doubts_about_trace(stamped_every(1.0, steady(50, 20, seed=1)))
    assert "100 % of the requests come at the same instants as others" in told
    assert "stamped every 1 s" in told
    assert "`second,requests`" in told


def test_coarse_stamps_are_told_in_a_window_that_begins_between_them() -> None:
    whole = stamped_every(60.0, steady(5, 600, seed=1))
    cut = whole.arrivals_ns[whole.arrivals_ns >= 90_000_000_000] - 90_000_000_000
    (told,) = doubts_about_trace(Trace(arrivals_ns=cut, duration_s=510))
    assert "stamped every 60 s" in told


def test_arrivals_as_they_came_are_not_told() -> None:
    assert doubts_about_trace(bursty(60, 250, 20, bursts=2, seed=1)) == ()


def test_stamps_in_milliseconds_are_fine_however_many_share_one() -> None:
    assert doubts_about_trace(stamped_every(0.001, steady(5_000, 5, seed=1))) == ()


def test_seldom_requests_that_share_no_instant_are_fine() -> None:
    assert doubts_about_trace(Trace(arrivals_ns=np.arange(20) * 1_000_000_000, duration_s=20)) == ()
