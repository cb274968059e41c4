"""The code fingerprint: which code compiles and runs the cache, from what the installers recorded.

A wheel's RECORD lists every file with its SHA-256, so a digest of it tells a patched build from a stock one of the same
version, in milliseconds. Lines that depend on the place or the installer (scripts, metadata, byte code) are left out. A
package without a usable RECORD (an editable install, a distribution's package) is hashed file by file. Files of vLLM that no
longer have the size that RECORD gives, because somebody patched the image in place, are hashed as well.

A hit waits for this, so what only an unusual installation needs is imported there.
"""

# ruff: noqa: PTH110, PTH112, PTH118, PTH119, PTH120, PTH123 (importing pathlib takes a tenth of the time that this has)
from __future__ import annotations

import bisect
import hashlib
import marshal
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from warmstart.errors import UnsupportedError, UsageError
from warmstart.pattern import pattern
from warmstart.value import Value

if TYPE_CHECKING:
    from pathlib import Path

ABSENT = "absent"

# Distribution → import packages. Traced or called while compiling, or the compiler itself; or asked by vLLM for its choices.
PACKAGES: Mapping[str, tuple[str, ...]] = {
    "vllm": ("vllm",),
    "torch": ("torch", "functorch", "torchgen"),
    "triton": ("triton",),
    "transformers": ("transformers",),
    "compressed-tensors": ("compressed_tensors",),
    "flashinfer-python": ("flashinfer",),
    "flashinfer-cubin": ("flashinfer_cubin",),
    "flashinfer-jit-cache": ("flashinfer_jit_cache",),
    "flash-attn": ("flash_attn",),
    "deep-gemm": ("deep_gemm",),
    "deep-ep": ("deep_ep",),
    "tilelang": ("tilelang",),
    "nvidia-cutlass-dsl": ("nvidia_cutlass_dsl",),
    "quack-kernels": ("quack",),
    "humming-kernels": ("humming",),
    "tokenspeed-mla": ("tokenspeed_mla",),
    "tokenspeed-triton": ("tokenspeed_triton",),
    "torchao": ("torchao",),
    "bitsandbytes": ("bitsandbytes",),
    "amd-quark": ("quark",),
    "conch-triton-kernels": ("conch",),
    "mistral-common": ("mistral_common",),
    "sympy": ("sympy",),
}

# Asked by vLLM for its choices too, and seldom installed: in the fingerprint of an image that has them.
OPTIONAL: Mapping[str, tuple[str, ...]] = {
    "arctic-inference": ("arctic_inference",),
    "b12x": ("b12x",),
    "fa4": ("fa4",),
    "fbgemm-gpu": ("fbgemm_gpu",),
    "helion": ("helion",),
    "hpc": ("hpc",),
    "moonep": ("moonep",),
    "nixl-ep": ("nixl_ep",),
    "triton-kernels": ("triton_kernels",),
}

_IN_PLACE = "vllm"
_PLUGINS = pattern(rb"^\[vllm\.\w+_plugins\]", re.MULTILINE)
_SOURCE = frozenset({".py", ".pyi", ".so", ".json", ".cu", ".cuh", ".h", ".cpp", ".jinja"})
_MOST_FILES = 200_000


class CodeFingerprint(Value):
    """Package → "version sha256:…" or "absent", and what of Python matters."""

    packages: Mapping[str, str]
    python: Mapping[str, str]

    def version(self, package: str) -> str:
        """Return the version of a package. Raises UnsupportedError where it is not installed."""
        value = self.packages.get(package, ABSENT)
        if value == ABSENT:
            raise UnsupportedError(
                f"{package} is not installed here, so the key of a server cannot be computed",
                hint="run in the server's image, or hand its fingerprint over with WARMSTART_CODE_FILE",
            )
        return value.partition(" ")[0]

    @classmethod
    def read(cls, path: Path) -> CodeFingerprint:
        """Read the fingerprint in a document with a request's factors (`warmstart plan --factors` in the server's image)."""
        import json

        try:
            document = json.loads(path.read_bytes())
        except OSError as error:
            raise UsageError(f"cannot read the code fingerprint {path}: {error.strerror or error}") from error
        except ValueError as error:
            raise UsageError(f"the code fingerprint {path} is not JSON: {error}") from error
        for candidate in document if isinstance(document, list) else [document]:
            factors = candidate.get("factors", candidate) if isinstance(candidate, dict) else None
            if not isinstance(factors, dict):
                continue
            code, python = factors.get("code"), factors.get("python")
            if isinstance(code, dict) and isinstance(python, dict) and _texts(code) and _texts(python):
                return cls(code, python)
        raise UsageError(
            f"{path} holds no code fingerprint", hint="write it with `warmstart plan --factors` in the server's image"
        )

    def encode(self) -> bytes:
        """Return it as bytes, for `decode` in another process of this program."""
        return marshal.dumps((dict(self.packages), dict(self.python)))

    @classmethod
    def decode(cls, told: bytes) -> CodeFingerprint:
        """Return what `encode` was called on."""
        return cls(*marshal.loads(told))  # noqa: S302 - written by `encode`


