"""What is killed: publish, install, claim and collect, their starting states, and what must hold after each death."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import random
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from tests.store.cache import AOT_KEY, facts, make_cache, snapshot

from warmstart.archive import Packed, find_installed, install, pack, parse_manifest
from warmstart.errors import EntryNotFound
from warmstart.store import GcPolicy, LayerFile, Store, open_store
from warmstart.store.claims import Body
from warmstart.typed import loads, read

KEY, OTHER_KEY, OLD_KEY, TWIN_KEY = (hashlib.sha256(name.encode()).hexdigest() for name in ("this", "other", "old", "twin"))
_DAYS_AGO = 3 * 86400.0
_POLICY = GcPolicy(max_age=86400.0, grace=7200.0)


@dataclasses.dataclass(frozen=True)
class Entry:
    """A small packed entry of three layers."""

    key: str
    packed: Packed
    files: Mapping[str, tuple[bytes, int]]

    def publish(self, store: Store) -> str:
        layers = [LayerFile(item.path, item.layer.digest, item.layer.size) for item in self.packed.layers]
        return store.publish(self.key, self.packed.document, layers).outcome


class Operation(Protocol):
    """One operation: its starting states, and how to do, check and finish it in a folder that holds such a state."""

    starts: Mapping[str, Path]

    def act(self, place: Path) -> None:
        """Do it: what runs in the child."""

    def check(self, place: Path, start: str) -> None:
        """Assert what a reader may rely on, whatever the child had done when it died."""

    def retry(self, place: Path, start: str) -> None:
        """Do it again, undisturbed, and assert that all is as if nobody had died."""


def make_entry(folder: Path, key: str, seed: int) -> Entry:
    """Pack an entry of a few kilobytes."""
    root = make_cache(folder / f"{key[:6]}-{seed}", seed=seed, ranks=2, artifact_bytes=3000, intermediate_bytes=10)
    packed = pack(root, folder / f"work-{key[:6]}-{seed}", key=key, factors={"seed": seed}, facts=facts(ranks=2), level=1)
    install(packed.manifest, lambda digest, _: iter([blob_of(packed, digest)]), folder / f"files-{key[:6]}-{seed}")
    return Entry(key, packed, snapshot(folder / f"files-{key[:6]}-{seed}"))


def blob_of(packed: Packed, digest: str) -> bytes:
    """Return a layer's bytes."""
    return next(item.path for item in packed.layers if item.layer.digest == digest).read_bytes()


def readable(store: Store, key: str) -> list[bytes]:
    """Return the manifests that a reader finds under `key`; every blob of each must be there and be what it is named for."""
    try:
        found = list(store.candidates(key))
    except EntryNotFound:
        return []
    for one in found:
        for layer in parse_manifest(one.manifest, key=key).layers:
            data = b"".join(store.fetch(layer.digest, layer.size))
            assert f"sha256:{hashlib.sha256(data).hexdigest()}" == layer.digest, "a reader sees a damaged blob"
    return [one.manifest for one in found]


def objects(place: Path) -> set[str]:
    """Return the names of all files, writes in progress included, the clock left out."""
    files = {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()}
    return files - {"claims/clock"}


def age(place: Path, *, but: tuple[str, ...] = ()) -> None:
    """Make every file three days old, those excepted whose name holds one of `but`."""
    for path in place.rglob("*"):
        if path.is_file() and not any(part in str(path) for part in but):
            os.utime(path, (time.time() - _DAYS_AGO,) * 2)


