import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from gearshift.cli.data.trace import notes
from gearshift.errors import InvalidInput
from gearshift.traces.logs.forms import FORMS, json_lines
from gearshift.traces.logs.lines import Head
from gearshift.traces.logs.read_log import LogRead, read_log
from gearshift.traces.read import read_trace

ACCESS = '10.0.0.1 - - [03/Nov/2025:09:59:{:02d} +0100] "{} HTTP/1.1" {} 446 "-" "curl"\n'


def times_of(read: LogRead) -> list[int]:
    return [] if read.arrivals_ns is None else read.arrivals_ns.tolist()


def written(tmp_path: Path, text: str, name: str = "log") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_an_access_log_becomes_counts(tmp_path: Path) -> None:
    lines = [ACCESS.format(s, "POST /predict", 200) for s in (30, 32, 32)] + ["not a request\n"]
    read = read_log(written(tmp_path, "".join(lines)))
    assert times_of(read) == []
    assert read.counts.tolist() == [1, 0, 2]
    assert (read.skipped, read.first_skipped, read.stamped_at_end) == (1, "not a request", True)
    trace = tmp_path / "trace.csv"
    trace.write_bytes(read.csv())
    assert read_trace(trace, arrivals="uniform").counts_per_second().tolist() == [1, 0, 2]


def test_requests_are_chosen_by_path_method_and_status(tmp_path: Path) -> None:
    lines = [
        ACCESS.format(0, "POST /predict?x=1", 200),
        ACCESS.format(1, "POST /predict", 503),
        ACCESS.format(2, "GET /predict", 204),
        ACCESS.format(3, "GET /health", 200),
    ]
    path = written(tmp_path, "".join(lines))
    assert read_log(path, path_prefix="/predict").requests == 3
    assert read_log(path, method="post", status="2xx").requests == 1
    read = read_log(path, status="200")
    assert (read.requests, read.left_out) == (2, 2)
    assert read.paths == {"/predict": 3, "/health": 1}
    with pytest.raises(InvalidInput, match=r"no request is left of 4; the paths are /predict \(3\), /health \(1\)"):
        read_log(path, path_prefix="/other")


def test_envoy_and_a_load_balancer_have_times_of_arrival(tmp_path: Path) -> None:
    envoy = '[2025-11-03T08:59:30.250Z] "POST /predict HTTP/2" 204 - 154 0 226 100 "10.0.35.28"\n'
    balancer = (
        "h2 2025-11-03T08:59:31.750000Z app/lb/1 10.0.1.2:2817 10.0.0.1:80 0.000 0.001 0.000 200 200 34 366 "
        '"GET https://www.example.com:443/predict HTTP/2.0" "curl/7.46.0" - - arn:x "Root=1-58" "-" "-" 0 '
        '2025-11-03T08:59:31.500000Z "forward" "-" "-" "10.0.0.1:80" "200" "-" "-"\n'
    )
    first, second = (read_log(written(tmp_path, text)) for text in (envoy, balancer))
    assert times_of(first) == [250_000_000]
    assert times_of(second) == [500_000_000]
    assert (first.paths, second.paths) == ({"/predict": 1}, {"/predict": 1})


def test_json_lines_by_a_found_and_by_a_named_field(tmp_path: Path) -> None:
    rows = [{"received": 5.5, "time": 1.25, "model": "a"}, {"received": 4.5, "time": 3.5, "model": "b"}]
    path = written(tmp_path, "".join(json.dumps(row) + "\n" for row in rows))
    found = read_log(path)
    assert times_of(found) == [250_000_000, 2_500_000_000]
    named = read_log(path, time_field="received", where={"model": "a"})
    assert times_of(named) == [500_000_000]


