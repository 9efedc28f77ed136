"""What each verb refuses for each kind of plan.

Every option of a verb is given to every kind, with a trace or profile that is not there, so that a command line that
is not refused ends at once, too; and some command lines mix kinds, or lack what they need.
"""

from pathlib import Path
from typing import Any

import click

from tests.goldens.running import run
from tests.goldens.verbs import KINDS

NO_TRACE = dict.fromkeys(KINDS, "--trace none.csv") | {"several": "--trace cats=none.csv --trace dogs=none.csv"}
PROFILES = dict.fromkeys(KINDS, "profile") | {"several": "cats dogs"}
LIMIT = dict.fromkeys(KINDS, "--p95-ms 50") | {"language": "--ttft-p95-ms 300"}
OF_PLAN = ("simulate", "explain", "report", "replay", "validate")
LEFT_OUT = ("--json", "--help")
VALUES = {
    "--cores": "2",
    "--devices": "2",
    "--with": "plan.json",
    "--percentile": "0.9",
    "--p95-ms": "50",
    "--latency-ms": "50",
    "--price-per-hour": "1",
    "--planners": "single",
    "--baselines": "single",
    "--accuracies": "0.5",
    "--port": "0",
    "--grpc-port": "0",
    "--host": "127.0.0.1",
    "--within": "5%",
    "--scaler-cores": "2",
    "--samples": "none.py:samples",
    "--example": "{}",
    "--container": "none",
    "--actuator": "none",
    "--url": "http://127.0.0.1:1",
}
MIXED = (
    "diff one/plan.json language/plan.json",
    "diff language/plan.json one/plan.json",
    "diff one/plan.json several/plan.json",
    "diff several/plan.json one/plan.json",
    "diff one/plan.json graph/plan.json",
    "diff graph/plan.json one/plan.json",
    "diff several/plan.json language/plan.json",
    "diff graph/plan.json language/plan.json",
    "diff one/plan.json one/none.json",
    "diff one/plan.json one/profile",
    "diff one/plan.json one/trace.csv",
    "inspect one/none.json",
    "inspect one/trace.csv",
    "inspect one/records",
    "inspect graph/profile",
    "simulate one/none.json",
    "simulate one/profile",
    "simulate one/plan.json --profile language/profile",
    "simulate one/plan.json --profile several/cats",
    "simulate one/plan.json --profile graph/profile",
    "simulate language/plan.json --profile one/profile",
    "simulate language/plan.json --profile graph/profile",
    "simulate one/plan.json --scaler-period-s 1",
    "simulate one/plan.json --network none.csv",
    "explain one/plan.json --profile language/profile",
    "explain language/plan.json --profile one/profile",
    "report one/plan.json --profile language/profile",
    "report language/plan.json --profile one/profile",
    "report one/plan.json --replay one/none.json",
    "report one/plan.json --replay one/trace.csv",
    "plan one/none --trace one/trace.csv --p95-ms 50",
    "plan one/profile --p95-ms 50",
    "plan one/profile --trace one/trace.csv",
    "plan one/trace.csv --trace one/trace.csv --p95-ms 50",
    "plan one/profile --trace one/trace.csv --p95-ms 50 --latency-ms 50",
    "plan one/profile --trace one/trace.csv --p95-ms 50 --frontier",
    "plan one/profile --trace one/trace.csv --p95-ms cats=50",
    "plan one/profile --trace one/trace.csv --p95-ms 50 --confidence 0.9",
    "plan one/profile --trace one/trace.csv --p95-ms 50 --frontier --what-if",
    "plan one/profile --trace one/trace.csv --p95-ms 50 --planner nothing",
    "plan one/profile language/profile --trace words=one/trace.csv --trace chat=one/trace.csv --p95-ms 50",
    "plan language/profile one/profile --trace words=one/trace.csv --trace chat=one/trace.csv --ttft-p95-ms 50",
    "plan one/profile graph/profile --trace words=one/trace.csv --trace strips=one/trace.csv --p95-ms 50",
    "plan graph/profile one/profile --trace words=one/trace.csv --trace strips=one/trace.csv --p95-ms 50",
    "plan several/cats several/cats --trace cats=one/trace.csv --p95-ms 50",
    "plan several/cats several/dogs --trace cats=one/trace.csv --p95-ms 50",
    "plan several/cats several/dogs --trace one/trace.csv --p95-ms 50",
    "plan several/cats several/dogs --trace cats=one/trace.csv --trace dogs=one/trace.csv",
    "plan several/cats several/dogs --trace cats=one/trace.csv --trace dogs=one/trace.csv --p95-ms birds=5",
    "plan several/birds --with language/plan.json --trace birds=one/trace.csv --p95-ms 50",
    "plan several/birds --with graph/plan.json --trace birds=one/trace.csv --p95-ms 50",
    "plan several/cats --with several/plan.json --trace cats=one/trace.csv --p95-ms 50",
    "plan graph/profile --trace graph/trace.csv",
    "plan graph/profile --trace graph/trace.csv --p95-ms 50 --pipeline nothing",
    "plan language/profile --trace language/trace.csv",
    "plan language/profile --trace language/trace.csv --ttft-p95-ms 300 --total-p95-ms 900",
    "plan language/profile --trace language/trace.csv --ttft-p95-ms 300 --metric total",
    "plan language/profile --trace language/none.csv --ttft-p95-ms 300",
    "compare one/profile --trace one/trace.csv",
    "compare one/profile --trace one/trace.csv --p95-ms 50 --planners joint",
    "compare one/profile language/profile --trace one/trace.csv --p95-ms 50",
    "compare language/profile --trace language/trace.csv",
    "compare language/profile --trace language/trace.csv --ttft-p95-ms 300 --planners coordinate",
    "compare graph/profile --trace graph/trace.csv --p95-ms 50 --planners optimal",
    "compare graph/profile one/profile --trace graph/trace.csv --p95-ms 50",
    "compare several/cats several/dogs --trace cats=one/trace.csv --trace dogs=one/trace.csv --p95-ms 5"
    " --planners single",
    "serve one/none.json",
    "serve one/plan.json --profile language/profile --backend emulated",
    "serve language/plan.json --profile one/profile --backend emulated",
    "serve graph/plan.json --profile one/profile --backend emulated",
    "serve one/plan.json --backend emulated --openai",
    "serve several/plan.json --backend emulated --openai",
    "serve graph/plan.json --backend emulated --openai",
    "serve one/plan.json",
    "serve several/plan.json",
    "serve graph/plan.json",
    "serve language/plan.json",
    "serve one/plans",
    "serve one/plans --p95-ms 0.001",
    "serve one/plan.json --p95-ms 50",
    "serve language/plans --p95-ms 50",
    "validate one/none.json",
    "validate one/plan.json",
    "validate several/plan.json",
    "validate graph/plan.json",
    "validate language/plan.json",
    "validate language/plan.json --backend ray",
    "validate one/plan.json --profile language/profile --backend emulated",
    "validate language/plan.json --profile one/profile --backend emulated",
    "replay one/none.json --trace one/short.csv",
    "replay one/plan.json --trace one/short.csv --profile language/profile",
    "replay language/plan.json --trace language/short.csv",
    "replay language/plan.json --trace language/short.csv --profile language/profile",
    "replay http://127.0.0.1:1 --trace one/short.csv --profile one/profile --emulated",
    "replay http://127.0.0.1:1/v1 --trace language/short.csv --profile language/profile --emulated",
    "replay http://127.0.0.1:1 --profile one/profile --emulated",
    "status --url http://127.0.0.1:1",
    "gear pin 0 --url http://127.0.0.1:1",
    "swap plan.json --url http://127.0.0.1:1",
    "drain --url http://127.0.0.1:1",
    "profile one/none",
    "profile --from-records one/none",
    "profile --from-records language/records --out one/profile --operator chat",
    "profile --from-records one/records --out language/profile --operator words",
    "profile --from-records one/records --out /dev/null/never --certainty judge",
    "query one/none.sql",
    "query one/none.sql --plan one/plan.json",
    "query one/none.sql --plan language/plan.json",
    "nothing",
    "plans",
)