class Publish:
    """Publishing an entry into an empty store, one that has it, half of it, a damaged part of it, or another result."""

    def __init__(self, folder: Path) -> None:
        self.entry = make_entry(folder, KEY, 1)
        self.rival = make_entry(folder, KEY, 2)
        self.other = make_entry(folder, OTHER_KEY, 3)
        states: dict[str, Callable[[Path], object]] = {
            "an empty folder": lambda place: place.mkdir(),
            "another entry": lambda place: self.other.publish(open_store(str(place))),
            "this entry": lambda place: self.entry.publish(open_store(str(place))),
            "another result": lambda place: self.rival.publish(open_store(str(place))),
            "blobs without a manifest": self._headless,
            "a damaged blob": self._damaged,
            "old blobs": self._old,
        }
        self.starts = {name: folder / name for name in states}
        for name, make in states.items():
            make(self.starts[name])
        self._before = {
            name: [readable(open_store(str(path)), key) for key in (KEY, OTHER_KEY)]
            for name, path in self.starts.items()
            if name != "a damaged blob"
        }

    def _headless(self, place: Path) -> None:
        self.entry.publish(open_store(str(place)))
        shutil.rmtree(place / "entries")

    def _damaged(self, place: Path) -> None:
        self._headless(place)
        victim = sorted((place / "blobs").rglob("*"))[-1]
        victim.write_bytes(victim.read_bytes()[:-7] + b"damaged")

    def _old(self, place: Path) -> None:
        self._headless(place)
        age(place)

    def act(self, place: Path) -> None:
        self.entry.publish(open_store(str(place)))

    def check(self, place: Path, start: str) -> None:
        for key, before in zip((KEY, OTHER_KEY), self._before.get(start, [[], []]), strict=True):
            now = readable(open_store(str(place)), key)
            assert all(manifest in now for manifest in before), "an entry was lost"

    def retry(self, place: Path, start: str) -> None:
        store = open_store(str(place))
        outcome = self.entry.publish(store)
        assert outcome == ("beside" if start == "another result" else outcome)
        self.check(place, start)
        assert self.entry.packed.document in readable(store, KEY)
        assert not store.verify().findings


class Install:
    """Installing an entry beside another, over an earlier result, over its own remains, or into nothing."""

    def __init__(self, folder: Path) -> None:
        self.entry = make_entry(folder, KEY, 1)
        self.earlier = make_entry(folder, KEY, 2)
        self.other = make_entry(folder, OTHER_KEY, 3)
        self._store = str(folder / "store")
        for entry in (self.entry, self.other):
            entry.publish(open_store(self._store))
        states: dict[str, Callable[[Path], object]] = {
            "an empty folder": lambda place: place.mkdir(),
            "another entry": lambda place: self._put(self.other, place),
            "an earlier result": lambda place: self._put(self.earlier, place),
            "itself without its marker": self._unmarked,
            "itself with a file cut": self._cut,
        }
        self.starts = {name: folder / name for name in states}
        for name, make in states.items():
            make(self.starts[name])
        self._before = {name: snapshot(path) for name, path in self.starts.items()}

    def _put(self, entry: Entry, place: Path) -> None:
        install(entry.packed.manifest, lambda digest, _: iter([blob_of(entry.packed, digest)]), place)

    def _unmarked(self, place: Path) -> None:
        self._put(self.entry, place)
        shutil.rmtree(place / ".warmstart")

    def _cut(self, place: Path) -> None:
        self._put(self.entry, place)
        victim = place / f"torch_compile_cache/torch_aot_compile/{AOT_KEY}/rank_0_0/model"
        victim.write_bytes(victim.read_bytes()[:100])

    def act(self, place: Path) -> None:
        store = open_store(self._store)
        install(parse_manifest(store.lookup(KEY).manifest, key=KEY), store.fetch, place)

    def check(self, place: Path, start: str) -> None:
        before, now = self._before[start], snapshot(place)
        assert before.keys() <= now.keys(), "a file was lost"
        for name, file in now.items():
            assert file in (before.get(name), self.entry.files.get(name)), f"{name} is neither the old file nor the new one"
        done = find_installed(place, KEY)
        if done and start != "an earlier result":
            assert now.items() >= self.entry.files.items(), "the marker is there, but not every file"

    def retry(self, place: Path, start: str) -> None:
        self.act(place)
        assert snapshot(place) == {**self._before[start], **self.entry.files}
        assert find_installed(place, KEY)
        if left := self._left(place):
            # An install that is already done touches nothing; the next one that is not takes what the dead left. A staging
            # folder without a lock could be a living process's: it is given an hour.
            for top in left:
                os.utime(top, (time.time() - 3700,) * 2)
            (place / f".warmstart/{KEY}.json").unlink()
            self.act(place)
            assert not self._left(place), "what the dead install left was not cleaned up"

    def _left(self, place: Path) -> list[Path]:
        return [path for path in (place / ".warmstart").iterdir() if path.suffix != ".json"]


