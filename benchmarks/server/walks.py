"""How many calls of ours a request takes, and how many modules of ours a plan loads.

    python -m benchmarks.server.walks [--before SRC] [--functions]

The request is of one row that both stages of a cascade run, at emulated devices, over one connection; calls of
functions of the package are counted in the server's process, but not in its workers.  The plan is of five models
and two load ranges, at its defaults.  With `--before`, the folder `src` of another checkout, both are counted.
With `--functions`, the functions that a request calls most are printed.
"""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

from benchmarks.shared.arguments import parser_of
from benchmarks.shared.bars import Bars
from benchmarks.shared.machine import describe
from benchmarks.shared.plan_by_hand import plan_by_hand
from benchmarks.shared.tables import print_table
from benchmarks.shared.worlds import arrivals, devices, five_models
from gearshift.cascade import Cascade
from gearshift.gear import Gear, LoadRange, ReplicaSettings
from gearshift.placement import Replica
from gearshift.plans.plan_file import write_plan
from gearshift.profiles.store import write_profile
from gearshift.traces.read import write_trace

HERE = Path(__file__).resolve().parents[2] / "src"
WARM, COUNTED = 200, 100
FUNCTIONS = 40
CALLS, MODULES = 340, 150
NEVER_CERTAIN = 2.0
SERVE = """import collections, json, signal, sys
import gearshift
from gearshift.cli.main import main_group

home, calls = gearshift.__path__[0], collections.Counter()

def count(frame, event, _):
    if event == "call" and frame.f_code.co_filename.startswith(home):
        calls[frame.f_code.co_filename[len(home) + 1 :] + " " + frame.f_code.co_qualname] += 1

def end(*_):
    sys.setprofile(None)
    with open(sys.argv[1], "w") as file:
        json.dump(calls, file)

signal.signal(signal.SIGUSR1, lambda *_: sys.setprofile(count))
signal.signal(signal.SIGUSR2, end)
main_group(sys.argv[2:], prog_name="gearshift")
"""
PLAN = """import sys
from gearshift.cli.main import main_group
main_group(sys.argv[2:], prog_name="gearshift", standalone_mode=False)
with open(sys.argv[1], "w") as file:
    file.write(str(sum(name.partition(".")[0] == "gearshift" for name in sys.modules)))
"""


def environment(source: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(source)}


def calls_of_a_request(source: Path, folder: Path) -> Counter[str]:
    """How often each function of the package is called, as `module function`, for the counted requests."""
    plan, counted = folder / "two.json", folder / "calls.json"
    command = [sys.executable, "-c", SERVE, str(counted), "serve", str(plan), "--backend", "emulated", "--port", "0"]
    process = subprocess.Popen(command, env=environment(source), stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        url = next(found[1] for line in process.stderr if (found := re.search(r" at (http\S+)", line)))
        connection = http.client.HTTPConnection(urlsplit(url).netloc)
        connection.connect()
        for number in range(WARM + COUNTED):
            if number == WARM:
                process.send_signal(signal.SIGUSR1)
            ask(connection, number)
        process.send_signal(signal.SIGUSR2)
        ask(connection, 0)  # by then the counts are written
        return Counter(json.loads(counted.read_text()))
    finally:
        process.terminate()
        process.communicate(timeout=30)


def ask(connection: http.client.HTTPConnection, record: int) -> None:
    """Ask in one segment, so that the server gets head and body at once, as from most clients."""
    body = json.dumps({"inputs": [{"name": "sample", "shape": [1], "datatype": "INT64", "data": [record]}]})
    head = f"POST /v2/models/task/infer HTTP/1.1\r\nHost: {connection.host}\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sock.sendall((head + body).encode())
    answer = http.client.HTTPResponse(connection.sock, method="POST")
    answer.begin()
    text = answer.read()
    assert answer.status == 200, text


def modules_of_a_plan(source: Path, folder: Path) -> int:
    counted = folder / "modules.txt"
    words = ["plan", str(folder / "profile"), "--trace", str(folder / "trace.csv"), "--p95-ms", "100", "--ranges", "2"]
    command = [sys.executable, "-c", PLAN, str(counted), *words, "--out", str(folder / "made.json")]
    subprocess.run(command, env=environment(source), check=True, capture_output=True)
    return int(counted.read_text())


def write_inputs(folder: Path) -> None:
    profile = write_profile(five_models(), folder / "profile")
    write_trace(arrivals(np.full(20, 50)), folder / "trace.csv")
    replicas = [
        Replica(id=f"{model}@gpu-{i}", model=model, device_ids=(f"gpu-{i}",)) for i, model in enumerate(("m0", "m1"))
    ]
    gear = Gear(
        load_range=LoadRange(from_=0.0, to=None),
        cascades={"task": (Cascade(models=("m0", "m1"), thresholds=(NEVER_CERTAIN,)),)},
        replicas=tuple(ReplicaSettings(replica=one.id, load_share=1.0, largest_batch_size=8) for one in replicas),
    )
    write_plan(plan_by_hand("task", [gear], replicas, devices(2), profile_sha256=profile.sha256), folder / "two.json")


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--before", type=Path, help="the folder src of another checkout")
    parser.add_argument("--functions", action="store_true", help="print the functions that are called most")
    options = parser.parse_args()
    print(describe())
    rows, bars = [], Bars()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_inputs(folder)
        for name, source in [("before", options.before), ("now", HERE)]:
            if source is not None:
                functions = calls_of_a_request(source, folder)
                calls = functions.total() / COUNTED
                loaded = modules_of_a_plan(source, folder)
                rows.append((name, f"{calls:.0f}", len({each.partition(" ")[0] for each in functions}), loaded))
    if options.functions:
        most = [(f"{count / COUNTED:.1f}", each) for each, count in functions.most_common(FUNCTIONS)]
        print_table(("calls a request", "module and function, most called"), most)
    print_table(("checkout", "calls of a request of two stages", "in modules", "modules that a plan loads"), rows)
    bars.at_most("calls of a request of two stages", calls, CALLS)
    bars.at_most("modules that a plan loads", loaded, MODULES)
    print(bars)


if __name__ == "__main__":
    main()
