"""Pack, publish, fetch and install, from a folder and from S3 on loopback, beside `cp -a` and `rclone copy` of the raw folder.

Every figure is the median of the runs, all in one session on one machine; `hit` is exec to exit of a Python process that looks
up, fetches, verifies and installs, as the init container does. Run: python bench/bench_store.py [--cache FOLDER] [--runs N]
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE / "app"), str(HERE)]

from tests import servers  # noqa: E402
from tests.store.cache import KEY, facts, make_cache  # noqa: E402

from warmstart.archive import Packed, install, pack, parse_manifest  # noqa: E402
from warmstart.store import LayerFile, Store, open_store  # noqa: E402

HIT = """
import sys
from pathlib import Path
from warmstart.archive import install, parse_manifest
from warmstart.store import open_store
store = open_store(sys.argv[1])
found = store.lookup(sys.argv[2])
install(parse_manifest(found.manifest, key=found.key), store.fetch, Path(sys.argv[3]))
"""


def median(runs: int, action: Callable[[Path], None], folder: Path) -> float:
    """Return the median seconds of `action`, each time with a fresh path that is not there yet."""
    seconds = []
    for run in range(runs):
        target = folder / f"run{run}"
        start = time.perf_counter()
        action(target)
        seconds.append(time.perf_counter() - start)
        shutil.rmtree(target, ignore_errors=True)
    return statistics.median(seconds)


def command(*words: str, env: Mapping[str, str] | None = None) -> None:
    """Run a command; fail with what it said."""
    done = subprocess.run(words, env={**os.environ, **(env or {})}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{words[0]} failed: {done.stderr.strip()[-500:]}")


def hit(url: str, root: Path) -> None:
    """Look up and install in a process of its own."""
    command(sys.executable, "-c", HIT, url, KEY, str(root), env={"PYTHONPATH": str(HERE / "app")})


def install_here(store: Store, root: Path) -> None:
    """Look up and install in this process."""
    install(parse_manifest(store.lookup(KEY).manifest, key=KEY), store.fetch, root)


def publish(packed: Packed, url: str) -> None:
    """Publish to an empty prefix."""
    open_store(url).publish(KEY, packed.document, [LayerFile(p.path, p.layer.digest, p.layer.size) for p in packed.layers])


def measure(cache: Path, work: Path, runs: int) -> tuple[list[tuple[str, float]], Packed]:
    """Return what was measured, in the order of the table, and the packed entry."""
    rows: list[tuple[str, float]] = []
    packed = pack(cache, work / "packed", key=KEY, factors={}, facts=facts(aot_keys=()))

    def row(name: str, action: Callable[[Path], None]) -> None:
        folder = work / "targets"
        folder.mkdir(exist_ok=True)
        rows.append((name, median(runs, action, folder)))
        print(f"  {name}: {rows[-1][1] * 1000:.0f} ms", file=sys.stderr)

    row("pack", lambda target: _discard(pack(cache, target, key=KEY, factors={}, facts=facts(aot_keys=()))))
    folder_url = str(work / "store")
    publish(packed, folder_url)
    row("folder: publish", lambda target: publish(packed, str(target)))
    row("folder: look up and install, in process", lambda target: install_here(open_store(folder_url), target))
    row("folder: hit, exec to exit", lambda target: hit(folder_url, target))
    row("cp -a of the raw folder", lambda target: command("cp", "-a", str(cache), str(target)))
    install_here(open_store(folder_url), work / "installed")
    row("installed already, in process", lambda _: install_here(open_store(folder_url), work / "installed"))
    with servers.seaweedfs() as server:
        os.environ.update(server.environment())
        s3_url = f"s3://{server.bucket}/store"
        publish(packed, s3_url)
        row("S3: publish", lambda target: publish(packed, f"s3://{server.bucket}/{target.name}"))
        row("S3: look up and install, in process", lambda target: install_here(open_store(s3_url), target))
        row("S3: hit, exec to exit", lambda target: hit(s3_url, target))
        remote = rclone_remote(server)
        rclone = str(servers.BIN / "rclone")
        command(rclone, "copy", str(cache), f"bench:{server.bucket}/raw", env=remote)
        row(
            "rclone copy of the raw folder from S3",
            lambda target: command(rclone, "copy", f"bench:{server.bucket}/raw", str(target), env=remote),
        )
    return rows, packed


def rclone_remote(server: servers.S3Server) -> dict[str, str]:
    """Return the environment that gives rclone a remote called `bench`."""
    return {
        "RCLONE_CONFIG": "/dev/null",
        "RCLONE_CONFIG_BENCH_TYPE": "s3",
        "RCLONE_CONFIG_BENCH_PROVIDER": "SeaweedFS",
        "RCLONE_CONFIG_BENCH_ENDPOINT": server.endpoint,
        "RCLONE_CONFIG_BENCH_ACCESS_KEY_ID": server.writer.key,
        "RCLONE_CONFIG_BENCH_SECRET_ACCESS_KEY": server.writer.secret,
    }


def levels(cache: Path, work: Path) -> list[tuple[int, float, int]]:
    """Return for each zstd level the CPU seconds of packing and the stored bytes."""
    found = []
    for level in (1, 3, 6, 9, 12, 15, 19):
        start = time.process_time()
        packed = pack(cache, work / f"level{level}", key=KEY, factors={}, facts=facts(aot_keys=()), level=level)
        found.append((level, time.process_time() - start, packed.stored_bytes))
    return found


def _discard(packed: Packed) -> None:
    del packed


def main() -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, help="a real cache root (default: a made-up one of the same shape)")
    parser.add_argument("--runs", type=int, default=7)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-store-") as name:
        work = Path(name)
        cache = arguments.cache or make_cache(work / "cache", artifact_bytes=24_000_000, intermediate_bytes=2_200_000)
        rows, packed = measure(cache, work, arguments.runs)
        print(f"\n## Store: one entry, medians of {arguments.runs}\n")
        raw, kept = packed.folder_bytes, packed.manifest.raw_bytes
        stored = packed.stored_bytes
        print(f"Cache {raw:,} bytes in all, {kept:,} kept, {stored:,} stored: 1/{raw / stored:.0f} of all,")
        print(f"1/{kept / stored:.0f} of the kept. Load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores.\n")
        print("| step | ms |\n| --- | ---: |")
        for step, seconds in rows:
            print(f"| {step} | {seconds * 1000:,.1f} |")
        print("\n| zstd level | CPU s to pack | stored bytes | of all |\n| ---: | ---: | ---: | ---: |")
        for level, seconds, size in levels(cache, work):
            print(f"| {level} | {seconds:.2f} | {size:,} | 1/{raw / size:.0f} |")


if __name__ == "__main__":
    main()
