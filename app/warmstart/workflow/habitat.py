"""A server's environment, made habitable for the compile pass: folders that it names and that cannot be written here.

A Job has the server's variables but not its volumes, and a read-only root. None of these variables is in vLLM's key (they say
where files lie), so others may stand in for the pass.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from warmstart.identity import offline

_PLACES = (
    *("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"),
    *("TRITON_CACHE_DIR", "TRITON_HOME", "TORCH_HOME", "TORCH_EXTENSIONS_DIR", "TORCHINDUCTOR_CACHE_DIR"),
    *("VLLM_CONFIG_ROOT", "VLLM_ASSETS_CACHE", "VLLM_MEDIA_CACHE", "VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR"),
)
# Where an offline server finds its model: nothing can stand in for that.
_HUB_PLACES = ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE")


def habitable(environ: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the environment with a folder below `folder` in the place of each that is named and cannot be written."""
    changed = dict(environ)
    for name in _PLACES if offline(environ) else (*_PLACES, *_HUB_PLACES):
        if changed.get(name) and not _writable(Path(changed[name])):
            place = folder / "places" / name.lower()
            place.mkdir(parents=True, exist_ok=True)
            changed[name] = str(place)
    return changed


def _writable(path: Path) -> bool:
    """Whether a folder is there, or can be made, and takes files."""
    for place in (path, *path.parents):
        if place.is_dir():
            return os.access(place, os.W_OK | os.X_OK) and not _read_only(place)
        if place.exists():
            return False
    return False


def _read_only(path: Path) -> bool:
    """Whether the file system is mounted read-only or takes no files at all: access() says yes to root there."""
    try:
        disk = os.statvfs(path)
    except OSError:
        return True
    return bool(disk.f_flag & os.ST_RDONLY) or not disk.f_files