def record(worlds: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for kind in KINDS:
        bases = [(verb, f"{verb} plan.json {NO_TRACE[kind]}") for verb in OF_PLAN]
        bases += [(verb, f"{verb} {PROFILES[kind]} {NO_TRACE[kind]} {LIMIT[kind]}") for verb in ("plan", "compare")]
        bases.append(("serve", "serve plan.json --backend emulated --profile none --port 0"))
        texts = [_of_verb(worlds / kind, verb, base.split()) for verb, base in bases]
        (out / f"{kind}.txt").write_text("\n".join(texts))
    told = [run(worlds, *line.split()) for line in MIXED]
    (out / "mixed.txt").write_text("\n".join(f"$ {said.line}\n{said.error}\n" for said in told))


def _of_verb(world: Path, verb: str, base: list[str]) -> str:
    """What the verb says with each option; those that change nothing are named together."""
    from gearshift.cli.main import main_group

    command = main_group.get_command(click.Context(main_group), verb)
    assert command is not None
    alone = run(world, *base)
    lines, unchanged = [f"$ {alone.line}", alone.error], []
    for parameter in command.params:
        if not isinstance(parameter, click.Option) or parameter.opts[0] in LEFT_OUT or parameter.opts[0] in base:
            continue
        for words in _given(parameter):
            said = run(world, *base, *words)
            if said.error == alone.error:
                unchanged.append(" ".join(words))
            else:
                lines += [f"  + {' '.join(words)}", f"    {said.error}"]
    return "\n".join([*lines, "  the same with " + (", ".join(unchanged) or "no other option"), ""])


def _given(option: click.Option) -> list[list[str]]:
    """Ways to give an option: each choice, or a value of its type."""
    flag = option.opts[0]
    if option.is_flag:
        return [[flag]]
    if isinstance(option.type, click.Choice):
        return [[flag, str(each)] for each in option.type.choices]
    return [[flag, VALUES.get(flag) or _value(option.type)]]


def _value(kind: Any) -> str:
    if isinstance(kind, (click.types.IntParamType, click.types.FloatParamType)):
        return "1"
    return "none" if isinstance(kind, click.Path) or kind.name in ("path", "file") else "1"
