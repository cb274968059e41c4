"""What makes a compiled cache reusable: model files, code fingerprint, factors, key, and why two keys differ. No torch here.

Each name is imported when it is asked for: a hit computes the fingerprint beside everything else, and explains nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warmstart.identity.code import CodeFingerprint, fingerprint, installed_version
    from warmstart.identity.differences import Difference, explain
    from warmstart.identity.environment import counts, hazards, paths, relevant
    from warmstart.identity.files import ModelFiles, model_files, request_files
    from warmstart.identity.key import FORMAT, PASS_REVISION, Identity, identify
    from warmstart.identity.sources import offline

__all__ = [
    "FORMAT",
    "PASS_REVISION",
    "CodeFingerprint",
    "Difference",
    "Identity",
    "ModelFiles",
    "counts",
    "explain",
    "fingerprint",
    "hazards",
    "identify",
    "installed_version",
    "model_files",
    "offline",
    "paths",
    "relevant",
    "request_files",
]

_MODULES = {
    "code": ("CodeFingerprint", "fingerprint", "installed_version"),
    "differences": ("Difference", "explain"),
    "environment": ("counts", "hazards", "paths", "relevant"),
    "files": ("ModelFiles", "model_files", "request_files"),
    "key": ("FORMAT", "PASS_REVISION", "Identity", "identify"),
    "sources": ("offline",),
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    module = next((module for module, names in _MODULES.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)
    return value
