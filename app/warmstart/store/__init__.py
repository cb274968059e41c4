"""Publish, look up, fetch, claim, sign and collect garbage, over fsspec URLs. Knows nothing of the other rooms.

What only the care of a store needs is imported when it is asked for: a hit looks up and fetches in milliseconds.
"""

from typing import TYPE_CHECKING, Any

from warmstart.store.model import Claim, Claims, Found, LayerFile, Published, StoreOptions
from warmstart.store.store import Store, open_store

if TYPE_CHECKING:
    from warmstart.store.care_model import Collected, EntrySummary, Finding, GcPlan, GcPolicy, Usage, Verified
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

_CARE = ("Collected", "EntrySummary", "Finding", "GcPlan", "GcPolicy", "Usage", "Verified")


def __getattr__(name: str) -> Any:
    if name in _CARE:
        from warmstart.store import care_model

        return getattr(care_model, name)
    if name == "keygen":
        from warmstart.store.trust import keygen

        return keygen
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
