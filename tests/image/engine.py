"""Buildah and podman with storage of their own, below .cache/image, and settings that need no systemd and no daemon."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "image"
# The machine's own certificates, so that a build reaches its package index as the machine does.
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_CONFIGURATION = """\
[containers]
default_ulimits = ["nofile=8192:8192", "nproc=8192:8192"]
oom_score_adj = 0
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""


@dataclasses.dataclass(frozen=True)
class Finished:
    """How a command ended."""

    code: int
    out: str
    log: str


class Engine:
    """Builds and runs images. Everything it writes is below its folder."""

    def __init__(self, folder: Path = CACHE) -> None:
        self.folder = folder
        self._storage = ["--root", str(folder / "storage"), "--runroot", str(folder / "run"), "--storage-driver", "overlay"]
        folder.mkdir(parents=True, exist_ok=True)
        configuration = folder / "containers.conf"
        configuration.write_text(_CONFIGURATION)
        self._env = {**os.environ, "CONTAINERS_CONF": str(configuration)}

    @staticmethod
    def missing() -> list[str]:
        """Return the programs that are not there."""
        return [name for name in ("buildah", "podman", "runc", "mmdebstrap") if shutil.which(name) is None]

    def buildah(self, *arguments: str, seconds: float = 900) -> Finished:
        """Run buildah."""
        return self._call(["buildah", *self._storage, *arguments], seconds)

    def build(
        self, containerfile: Path, tag: str, *, context: Path, target: str = "", args: Mapping[str, str] | None = None
    ) -> str:
        """Build an image, with layers kept between calls, and return the log; AssertionError, with the log, where it fails."""
        options = [
            "--layers",
            "--force-rm",
            "--isolation",
            "chroot",
            "--pull-never",
            "--file",
            str(containerfile),
            "--tag",
            tag,
        ]
        options += ["--volume", f"{_CERTIFICATES}:{_CERTIFICATES}:ro"] if _CERTIFICATES.exists() else []
        options += [f"--build-arg={name}={value}" for name, value in (args or {}).items()]
        options += ["--target", target] if target else []
        done = self.buildah("build", *options, str(context))
        assert done.code == 0, done.log[-6000:]
        return done.out + done.log

    def close(self) -> None:
        """Remove working containers and unmount the storage, so that its folder can be removed as any other."""
        self.buildah("rm", "--all")
        subprocess.run(["umount", "--recursive", self.folder / "storage" / "overlay"], capture_output=True, check=False)

    def has(self, tag: str) -> bool:
        """Whether there is an image of that name."""
        return self.buildah("inspect", "--type", "image", tag).code == 0

    def run(self, image: str, *command: str, options: tuple[str, ...] = (), stdin: str = "") -> Finished:
        """Run a container with no network, as a restricted pod would: a user nobody knows, in group 0, and a read-only root."""
        restricted = ["--user", "1000730000:0", "--read-only", "--cap-drop=ALL", "--security-opt", "no-new-privileges"]
        restricted += ["--network", "none", "--tmpfs", "/tmp:rw,mode=1777"]  # noqa: S108 - inside the container
        return self._call(
            ["podman", *self._storage, "run", "--rm", "--interactive", "--pull=never", *restricted, *options, image, *command],
            120,
            stdin,
        )

    def _call(self, command: list[str], seconds: float, stdin: str = "") -> Finished:
        done = subprocess.run(
            command, env=self._env, capture_output=True, text=True, timeout=seconds, check=False, input=stdin, cwd=ROOT
        )
        return Finished(done.returncode, done.stdout, done.stderr)
