"""Pin what an image has installed, and prove afterwards that nothing of it changed.

`versions.py write FILE` writes name==version of every installed distribution, in the form that pip takes as constraints.
`versions.py check FILE` exits with 1, naming each, where one of them is gone or has another version now.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import distributions
from pathlib import Path


def installed() -> dict[str, str]:
    """Return versions by normalised name; of two copies of a distribution the first on the path, which is what is imported."""
    found: dict[str, str] = {}
    for distribution in distributions():
        name = distribution.metadata["Name"]
        if name:
            found.setdefault(re.sub(r"[-_.]+", "-", name).lower(), distribution.version)
    return found


def main(action: str, file: str) -> None:
    """Write or check."""
    if action == "write":
        Path(file).write_text("".join(f"{name}=={version}\n" for name, version in sorted(installed().items())))
        return
    now = installed()
    before = dict(line.split("==", 1) for line in Path(file).read_text().splitlines())
    changed = [f"{name} {version} -> {now.get(name, 'gone')}" for name, version in before.items() if now.get(name) != version]
    if changed:
        sys.exit("installing warmstart changed what the image had: " + "; ".join(changed))
    added = sorted(now.keys() - before.keys())
    print(f"unchanged: {len(before)} distributions; added: {', '.join(f'{name} {now[name]}' for name in added) or 'none'}")


if __name__ == "__main__":
    main(*sys.argv[1:])
