"""Where a model's files are: a folder, a snapshot in the Hugging Face cache, or the hub."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from warmstart.errors import ModelFilesError, TemporaryError, shorten
from warmstart.pattern import pattern

if TYPE_CHECKING:
    from warmstart.identity.files import Source

_HUB_NAME = pattern(r"[A-Za-z0-9][\w.\-]{0,95}(/[A-Za-z0-9][\w.\-]{0,95})?")
_COMMIT = pattern(r"[0-9a-f]{40}")
_URL = pattern(r"[a-z][a-z0-9+.\-]*://")
_TRUE = frozenset({"1", "ON", "YES", "TRUE"})
_DEEPEST = 12
_GIVE_FOLDER = "give a folder with the model's config.json with --model-files"


class FolderSource:
    """Files in a folder. Links to files are followed, as the Hugging Face cache needs; links to folders are not."""

    def __init__(self, folder: Path, *, commit: str = "") -> None:
        self.folder = folder
        self.where = str(folder)
        self.commit = commit

    def read(self, name: str) -> bytes | None:
        """Return a file, None where there is none."""
        from warmstart.identity.files import MOST_BYTES, refuse_size

        path = self.folder / name
        try:
            # Not blocking, so that a FIFO with that name cannot hold the call for ever.
            with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
                info = os.fstat(file.fileno())
                if not stat.S_ISREG(info.st_mode):
                    raise ModelFilesError(f"{path} is not a regular file")
                refuse_size(info.st_size, str(path))
                content = file.read(MOST_BYTES + 1)
        except OSError as error:
            if error.errno in {errno.ENOENT, errno.ENOTDIR} and not path.is_symlink():
                return None
            detail = "its link leads nowhere" if error.errno == errno.ENOENT else error.strerror or str(error)
            raise ModelFilesError(f"cannot read {path}: {detail}") from error
        refuse_size(len(content), str(path))
        return content

    def headers(self) -> dict[str, str]:
        """Return the dtypes of all tensors by name, from the .safetensors files of the folder itself, as vLLM reads them."""
        from warmstart.identity.headers import read_header, tensors

        found: dict[str, str] = {}
        for path in sorted(self.folder.glob("*.safetensors")):
            try:
                with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
                    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                        found |= tensors(read_header(file, str(path)), str(path))
            except OSError as error:
                raise ModelFilesError(f"cannot read {path}: {error.strerror or error}") from error
        return found

    def names(self) -> Iterator[str]:
        """Yield the relative paths of all files."""
        for root, folders, files in os.walk(self.folder):
            inside = Path(root).relative_to(self.folder)
            folders[:] = [name for name in folders if not name.startswith(".")] if len(inside.parts) < _DEEPEST else []
            yield from (str(inside / name) for name in files)


def locate(model: str, revision: str | None, folder: Path | None, env: Mapping[str, str]) -> tuple[Source, str]:
    """Return where a model's files are, and the name by which vLLM will hold the model.

    Raises ModelFilesError and TemporaryError as `files.model_files` says.
    """
    if folder is not None:
        if not folder.is_dir():
            raise ModelFilesError(f"the folder of model files {folder} is not there")
        if held := _held_snapshot(model, revision, env):
            return held, held.where
        return FolderSource(folder), model
    if _URL.match(model):
        raise ModelFilesError(f"the files of {shorten(model, 120)} cannot be read from here", hint=_GIVE_FOLDER)
    if Path(model).is_dir():
        return FolderSource(Path(model)), model
    if Path(model).is_file():
        raise ModelFilesError(
            f"{model} is a single file; its configuration cannot be read without its weights", hint=_GIVE_FOLDER
        )
    if not _HUB_NAME.fullmatch(model):
        raise ModelFilesError(
            f"the model folder {shorten(model, 200)} is not there", hint=f"mount it at this path, or {_GIVE_FOLDER}"
        )
    if _true(env, "VLLM_USE_MODELSCOPE"):
        raise ModelFilesError(f"{model} is on ModelScope, which is not asked", hint=_GIVE_FOLDER)
    return _from_hub(model, revision, env)


def offline(env: Mapping[str, str]) -> bool:
    """Return whether vLLM, with this environment, does not ask the hub, and holds a model by its snapshot's path."""
    return _true(env, "HF_HUB_OFFLINE") or (not env.get("HF_HUB_OFFLINE") and _true(env, "TRANSFORMERS_OFFLINE"))


def hub_cache(env: Mapping[str, str]) -> Path:
    """Return the folder of the Hugging Face cache that this environment names."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if env.get(name):
            return Path(env[name]).expanduser()
    if env.get("HF_HOME"):
        return Path(env["HF_HOME"]).expanduser() / "hub"
    cache = Path(env.get("XDG_CACHE_HOME") or Path(env.get("HOME") or "~") / ".cache")
    return cache.expanduser() / "huggingface" / "hub"


def snapshot(model: str, revision: str | None, cache: Path) -> FolderSource | None:
    """Return a model's snapshot in the Hugging Face cache, None where it holds none with a configuration."""
    repository = cache / f"models--{model.replace('/', '--')}"
    commit = revision or "main"
    if not _COMMIT.fullmatch(commit):
        if ".." in Path(commit).parts:
            return None
        try:
            commit = (repository / "refs" / commit).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            return None
        if not _COMMIT.fullmatch(commit):
            return None
    folder = repository / "snapshots" / commit
    known = any(os.path.lexists(folder / name) for name in ("config.json", "params.json"))
    return FolderSource(folder, commit=commit) if known else None


def _held_snapshot(model: str, revision: str | None, env: Mapping[str, str]) -> FolderSource | None:
    """Return the snapshot by whose path vLLM names the model where it is offline, None where it keeps the name.

    No other folder can stand in for it: the path is part of vLLM's key.
    """
    if not offline(env) or _URL.match(model) or Path(model).exists() or not _HUB_NAME.fullmatch(model):
        return None
    cache = hub_cache(env)
    found = snapshot(model, revision, cache)
    if found is None:
        raise ModelFilesError(
            f"HF_HUB_OFFLINE is set, so vLLM names {model} by its snapshot's path, and {cache} does not hold it",
            hint="mount the server's Hugging Face cache at the same path, or unset HF_HUB_OFFLINE",
        )
    return found


def _from_hub(model: str, revision: str | None, env: Mapping[str, str]) -> tuple[Source, str]:
    cache = hub_cache(env)
    cached = snapshot(model, revision, cache)
    if offline(env):
        if cached is None:
            raise ModelFilesError(
                f"HF_HUB_OFFLINE is set and {cache} does not hold {model}" + (f" at {revision}" if revision else ""),
                hint="mount the server's Hugging Face cache at the same path",
            )
        return cached, cached.where
    # Asked even for a commit that is cached: a snapshot holds the files that somebody once needed, the hub all that there are,
    # and the key must not depend on who ran here before.
    from warmstart.identity.hub import HubSource

    try:
        return HubSource(model, revision, env), model
    except TemporaryError:
        # vLLM does the same: what it has seen before is good enough while the hub is away.
        if cached is None:
            raise
        return cached, model


def _true(env: Mapping[str, str], name: str) -> bool:
    return env.get(name, "").upper() in _TRUE