@pytest.mark.parametrize(
    ("rows", "counts"),
    [
        (
            "Time,Requests\n2025-11-03T09:00:00Z,4\n2025-11-03T09:00:02Z,2\n2025-11-03T09:00:06Z,6\n",
            [2, 2, 1, 1, 0, 0, 3, 3],
        ),
        ("time,rps\n0,2\n2,\n4,3\n", [2, 2, 0, 0, 3, 3]),
        ("time;node;hits\n60;a;30\n60;b;30\n120;a;120\n", [1] * 60 + [2] * 60),
        ("second,requests\n0,20\n1,60\n", [20, 60]),
        ("time,rps\n0,NaN\n2,null\n4,3\n", [0, 0, 0, 0, 3, 3]),
        ('time,requests\n0,"1,600"\n2,800\n', [800, 800, 400, 400]),
        ("time,requests\n0.003,4\n2.001,2\n3.998,6\n8.1,2\n", [2, 2, 1, 1, 3, 3, 0, 0, 1, 1]),
        ("time,host,requests\n0,a,2\n0.1,b,2\n2.1,b,4\n2,a,4\n4,a,2\n4.1,b,0\n", [2, 2, 4, 4, 1, 1]),
    ],
)
def test_numbers_of_requests_at_equal_steps_are_spread_over_them(tmp_path: Path, rows: str, counts: list[int]) -> None:
    read = read_log(written(tmp_path, rows))
    assert read.arrivals_ns is None
    assert read.counts.tolist() == counts


def test_one_stamp_that_is_late_by_a_second_changes_no_minute(tmp_path: Path) -> None:
    stamps = [60 * minute + (minute == 30) for minute in range(2000)]
    read = read_log(written(tmp_path, "time,requests\n" + "".join(f"{stamp},60\n" for stamp in stamps)))
    assert (read.counted_by, read.step_s) == ("requests", 60.0)
    assert read.counts.tolist() == [1] * 60 * 2000


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ("0,500\n1.5,500\n3.7,500\n", "the times are at no equal steps"),
        ("0,500\n0.25,500\n0.5,500\n", "the times are at no equal steps of a second or more"),
        ("0,500\n", "one row does not say how long a time"),
        ("0,500\n1,many\n2,500\n", "'many' is no number of requests"),
        ("0,500\n1,-1\n2,500\n", "'-1' is no number of requests"),
    ],
)
def test_where_numbers_of_requests_are_not_used_it_is_said_why(tmp_path: Path, rows: str, reason: str) -> None:
    read = read_log(written(tmp_path, "time,count\n" + rows))
    assert (read.requests, read.counted_by) == (rows.count("\n"), "")
    assert read.uncounted.startswith("'count' is not used, as ")
    assert reason in read.uncounted
    assert any(note.endswith(": each row is taken as one request") for note in notes(read))


def test_an_infinite_number_of_requests_is_refused_by_its_column(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="a number in 'count' is infinite: 1,inf"):
        read_log(written(tmp_path, "time,count\n0,500\n1,inf\n2,500\n"))


@pytest.mark.parametrize(
    ("rows", "time_field", "said"),
    [
        (
            "id,timestamp\n1,03/11/2025 09:00:00\n",
            None,
            r"column 'timestamp' has '03/11/2025 09:00:00', which is no time",
        ),
        ("id,seen at\n1,03/11/2025\n", "Seen at", r"column 'seen at' has '03/11/2025', which is no time"),
        ("id,seen at\n1,2025-11-03\n", None, r"no column of times is known among 'id', 'seen at'; name .* with --time"),
        ("id,time\n1,2025-11-03\n", "when", r"no column of times is known among 'id', 'time'"),
    ],
)
def test_a_table_whose_times_are_not_found_says_why(
    tmp_path: Path, rows: str, time_field: str | None, said: str
) -> None:
    with pytest.raises(InvalidInput, match=said):
        read_log(written(tmp_path, rows), time_field=time_field)


def test_published_sets_of_language_models(tmp_path: Path) -> None:
    azure = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,374,44\n2023-11-16 18:15:50.99,396,109\n"
    mooncake = "".join(json.dumps({"timestamp": t, "input_length": 5, "hash_ids": [1]}) + "\n" for t in (0, 1500))
    burst = "Timestamp,Model,Request tokens,Response tokens\n5,ChatGPT,472,18\n45,ChatGPT,1087,230\n"
    assert read_log(written(tmp_path, azure)).counts.tolist() == [1, 0, 0, 0, 1]
    assert read_log(written(tmp_path, mooncake)).counts.tolist() == [1, 1]
    assert read_log(written(tmp_path, burst)).counts.nonzero()[0].tolist() == [0, 40]


def test_rates_and_counters_of_prometheus(tmp_path: Path) -> None:
    def body(values: list[tuple[float, str]], **metric: str) -> str:
        result = [{"metric": metric, "values": values}]
        return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}})

    rates = read_log(written(tmp_path, body([(1000, "2"), (1002, "5"), (1004, "0")])))
    assert rates.counts.tolist() == [2, 2, 5, 5]
    counter = body([(0, "10"), (2, "16"), (4, "4")], __name__="requests_total")
    assert read_log(written(tmp_path, counter)).counts.tolist() == [3, 3, 2, 2]


