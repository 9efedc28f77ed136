"""The reference is what the code says, and links in the documents lead somewhere."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import gearshift

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


def test_every_public_name_stands_in_the_python_reference() -> None:
    page = (REFERENCE / "python-api.md").read_text()
    missing = [name for name in gearshift.__all__ if f"`{name}" not in page]
    assert missing == []


def test_changelog_fragments_are_named_by_kind() -> None:
    names = [path.name for path in (ROOT / "changelog.d").iterdir() if path.name != "README.md"]
    assert all(re.fullmatch(r"[a-z0-9-]+\.(added|changed|fixed)\.md", name) for name in names), names
