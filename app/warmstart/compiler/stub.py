"""A stand-in for libcuda.so.1: it lets extension modules that link the driver load where no driver is.

vLLM's extension modules (`_C`, `_moe_C`, FlashAttention …) and some of torch's name libcuda.so.1 among the libraries they
need. Without it they do not load, their operators are not registered, and a compile pass would trace other code than the
server runs. The stand-in exports every `cu…` name that those modules leave undefined; each function answers
CUDA_ERROR_NO_DEVICE. It is loaded before anything else in the pass's processes, also where a driver is installed: the pass
must never touch a GPU by accident.

`python -m warmstart.compiler.stub --output PATH` builds it, for an image without a C compiler at run time.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warmstart.errors import CompileError, UsageError, shorten

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SONAME = "libcuda.so.1"
# The distributions whose extension modules a vLLM process loads and that may link the driver.
_DISTRIBUTIONS = ("vllm", "torch", "triton", "flashinfer-python", "flashinfer-jit-cache", "flash-attn", "humming-kernels")
_DRIVER_NAME = re.compile(r"^cu[A-Z]\w*$")
_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE


def symbols() -> tuple[str, ...]:
    """Return the driver functions that installed extension modules leave undefined, sorted."""
    found: set[str] = set()
    for path in _extension_modules():
        found.update(driver_symbols(path))
    if not found:
        raise CompileError(
            f"no installed extension module needs {SONAME}",
            hint="is vLLM's CUDA build installed in this environment?",
        )
    return tuple(sorted(found))


def ensure(folder: Path, prebuilt: Path | None = None) -> Path:
    """Return a stand-in for the installed modules: `prebuilt` where it is there, else one built into `folder` once.

    Raises:
        UsageError: there is neither a prebuilt stand-in nor a C compiler.

    """
    if prebuilt is not None and prebuilt.is_file():
        return prebuilt
    names = symbols()
    target = folder / f"libcuda-{hashlib.sha256(' '.join(names).encode()).hexdigest()[:16]}.so.1"
    if not target.is_file():
        build(names, target)
    return target


def build(names: Iterable[str], target: Path) -> None:
    """Compile a shared library that exports `names` to `target`, in place only when whole."""
    compiler = next((found for found in map(shutil.which, ("cc", "gcc", "clang")) if found), None)
    if compiler is None:
        raise UsageError(
            f"a stand-in for {SONAME} has to be built, and there is no C compiler (cc, gcc, clang) on the PATH",
            hint="use the warmstart image, which carries one, or install gcc",
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    source = "\n".join(f"int {name}(void) {{ return {_NO_DEVICE}; }}" for name in sorted(names)) + "\n"
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        code, library = Path(scratch, "libcuda.c"), Path(scratch, "libcuda.so")
        code.write_text(source)
        command = [compiler, "-shared", "-fPIC", "-O1", f"-Wl,-soname,{SONAME}", "-o", str(library), str(code)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CompileError(f"{compiler} could not build the stand-in for {SONAME}: {shorten(done.stderr)}")
        library.replace(target)


def _extension_modules() -> Iterator[Path]:
    for name in _DISTRIBUTIONS:
        try:
            files = importlib.metadata.distribution(name).files or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for file in files:
            if ".so" in file.suffixes:
                path = Path(str(file.locate()))
                if path.is_file():
                    yield path


def driver_symbols(path: Path) -> set[str]:
    """Return the driver functions that a module leaves undefined; none where it does not name the driver's library."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    with path.open("rb") as file:
        try:
            elf: Any = ELFFile(file)
            dynamic, table = elf.get_section_by_name(".dynamic"), elf.get_section_by_name(".dynsym")
            if dynamic is None or table is None:
                return set()
            needed = {tag.needed for tag in dynamic.iter_tags("DT_NEEDED")}
            if not any(name.startswith("libcuda.so") for name in needed):
                return set()
            return {
                symbol.name
                for symbol in table.iter_symbols()
                if symbol["st_shndx"] == "SHN_UNDEF" and _DRIVER_NAME.match(symbol.name)
            }
        except ELFError:
            return set()


def main(argv: list[str] | None = None) -> int:
    """Build the stand-in at a given path."""
    parser = argparse.ArgumentParser(prog="python -m warmstart.compiler.stub", description=main.__doc__)
    parser.add_argument("--output", type=Path, required=True)
    target: Path = parser.parse_args(argv).output
    try:
        names = symbols()
        build(names, target)
    except (CompileError, UsageError) as error:
        print(f"warmstart: {error}", file=sys.stderr)
        return 2
    print(f"{target}: {len(names)} driver functions")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
