#!/usr/bin/env bash
# Install what tests/image needs on Debian 12: buildah, podman, a runtime, and mmdebstrap for a base image without a registry.
# The tests themselves install nothing; they name this script where something is missing. Run as root.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
apt-get -o DPkg::Lock::Timeout=600 update -q
apt-get -o DPkg::Lock::Timeout=600 install -y --no-install-recommends \
  buildah podman runc catatonit uidmap fuse-overlayfs netavark aardvark-dns containernetworking-plugins mmdebstrap
