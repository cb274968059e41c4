"""`warmstart run` on a hit, from exec to exit, beside `cp -a` of the raw cache folder.

Both bring the same cache from one local folder to another: warmstart reads the pod spec, computes the key, looks it up, checks
every digest, unpacks, makes the files durable and renames them into place; cp copies bytes. Alternating, medians of --rounds.

What is measured is the cache of a real pass over Qwen3-0.6B for an H200 (50 MB in 163 files, of which a warm start reads
24 MB in three): compiled once, in a minute, and kept in .bench/cache. With --cache FOLDER --spec FILE --model-files FOLDER it
is a cache of your own; with --made-up, or where vLLM is not installed, a folder of source files (27 MB in 352 files). CPU is
user and system time of the command and its children: on a machine that does other work too, it says more than the seconds
that passed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parents[1]
EXAMPLE = HERE / "examples" / "qwen3-0.6b"
ARTIFACT_BYTES = 13_000_000
REST_BYTES = 14_000_000
COMPILED = HERE / ".bench" / "cache"


def main() -> int:
    """Measure and print one table and one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    add_cache(parser)
    parser.add_argument("--spec", type=Path, default=EXAMPLE / "deployment.yaml")
    parser.add_argument("--model-files", type=Path, default=EXAMPLE / "model")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="warmstart-bench-") as folder:
        place = Path(folder)
        raw = cache_of(args, place / "raw")
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("WARMSTART_", "VLLM_"))},
            "WARMSTART_STORE": str(place / "store"),
            # As JSON text, which is how the chart and the API server hand it over.
            "WARMSTART_POD_SPEC": json.dumps(yaml.safe_load(args.spec.read_text())),
            "WARMSTART_MODEL_FILES": str(args.model_files),
            "WARMSTART_CACHE_ROOT": str(raw),
            # Byte code as an installed image has it, wherever this tree's may be written.
            "PYTHONPYCACHEPREFIX": str(place / "byte-code"),
        }
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        push = subprocess.run([*command(), "push"], env=environment, check=True, capture_output=True)
        entry = json.loads(push.stdout)
        measured = measure(place, raw, environment, args.rounds)
        raw_bytes = sum(path.stat().st_size for path in raw.rglob("*") if path.is_file())
    return show(entry, measured, raw_bytes)


def add_cache(parser: argparse.ArgumentParser) -> None:
    """Declare the options that say which cache is measured."""
    parser.add_argument("--cache", type=Path, help="a cache root that a pass or a server filled")
    parser.add_argument("--made-up", action="store_true", help="a folder of source files instead of a real cache")


def cache_of(args: argparse.Namespace, made: Path) -> Path:
    """Return the cache root to measure: the one given, that of the real pass, or one made up at `made`."""
    if args.cache:
        return Path(args.cache)
    if args.made_up or importlib.util.find_spec("vllm") is None:
        return made_up(made)
    if not (COMPILED / "torch_compile_cache").is_dir():
        print("compiling the cache to measure, once", file=sys.stderr)
        part = COMPILED.with_name("part")
        shutil.rmtree(part, ignore_errors=True)
        options = ["--max-model-len=4096", "--gpu-memory-utilization=0.9", "--enable-prefix-caching"]
        env = {**os.environ, "WARMSTART_CACHE_ROOT": str(part), "WARMSTART_GPU": "h200"}
        subprocess.run(
            [*command(), "compile", str(EXAMPLE / "model"), *options], env=env, check=True, stdout=subprocess.DEVNULL
        )
        part.rename(COMPILED)
    return COMPILED


def command() -> list[str]:
    """Return the command as a shell would find it beside this Python."""
    script = Path(sysconfig.get_path("scripts")) / "warmstart"
    return [str(script)] if script.exists() else [sys.executable, "-m", "warmstart"]


def measure(place: Path, raw: Path, environment: dict[str, str], rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Return seconds passed and CPU seconds by what was measured; the first round warms the page cache and is left out."""
    seconds: dict[str, list[tuple[float, float]]] = {}
    target = place / "target"
    ways = {
        "warmstart run, hit": ([*command(), "run"], target),
        "warmstart run, installed": ([*command(), "run"], target),
        "warmstart plan": ([*command(), "plan"], None),
        "cp -a": (["cp", "-a", str(raw), str(place / "copy")], place / "copy"),
        "cp -a, then sync": (["sh", "-c", f"cp -a '{raw}' '{place / 'copy'}' && sync -f '{place / 'copy'}'"], place / "copy"),
    }
    for number in range(rounds + 1):
        for name, (argv, into) in ways.items():
            if into is not None and name != "warmstart run, installed":
                shutil.rmtree(into, ignore_errors=True)
            env = {**environment, "WARMSTART_CACHE_ROOT": str(target)}
            used, begin = cpu(), time.perf_counter()
            done = subprocess.run(argv, env=env, check=True, capture_output=True)
            passed = (time.perf_counter() - begin, cpu() - used)
            if "run" in name:
                assert json.loads(done.stdout)["outcome"] == "hit", done.stdout
            if number:
                seconds.setdefault(name, []).append(passed)
    return seconds


def cpu() -> float:
    """Return the CPU seconds of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def made_up(root: Path) -> Path:
    """Make a cache root up: an artifact of generated-looking code, and the intermediates that a pass leaves beside it."""
    sources = sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py"), key=lambda path: str(path))
    text = b"".join(path.read_bytes() for path in sources[:1500])
    aot = root / "torch_compile_cache" / "torch_aot_compile" / ("a" * 64)
    (aot / "rank_0_0").mkdir(parents=True)
    repeated = text * (ARTIFACT_BYTES // len(text) + 1)
    (aot / "rank_0_0" / "model").write_bytes(repeated[:ARTIFACT_BYTES])
    inductor = aot / "inductor_cache"
    for number in range(350):
        path = inductor / f"{number % 20:02d}" / f"c{number:040d}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        start = number * 40_000 % (len(text) - 40_000)
        path.write_bytes(text[start : start + REST_BYTES // 350])
    (root / "modelinfos").mkdir()
    (root / "modelinfos" / "vllm-model_executor-models-qwen3.json").write_text('{"hash": "", "modelinfo": {}}')
    return root


def show(entry: dict[str, int], measured: dict[str, list[tuple[float, float]]], raw_bytes: int) -> int:
    """Print the table and the JSON line."""
    print(f"raw cache {raw_bytes / 1e6:.1f} MB, installed {entry['raw_bytes'] / 1e6:.1f} MB,", end=" ")
    print(f"stored {entry['stored_bytes'] / 1e6:.2f} MB; {os.cpu_count()} cores, Python {sys.version.split()[0]},", end=" ")
    print(f"load average {os.getloadavg()[0]:.1f}\n")
    print("| what, exec to exit | median | best | worst | CPU, median | n |\n| --- | ---: | ---: | ---: | ---: | ---: |")
    medians = {}
    for name, pairs in measured.items():
        passed, used = zip(*pairs, strict=True)
        medians[name] = {"seconds": round(statistics.median(passed), 3), "cpu_seconds": round(statistics.median(used), 3)}
        print(f"| {name} | {statistics.median(passed):.3f} s | {min(passed):.3f} s | {max(passed):.3f} s", end=" ")
        print(f"| {statistics.median(used):.3f} s | {len(passed)} |")
    print()
    print(json.dumps({"bench": "hit", **medians}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