def of_prometheus(tmp_path: Path, *series: list[list[object]], name: str = "") -> LogRead:
    result = [{"metric": {"__name__": name} if name else {}, "values": values} for values in series]
    return read_log(written(tmp_path, json.dumps({"data": {"resultType": "matrix", "result": result}})))


@pytest.mark.parametrize("missing", ["NaN", "+Inf", "-Inf", None])
def test_a_counter_whose_value_is_missing_has_not_begun_anew(tmp_path: Path, missing: str | None) -> None:
    """As exporters and VictoriaMetrics give; its requests are spread over the time until the next."""
    values = [[1000 + 15 * i, missing if i in (0, 4, 10) else str(1_000_000 + 30 * i)] for i in range(11)]
    read = of_prometheus(tmp_path, values, name="http_requests_total")
    assert (read.requests, set(read.counts.tolist()), read.gap_s) == (30 * 8, {2}, 0.0)


@pytest.mark.parametrize("filled", [[], ["NaN"] * 9, [None] * 9])
def test_where_rates_are_missing_there_are_no_requests(tmp_path: Path, filled: list[str | None]) -> None:
    """And it is told; a rate holds for one step, whether the values between are left out or no numbers."""
    some = [[1000 + 10 * i, "5"] for i in range(3)]
    between = [[1030 + 10 * i, value] for i, value in enumerate(filled)]
    read = of_prometheus(tmp_path, [*some, *between, [1120, 5], [1130, "5"]])
    assert read.counts.tolist() == [5] * 30 + [0] * 90 + [5] * 10
    assert "values are missing for 1 min 30 s, which are taken as without requests" in notes(read)


def test_a_counter_goes_on_over_a_gap_and_other_series_over_one_of_theirs(tmp_path: Path) -> None:
    counter = [[0, "100"], [10, "110"], [20, "120"], [320, "720"], [330, "7"]]
    read = of_prometheus(tmp_path, counter, name="x_total")
    assert read.requests == 10 + 10 + 600 + 7
    whole = [[10 * i, "1"] for i in range(11)]
    read = of_prometheus(tmp_path, whole, [[0, "3"], [80, "3"], [90, "3"]])
    assert read.counts.tolist() == [4] * 10 + [1] * 70 + [4] * 10 + [1] * 10


def test_stamps_that_are_a_little_off_or_twice_are_no_gaps(tmp_path: Path) -> None:
    read = of_prometheus(tmp_path, [[15 * i + (i % 3), "2"] for i in range(100)] + [[1500.2, "2"], [1501, "2"]])
    assert read.gap_s == 0
    assert read.requests == 2 * 1501


def test_a_series_without_two_numbers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no series has two values"):
        of_prometheus(tmp_path, [[0, "NaN"], [10, "5"], [20, "NaN"]])


def test_counts_by_the_minute_are_spread_and_keep_their_sum(tmp_path: Path) -> None:
    head = "HashOwner,HashFunction,Trigger," + ",".join(map(str, range(1, 61)))
    rows = [f"o,{name},http," + ",".join([str(count)] * 60) for name, count in (("f", 30), ("g", 61))]
    path = written(tmp_path, "\n".join([head, *rows]) + "\n")
    read = read_log(path)
    assert (read.requests, len(read.counts)) == (91 * 60, 3600)
    assert set(np.unique(read.counts)) <= {1, 2}
    assert read_log(path, where={"HashFunction": "f"}).requests == 30 * 60


def test_gzip_and_long_lines(tmp_path: Path) -> None:
    path = tmp_path / "log.gz"
    long = json.dumps({"time": 1.5, "note": "x" * 200_000}) + "\n"
    path.write_bytes(
        gzip.compress((json.dumps({"time": 1.25}) + "\n" + long + json.dumps({"time": 2}) + "\n").encode())
    )
    read = read_log(path)
    assert (read.requests, read.skipped) == (2, 1)


@pytest.mark.parametrize("far", ["99999999999999999999999", "9999-12-31T23:59:59Z", "1700-01-01T00:00:00Z"])
def test_a_time_far_from_all_others_is_skipped(tmp_path: Path, far: str) -> None:
    lines = [json.dumps({"time": time}) for time in ("1.25", "2.5", "3.5", far)]
    read = read_log(written(tmp_path, "\n".join(lines)))
    assert (read.requests, read.skipped) == (3, 1)


