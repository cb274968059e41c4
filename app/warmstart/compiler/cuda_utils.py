"""Triton's `cuda_utils`: the extension module that loads and launches kernels, compiled with gcc at a server's first start.

In a new container that takes a second of its torch.compile time. From Triton 3.8 on, the key of the module in Triton's cache
holds the folders in which the server finds a libcuda.so.1. That comes from the node, and an init container does not see it. The
module itself holds no path, only the name libcuda.so.1, so one is compiled and laid under the key of each usual place; Triton
compiles its own where it looks under another.
"""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warmstart.compiler.stub import SONAME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warmstart.compiler.seams.base import Bench

NAME = "cuda_utils"
_DRIVER = "triton.backends.nvidia.driver"
_BUILD = "triton.runtime.build"


def driver_folders() -> list[list[str]]:
    """Return in which folders servers find libcuda.so.1: in Debian's, Red Hat's and GKE's containers.

    Where this image has one of its own (for compatibility, as vLLM's has), a container finds that and the node's, in the order
    in which its loader lists them; without a node's driver only that. A server that is told where to look
    (TRITON_LIBCUDA_PATH) looks nowhere else.
    """
    if told := os.environ.get("TRITON_LIBCUDA_PATH"):
        return [[told]]
    debian = f"{platform.machine()}-linux-gnu"
    usual = [[f"/lib/{debian}"], [f"/usr/lib/{debian}"], ["/lib64"], ["/usr/lib64"], ["/usr/local/nvidia/lib64"]]
    here = list(_linked_here())
    if not here or here in usual:
        return usual
    both = [order for node in usual if node[0] not in here for order in ([*node, *here], [*here, *node])]
    return [*usual, here, *both]


def compile_module(bench: Bench, folder: Path, standin: Path) -> int:
    """Compile the module into the Triton cache `folder`, linked with `standin`; return under how many keys it lies.

    Raises:
        SeamError: Triton does not make it as it used to.
        subprocess.CalledProcessError: the C compiler failed.
        RuntimeError: there is none.

    """
    from triton import knobs

    with bench.named("triton.cuda-utils"):
        driver, build = bench.module(_DRIVER), bench.module(_BUILD)
        bench.replace(build, "_load_module_from_path", lambda _name, _path: _Anything())
        compiled: list[bytes] = []

        def link(name: str, src: str, srcdir: str, libraries_in: list[str], include: list[str], libraries: list[str]) -> str:
            """Compile as Triton does, once; its own libraries come from a folder that is not here."""
            if not compiled:
                Path(srcdir, SONAME).symlink_to(standin)
                # Without its name again, a linker drops a library of which it finds no symbol used.
                flags = ["-Wl,--no-as-needed", f"-l:{SONAME}"]
                with knobs.build.scope():
                    knobs.build.impl = None
                    made = build._build(name, src, srcdir, [*libraries_in, srcdir], include, libraries, flags)
                compiled.append(Path(made).read_bytes())
            target = Path(srcdir, name)
            target.write_bytes(compiled[0])
            return str(target)

        before = driver.library_dirs
        for found in driver_folders():
            bench.replace(driver, "library_dirs", lambda found=found: [driver.libdevice_dir, *found])
            with knobs.cache.scope(), knobs.build.scope():
                knobs.cache.dir, knobs.build.impl = str(folder), link
                object.__new__(driver.CudaUtils).__init__()
        bench.replace(driver, "library_dirs", before)
    return len(list(folder.glob(f"*/{NAME}.*")))


class _Anything:
    """What stands in for the loaded module: nobody calls into it."""

    def __getattr__(self, _name: str) -> Any:
        return None


def _linked_here() -> Iterator[str]:
    """Go through the folders in which the loader of this image finds a libcuda.so.1; the vLLM image has a compatibility one."""
    told = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, errors="replace", check=False).stdout
    for line in told.splitlines():
        if SONAME in line:
            yield str(Path(line.split()[-1]).parent)
