"""What the offline verbs make and print for each kind of plan, and the help of all."""

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import click

from tests.goldens.running import as_always, run

KINDS = ("one", "several", "graph", "language")
PLANS: dict[str, Sequence[tuple[str, str]]] = {
    "one": (
        ("plan", "plan profile --trace trace.csv --p95-ms 40 --ranges 3 --out plan.json"),
        (
            "plan-accuracy",
            "plan profile --trace trace.csv --accuracy 0.8 --ranges 2 --planner single --out accurate.json",
        ),
        ("plan-fewest", "plan profile --trace trace.csv --p95-ms 40 --accuracy 0.85 --ranges 2 --out fewest.json"),
        ("plan-price", "plan profile --trace trace.csv --p95-ms 40 --ranges 2 --price-per-hour 0.5 --out price.json"),
        ("plan-refine", "plan profile --trace trace.csv --p95-ms 40 --ranges 2 --policy refine --out refine.json"),
        ("plan-best", "plan profile --trace trace.csv --p95-ms 40 --ranges 2 --policy best --out best.json"),
        (
            "plan-cores",
            "plan on-cores --trace trace.csv --cores 8 --p95-ms 200 --accuracy 0.75 --ranges 3 --out cores.json",
        ),
        ("plan-frontier", "plan profile --trace trace.csv --frontier --ranges 2 --planner static-cascade --out plans"),
        (
            "plan-what-if",
            "plan profile --trace trace.csv --p95-ms 40 --ranges 2 --planner single --what-if --out what-if.json",
        ),
        ("plan-infeasible", "plan profile --trace trace.csv --p95-ms 0.5 --ranges 2 --planner single --out never.json"),
    ),
    "several": (
        (
            "plan",
            "plan cats dogs --trace cats=cats.csv --trace dogs=dogs.csv --p95-ms cats=60 --p95-ms dogs=90 --devices 2"
            " --ranges 2 --out plan.json",
        ),
        ("plan-with", "plan birds --with plan.json --trace birds=birds.csv --p95-ms 200 --ranges 2 --out three.json"),
        (
            "plan-refine",
            "plan cats dogs --trace cats=cats.csv --trace dogs=dogs.csv --p95-ms 60 --devices 2 --ranges 2"
            " --policy refine --worth dogs=2 --out refine.json",
        ),
        (
            "plan-baseline",
            "plan cats dogs --trace cats=cats.csv --trace dogs=dogs.csv --p95-ms 60 --devices 2 --ranges 2"
            " --planner coordinate --out baseline.json",
        ),
        (
            "plan-infeasible",
            "plan cats dogs --trace cats=cats.csv --trace dogs=dogs.csv --p95-ms 0.2 --ranges 2 --out never.json",
        ),
    ),
    "graph": (
        ("plan", "plan profile --trace trace.csv --p95-ms 60 --devices 2 --ranges 2 --out plan.json"),
        (
            "plan-baseline",
            "plan profile --trace trace.csv --p95-ms 60 --devices 2 --ranges 2 --planner greedy --out greedy.json",
        ),
        (
            "plan-what-if",
            "plan profile --trace trace.csv --p95-ms 60 --devices 2 --ranges 2 --planner greedy --what-if"
            " --price-per-hour 0.5 --out what-if.json",
        ),
        ("plan-infeasible", "plan profile --trace trace.csv --p95-ms 0.2 --ranges 2 --out never.json"),
    ),
    "language": (
        ("plan", "plan profile --trace trace.csv --ttft-p95-ms 300 --ranges 2 --memory-gib 0.028 --out plan.json"),
        (
            "plan-total",
            "plan profile --trace tokens.csv --total-p95-ms 2000 --planner static-cascade --memory-gib 0.028"
            " --load-unit outstanding_requests --out total.json",
        ),
        (
            "plan-frontier",
            "plan profile --trace trace.csv --frontier --planner static-cascade --ranges 2 --memory-gib 0.028"
            " --out plans",
        ),
        (
            "plan-infeasible",
            "plan profile --trace trace.csv --ttft-p95-ms 1 --planner single --memory-gib 0.028 --out never.json",
        ),
    ),
}
SECOND = {"one": "refine.json", "several": "baseline.json", "graph": "greedy.json", "language": "total.json"}
"""The plan that is compared with the first."""
NEEDED = ("plan.json", "plans", "three.json", *SECOND.values())
"""What refusals and servers take of what was planned."""
OTHERS: dict[str, Sequence[tuple[str, str]]] = {
    "one": (
        ("inspect-profile", "inspect profile"),
        ("inspect-cores", "inspect cores.json"),
        ("simulate-trace", "simulate plan.json --trace short.csv --rate-scale 2 --slo-ms 5"),
        ("simulate-refine", "simulate refine.json"),
        ("simulate-cores", "simulate cores.json"),
        ("simulate-scaler", "simulate cores.json --scaler exact"),
        ("explain-cores", "explain cores.json"),
        ("explain-refine", "explain refine.json"),
        ("diff-same", "diff plan.json plan.json"),
        ("diff-price", "diff plan.json price.json"),
        ("report-refine", "report refine.json --out report-refine.html"),
        (
            "compare",
            "compare profile --trace trace.csv --p95-ms 0.5,40 --devices 1,2 --planners single,static-cascade"
            " --ranges 2 --accuracies 0.7,0.9 --jobs 1 --csv runs.csv --grid-csv grid.csv --out compare.html",
        ),
    ),
    "several": (
        ("inspect-profile", "inspect cats"),
        ("simulate-trace", "simulate plan.json --trace cats=cats-short.csv"),
        ("explain-refine", "explain refine.json"),
        ("diff-three", "diff plan.json three.json"),
        (
            "compare",
            "compare cats dogs --trace cats=cats.csv --trace dogs=dogs.csv --p95-ms cats=60,80 --p95-ms dogs=90,120"
            " --devices 2 --planners apart,coordinate --ranges 2 --accuracies 0.7,0.9 --jobs 1 --csv runs.csv"
            " --grid-csv grid.csv --out compare.html",
        ),
    ),
    "graph": (
        ("simulate-trace", "simulate plan.json --trace short.csv"),
        ("inspect-profile", "inspect profile/read"),
        ("inspect-profiles", "inspect profile"),
        (
            "compare",
            "compare profile --trace trace.csv --p95-ms 0.2,60 --devices 2 --ranges 2 --planners greedy,apart"
            " --accuracies 0.7,0.9 --jobs 1 --csv runs.csv --grid-csv grid.csv --out compare.html",
        ),
    ),
    "language": (
        ("inspect-profile", "inspect profile"),
        ("simulate-trace", "simulate plan.json --trace tokens.csv"),
        ("explain-total", "explain total.json"),
        (
            "compare",
            "compare profile --trace trace.csv --ttft-p95-ms 300,500 --memory-gib 0.028 --planners single"
            " --csv runs.csv --out compare.html",
        ),
    ),
}
WRITTEN = ("--out", "--csv", "--grid-csv")
PLANNED_IN = "planned in"


