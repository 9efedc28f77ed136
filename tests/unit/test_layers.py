"""Who may import whom: any other arrow, and every circle, fails."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import gearshift

PACKAGE = Path(gearshift.__file__).parent
MOST_MODULES = 15

DATA = {"nouns", "support", "models", "plans", "profiles"}
ONLINE = DATA | {"policies", "observability", "v2", "runtime"}
OFFLINE = DATA | {"policies", "simulator"}
MAY_IMPORT = {
    "nouns": set[str](),
    "support": {"nouns"},
    "policies": {"nouns"},
    "v2": {"nouns"},
    "models": {"nouns", "support"},
    "plans": {"nouns", "support"},
    "traces": {"nouns", "support"},
    "profiles": DATA | {"policies"},
    "caches": {"nouns", "support", "models", "policies"},
    "observability": {"nouns", "support", "policies"},  # policies for the names of start reasons
    "simulator": OFFLINE,
    "planner": OFFLINE,
    "client": {"nouns", "support", "v2"},
    "runtime": ONLINE,
    "serving": ONLINE | {"client"},
    "load_generator": ONLINE | {"client", "serving"},
    "measuring": ONLINE | {"client", "serving"},
    "reporting": OFFLINE | {"planner", "caches", "load_generator"},
}
MAY_IMPORT["bulk"] = {*ONLINE, "client", "planner"}
MAY_IMPORT["sql"] = {"bulk", *MAY_IMPORT["bulk"]}
MAY_IMPORT["verbs"] = {"traces", *MAY_IMPORT}
MAY_IMPORT["demo"] = {"verbs", *MAY_IMPORT}
MAY_IMPORT["cli"] = {"demo", *MAY_IMPORT}
MAY_IMPORT["__main__"] = {"cli"}
"""Each folder of the package may import itself and these; modules outside of folders are nouns."""

HEAVY = (
    *("torch", "onnxruntime", "pyarrow", "safetensors", "numba", "ray", "scipy", "sklearn", "plotly", "grpc"),
    *("opentelemetry", "duckdb", "pandas", "jinja2"),
)

PLAIN = (
    *("gearshift", "gearshift.client.client", "gearshift.models.loading", "gearshift.runtime.router.router"),
    *("gearshift.runtime.workers.worker", "gearshift.serving.http.application", "gearshift.serving.serve"),
    *("gearshift.serving.openai.served", "gearshift.serving.rows.served"),
    *("gearshift.cli.online.serve", "gearshift.cli.offline.plan", "gearshift.cli.main"),
)
"""Modules that load none of these."""


@cache
def modules() -> dict[str, Path]:
    """Every module by its dotted name within the package."""
    names = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)] = path
    return names


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """All of them, wherever they stand; `ast.walk` would look through each expression as well."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield child
            yield from statements(child)


def imported(tree: ast.AST, known: set[str]) -> Iterator[str]:
    """Dotted names within the package of all that a module imports, wherever in it."""
    for node in statements(tree):
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


def named_in(source: str, known: set[str]) -> Iterator[str]:
    """Dotted names within the package of what a module imports by a literal name, or by one that begins so."""
    for name in re.findall(r'(?:import_module|__import__|find_spec)\(\s*f?["\']gearshift\.([\w.]*)', source):
        yield name if name in known else name.rstrip(".")


def layer_of(module: str) -> str:
    top, _, _ = module.partition(".")
    return top if top == "__main__" or (PACKAGE / top).is_dir() else "nouns"


def room_of(module: str) -> str:
    """The folder of a module; the one that starts the command line stands above all."""
    alone = module == "__main__" or modules()[module].name == "__init__.py"
    return module if alone else module.rpartition(".")[0]


@cache
def arrows() -> list[tuple[str, str]]:
    """Who imports whom, but for the package itself: its version and its place are no arrow."""
    return sorted(
        {
            (module, target)
            for module, path in modules().items()
            for source in [path.read_text()]
            for target in [*imported(ast.parse(source), set(modules())), *named_in(source, set(modules()))]
            if "__init__" not in (module, target) and module != target
        }
    )


def circle_in(pairs: Iterable[tuple[str, str]]) -> str:
    """A circle, as "a > b > a"; empty where there is none."""
    graph: dict[str, set[str]] = {}
    for importer, target in pairs:
        graph.setdefault(importer, set()).add(target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return " > ".join(reversed(error.args[1]))
    return ""


def test_every_folder_is_a_layer() -> None:
    unknown = {layer_of(module) for module in modules()} - set(MAY_IMPORT)
    assert not unknown, f"say in MAY_IMPORT what {sorted(unknown)} may import"


def test_no_module_imports_from_a_layer_that_it_must_not_know() -> None:
    wrong = [
        f"{module} imports {target}"
        for module, target in arrows()
        if layer_of(target) not in {layer_of(module), *MAY_IMPORT[layer_of(module)]}
    ]
    assert not wrong


def test_no_modules_import_each_other_in_a_circle_wherever_the_imports_stand() -> None:
    assert circle_in(arrows()) == ""


def test_no_rooms_import_each_other_in_a_circle() -> None:
    rooms = ((room_of(module), room_of(target)) for module, target in arrows())
    assert circle_in((room, other) for room, other in rooms if room != other) == ""


def test_a_circle_is_seen() -> None:
    assert circle_in([("a", "b"), ("b", "c"), ("c", "a")]) in ("a > b > c > a", "b > c > a > b", "c > a > b > c")
    assert circle_in([("a", "b"), ("b", "c"), ("a", "c")]) == ""


def test_no_room_is_overfull() -> None:
    sizes: dict[str, int] = {}
    for module, path in modules().items():
        if path.name not in ("__init__.py", "__main__.py"):
            sizes[room_of(module)] = sizes.get(room_of(module), 0) + 1
    assert not {room: size for room, size in sizes.items() if size > MOST_MODULES}


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


def test_an_import_by_a_literal_name_is_an_arrow() -> None:
    source = """
html_of = import_module("gearshift.reporting.notebooks").html_of
command = importlib.import_module(f"gearshift.cli.{room}.{name}")
other = import_module(MODULES[name])
"""
    assert list(named_in(source, set(modules()))) == ["reporting.notebooks", "cli"]


def test_a_plain_import_loads_no_heavy_library() -> None:
    """One process imports one after another, so that the first that is told is the one that loads it."""
    code = f"""
import importlib, sys
for module in {PLAIN}:
    importlib.import_module(module)
    print(*(f"{{module}} loads {{name}}" for name in {HEAVY} if name in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
