"""Which node labels name a GPU type: the tables, one row per ecosystem. `resolve.py` reads them.

A row of NAMING has a value that names a model: looked up in the row's own table first, else read as a spelling in the catalog.
A row of NARROWING has a value that is a property of the card. Where one value covers several cards, the table or the spelling
gives them all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from warmstart.gpus.profile import GpuProfile

MIG_PREFIX = "nvidia.com/mig-"
"""What a resource or label of one MIG profile starts with under the mixed strategy: "nvidia.com/mig-3g.20gb"."""


class Naming(NamedTuple):
    """A label whose value names a model."""

    ecosystem: str
    label: str
    source: str
    values: Mapping[str, tuple[str, ...]] = {}
    """Values that mean other than their spelling says, in lower case; the ids of all the cards that they cover."""
    nameless: tuple[str, ...] = ()
    """Values that say that there is a GPU but not which."""
    prefixes: bool = False
    """The table is complete and holds beginnings of values: a machine type of which only the series decides."""


class Narrowing(NamedTuple):
    """A label whose value is a property that the cards it covers must have."""

    ecosystem: str
    label: str
    source: str
    fits: Callable[[GpuProfile, str], bool]


_GKE = {
    "nvidia-tesla-v100": ("v100-sxm2-16gb",),
    "nvidia-tesla-a100": ("a100-sxm4-40gb",),
    "nvidia-a100-80gb": ("a100-sxm4-80gb",),
    "nvidia-h100-80gb": ("h100-sxm5-80gb", "h100-pcie-80gb"),
    "nvidia-h100-mega-80gb": ("h100-sxm5-80gb",),
    "nvidia-rtx-pro-6000": ("rtx-pro-6000-blackwell-server",),
}
_AWS = {"rtx-pro-server-6000": ("rtx-pro-6000-blackwell-server",)}
_COREWEAVE = {
    "a100_nvlink": ("a100-sxm4-40gb", "a100-sxm4-80gb"),
    "a100_nvlink_40gb": ("a100-sxm4-40gb",),
    "a100_nvlink_80gb": ("a100-sxm4-80gb",),
    "h100_nvlink_80gb": ("h100-sxm5-80gb",),
    "tesla_v100_nvlink": ("v100-sxm2-16gb", "v100-sxm2-32gb"),
    "tesla_v100_pcie": ("v100-pcie-16gb", "v100-pcie-32gb"),
}
_NEBIUS = {"rtx6000": ("rtx-pro-6000-blackwell-server",)}
_AWS_FAMILIES = {
    "g4dn": ("t4",),
    "g5": ("a10g",),
    "g6": ("l4",),
    "gr6": ("l4",),
    "g6e": ("l40s",),
    "g7e": ("rtx-pro-6000-blackwell-server",),
    "p3": ("v100-sxm2-16gb",),
    "p3dn": ("v100-sxm2-32gb",),
    "p4d": ("a100-sxm4-40gb",),
    "p4de": ("a100-sxm4-80gb",),
    "p5": ("h100-sxm5-80gb",),
    "p5e": ("h200",),
    "p5en": ("h200",),
    "p6-b200": ("b200",),
    "p6-b300": ("b300",),
    "p6e-gb200": ("gb200",),
}
_MACHINES = {
    **{f"{family}.": ids for family, ids in _AWS_FAMILIES.items()},
    "a2-highgpu-": ("a100-sxm4-40gb",),
    "a2-megagpu-": ("a100-sxm4-40gb",),
    "a2-ultragpu-": ("a100-sxm4-80gb",),
    "a3-edgegpu-": ("h100-sxm5-80gb",),
    "a3-highgpu-": ("h100-sxm5-80gb",),
    "a3-megagpu-": ("h100-sxm5-80gb",),
    "a3-ultragpu-": ("h200",),
    "a4-highgpu-": ("b200",),
    "a4x-highgpu-": ("gb200",),
    "g2-standard-": ("l4",),
    "standard_nc4as_t4_v3": ("t4",),
    "standard_nc8as_t4_v3": ("t4",),
    "standard_nc16as_t4_v3": ("t4",),
    "standard_nc64as_t4_v3": ("t4",),
    "standard_nc24ads_a100_v4": ("a100-pcie-80gb",),
    "standard_nc48ads_a100_v4": ("a100-pcie-80gb",),
    "standard_nc96ads_a100_v4": ("a100-pcie-80gb",),
    "standard_nc40ads_h100_v5": ("h100-nvl",),
    "standard_nc80adis_h100_v5": ("h100-nvl",),
    "standard_nd40rs_v2": ("v100-sxm2-32gb",),
    "standard_nd96asr_v4": ("a100-sxm4-40gb",),
    "standard_nd96amsr_a100_v4": ("a100-sxm4-80gb",),
    "standard_nd96isr_h100_v5": ("h100-sxm5-80gb",),
    "standard_nd96isr_h200_v5": ("h200",),
}

_GFD = "NVIDIA/k8s-device-plugin docs/gpu-feature-discovery/README.md"
_KARPENTER_AWS = "karpenter-provider-aws website/content/en/docs/reference/instance-types.md"
_KARPENTER_AZURE = "Azure/karpenter-provider-azure pkg/apis/v1beta1/labels.go"
_EKS_AUTO = "Amazon EKS User Guide, EKS Auto Mode supported labels"
_CLOUD_MACHINES = "the clouds' machine type pages (Amazon EC2, Compute Engine, Azure)"

NAMING: tuple[Naming, ...] = (
    Naming("GPU feature discovery", "nvidia.com/gpu.product", _GFD),
    Naming("GKE", "cloud.google.com/gke-accelerator", "GKE documentation and public manifests", _GKE),
    Naming("Karpenter AWS", "karpenter.k8s.aws/instance-gpu-name", _KARPENTER_AWS, _AWS),
    Naming("Karpenter AWS", "karpenter.k8s.aws/instance-family", _KARPENTER_AWS, _AWS_FAMILIES, prefixes=True),
    Naming("EKS Auto Mode", "eks.amazonaws.com/instance-gpu-name", _EKS_AUTO, _AWS),
    Naming("EKS Auto Mode", "eks.amazonaws.com/instance-family", _EKS_AUTO, _AWS_FAMILIES, prefixes=True),
    Naming("EKS cluster autoscaler", "k8s.amazonaws.com/accelerator", "kubernetes/autoscaler and public manifests"),
    Naming("Karpenter Azure", "karpenter.azure.com/sku-gpu-name", _KARPENTER_AZURE),
    Naming("AKS", "kubernetes.azure.com/accelerator", _KARPENTER_AZURE, nameless=("nvidia",)),
    Naming("AKS, old label", "accelerator", _KARPENTER_AZURE, nameless=("nvidia",)),
    Naming("CoreWeave", "gpu.nvidia.com/class", "CoreWeave documentation, node labels", _COREWEAVE),
    Naming("CoreWeave", "gpu.nvidia.com/model", "CoreWeave documentation, node labels", _COREWEAVE),
    Naming("Nebius", "nebius.com/gpu-name", "skypilot-org/skypilot sky/provision/kubernetes/utils.py", _NEBIUS),
    Naming("any cloud", "node.kubernetes.io/instance-type", _CLOUD_MACHINES, _MACHINES, prefixes=True),
)


def _integer(value: str) -> int | None:
    value = value.strip()
    return int(value) if value.isascii() and value.isdecimal() and len(value) < 12 else None


def _has_memory(profile: GpuProfile, mebibytes: str) -> bool:
    # Clouds state the nominal memory (24576 for an A10G), the driver what is left of it (23028); two memory sizes of one
    # card are at least a factor of 1.17 apart (H100 NVL over SXM).
    stated = _integer(mebibytes)
    return stated is not None and abs(profile.memory_bytes / 2**20 - stated) <= 0.08 * stated


def _has_gigabytes(profile: GpuProfile, gigabytes: str) -> bool:
    stated = _integer(gigabytes)
    return stated is not None and _has_memory(profile, str(stated * 1024))


def _has_major(profile: GpuProfile, major: str) -> bool:
    return profile.capability[0] == _integer(major)


def _has_minor(profile: GpuProfile, minor: str) -> bool:
    return profile.capability[1] == _integer(minor)


def family(profile: GpuProfile) -> str:
    """Return the architecture's name as GPU feature discovery spells it; empty for one that it does not know."""
    major, minor = profile.capability
    if major == 7:
        return "turing" if minor == 5 else "volta"
    if major == 8:
        return "ada-lovelace" if minor == 9 else "ampere"
    return {9: "hopper", 10: "blackwell", 12: "blackwell"}.get(major, "")


def _is_family(profile: GpuProfile, name: str) -> bool:
    return family(profile) == name.strip().lower()


NARROWING: tuple[Narrowing, ...] = (
    Narrowing("GPU feature discovery", "nvidia.com/gpu.memory", _GFD, _has_memory),
    Narrowing("GPU feature discovery", "nvidia.com/gpu.compute.major", _GFD, _has_major),
    Narrowing("GPU feature discovery", "nvidia.com/gpu.compute.minor", _GFD, _has_minor),
    Narrowing("GPU feature discovery", "nvidia.com/gpu.family", _GFD, _is_family),
    Narrowing("Karpenter AWS", "karpenter.k8s.aws/instance-gpu-memory", _KARPENTER_AWS, _has_memory),
    Narrowing("EKS Auto Mode", "eks.amazonaws.com/instance-gpu-memory", _EKS_AUTO, _has_memory),
    Narrowing("CoreWeave", "gpu.nvidia.com/vram", "CoreWeave documentation, node labels", _has_gigabytes),
)
