"""Publish, look up, fetch, claim, sign and collect garbage, over fsspec URLs. Knows nothing of the other rooms."""

from warmstart.store.model import (
    Claim,
    Claims,
    Collected,
    EntrySummary,
    Finding,
    Found,
    GcPlan,
    GcPolicy,
    LayerFile,
    Published,
    StoreOptions,
    Usage,
    Verified,
)
from warmstart.store.store import Store, open_store
from warmstart.store.trust import keygen

__all__ = [
    "Claim",
    "Claims",
    "Collected",
    "EntrySummary",
    "Finding",
    "Found",
    "GcPlan",
    "GcPolicy",
    "LayerFile",
    "Published",
    "Store",
    "StoreOptions",
    "Usage",
    "Verified",
    "keygen",
    "open_store",
]
