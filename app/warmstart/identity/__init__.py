"""What makes a compiled cache reusable: model files, code fingerprint, factors, key, and why two keys differ. No torch here."""

from warmstart.identity.code import CodeFingerprint, fingerprint
from warmstart.identity.environment import hazards, relevant
from warmstart.identity.explain import Difference, explain
from warmstart.identity.files import ModelFiles, model_files, request_files
from warmstart.identity.key import FORMAT, PASS_REVISION, Identity, identify

__all__ = [
    "FORMAT",
    "PASS_REVISION",
    "CodeFingerprint",
    "Difference",
    "Identity",
    "ModelFiles",
    "explain",
    "fingerprint",
    "hazards",
    "identify",
    "model_files",
    "relevant",
    "request_files",
]
