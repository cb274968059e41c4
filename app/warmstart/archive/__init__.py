"""Folder ⇄ manifest and layers: prune, pack, verify, safe unpack, atomic install.

What only packing needs is imported when it is asked for: a hit installs in milliseconds and never packs.
"""

from typing import TYPE_CHECKING, Any

from warmstart.archive.installer import Fetch, Installed, find_installed, install
from warmstart.archive.kernels import link_kernels
from warmstart.archive.manifest import BOUNDS, Bounds, Compiled, Layer, Manifest, parse_manifest

if TYPE_CHECKING:
    from warmstart.archive.packer import Packed, PackedLayer, pack

__all__ = [
    "BOUNDS",
    "Bounds",
    "Compiled",
    "Fetch",
    "Installed",
    "Layer",
    "Manifest",
    "Packed",
    "PackedLayer",
    "find_installed",
    "install",
    "link_kernels",
    "pack",
    "parse_manifest",
]


def __getattr__(name: str) -> Any:
    if name in ("Packed", "PackedLayer", "pack"):
        from warmstart.archive import packer

        return getattr(packer, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
