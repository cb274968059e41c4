#!/usr/bin/env bash
# Bring everything that tests/cluster needs: buildah, podman and a runtime (Debian packages, as root), and the control plane (built
# from Go modules, minutes the first time). helm and kubectl come with `make chart-tools`.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
for program in buildah podman runc mmdebstrap; do
  if ! command -v "$program" >/dev/null; then
    "$here/../image/setup.sh"
    break
  fi
done
if [[ -z "${WARMSTART_TEST_KUBECONFIG:-}" ]]; then
  "$here/controlplane/build.sh"
fi
