"""What makes a compiled cache reusable: model files, code fingerprint, factors, key, and why two keys differ. No torch here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warmstart.identity.code import CodeFingerprint, fingerprint
from warmstart.identity.environment import counts, hazards, relevant
from warmstart.identity.files import ModelFiles, model_files, request_files
from warmstart.identity.key import FORMAT, PASS_REVISION, Identity, identify
from warmstart.identity.sources import offline

if TYPE_CHECKING:
    from warmstart.identity.differences import Difference, explain

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
    "model_files",
    "offline",
    "relevant",
    "request_files",
]


def __getattr__(name: str) -> Any:
    """Import what explains differences only when it is asked for: `run` on a hit has no use for it."""
    if name in {"Difference", "explain"}:
        from warmstart.identity import differences

        return getattr(differences, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
