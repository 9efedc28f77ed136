"""Measure the models that `gearshift init` writes, serve them in a process of its own, and ask it for an answer."""

import json
import signal
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

import gearshift
from gearshift.traces.generate import steady

with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    gearshift.init(folder)
    gearshift.profile(folder / "gearshift.toml", out=folder / "profile")
    gearshift.write_trace(steady(50, 5), folder / "trace.csv")
    gearshift.plan(folder / "profile", folder / "trace.csv", latency_s=0.1, out=folder / "plan.json")

    command = [sys.executable, "-m", "gearshift", "serve", str(folder / "plan.json"), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            line = next(line for line in server.stderr if line.startswith("serving "))
            print(line.strip())
            url = line.split(" at ")[1].split()[0]

            point = {"name": "input", "shape": [1, 2], "datatype": "FP32", "data": [1.5, 2.0]}
            body = {"inputs": [point], "outputs": [{"name": "label"}, {"name": "gearshift_model"}]}
            with urllib.request.urlopen(f"{url}/v2/models/task/infer", json.dumps(body).encode()) as response:
                answer = json.load(response)
            for output in answer["outputs"]:
                print(f"{output['name']}: {output['data'][0]}")
        finally:
            server.send_signal(signal.SIGTERM)
    print(f"exit code {server.returncode}")
