"""What a seam is, how it is registered, and the one way in which it may replace something."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

from warmstart.compiler.launches import Launches
from warmstart.errors import SeamError

if TYPE_CHECKING:
    from warmstart.gpus.profile import GpuProfile

Stage = Literal["driver", "torch", "vllm"]
Where = Literal["anywhere", "no-device", "device"]
"""Whether a seam belongs to every pass, stands in for a device that is not there, or needs one that is."""
ABSENT = object()
"""What `Bench.replace` returns for a name that this line of vLLM has not got."""


@dataclasses.dataclass
class Bench:
    """What the seams of one rank's process work on: its GPU, its place in the world, and the fake tensor mode.

    `visible` is the number of GPUs that the server's container sees, `device` the index of this rank's own, `absent` the
    names that this line of vLLM has not got (`lines.Line.absent`). `real` says that the GPU is in sight: what stands in for a
    device is left out then; without it, `standin` is the library that stands in for libcuda. `tuning_bytes` is how much of its
    memory tuning may take (0: no limit). `later` are calls that a seam puts off until the model has been compiled, `launches`
    what becomes of launched Triton kernels.
    """

    gpu: GpuProfile
    visible: int
    device: int = 0
    versions: str = ""
    absent: frozenset[str] = frozenset()
    real: bool = False
    standin: str = ""
    tuning_bytes: int = 0
    mode: Any = None
    launches: Launches = dataclasses.field(default_factory=Launches)
    later: list[Callable[[], Any]] = dataclasses.field(default_factory=list)
    _active: str = ""
    _undo: list[Callable[[], None]] = dataclasses.field(default_factory=list)

    def replace(self, owner: Any, name: str, value: Any) -> Any:
        """Put `value` in the place of `owner.name`, which must exist; returns what was there.

        `owner` may be an object or the dotted name of a module. What this line of vLLM is known not to have is left out, and
        ABSENT returned.

        Raises:
            SeamError: the module or the attribute is not there: upstream has moved it.

        """
        if isinstance(owner, str) and owner in self.absent:
            return ABSENT
        where = self.module(owner) if isinstance(owner, str) else owner
        if isinstance(where, type):
            # Keep static methods and descriptors as they are defined, not as they are looked up.
            before = next((vars(base)[name] for base in where.__mro__ if name in vars(base)), ABSENT)
        else:
            before = getattr(where, name, ABSENT)
        if before is ABSENT:
            if f"{_label(where)}.{name}" in self.absent:
                return ABSENT
            raise SeamError(self._active, self.versions, f"{_label(where)} has no {name}")
        own = name in vars(where)
        setattr(where, name, value)
        self._undo.append((lambda: setattr(where, name, before)) if own else (lambda: delattr(where, name)))
        return before

    def replace_everywhere(self, module: str, name: str, value: Any, *, within: str = "vllm") -> Any:
        """Replace `module.name` and every reference to the same object that modules under `within` imported by name."""
        before = self.replace(module, name, value)
        for other in list(sys.modules.values()) if before is not ABSENT else ():
            found = getattr(other, "__name__", "")
            if found.split(".")[0] == within and vars(other).get(name) is before:
                self.replace(other, name, value)
        return before

    def module(self, name: str) -> Any:
        """Import a module that a seam needs.

        Raises:
            SeamError: it does not exist in the installed version.

        """
        try:
            return importlib.import_module(name)
        except ImportError as error:
            raise SeamError(self._active, self.versions, f"cannot import {name} ({error})") from error

    def install(self, stage_name: Stage) -> list[str]:
        """Install all seams of a stage, in order; returns their names."""
        seams = [seam for seam in seams_of(stage_name) if seam.fits(self.real)]
        for seam in seams:
            with self.named(seam.name):
                seam.install(self)
        return [seam.name for seam in seams]

    @contextlib.contextmanager
    def named(self, seam: str) -> Iterator[None]:
        """Say in whose name `replace` and `module` fail."""
        self._active = seam
        try:
            yield
        finally:
            self._active = ""

    def remove(self) -> None:
        """Undo every replacement, last first: what remains is the library as it was."""
        while self._undo:
            self._undo.pop()()


@dataclasses.dataclass(frozen=True)
class Seam:
    """One named reach into torch, triton or vLLM, and why it exists."""

    name: str
    why: str
    stage: Stage
    install: Callable[[Bench], None]
    where: Where = "anywhere"

    def fits(self, real: bool) -> bool:
        """Tell whether it belongs to a pass with a GPU in sight (`real`), or to one without."""
        return self.where in ("anywhere", "device" if real else "no-device")


# In the order in which their stages and each stage's seams run.
_MODULES = (
    "nvml",
    "cuda",
    "triton",
    "inductor",
    "fake",
    "registry",
    "world",
    "memory",
    "weights",
    "kernels",
    "flashinfer",
    "humming",
    "runner",
    "tuning",
)
_SEAMS: list[Seam] = []


def stage(
    stage_name: Stage, name: str, why: str, *, where: Where = "anywhere"
) -> Callable[[Callable[[Bench], None]], Callable[[Bench], None]]:
    """Register the decorated function as a seam of a stage; seams run in the order in which they are defined."""

    def register(install: Callable[[Bench], None]) -> Callable[[Bench], None]:
        _SEAMS.append(Seam(name, why, stage_name, install, where))
        return install

    return register


def seams_of(stage_name: Stage | None = None) -> tuple[Seam, ...]:
    """Return the registered seams of a stage, or all of them, in order."""
    for module in _MODULES:
        importlib.import_module(f"warmstart.compiler.seams.{module}")
    return tuple(seam for seam in _SEAMS if stage_name in (None, seam.stage))


def _label(where: Any) -> str:
    return str(getattr(where, "__qualname__", getattr(where, "__name__", type(where).__name__)))