def fingerprint(search: Iterable[str] | None = None) -> CodeFingerprint:
    """Return the fingerprint of what is installed on `search` (sys.path where None), vLLM plugins included."""
    imported = {**PACKAGES, **OPTIONAL}
    wanted = {_normal(name): name for name in imported}
    found: dict[str, str] = {}
    for info, name, version in _distributions(sys.path if search is None else search):
        label = wanted.get(name) or (f"plugin {name}" if _is_plugin(info) else None)
        if label is not None and label not in found:
            found[label] = f"{version} sha256:{_digest(info, name, imported.get(label, ()))}"
    packages = {name: found.get(name, ABSENT) for name in sorted({*PACKAGES, *found})}
    return CodeFingerprint({**packages, **_tools(os.environ)}, python_factors())


def installed_version(package: str, search: Iterable[str] | None = None) -> str:
    """Return the version of a package that is installed on `search` (sys.path where None), empty where it is not."""
    found = _distributions(sys.path if search is None else search, package[:1])
    return next((version for _, name, version in found if name == _normal(package)), "")


def python_factors() -> dict[str, str]:
    """Return what of this interpreter decides whether marshalled code and extension modules fit."""
    return {
        "implementation": sys.implementation.name,
        # To the patch level: torch refuses to load an AOT artifact that another patch release wrote.
        "version": ".".join(map(str, sys.version_info[:3])),
        "cache_tag": sys.implementation.cache_tag or "none",
        "machine": os.uname().machine,
    }


def _tools(environ: Mapping[str, str]) -> dict[str, str]:
    """Tell whether the compilers are there without which vLLM takes FlashInfer for absent, and so traces other graphs.

    Looks where vLLM looks (vllm/utils/flashinfer.py): nvcc in CUDA_HOME, CUDA_PATH, PATH or /usr/local/cuda, ninja in PATH.
    """
    path = environ.get("PATH", os.defpath)
    home = environ.get("CUDA_HOME") or environ.get("CUDA_PATH")
    nvcc = f"{home}/bin/nvcc" if home else "nvcc"
    found = {
        "tool nvcc": _program(nvcc, path) or (not home and _program("/usr/local/cuda/bin/nvcc", path)),
        "tool ninja": _program("ninja", path),
    }
    return {name: "present" if there else ABSENT for name, there in found.items()}


def _program(name: str, path: str) -> bool:
    """Whether there is a program of that name in PATH, or at that path: as `shutil.which` finds it."""
    folders = path.split(os.pathsep) if path else []
    places = [name] if "/" in name else [os.path.join(folder or ".", name) for folder in folders]
    return any(os.access(place, os.F_OK | os.X_OK) and not os.path.isdir(place) for place in places)


