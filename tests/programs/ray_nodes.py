"""A real Ray cluster of several nodes on this machine, for tests and benchmarks to serve on and to take apart.

`RayNodes` starts this file as a process of its own, which holds the cluster (`ray.cluster_utils.Cluster`) and ends
with its standard input.  All nodes listen on 127.0.0.1 alone, without dashboard and usage statistics; their files are
in a folder that is deleted.  The head, on which the router is a driver, has no cores for workers.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

LONGEST_START_S, LONGEST_END_S = 120.0, 60.0
HEARTBEATS = {"health_check_initial_delay_ms": 1000, "health_check_period_ms": 1000}
LOST_AFTER = {"health_check_timeout_ms": 1000, "health_check_failure_threshold": 3}
QUIET = {"RAY_USAGE_STATS_ENABLED": "0"}
ON_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Has a driver keep 127.0.0.1, where Ray would else take the machine's address for it, on which no node listens."""


class RayNodes:
    """A head and `nodes` nodes of one core each (a context manager)."""

    def __init__(self, nodes: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(nodes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **QUIET},
        )
        self.address = str(self._answer())

    def __enter__(self) -> "RayNodes":
        return self

    def __exit__(self, *error: object) -> None:
        self._process.communicate(timeout=LONGEST_END_S)

    def workers(self) -> list[list[int]]:
        """For each node, lost ones too, the process ids of its actors that run."""
        found: list[list[int]] = self._ask("workers")
        return found

    def lose(self, node: int, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to all processes of a node at once; SIGSTOP makes it silent, as when its network is gone."""
        self._ask("lose", node, int(number))

    def add(self) -> None:
        """Have another node join."""
        self._ask("add")

    def actors(self) -> dict[str, int]:
        """How many actors and placement groups there are that are not gone, by the driver's own account of them."""
        counted: dict[str, int] = self._ask("actors")
        return counted

    def _ask(self, *words: object) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("answer: "):
                return json.loads(line.removeprefix("answer: "))
        raise RuntimeError(f"the cluster has ended with {self._process.wait()}")


# The process that holds it -------------------------------------------------------------------------------------------


class Held:
    """The cluster and its nodes, in the order in which they joined."""

    def __init__(self, nodes: int, folder: Path) -> None:
        from ray._common.utils import get_default_ray_temp_dir
        from ray.cluster_utils import Cluster

        Path(get_default_ray_temp_dir()).mkdir(parents=True, exist_ok=True)  # where it notes its address, nevertheless
        self._options = {
            "node_ip_address": "127.0.0.1",
            "include_dashboard": False,
            "object_store_memory": 80 << 20,
            "temp_dir": str(folder),
        }
        head = {**self._options, "num_cpus": 0, "_system_config": {**HEARTBEATS, **LOST_AFTER}}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        self._nodes: list[Any] = []
        self._lost: list[int] = []
        for _ in range(nodes):
            self.add(wait=False)
        self._cluster.wait_for_nodes(timeout=LONGEST_START_S)
        self.address = self._cluster.address

    def add(self, *, wait: bool = True) -> None:
        self._nodes.append(self._cluster.add_node(wait=wait, num_cpus=1, **self._options))

    def workers(self) -> list[list[int]]:
        import psutil

        found = []
        for node in self._nodes:
            alive = [psutil.Process(pid) for pid in self._processes(node) if psutil.pid_exists(pid)]
            running = [one for one in alive if one.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_STOPPED)]
            found.append([one.pid for one in running if "WorkerActor" in "".join(one.cmdline())])
        return found

    def lose(self, node: int, number: int) -> None:
        pids = self._processes(self._nodes[node])
        for pid in pids:
            os.kill(pid, number)
        self._lost += pids

    def actors(self) -> dict[str, int]:
        from ray._private.state import GlobalState
        from ray._raylet import GcsClientOptions

        state = GlobalState()
        options = GcsClientOptions.create(self.address, None, allow_cluster_id_nil=True, fetch_cluster_id_if_nil=False)
        state._initialize_global_state(options)
        actors = [one for one in state.actor_table(None).values() if one["State"] != "DEAD"]
        groups = [one for one in state.placement_group_table().values() if one["state"] != "REMOVED"]
        return {"actors": len(actors), "groups": len(groups)}

    def end(self) -> None:
        for pid in self._lost:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._cluster.shutdown()

    @staticmethod
    def _processes(node: Any) -> list[int]:
        import psutil

        pids = []
        for process in node.all_processes.get("raylet", ()):
            if psutil.pid_exists(process.process.pid):
                raylet = psutil.Process(process.process.pid)
                pids += [raylet.pid, *(child.pid for child in raylet.children(recursive=True))]
        return pids


def answer(value: object) -> None:
    sys.stdout.write(f"answer: {json.dumps(value)}\n")
    sys.stdout.flush()


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder:
        held = Held(int(sys.argv[1]), Path(folder))
        try:
            answer(held.address)
            for line in sys.stdin:
                name, *arguments = json.loads(line)
                answer(getattr(held, name)(*arguments))
        finally:
            held.end()


if __name__ == "__main__":
    main()
