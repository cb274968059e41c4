"""The main job on real input, without a GPU: plan, compile for an H200, publish to a folder, install twice.

`make demo` runs it. The pod spec and the model's configuration lie beside this file; everything that it writes goes below
`.demo/`, which is emptied first. It ends with a summary and, as the last line, one JSON document.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
DEMO = HERE.parents[1] / ".demo"
STORE = DEMO / "store"
WARMSTART = Path(sys.executable).with_name("warmstart")
COMMON = ("-f", str(HERE / "deployment.yaml"), "--model-files", str(HERE / "model"), "--store", str(STORE))


def call(*words: str) -> tuple[Any, float]:
    """Run one warmstart command as a user would; return its JSON result and its seconds from exec to exit."""
    shown = " ".join(word.replace(str(HERE.parents[1]) + os.sep, "") for word in words)
    print(f"\n$ warmstart {shown}", flush=True)
    begin = time.monotonic()
    done = subprocess.run([WARMSTART, *words], stdout=subprocess.PIPE, text=True, check=False)
    seconds = time.monotonic() - begin
    if done.returncode != 0:
        raise SystemExit(f"demo: `warmstart {words[0]}` ended with exit code {done.returncode}: {done.stdout.strip()}")
    print(f"  ({seconds:.2f} s)", flush=True)
    return json.loads(done.stdout), seconds


def first(document: Any) -> dict[str, Any]:
    """Return the first result of a command that may answer for several servers."""
    found: dict[str, Any] = document[0] if isinstance(document, list) else document
    return found


def run(root: str) -> tuple[dict[str, Any], float]:
    """Do what the init container does, for a pod whose cache volume is `root`."""
    document, seconds = call("run", *COMMON, "--cache-root", str(DEMO / root), "--fail-closed")
    return first(document), seconds


def main() -> int:
    """Run the five steps and print the summary."""
    shutil.rmtree(DEMO, ignore_errors=True)
    DEMO.mkdir()
    call("plan", *COMMON)
    made, _ = call("precompile", *COMMON, "--work-dir", str(DEMO))
    made = first(made)
    installed, _ = run("pod-a")
    hit, hit_seconds = run("pod-b")
    again, again_seconds = run("pod-b")
    if {installed["outcome"], hit["outcome"], again["outcome"]} != {"hit"}:
        raise SystemExit(f"demo: expected three hits, got {installed['outcome']}, {hit['outcome']}, {again['outcome']}")
    summary = {
        "outcome": hit["outcome"],
        **{field: hit[field] for field in ("request_key", "gpu", "vllm", "aot_keys", "modules", "graphs", "ranks")},
        **{field: hit[field] for field in ("raw_bytes", "stored_bytes")},
        "gpu_memory_bytes": made["gpu_memory_bytes"],
        "compile_seconds": made["compile_seconds"],
        "hit_seconds": round(hit_seconds, 3),
    }
    raw, stored = summary["raw_bytes"], summary["stored_bytes"]
    counts = f"{summary['modules']} module, {summary['graphs']} graphs, {summary['ranks']} rank"
    print(
        f"""
{summary["gpu"]}, vLLM {summary["vllm"]}, no GPU in this machine
  compiled    {counts} in {made["compile_seconds"]:.1f} s
  stored      {stored:,} of {raw:,} bytes (1/{raw / stored:.0f})
  installed   into an empty cache root in {hit_seconds:.2f} s from exec to exit; once more in {again_seconds:.2f} s
  the server  looks under torch_aot_compile/{summary["aot_keys"][0][:16]}…, and finds it in {DEMO.name}/pod-b
"""
    )
    print(json.dumps(summary))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
