"""docs/gpus.md says what the catalog and the tables hold."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from warmstart.gpus import load_catalog
from warmstart.gpus.labels import NAMING, NARROWING
from warmstart.gpus.table import render

DOCUMENT = Path(__file__).parents[3] / "docs" / "gpus.md"


def test_the_page_is_up_to_date() -> None:
    """Its generated parts are those that `python -m warmstart.gpus.table docs/gpus.md` would write."""
    text = DOCUMENT.read_text()
    assert render(text) == text


def test_the_page_names_every_type_label_and_source() -> None:
    """Nothing is generated away."""
    text = DOCUMENT.read_text()
    catalog = load_catalog()
    assert all(f"| `{id_}` |" in text for id_ in catalog.ids())
    assert all(f"`{row.label}`" in text for row in (*NAMING, *NARROWING))
    assert all(source in text for profile in catalog for source in profile.sources.values())


def test_a_page_without_a_part_is_refused() -> None:
    """A mark that was lost would leave an old table standing."""
    with pytest.raises(ValueError, match="generated: labels"):
        render(DOCUMENT.read_text().replace("<!-- end: labels -->", ""))


def test_the_pages_example_is_a_file_that_is_taken(tmp_path: Path) -> None:
    """A reader who copies the example gets a working file."""
    example = re.search(r"^    \{\n.*?^    \}$", DOCUMENT.read_text(), re.DOTALL | re.MULTILINE)
    assert example
    path = tmp_path / "own.json"
    path.write_text(json.dumps(json.loads(example[0])))
    assert load_catalog(path).parse("NVIDIA-H100-96GB-HBM3").id == "h100-sxm5-96gb"
