"""GPU types: the catalog as data, the spellings and labels that name a type, and the reading of a live device.

What reads a device and writes entries is imported when it is asked for: a hit on a machine without a GPU in sight does neither.
"""

from typing import TYPE_CHECKING, Any

from warmstart.gpus.catalog import Catalog, load_catalog
from warmstart.gpus.profile import GpuProfile

if TYPE_CHECKING:
    from warmstart.gpus.device import describe
    from warmstart.gpus.entry_text import compare, to_document, to_entry

__all__ = ["Catalog", "GpuProfile", "compare", "describe", "load_catalog", "to_document", "to_entry"]


def __getattr__(name: str) -> Any:
    if name == "describe":
        from warmstart.gpus.device import describe

        return describe
    if name in ("compare", "to_document", "to_entry"):
        from warmstart.gpus import entry_text

        return getattr(entry_text, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
