"""GPU types: the catalog as data, the spellings and labels that name a type, and the reading of a live device."""

from warmstart.gpus.catalog import Catalog, load_catalog
from warmstart.gpus.device import describe
from warmstart.gpus.entry_text import compare, to_document, to_entry
from warmstart.gpus.profile import GpuProfile

__all__ = ["Catalog", "GpuProfile", "compare", "describe", "load_catalog", "to_document", "to_entry"]
