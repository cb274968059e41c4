#!/usr/bin/env bash
# Build etcd, kube-apiserver, kube-controller-manager and kube-scheduler from the Go modules pinned in go.mod beside this file,
# and print the folder that holds them. Does nothing when that folder is there: its name states the versions and the pins.
#
#   CONTROLPLANE_CACHE   where the folder goes (default: .cache/controlplane in the checkout)
#   CONTROLPLANE_JOBS    compilers at once (default 1, so that other work on the machine goes on)
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
cache="${CONTROLPLANE_CACHE:-$here/../../../.cache/controlplane}"

pinned() { awk -v module="$1" '$1 == module && NF > 1 { print $2; exit }' "$here/go.mod"; }
kubernetes="$(pinned k8s.io/kubernetes)"
etcd="$(pinned go.etcd.io/etcd/server/v3)"
pins="$(cat "$here/go.mod" "$here/go.sum" "${BASH_SOURCE[0]}" | sha256sum | cut -c1-8)"
target="$cache/kubernetes-$kubernetes-etcd-$etcd-$pins"

if [[ -d "$target" ]]; then
  realpath "$target"
  exit 0
fi
if ! command -v go >/dev/null; then
  echo "no go command: install the Go version that $here/go.mod names, or set WARMSTART_TEST_KUBECONFIG (see tests/cluster/README.md)" >&2
  exit 2
fi

mkdir -p "$cache"
work="$(mktemp -d "$cache/.build-XXXXXX")"
trap 'rm -rf "$work"' EXIT

# Without these a built API server calls itself v0.0.0, and helm refuses charts that ask for a Kubernetes version.
IFS=. read -r major minor _ <<<"${kubernetes#v}"
flags="-s -w"
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
  flags+=" -X $package.gitVersion=$kubernetes -X $package.gitMajor=$major -X $package.gitMinor=$minor -X $package.gitTreeState=clean"
done

cd "$here"
export CGO_ENABLED=0 GOFLAGS="-mod=readonly -trimpath -buildvcs=false"
build() { nice -n 15 go build -p "${CONTROLPLANE_JOBS:-1}" -ldflags "$flags" -o "$work/$1" "$2" >&2; }
build etcd go.etcd.io/etcd/server/v3
build kube-apiserver k8s.io/kubernetes/cmd/kube-apiserver
build kube-controller-manager k8s.io/kubernetes/cmd/kube-controller-manager
build kube-scheduler k8s.io/kubernetes/cmd/kube-scheduler

mv -T "$work" "$target"
chmod 755 "$target"
trap - EXIT
realpath "$target"