class ClaimIt:
    """Claiming, keeping and releasing a claim."""

    def __init__(self, folder: Path) -> None:
        states: dict[str, Callable[[Path], object]] = {
            "no claim": lambda place: place.mkdir(),
            "a released claim": self._released,
            "my own claim": lambda place: open_store(str(place)).claim(KEY, "me", 600),
            "an expired claim": self._expired,
            "another's claim": lambda place: open_store(str(place)).claim(KEY, "another", 600),
        }
        self.starts = {name: folder / name for name in states}
        for name, make in states.items():
            make(self.starts[name])

    def _released(self, place: Path) -> None:
        for owner in ("one", "two"):
            held = open_store(str(place)).claim(KEY, owner, 600)
            assert held
            held.release()

    def _expired(self, place: Path) -> None:
        open_store(str(place)).claim(KEY, "another", 600)
        age(place)

    def act(self, place: Path) -> None:
        if held := open_store(str(place)).claim(KEY, "me", 600):
            assert held.heartbeat()
            assert held.heartbeat()
            held.release()

    def check(self, place: Path, start: str) -> None:
        claims = sorted(path for path in place.glob(f"claims/{KEY}/*.json"))
        bodies = [read(Body, loads(path.read_bytes())) for path in claims]
        if start == "another's claim":
            assert bodies[-1].owner == "another", "a living owner's claim was taken over"
        if bodies and bodies[-1].owner == "me" and not bodies[-1].released:
            assert open_store(str(place)).claim(KEY, "a third", 600) is None, "two hold one claim"

    def retry(self, place: Path, start: str) -> None:
        store = open_store(str(place))
        held = store.claim(KEY, "me", 600)
        assert (held is None) == (start == "another's claim"), "a restarted owner cannot claim"
        if held:
            assert held.heartbeat()
            assert store.claim(KEY, "a third", 600) is None
            held.release()
            assert store.claim(KEY, "a third", 600)


class Collect:
    """Collecting garbage: entries that are old, blobs of theirs that a live entry shares, orphans, old claims, torn writes."""

    def __init__(self, folder: Path) -> None:
        self.live = make_entry(folder, KEY, 1)
        self.twin = make_entry(folder, TWIN_KEY, 1)
        self.old = make_entry(folder, OLD_KEY, 4)
        self.orphan = make_entry(folder, OTHER_KEY, 5)
        self.starts = {"three entries and what the dead left": folder / "full", "nothing to collect": folder / "tidy"}
        tidy, full = self.starts["nothing to collect"], self.starts["three entries and what the dead left"]
        self.live.publish(open_store(str(tidy)))
        open_store(str(tidy)).touch(KEY)
        store = open_store(str(full))
        for entry in (self.live, self.twin, self.old, self.orphan):
            entry.publish(store)
        store.remove(OTHER_KEY)
        store.claim(OLD_KEY, "dead", 60)
        store.touch(OLD_KEY)
        (full / "blobs/sha256/.tmp-torn").write_bytes(b"half")
        store.touch(KEY)
        age(full, but=(f"used/{KEY}",))
        self._kept = objects(tidy)
        self._before = {name: objects(path) for name, path in self.starts.items()}

    def act(self, place: Path) -> None:
        store = open_store(str(place))
        store.collect(store.plan_gc(_POLICY))

    def check(self, place: Path, start: str) -> None:
        store = open_store(str(place))
        assert readable(store, KEY) == [self.live.packed.document], "a live entry was lost"
        for key in (TWIN_KEY, OLD_KEY):
            readable(store, key)
        assert {name for name in objects(place) if ".tmp-" not in name} <= self._before[start]

    def retry(self, place: Path, start: str) -> None:
        self.act(place)
        self.check(place, start)
        fresh = {name for name in objects(place) if ".tmp-" in name}  # younger than the grace: the next collection's
        assert all("torn" not in name for name in fresh)
        assert objects(place) - fresh == self._kept


OPERATIONS: dict[str, Callable[[Path], Operation]] = {
    "publish": Publish, "install": Install, "claim": ClaimIt, "gc": Collect,
}  # fmt: skip


def fresh(template: Path, place: Path) -> None:
    """Make `place` equal to a template, by hard links: nothing in a store or a cache root is ever changed in place."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(template, place, copy_function=os.link)


def chosen(seed: int, operation: str, number: int) -> random.Random:
    """Return the generator of one point."""
    return random.Random(json.dumps([seed, operation, number]))  # noqa: S311
