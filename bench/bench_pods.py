"""1,000 simulated pods that hit one entry on S3, and 64 publishers that race for one key, on loopback.

A pod is what the init container does once it knows its key: open the store, look up, fetch, verify, unpack, make durable, and
rename, each into a cache root of its own. Pods are threads of --processes processes: they wait as a cluster's would, but all of
their CPU time falls on this one machine. The publishers hold 8 different results for one key; then as many pods race to claim
it. What must hold is checked: every root is whole, each result is kept exactly once, one claim is won. Where the server does
not answer (SeaweedFS leaves some of 64 conditional writes of one name to their timeout), a pod asks again, as `run` does.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

HERE = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(HERE / "app"), str(HERE), str(HERE / "bench")]

from bench_hit import add_cache, cache_of  # noqa: E402
from tests import servers  # noqa: E402
from tests.store.cache import KEY, facts, make_cache  # noqa: E402

from warmstart.archive import Packed, install, pack, parse_manifest  # noqa: E402
from warmstart.errors import TemporaryError  # noqa: E402
from warmstart.store import LayerFile, StoreOptions, open_store  # noqa: E402

RESULTS = 8
Answer = TypeVar("Answer")
TRIES = 5
REQUEST_SECONDS = 10.0


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--at-once", type=int, default=50, help="pods of one process that run at the same time")
    parser.add_argument("--publishers", type=int, default=64)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    add_cache(parser)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-pods-") as name, servers.seaweedfs() as server:
        place = Path(name)
        os.environ.update(server.environment())
        raw = cache_of(args, place / "raw")
        aot = tuple(path.name for path in (raw / "torch_compile_cache/torch_aot_compile").iterdir())
        packed = pack(raw, place / "packed", key=KEY, factors={}, facts=facts(aot_keys=aot))
        url = f"s3://{server.bucket}/store"
        publish(url, packed)
        hits = hit_all(url, place / "roots", packed.manifest.files, args)
        races = race_all(f"s3://{server.bucket}/race", place, args)
    print(json.dumps({"bench": "pods", **hits, **races}))
    return 0


def publish(url: str, packed: Packed) -> str:
    """Publish as one pod; return the outcome."""
    layers = [LayerFile(item.path, item.layer.digest, item.layer.size) for item in packed.layers]
    return open_store(url, StoreOptions(timeout=REQUEST_SECONDS)).publish(KEY, packed.document, layers).outcome


def pods(url: str, roots: Path, files: int, numbers: range, at_once: int) -> list[float]:
    """Run pods of one process; return the seconds that each took."""

    def pod(number: int) -> float:
        root = roots / str(number)
        begin = time.perf_counter()
        store = open_store(url)
        found = store.lookup(KEY)
        done = install(parse_manifest(found.manifest, key=KEY), store.fetch, root)
        seconds = time.perf_counter() - begin
        assert done.placed == files
        shutil.rmtree(root)
        return seconds

    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(pod, numbers))


def hit_all(url: str, roots: Path, files: int, args: argparse.Namespace) -> dict[str, float]:
    """Let every pod hit the entry; print and return the figures."""
    begin = time.perf_counter()
    with ProcessPoolExecutor(args.processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        shares = [range(start, args.pods, args.processes) for start in range(args.processes)]
        futures = [pool.submit(pods, url, roots, files, share, args.at_once) for share in shares]
        seconds = sorted(second for future in futures for second in future.result())
    passed = time.perf_counter() - begin
    assert len(seconds) == args.pods
    median, slow = statistics.median(seconds), seconds[int(len(seconds) * 0.99)]
    print(
        f"{args.pods} pods hit one entry, {args.at_once * args.processes} at once, {os.cpu_count()} cores: all whole", end=" "
    )
    print(f"in {passed:.1f} s, {args.pods / passed:.0f} a second; a pod took {median:.2f} s, at most {slow:.2f} s for 99 %")
    return {"pods": args.pods, "seconds": round(passed, 2), "pod_median": round(median, 3), "pod_p99": round(slow, 3)}


def race_all(url: str, place: Path, args: argparse.Namespace) -> dict[str, object]:
    """Let publishers race for one key, then claimants; print and return what came of it."""
    made = [
        pack(make_cache(place / f"r{seed}", seed=seed), place / f"p{seed}", key=KEY, factors={}, facts=facts(), level=3)
        for seed in range(RESULTS)
    ]
    gate = threading.Barrier(args.publishers)
    again: list[str] = []

    def patiently(call: Callable[[], Answer]) -> Answer:
        gate.wait()
        for left in reversed(range(TRIES)):
            try:
                return call()
            except TemporaryError as error:
                again.append(str(error))
                if not left:
                    raise
        raise AssertionError

    def publisher(number: int) -> str:
        return patiently(lambda: publish(url, made[number % RESULTS]))

    def claimant(number: int) -> bool:
        store = open_store(url, StoreOptions(timeout=REQUEST_SECONDS))
        return patiently(lambda: store.claim(KEY, f"pod-{number}", 60)) is not None

    begin = time.perf_counter()
    with ThreadPoolExecutor(args.publishers) as pool:
        outcomes = Counter(pool.map(publisher, range(args.publishers)))
        passed = time.perf_counter() - begin
        begin = time.perf_counter()
        won = sum(pool.map(claimant, range(args.publishers)))
        claiming = time.perf_counter() - begin
    store = open_store(url)
    found = {entry.manifest for entry in store.candidates(KEY)}
    assert found <= {item.document for item in made}
    assert outcomes["published"] >= 1
    assert len(found) == min(RESULTS, args.publishers), f"{len(found)} results are kept, not each once"
    assert not store.verify().findings
    assert won == 1, f"{won} pods hold the claim"
    print(
        f"{args.publishers} publishers of {RESULTS} results raced for one key in {passed:.2f} s: {dict(outcomes)}; the store is"
    )
    print(f"sound and holds each result once. As many raced to claim it in {claiming:.2f} s: one won.")
    print(f"Calls that the server left unanswered and that were made again: {len(again)}")
    return {
        "publishers": args.publishers,
        "race_seconds": round(passed, 2),
        "outcomes": dict(outcomes),
        "claims_won": won,
        "again": len(again),
    }


if __name__ == "__main__":
    sys.exit(main())
