"""Run an emulated engine: python -m gearshift.runtime.engines.emulated PROFILE --model small --port 8001.

With SIGUSR1 it begins to break off every answer after its first token, and with the next one it stops doing so.
"""

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path

import msgspec

from gearshift.errors import InvalidInput
from gearshift.profiles.engines.store import read_language_profile
from gearshift.runtime.engines.emulated.board import Board
from gearshift.runtime.engines.emulated.engine import EmulatedEngine
from gearshift.runtime.engines.replicas.own_key import OWN_VARIABLE
from gearshift.support.event_loop import allow_many_connections, loop_factory


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="gearshift.runtime.engines.emulated")
    parser.add_argument("profile", help="the folder of a profile of language models")
    parser.add_argument("--model", required=True, help="one of the profile's models")
    parser.add_argument("--name", default="", help="its name at this endpoint; by default the same")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--device-kind", default="", help="of the engine; by default the first of that model")
    parser.add_argument("--tensor-parallel", type=int, default=1)
    parser.add_argument("--kv-tokens", type=int, default=0, help="tokens that its memory holds; by default as profiled")
    parser.add_argument("--speed", type=float, default=1.0)
    parser.add_argument("--board", type=Path, help="a file that engines on the same devices share")
    parser.add_argument("--place", type=int, default=0, help="its place among these")
    parser.add_argument("--factors", default="1", help="how it is slowed beside each of these, with commas between")
    options = parser.parse_args(arguments)
    try:
        profile = read_language_profile(options.profile)
        kinds = [one.device_kind for one in profile.engines if one.model == options.model]
        kind = options.device_kind or (kinds[0] if kinds else "")
        engine = profile.engine(options.model, device_kind=kind, tensor_parallel=options.tensor_parallel)
        if options.kv_tokens:
            blocks = max(1, options.kv_tokens // engine.block_tokens)
            engine = msgspec.structs.replace(engine, kv_blocks=blocks)
    except InvalidInput as error:
        print(error, file=sys.stderr)  # noqa: T201  the command's own message
        return 2

    async def serve() -> None:
        factors = [float(one) for one in options.factors.split(",")]
        board = Board(options.board, options.place, factors) if options.board is not None else None
        key = os.environ.get(OWN_VARIABLE, "")
        emulated = EmulatedEngine(profile, engine, name=options.name, speed=options.speed, board=board, key=key)
        port = await emulated.start(options.host, options.port)

        def break_off_or_not() -> None:
            emulated.breaks_off = not emulated.breaks_off

        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, break_off_or_not)
        print(f"serving {emulated.name} at http://{options.host}:{port}/v1", flush=True)  # noqa: T201
        await asyncio.Event().wait()

    allow_many_connections()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(serve())
    return 0


if __name__ == "__main__":
    sys.exit(main())
