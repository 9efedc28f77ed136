"""The reference is what the code says, and links in the documents lead somewhere."""

import importlib.util
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import gearshift
from gearshift import caches
from gearshift.caches.adapting.adapter import open_adapter
from gearshift.caches.adapting.settings import Adaptation
from gearshift.caches.store.manifest import Manifest
from gearshift.cli.views.rows.plan import facts
from gearshift.reporting.runs import Course
from tests.unit.planner import fake
from tests.unit.planner.little import little_request

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_reference", REFERENCE / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def documents() -> list[Path]:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    return sorted([*pages, *(ROOT / "changelog.d").glob("*.md")])


def anchors_of(page: Path) -> set[str]:
    """The anchors that a page's headings give, as on GitHub."""
    headings = re.findall(r"^#+ (.*)$", CODE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_generated_pages_are_up_to_date() -> None:
    for name, text in generator().pages().items():
        written = (REFERENCE / name).read_text()
        assert written == text, f"docs/reference/{name} is old: run `python docs/reference/generate.py`"


def test_every_relative_link_leads_to_a_file_and_a_heading_that_exist() -> None:
    broken = []
    for page in documents():
        for link in LINK.findall(CODE.sub("", page.read_text())):
            if re.match(r"[a-z]+:", link):
                continue
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if not target.exists() or (anchor and anchor not in anchors_of(target)):
                broken.append(f"{page.relative_to(ROOT)}: {link}")
    assert broken == []


def test_every_picture_stands_on_a_page_of_the_documents() -> None:
    said = "".join(page.read_text() for page in documents())
    pictures = sorted(path.name for path in (ROOT / "docs" / "images").iterdir())
    assert [name for name in pictures if f"images/{name}" not in said] == []


def test_every_public_name_stands_in_the_python_reference() -> None:
    page = (REFERENCE / "python-api.md").read_text()
    missing = [name for name in gearshift.__all__ if f"`{name}" not in page]
    assert missing == []


@pytest.mark.parametrize(
    ("written", "called"),
    [
        ("build", caches.build),
        ("load", caches.load),
        ("evaluate", caches.evaluate),
        ("Training", caches.Training),
        ("adapting.adapter.open_adapter", open_adapter),
        ("adapting.settings.Adaptation", Adaptation),
    ],
)
def test_arguments_are_named_in_the_python_reference_as_in_the_code(written: str, called: Callable[..., Any]) -> None:
    page = (REFERENCE / "python-api.md").read_text()
    entry = re.search(rf"^\| `{re.escape(written)}\((.*?)\)` \|", page, re.MULTILINE)
    assert entry is not None
    assert re.findall(r"(?:^|, )(\w+)(?==|,|$)", entry[1]) == list(inspect.signature(called).parameters)


def test_every_field_of_a_manifest_of_learned_caches_stands_in_the_json_reference() -> None:
    rows = (REFERENCE / "json-output.md").read_text().partition("| `weights_sha256`")[2].partition("\n\n")[0]
    missing = [name for name in Manifest.__struct_fields__ if name != "weights_sha256" and f"`{name}`" not in rows]
    assert missing == []


def test_each_verb_has_one_row_in_the_json_reference() -> None:
    verbs = re.findall(r"^\| (`.*?) \|", (REFERENCE / "json-output.md").read_text().partition("## By verb")[2], re.M)
    assert "`plan`" in verbs
    assert len(verbs) == len(set(verbs)), verbs


def json_row(verb: str) -> str:
    return re.findall(rf"^\| `{verb}` \|.*", (REFERENCE / "json-output.md").read_text(), re.M)[0]


@pytest.mark.parametrize(
    ("verb", "keys"),
    [
        ("plan", list(facts(fake.made(little_request(), 1, latency_s=0.1), Path("plan.json"), 1.0))),
        ("replay", ["over_time", *Course.__struct_fields__]),
    ],
)
def test_every_key_of_a_verb_stands_in_the_json_reference(verb: str, keys: list[str]) -> None:
    assert [key for key in keys if f"`{key}`" not in json_row(verb)] == []


def test_changelog_fragments_are_named_by_kind() -> None:
    names = [path.name for path in (ROOT / "changelog.d").iterdir() if path.name != "README.md"]
    assert all(re.fullmatch(r"[a-z0-9-]+\.(added|changed|fixed)\.md", name) for name in names), names