def test_a_damaged_packed_log_and_negative_counts_are_refused(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress("".join(ACCESS.format(s % 60, "GET /", 200) for s in range(2000)).encode()))
    packed[200:260] = bytes(60)
    path = tmp_path / "log.gz"
    path.write_bytes(packed)
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_log(path)
    minutes = ",".join(["5000", "-3000", *["1"] * 58])
    with pytest.raises(InvalidInput, match="a rate is negative"):
        read_log(written(tmp_path, "HashFunction," + ",".join(map(str, range(1, 61))) + f"\nf,{minutes}\n"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the file is empty"),
        ("# Gearshift\nis no log\n", "this is no log of a known kind"),
        ('{"data": {"resultType": "matrix", "result": []}}', "no series has two values"),
        ('{"data": {"resultType": "matrix", "result": [', "this is no answer of Prometheus"),
        ("time\n1970-01-01T00:00:00Z\n2025-01-01T00:00:00Z\n", "longer than 10 million seconds"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        read_log(written(tmp_path, text))
    with pytest.raises(InvalidInput, match="no such file"):
        read_log(tmp_path / "absent")


@pytest.mark.parametrize("packed", [False, True])
def test_the_share_of_a_long_log_that_is_read_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    monkeypatch.setattr("gearshift.traces.logs.read_log._TOLD_EVERY", 50)
    text = "".join(f'{{"time": {n}}}\n' for n in range(20_000)).encode()
    log = tmp_path / ("log.jsonl.gz" if packed else "log.jsonl")
    log.write_bytes(gzip.compress(text) if packed else text)
    told: list[float] = []
    read_log(log, progress=lambda what, share: told.append(share))
    assert len(told) == 400
    assert told == sorted(told)
    assert 0 < told[0] < told[-1] <= 1


DATE = "[10/Oct/2000:13:55:36 +0000]"


@pytest.mark.parametrize(
    "line",
    [
        f'1.1.1.1 - - {DATE} "GET {"a" * 32_000} {"b" * 32_000}',
        f'1.1.1.1 - - {f"{DATE} "}"{"a " * 32_000}',
        f"1.1.1.1 - - {f'{DATE} {chr(34)}GET a ' * 1_500}",
        f"1.1.1.1 - - {f'{DATE} {chr(34)}GET {chr(92)}{chr(34)} ' * 1_500}",
        f'1.1.1.1 - - {DATE} "GET {chr(92) * 64_000}',
        f'[2025-11-03T09:59:30Z] "GET {"a" * 32_000} {"b" * 32_000}',
        f"[2025-11-03T{'0' * 64_000}",
        f"http 2025-11-03T09:59:30Z {'a:1' * 21_000}",
        f"[10/Oct/2000:{'1:' * 32_000}",
    ],
    ids=range(9),
)
def test_long_lines_that_are_cut_take_time_in_proportion(tmp_path: Path, line: str) -> None:
    """In the square of their length, these would take an hour."""
    log = [ACCESS.format(s, "POST /predict", 200) for s in range(40)]
    read = read_log(written(tmp_path, "".join(log) + f"{line}\n" * 30 + "".join(log)))
    assert (read.requests, read.skipped) == (80, 30)


@pytest.mark.parametrize(
    ("request_line", "path"),
    [
        (r"GET /a\"b HTTP/1.1", r"/a\"b"),
        (r"GET /a\\ HTTP/1.1", r"/a\\"),
        (r"\x16\x03\x01", ""),
        ("GET / HTTP/1.1", "/"),
        ("GET  HTTP/1.1", ""),
        ("", ""),
        ("-", ""),
    ],
)
def test_quotes_within_a_request_are_read_as_servers_escape_them(request_line: str, path: str) -> None:
    access_line = FORMS[0].reader(Head([]))
    assert access_line is not None
    assert access_line(f'10.0.0.1 - - {DATE} "{request_line}" 200 446 "-" "curl"').path == path


def test_a_small_file_that_holds_lines_for_hours_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gearshift.traces.logs.read_log._SMALL_BYTES", 1 << 16)
    (tmp_path / "log.gz").write_bytes(gzip.compress(b"second,requests\n" + b"0,1\n" * 100_000))
    with pytest.raises(InvalidInput, match="unpacks to more than 400 times its size"):
        read_log(tmp_path / "log.gz")


def test_a_large_answer_of_prometheus_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gearshift.traces.logs.read_log._LARGEST_ANSWER", 1 << 20)
    text = '{"data": {"resultType": "matrix", "result": [' + " " * (1 << 20) + "]}}"
    with pytest.raises(InvalidInput, match="the answer is larger than 1 MiB"):
        read_log(written(tmp_path, text))


def test_a_time_without_end_is_no_time() -> None:
    with pytest.raises((ValueError, OverflowError)):
        json_lines(Head([]))('{"time": "1e999"}')


# Other dialects ------------------------------------------------------------------------------------------------------


def offsets(read: LogRead) -> list[float]:
    """Seconds since the first request."""
    times = times_of(read)
    return [round((time - times[0]) / 1e9, 9) for time in times]


def test_caddys_log_has_method_path_and_host_within_the_request(tmp_path: Path) -> None:
    """And is written when the answer ended."""
    lines = ""
    for i, took in enumerate((0.25, 0.5, 0.25)):
        request = {"method": "POST", "host": "a.example", "uri": f"/predict?n={i}", "headers": {"Accept": ["*/*"]}}
        lines += json.dumps(
            {"level": "info", "ts": 1731084144.5 + i, "request": request, "duration": took, "status": 200}
        )
        lines += (
            "\n"
            + json.dumps({"ts": 1731084144.6, "request": {"method": "GET", "uri": "/health"}, "status": 503})
            + "\n"
        )
    log = written(tmp_path, lines)
    read = read_log(log, path_prefix="/predict", method="post", status="2xx")
    assert offsets(read) == [0, 0.75, 2]
    assert read.paths == {"/predict": 3, "/health": 3}
    assert read_log(log, where={"request.host": "a.example"}).requests == 3


@pytest.mark.parametrize(
    "line",
    [
        {
            "timestamp": "STAMP",
            "httpRequest": {"requestMethod": "POST", "requestUrl": "https://a.example/p", "status": 200},
        },
        {
            "@timestamp": "STAMP",
            "http": {"request": {"method": "POST"}, "response": {"status_code": 200}},
            "url": {"path": "/p"},
        },
        {"@timestamp": "STAMP", "http.request.method": "POST", "url.path": "/p", "http.response.status_code": 200},
        {"StartUTC": "STAMP", "RequestMethod": "POST", "RequestPath": "/p", "DownstreamStatus": 200},
        {"time": "STAMP", "req": {"method": "POST", "url": "/p"}, "res": {"statusCode": 200}},
        {"ts": "STAMP", "request": {"method": "POST", "uri": "/p"}, "status": 200, "duration": "50ms"},
        {
            "time": "STAMP",
            "stream": "stdout",
            "log": '192.0.2.7 - - [03/Nov/2025:09:00:00 +0000] "POST /p HTTP/1.1" 200 4\n',
        },
        {"time": "STAMP", "stream": "stdout", "log": '{"method": "POST", "path": "/p", "status": 200}\n'},
    ],
)
def test_requests_within_objects_are_chosen_too(tmp_path: Path, line: dict[str, object]) -> None:
    lines = [
        json.dumps(line).replace("STAMP", f"2025-11-03T09:00:00.{digits}Z") for digits in ("100000000", "100000321")
    ]
    read = read_log(written(tmp_path, "\n".join(lines)), path_prefix="/p", method="POST", status="200")
    assert offsets(read) == [0, 321e-9]


def test_objects_however_deep_are_looked_at_a_few_deep(tmp_path: Path) -> None:
    deep = '{"a":' * 300 + "1" + "}" * 300
    read = read_log(written(tmp_path, f'{{"ts": 1762160400.5, "path": "/p", "x": {deep}}}\n' * 2), path_prefix="/p")
    assert read.requests == 2


HEAD = "#Version: 1.0\n#Fields: date time x-edge-location cs-method cs(Host) cs-uri-stem sc-status\n"


def test_the_w3c_extended_format_of_cloudfront_and_of_iis(tmp_path: Path) -> None:
    rows = [
        f"2025-11-03\t09:59:0{i}\tLHR50\tPOST\td1.example\t{path}\t200\n" for i, path in enumerate(("/p", "/q", "/p"))
    ]
    read = read_log(written(tmp_path, HEAD + "".join(rows)), path_prefix="/p", method="POST", status="2xx")
    assert (read.kind, read.counts.tolist(), read.stamped_at_end) == ("a W3C extended log", [1, 0, 1], True)
    assert (read.skipped, read.left_out) == (0, 1)
    iis = "#Software: IIS\n#Fields: date time s-ip cs-method cs-uri-stem cs-uri-query sc-status\n"
    iis += "2025-11-03 09:59:01.5 192.0.2.1 GET /p - 200\n"
    again = "#Fields: date time cs-method cs-uri-stem\n2025-11-03 09:59:02 GET /p\n2025-11-03 09:59:03 GET\n"
    read = read_log(written(tmp_path, iis + again), path_prefix="/p")
    assert offsets(read) == [0, 0.5]
    assert (read.skipped, read.first_skipped) == (1, "2025-11-03 09:59:03 GET")


def test_the_date_of_a_w3c_log_may_be_in_its_head(tmp_path: Path) -> None:
    text = "#Date: 2025-11-03 00:00:00\n#Fields: time cs-method cs-uri cs(User-Agent)\n"
    text += '09:59:01 GET https://a.example/p "a b"\n'
    text += "09:59:02 GET /p -\n#Date: 2025-11-04 00:00:00\n00:00:01 GET /p -\n"
    read = read_log(written(tmp_path, text), path_prefix="/p")
    assert (read.requests, len(read.counts), read.skipped) == (3, 14 * 3600 + 61, 0)


ACCESS_LINE = '192.0.2.7 - - [03/Nov/2025:09:00:00 +0000] "POST /p HTTP/1.1" 200 446 "-" "curl/8.0"'
ENVOY_LINE = '[2025-11-03T09:00:00.{}Z] "POST /p HTTP/2" 200 - 154 0 226 100 "10.0.35.28"'


@pytest.mark.parametrize(
    "before",
    [
        "2025-11-03T09:00:00.{}00Z stdout F ",
        "2025-11-03T09:00:00.{}00+00:00 stderr F ",
        "2025-11-03T10:00:00.{}+01:00 ",
        "web-1  | 2025-11-03T09:00:00.{}Z ",
        "[pod/web-5d9c/nginx] 2025-11-03T09:00:00.{}12Z ",
    ],
)
def test_the_stamp_of_a_container_is_the_time_of_an_access_log(tmp_path: Path, before: str) -> None:
    lines = [before.format(digits) + ACCESS_LINE for digits in ("1000000", "1000002", "9000000")]
    read = read_log(written(tmp_path, "\n".join(lines)), path_prefix="/p", method="POST", status="200")
    assert offsets(read) == [0, 2e-7, 0.8]
    assert read.skipped == 0


def test_other_logs_of_containers_are_what_was_written(tmp_path: Path) -> None:
    """Envoy's own time is that of the arrival; JSON without a time has the container's."""
    before = "2025-11-03T09:00:01.{}00000000Z stdout F "
    lines = [before.format(digit) + ENVOY_LINE.format(f"{digit}00") for digit in "14"]
    assert offsets(read_log(written(tmp_path, "\n".join(lines)), path_prefix="/p")) == [0, 0.3]
    lines = [before.format(digit) + '{"path": "/p", "code": 200}' for digit in "13"]
    assert offsets(read_log(written(tmp_path, "\n".join(lines)), path_prefix="/p")) == [0, 0.2]
    lines = [before.format(digit) + json.dumps({"ts": 1762160400 + int(digit), "path": "/p"}) for digit in "13"]
    assert read_log(written(tmp_path, "\n".join(lines))).counts.tolist() == [1, 0, 1]
    lines = [f"nginx  | {ACCESS_LINE}"] * 2
    assert read_log(written(tmp_path, "\n".join(lines)), path_prefix="/p").counts.tolist() == [2]


@pytest.mark.parametrize(
    ("field", "first", "second"),
    [
        ("ts", 1762160400123456789, 1762160400123456791),
        ("ts", "1762160400.123456789", "1762160400.123456791"),
        ("time", "2025-11-03T09:00:00.123456789Z", "2025-11-03T09:00:00.123456791Z"),
        ("time", "2025/11/03 09:00:00.123456789", "2025/11/03 09:00:00.123456791"),
        ("ts_ns", 5, 7),
        ("time_unix_nano", "1762160400123456789", "1762160400123456791"),
    ],
)
def test_nanoseconds_are_kept(tmp_path: Path, field: str, first: object, second: object) -> None:
    lines = [json.dumps({field: stamp, "path": "/p"}) for stamp in (first, second)]
    assert offsets(read_log(written(tmp_path, "\n".join(lines)))) == [0, 2e-9]
