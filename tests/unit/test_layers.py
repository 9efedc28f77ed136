"""Who may import whom: any other arrow fails."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import gearshift

PACKAGE = Path(gearshift.__file__).parent

NOUNS = {
    *(
        "errors",
        "files",
        "folders",
        "clock",
        "hardware",
        "model",
        "processors",
        "workers",
        "workload",
        "cascade",
        "placement",
        "pipeline",
        "objective",
        "gear",
        "result",
    ),
    *("request", "plan_file", "plan_folder", "plan_diff", "plan_tables", "hardware_file", "decisions", "of_process"),
    *(
        "certainty",
        "classes",
        "compiled",
        "config",
        "declared_outputs",
        "loading",
        "extras",
        "loaded_from",
        "onnx_file",
        "torch_module",
        "remote_settings",
        "plain_numbers",
        "plain_text",
        "segmented_model",
    ),
}
JOINING = {"reporting", "verbs", "demo", "cli", "__init__", "__main__"}
BELOW = {"nouns", "support", "models", "plans", "policies", "profiles"}
MAY_IMPORT = {
    "support": {"nouns"},
    "models": {"nouns", "support"},
    "plans": {"nouns", "support", "models"},
    "policies": {"nouns"},
    "profiles": {"nouns", "support", "models", "plans"},
    "traces": {"nouns", "support"},
    "observability": {
        "nouns",
        "support",
        "policies",
    },  # policies for the names of start reasons; decisions, not the other way
    "simulator": BELOW,
    "caches": BELOW,
    "planner": BELOW | {"simulator"},
    "v2": BELOW | {"runtime"},
    "runtime": BELOW | {"observability", "v2"},
    "client": BELOW | {"v2"},
    "serving": BELOW | {"observability", "runtime", "v2", "client"},
    "load_generator": BELOW | {"observability", "runtime", "v2", "client", "serving"},
    "measuring": BELOW | {"observability", "runtime", "v2", "client", "serving", "load_generator"},
    "nouns": {"support"},
}
"""Each layer may import itself and these; the joining layer may import anything."""

HEAVY = (
    *("torch", "onnxruntime", "pyarrow", "safetensors", "numba", "ray", "scipy", "sklearn", "plotly", "grpc"),
    "opentelemetry",
)


def modules() -> dict[str, Path]:
    """Every module by its dotted name within the package."""
    names = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)] = path
    return names


def imported(tree: ast.AST, known: set[str]) -> Iterator[str]:
    """Dotted names within the package of all that a module imports, wherever in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the arrow"
            names = [node.module or ""]
            if node.module is not None and node.module.split(".")[0] == "gearshift":
                inner = [f"{node.module}.{alias.name}" for alias in node.names]
                names = [name if name.removeprefix("gearshift.") in known else node.module for name in inner]
        else:
            continue
        for name in names:
            if name == "gearshift":
                yield "__init__"
            elif name.startswith("gearshift."):
                yield name.removeprefix("gearshift.")


def layer_of(module: str) -> str:
    top = module.partition(".")[0]
    return "nouns" if top in NOUNS else "joining" if top in JOINING else top


@cache
def arrows() -> list[tuple[str, str]]:
    known = modules()
    return sorted(
        {
            (module, target)
            for module, path in known.items()
            for target in imported(ast.parse(path.read_text()), set(known))
        }
    )


def test_every_module_belongs_to_a_layer() -> None:
    unknown = {layer_of(module) for module in modules()} - set(MAY_IMPORT) - {"joining"}
    assert not unknown, f"say in MAY_IMPORT what {sorted(unknown)} may import"


def test_no_module_imports_from_a_layer_that_it_must_not_know() -> None:
    wrong = []
    for module, target in arrows():
        layer, other = layer_of(module), layer_of(target)
        if layer in ("joining", other) or target == "__init__":  # the package itself: its version and place
            continue
        if other not in MAY_IMPORT[layer]:
            wrong.append(f"{module} imports {target}")
    assert not wrong


def test_only_the_command_line_and_the_demo_are_built_on_the_command_line_and_the_demo() -> None:
    wrong = [
        f"{module} imports {target}"
        for module, target in arrows()
        if target.split(".")[0] in ("cli", "demo") and module.split(".")[0] not in ("cli", "demo", "__main__")
    ]
    assert not wrong


def test_every_arrow_is_seen_wherever_it_is_drawn() -> None:
    source = """
import gearshift.gear
from gearshift import decisions, __version__
from gearshift.policies import load
from gearshift.clock import NS_PER_S
def later():
    from gearshift.planner.search.optimal import plan
"""
    seen = set(imported(ast.parse(source), set(modules())))
    assert seen == {"gear", "decisions", "__init__", "policies.load", "clock", "planner.search.optimal"}


@pytest.mark.parametrize(
    "module",
    [
        "gearshift",
        "gearshift.client.client",
        "gearshift.models.loading",
        "gearshift.runtime.router.router",
        "gearshift.runtime.workers.worker",
        "gearshift.serving.http.application",
        "gearshift.serving.serve",
        "gearshift.cli.online.serve",
        "gearshift.cli.offline.plan",
        "gearshift.cli.main",
    ],
)
def test_a_plain_import_loads_no_heavy_library(module: str) -> None:
    code = f"import sys, {module}; print(*(name for name in {HEAVY} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
