"""The places that the conformance suite runs over, each with a fresh prefix for each test."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import servers
from tests.store.cache import KEY, facts, make_cache

from warmstart.archive import Packed, pack
from warmstart.store import LayerFile, Store, StoreOptions, open_store
from warmstart.store.backend import Backend
from warmstart.store.opening import open_backend

PLACES = ("memory", "folder", "seaweedfs-obstore", "seaweedfs-s3fs", "moto-obstore")
_count = itertools.count()


@dataclasses.dataclass
class Place:
    """One prefix, and how to get at it. `server` is None for memory and folders."""

    url: str
    options: dict[str, Any]
    server: servers.S3Server | None = None
    notices: list[str] = dataclasses.field(default_factory=list)
    _shared: dict[str, Backend] = dataclasses.field(default_factory=dict, init=False)

    def settings(self, **more: Any) -> StoreOptions:
        return StoreOptions(**{**self.options, "notice": self.notices.append, **more})

    def store(self, **more: Any) -> Store:
        """Open the store, as another process would. s3fs's client, which takes half a second to make, is made once."""
        if self.options.get("s3_client") == "s3fs":
            return Store(self.backend(), self.settings(**more))
        return open_store(self.url, self.settings(**more))

    def backend(self) -> Backend:
        if self.options.get("s3_client") != "s3fs":
            return open_backend(self.url, self.settings())
        if self.url not in self._shared:
            self._shared[self.url] = open_backend(self.url, self.settings())
        return self._shared[self.url]


@pytest.fixture(scope="session")
def seaweedfs() -> Iterator[servers.S3Server]:
    with servers.seaweedfs() as server:
        yield server


@pytest.fixture(scope="session")
def moto() -> Iterator[servers.S3Server]:
    with servers.moto() as server:
        yield server


def s3_place(server: servers.S3Server, client: str) -> Place:
    """Return a fresh prefix on an S3 server, reached through one library."""
    return Place(f"s3://{server.bucket}/t{next(_count)}/store", {"storage": server.storage(), "s3_client": client}, server)


def make_place(name: str, request: pytest.FixtureRequest) -> Place:
    """Return a fresh prefix in the place of that name."""
    if name == "memory":
        return Place(f"memory://t{next(_count)}/store", {})
    if name == "folder":
        folder: Path = request.getfixturevalue("tmp_path")
        return Place(str(folder / "store"), {})
    server, _, client = name.partition("-")
    return s3_place(request.getfixturevalue(server), client)


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> Place:
    """Give every place in turn."""
    return make_place(request.param, request)


@pytest.fixture
def folder(request: pytest.FixtureRequest) -> Place:
    """Give a folder, for what does not depend on the place."""
    return make_place("folder", request)


@dataclasses.dataclass(frozen=True)
class Entry:
    """A packed entry, ready to publish."""

    packed: Packed
    root: Path

    @property
    def document(self) -> bytes:
        return self.packed.document

    @property
    def layers(self) -> list[LayerFile]:
        return [LayerFile(item.path, item.layer.digest, item.layer.size) for item in self.packed.layers]


def make_entry(folder: Path, *, seed: int = 1, key: str = KEY, vllm: str = "0.33.0", artifact_bytes: int = 50_000) -> Entry:
    """Make a cache and pack it."""
    root = make_cache(folder / "cache", seed=seed, ranks=2, artifact_bytes=artifact_bytes)
    return Entry(pack(root, folder / "work", key=key, factors={"seed": seed}, facts=facts(ranks=2, vllm=vllm), level=3), root)


@pytest.fixture(scope="session")
def entry(tmp_path_factory: pytest.TempPathFactory) -> Entry:
    """Pack an entry of two ranks: three layers."""
    return make_entry(tmp_path_factory.mktemp("entry"))


@pytest.fixture(scope="session")
def rival(tmp_path_factory: pytest.TempPathFactory) -> Entry:
    """Pack another result for the same key."""
    return make_entry(tmp_path_factory.mktemp("rival"), seed=2)