def _distributions(search: Iterable[str], initial: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield each installed distribution: its metadata folder, normalised name, and version. The first on the path counts.

    With `initial`, those whose names begin so, in any case.
    Reads folder names instead of importing importlib.metadata, which opens the METADATA of all distributions.
    """
    for folder in dict.fromkeys(search):
        try:
            names = [entry.name for entry in os.scandir(folder or ".")]
        except OSError:
            continue
        for entry in sorted(name for name in names if name.endswith(".dist-info") and name.lower().startswith(initial)):
            name, _, version = entry.removesuffix(".dist-info").rpartition("-")
            if name:
                yield f"{folder or '.'}/{entry}", _normal(name), version


def _is_plugin(info: str) -> bool:
    entry_points = _content(f"{info}/entry_points.txt")
    return entry_points is not None and _PLUGINS.search(entry_points) is not None


def _content(path: str) -> bytes | None:
    """Return a file's bytes, None where it cannot be read: called for every distribution, so by the shortest way."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        with open(descriptor, "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return None


def _digest(info: str, name: str, packages: tuple[str, ...]) -> str:
    lines = [] if os.path.exists(f"{info}/direct_url.json") and _editable(info) is not None else _record(info)
    if not lines:
        return _by_files(_folders(info, name, packages))
    digest = hashlib.sha256(b"\n".join(lines))
    if name == _IN_PLACE:
        for changed in _changed(os.path.dirname(info), lines):
            digest.update(changed)
    return digest.hexdigest()


def _folders(info: str, name: str, packages: tuple[str, ...]) -> list[Path]:
    """Return the folders of a package that is hashed by its files."""
    from pathlib import Path

    source = _editable(info)
    if source is not None:
        return [source / package for package in packages] or [source]
    return [Path(info).parent / package for package in packages or (name.replace("-", "_"),)]


def _record(info: str) -> list[bytes]:
    """Return the lines of RECORD that are of the package itself, sorted: the same wherever and however it is installed.

    Forty thousand lines at every start of a pod, so no Python runs for each of them: what is left out stands together once
    they are sorted. Only pip records byte code, and only then is there a second pass.
    """
    record = (_content(f"{info}/RECORD") or b"").replace(b"\r", b"")
    lines = sorted(record.split(b"\n"))
    for elsewhere in (b"", b"../", b"/", b'"../', b'"/', os.fsencode(os.path.basename(info)) + b"/"):
        begin = bisect.bisect_left(lines, elsewhere)
        end = bisect.bisect_left(lines, elsewhere + b"\xff") if elsewhere else bisect.bisect_right(lines, b"")
        del lines[begin:end]
    return [line for line in lines if b"__pycache__/" not in line] if b"__pycache__/" in record else lines


def _changed(root: str, lines: list[bytes]) -> Iterator[bytes]:
    """Yield path and SHA-256 of each Python file whose size is not the recorded one, and the path of each that is gone."""
    base = os.fsencode(root) + b"/"
    stat = os.stat
    for line in lines:
        path, _, rest = line.partition(b".py,sha256=")
        if not rest:
            continue
        wanted = rest[rest.rfind(b",") + 1 :]
        file = base + path + b".py"
        try:
            size = stat(file).st_size  # thousands of them: a Path each would double the time
        except OSError:
            yield path + b" gone"
            continue
        if not wanted.isdigit() or size != int(wanted):
            with open(file, "rb") as content:
                yield path + b" " + hashlib.sha256(content.read()).digest()


def _editable(info: str) -> Path | None:
    """Return the source folder of an editable install, or None. Raises UsageError where it cannot be found."""
    told = _content(f"{info}/direct_url.json")
    if told is None:
        return None
    import json
    from pathlib import Path
    from urllib.parse import unquote, urlparse

    try:
        document = json.loads(told)
    except ValueError:
        return None
    if not isinstance(document, dict) or not (document.get("dir_info") or {}).get("editable"):
        return None
    folder = Path(unquote(urlparse(str(document.get("url"))).path))
    if not folder.is_dir():
        name = os.path.basename(info)
        raise UsageError(f"{name} is an editable install whose source {folder} is not there", hint="install a wheel")
    return folder / "src" if (folder / "src").is_dir() else folder


def _by_files(folders: Iterable[Path]) -> str:
    """Hash source and extension modules below folders, by relative path and content."""
    digest = hashlib.sha256()
    seen = 0
    for folder in folders:
        for path in _sources(folder):
            seen += 1
            if seen > _MOST_FILES:
                raise UsageError(f"{folder} holds more than {_MOST_FILES} source files", hint="install a wheel")
            digest.update(f"{path.relative_to(folder.parent)}\0".encode())
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _sources(folder: Path) -> Iterator[Path]:
    from pathlib import Path

    for root, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != "__pycache__" and not name.startswith("."))
        yield from (Path(root) / name for name in sorted(files) if Path(name).suffix in _SOURCE)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _texts(value: Mapping[Any, Any]) -> bool:
    return bool(value) and all(isinstance(text, str) for text in (*value, *value.values()))
