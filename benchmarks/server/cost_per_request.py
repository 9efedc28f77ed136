"""What a request costs, ours beside its Python peers, in three comparisons.

`echo`: 16 floats through HTTP, queue, batch and worker; `wrk` with one thread in a closed loop over 1 and 64
connections, then an open loop at half of what that gave over 16 and 256.  Processor time is that of the server's
processes, user and system, over the requests it answered.  `model`: models of the demo at saturation, each beside the
same model in a loop.  `goodput`: answers within a deadline under three times what the largest model alone can carry.

Every server has one worker process.  All run on the same two cores, one server at a time, in rounds: a round has each
once, so that a ratio is of figures taken close together; each is shown as the median of rounds (least..most).  With a
model that has a core to itself, and router and client the other.

`--install` makes an environment for each peer under `--peers`; nothing else is installed.  `wrk` has to be there.  All
of it takes about 80 minutes on a quiet machine: echo 25, models 22, goodput 35.  `--quick` shows only that it works.
"""

import shutil
import tempfile
from pathlib import Path

from benchmarks.server.compared import PACKAGES, install, two_cores, version
from benchmarks.server.echo_cost import compare_echo
from benchmarks.server.goodput_cost import compare_goodput
from benchmarks.server.model_cost import compare_models
from benchmarks.shared.arguments import parser_of
from benchmarks.shared.machine import describe
from gearshift.demo.task import MODEL_NAMES

PARTS = ("echo", "model", "goodput")


def main() -> None:
    parser = parser_of(__doc__, quick="one round of a second, of small models: no measurement")
    parser.add_argument(
        "--peers", type=Path, default=Path.home() / ".cache" / "gearshift-peers", help="the environments"
    )
    parser.add_argument("--install", action="store_true", help="make an environment for each peer")
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=PARTS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=8, help="of each load")
    parser.add_argument("--models", nargs="*", choices=MODEL_NAMES, default=("medium", "small"), help="at saturation")
    parser.add_argument("--deadline-ms", type=float, default=200.0, help="of the goodput")
    parser.add_argument("--only", nargs="*", help="of the servers")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds = arguments.seconds = 1
    if shutil.which("wrk") is None:
        raise SystemExit("this benchmark needs wrk, which is not there")
    if arguments.install:
        install(arguments.peers)
    cores = two_cores()
    print(describe(), f"cores {cores.front} and {cores.model} for all")
    there = [name for name in PACKAGES if (arguments.peers / name).is_dir()]
    print(", ".join(f"{name} {version(arguments.peers, name)}" for name in there))
    if len(there) < len(PACKAGES):
        print(f"not installed: {', '.join(sorted(set(PACKAGES) - set(there)))}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if "echo" in arguments.parts:
            compare_echo(arguments, folder)
        if "model" in arguments.parts:
            compare_models(arguments, folder, cores)
        if "goodput" in arguments.parts:
            compare_goodput(arguments, folder, cores)
    if arguments.quick:
        print("not a measurement: --quick")


if __name__ == "__main__":
    main()