def record_kind(world: Path, out: Path, kind: str) -> None:
    common = [(verb, f"{verb} plan.json") for verb in ("inspect", "simulate", "explain")]
    common += [("diff", f"diff plan.json {SECOND[kind]}"), ("report", "report plan.json --out report.html")]
    for name, line in (*PLANS[kind], *common, *OTHERS[kind]):
        record_line(world, out, name, line.split())


def plan_kind(world: Path, kind: str) -> None:
    """The plans that other parts need, where verbs are not recorded."""
    for _, line in PLANS[kind]:
        words = line.split()
        if words[-1] in NEEDED:
            run(world, *words)


def record_line(world: Path, out: Path, name: str, words: Sequence[str]) -> None:
    """Its text, its JSON and the files that it writes."""
    facts = world / "facts.json"
    facts.unlink(missing_ok=True)
    said = run(world, *words, "--json", facts.name)
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.txt").write_text(_without_times(said.text()))
    if facts.exists():
        (out / f"{name}.json").write_text(as_always(facts.read_text()))
    for flag, value in pairwise(words):
        if flag in WRITTEN and (world / value).exists():
            _copy(world / value, out / "written" / value)


def _without_times(text: str) -> str:
    """The text without the column of planning times, which is the last of tables and of rows in CSV and HTML."""
    lines, planned = [], False
    for line in text.splitlines():
        planned = line.endswith(PLANNED_IN) or (planned and "  " in line)
        lines.append(re.sub(r" +[\d.]+ (ms|s|min)$", "  TIME", line) if planned else line)
    return "\n".join(lines) + "\n"


def _copy(made: Path, to: Path) -> None:
    for file in sorted(made.rglob("*")) if made.is_dir() else [made]:
        target = to / file.relative_to(made)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = as_always(file.read_text())
        without = {".csv": _csv_without_times, ".html": in_lines}.get(file.suffix)
        target.write_text(without(text) if without else text)


def in_lines(page: str) -> str:
    """The page with a line for each element, without planning times, which stand last in rows."""
    if PLANNED_IN in page:
        page = re.sub(r"<td>[\d.]+ (ms|s|min)</td></tr>", "<td>TIME</td></tr>", page)
    return page.replace("><", ">\n<")


def _csv_without_times(text: str) -> str:
    rows = [row.split(",") for row in text.splitlines()]
    places = [place for place, title in enumerate(rows[0]) if title == "planning_s"]
    for row in rows[1:]:
        for place in places:
            row[place] = "TIME"
    return "".join(",".join(row) + "\n" for row in rows)


def record_profile(world: Path, out: Path) -> None:
    """The texts of profiles; what is in arrays shows in all that is made of them."""
    for file in sorted(world.glob("*/**/*.json")):
        if file.name in ("profile.json", "language.json", "pipelines.json"):
            _copy(file, out / "profiles" / "-".join(file.relative_to(world).parts))


def record_names(out: Path) -> None:
    """Public names, and the help of every verb."""
    import gearshift
    from gearshift.cli.main import main_group

    (out / "names.txt").write_text("".join(f"{name}\n" for name in dir(gearshift)))
    texts = [run(out, "--help").text()]
    context = click.Context(main_group, info_name="gearshift")
    for name in main_group.list_commands(context):
        command = main_group.get_command(context, name)
        texts.append(run(out, name, "--help").text())
        if isinstance(command, click.Group):
            texts += [run(out, name, each, "--help").text() for each in command.list_commands(context)]
    (out / "help.txt").write_text("\n".join(texts))


def record_init(folder: Path, out: Path) -> None:
    """What `init` says and writes."""
    texts = []
    for words in (("init", "a"), ("init", "b", "--pipeline"), ("init", "c", "--llm")):
        texts.append(run(folder, *words).text())
        files = sorted(file for file in (folder / words[1]).rglob("*") if file.is_file())
        texts.append("".join(f"{file.relative_to(folder)} {len(file.read_bytes())} bytes\n" for file in files))
    (out / "init.txt").write_text("\n".join(texts))
