"""The pages of redone benchmarks: every block of figures has something that makes it."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def redo() -> ModuleType:
    spec = importlib.util.spec_from_file_location("redo", DOCS / "redo.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_block_of_the_pages_can_be_made(redo: ModuleType, tmp_path: Path) -> None:
    named = [name for page in DOCS.glob("redo_*.md") for name in re.findall(r"<!-- figures: ([\w -]+) -->", page.read_text())]
    assert sorted(named) == sorted(redo.figures(tmp_path))


def test_every_picture_that_a_page_shows_is_there() -> None:
    for page in DOCS.glob("redo_*.md"):
        shown = re.findall(r"!\[.*?\]\((redo/[^)]+)\)", page.read_text())
        assert [name for name in shown if not (DOCS / name).is_file()] == []


def test_figures_are_put_between_their_marks_and_nowhere_else(redo: ModuleType) -> None:
    page = "# A\n\n<!-- figures: torch -->\nold\n<!-- end -->\n\ntext\n"
    missing: list[str] = []
    filled = redo._filled(page, {"torch": lambda: "new\n"}, missing)
    assert filled == "# A\n\n<!-- figures: torch -->\n\nnew\n\n<!-- end -->\n\ntext\n"
    assert redo._filled(filled, {"torch": lambda: "new\n"}, missing) == filled
    assert missing == []


def test_figures_whose_recordings_are_missing_stay_and_are_told(redo: ModuleType, tmp_path: Path) -> None:
    page = "<!-- figures: vgg -->\nold\n<!-- end -->\n"
    missing: list[str] = []
    assert redo._filled(page, redo.figures(tmp_path), missing) == page
    assert missing == ["vgg"]
