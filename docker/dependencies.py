"""Print what warmstart, with the extras that an image carries, depends on: `dependencies.py pyproject.toml`."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

EXTRAS = ("s3", "kubernetes", "sign", "metrics")


def main(file: str) -> None:
    """Read the project's metadata and print."""
    project = tomllib.loads(Path(file).read_text(encoding="utf-8"))["project"]
    optional = [requirement for extra in EXTRAS for requirement in project["optional-dependencies"][extra]]
    print("\n".join([*project["dependencies"], *optional]))


if __name__ == "__main__":
    main(sys.argv[1])
