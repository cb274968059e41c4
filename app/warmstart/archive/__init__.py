"""Folder ⇄ manifest and layers: prune, pack, verify, safe unpack, atomic install."""

from warmstart.archive.installer import Fetch, Installed, find_installed, install
from warmstart.archive.manifest import BOUNDS, Bounds, Compiled, Layer, Manifest, parse_manifest
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
    "pack",
    "parse_manifest",
]
