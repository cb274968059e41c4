"""Node labels of every ecosystem, alone, together, and against each other."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warmstart.errors import UnknownGpuError
from warmstart.gpus import load_catalog
from warmstart.gpus.labels import NAMING, NARROWING

CATALOG = load_catalog()

GFD, GKE = "nvidia.com/gpu.product", "cloud.google.com/gke-accelerator"
KARPENTER, AUTO = "karpenter.k8s.aws/instance-gpu-name", "eks.amazonaws.com/instance-gpu-name"
MACHINE, AKS = "node.kubernetes.io/instance-type", "kubernetes.azure.com/accelerator"
COREWEAVE, MEMORY = "gpu.nvidia.com/class", "nvidia.com/gpu.memory"

H100_80 = ("h100-sxm5-80gb", "h100-pcie-80gb")
H100 = (*H100_80, "h100-nvl")
A100 = ("a100-sxm4-40gb", "a100-pcie-40gb", "a100-sxm4-80gb", "a100-pcie-80gb")
V100 = ("v100-sxm2-16gb", "v100-sxm2-32gb", "v100-pcie-16gb", "v100-pcie-32gb")
PRO = ("rtx-pro-6000-blackwell-server",)

ONE_LABEL = [
    (GFD, "NVIDIA-H200", ("h200",)),
    (GFD, "NVIDIA-H100-80GB-HBM3-SHARED", ("h100-sxm5-80gb",)),
    (GFD, "A100-SXM4-40GB-MIG-1g.5gb-SHARED", ("a100-sxm4-40gb-mig-1g.5gb",)),
    (GFD, "NVIDIA-H100-NVL-MIG-1g.12gb", ("h100-nvl-mig-1g.12gb",)),
    (GFD, "Tesla-T4", ("t4",)),
    (GFD, "NVIDIA-GeForce-RTX-5090", ("rtx-5090",)),
    (GKE, "nvidia-tesla-t4", ("t4",)),
    (GKE, "nvidia-tesla-v100", ("v100-sxm2-16gb",)),
    (GKE, "nvidia-tesla-a100", ("a100-sxm4-40gb",)),
    (GKE, "nvidia-a100-80gb", ("a100-sxm4-80gb",)),
    (GKE, "nvidia-l4", ("l4",)),
    (GKE, "nvidia-h100-80gb", H100_80),
    (GKE, "nvidia-h100-mega-80gb", ("h100-sxm5-80gb",)),
    (GKE, "nvidia-h200-141gb", ("h200",)),
    (GKE, "nvidia-b200", ("b200",)),
    (GKE, "nvidia-gb200", ("gb200",)),
    (GKE, "nvidia-rtx-pro-6000", PRO),
    *[
        (label, value, ids)
        for label in (KARPENTER, AUTO)
        for value, ids in {
            "a100": A100,
            "a10g": ("a10g",),
            "b200": ("b200",),
            "b300": ("b300",),
            "h100": H100,
            "h200": ("h200",),
            "l4": ("l4",),
            "l40s": ("l40s",),
            "t4": ("t4",),
            "v100": V100,
            "rtx-pro-server-6000": PRO,
        }.items()
    ],
    ("karpenter.k8s.aws/instance-family", "p5en", ("h200",)),
    ("eks.amazonaws.com/instance-family", "g6e", ("l40s",)),
    ("k8s.amazonaws.com/accelerator", "nvidia-tesla-t4", ("t4",)),
    ("k8s.amazonaws.com/accelerator", "nvidia-tesla-a100", A100),
    ("karpenter.azure.com/sku-gpu-name", "T4", ("t4",)),
    ("karpenter.azure.com/sku-gpu-name", "A100", A100),
    (COREWEAVE, "H100_NVLINK_80GB", ("h100-sxm5-80gb",)),
    (COREWEAVE, "A100_PCIE_80GB", ("a100-pcie-80gb",)),
    (COREWEAVE, "A100_PCIE_40GB", ("a100-pcie-40gb",)),
    (COREWEAVE, "A100_NVLINK", ("a100-sxm4-40gb", "a100-sxm4-80gb")),
    (COREWEAVE, "Tesla_V100_NVLINK", ("v100-sxm2-16gb", "v100-sxm2-32gb")),
    ("gpu.nvidia.com/model", "H200", ("h200",)),
    ("nebius.com/gpu-name", "H100", H100),
    ("nebius.com/gpu-name", "L40S", ("l40s",)),
    ("nebius.com/gpu-name", "RTX6000", PRO),
    (COREWEAVE, "H100_PCIE_80GB", ("h100-pcie-80gb",)),
    (MACHINE, "p5.48xlarge", ("h100-sxm5-80gb",)),
    (MACHINE, "p5e.48xlarge", ("h200",)),
    (MACHINE, "p4de.24xlarge", ("a100-sxm4-80gb",)),
    (MACHINE, "a3-ultragpu-8g", ("h200",)),
    (MACHINE, "Standard_NC40ads_H100_v5", ("h100-nvl",)),
    (MACHINE, "Standard_ND96isr_H200_v5", ("h200",)),
    (MACHINE, "m5.large", ()),
    (MACHINE, "p5", ()),
    ("kubernetes.io/arch", "amd64", ()),
    ("nvidia.com/gpu.count", "8", ()),
]

TOGETHER = [
    ({GKE: "nvidia-h100-80gb", MACHINE: "a3-highgpu-8g"}, ("h100-sxm5-80gb",)),
    ({KARPENTER: "h100", GFD: "NVIDIA-H100-80GB-HBM3"}, ("h100-sxm5-80gb",)),
    ({KARPENTER: "a100", "karpenter.k8s.aws/instance-gpu-memory": "81920"}, A100[2:]),
    ({KARPENTER: "a100", "karpenter.k8s.aws/instance-gpu-memory": "40960"}, A100[:2]),
    ({KARPENTER: "h100", "karpenter.k8s.aws/instance-gpu-memory": "81920"}, H100_80),
    ({KARPENTER: "t4", "karpenter.k8s.aws/instance-gpu-memory": "16384"}, ("t4",)),
    ({AUTO: "v100", "eks.amazonaws.com/instance-gpu-memory": "32768"}, V100[1::2]),
    ({KARPENTER: "h200", "karpenter.k8s.aws/instance-gpu-memory": "144384"}, ("h200",)),
    ({COREWEAVE: "A100_NVLINK", "gpu.nvidia.com/vram": "80"}, ("a100-sxm4-80gb",)),
    ({"gpu.nvidia.com/model": "H100_NVLINK_80GB", COREWEAVE: "H100_NVLINK_80GB", "gpu.nvidia.com/vram": "81"}, H100[:1]),
    ({AKS: "nvidia", MACHINE: "Standard_ND96isr_H100_v5"}, ("h100-sxm5-80gb",)),
    ({"accelerator": "nvidia", GFD: "NVIDIA-A10"}, ("a10",)),
    ({GFD: "NVIDIA-A100-SXM4-80GB", MEMORY: "81920", "nvidia.com/gpu.family": "ampere"}, ("a100-sxm4-80gb",)),
    ({"nvidia.com/gpu.compute.major": "10", "nvidia.com/gpu.compute.minor": "3"}, ("b300", "gb300")),
    ({"nvidia.com/gpu.family": "ada-lovelace", MEMORY: "23034"}, ("l4", "rtx-4090")),
    ({GFD: "NVIDIA-H100-NVL-MIG-1g.12gb", MEMORY: "11008", "nvidia.com/mig.strategy": "single"}, ("h100-nvl-mig-1g.12gb",)),
]

MIG_A100 = {
    GFD: "NVIDIA-A100-SXM4-40GB",
    MEMORY: "40960",
    "nvidia.com/mig.strategy": "mixed",
    "nvidia.com/mig.capable": "true",
    "nvidia.com/mig-1g.5gb.count": "4",
    "nvidia.com/mig-1g.5gb.memory": "4864",
    "nvidia.com/mig-3g.20gb.count": "1",
    "nvidia.com/mig-7g.40gb.count": "0",
}

CONTRADICTIONS = [
    ({GFD: "NVIDIA-H200", KARPENTER: "h100"}, ("NVIDIA-H200", "instance-gpu-name=h100")),
    ({GKE: "nvidia-l4", MACHINE: "a3-highgpu-8g"}, ("nvidia-l4", "a3-highgpu-8g")),
    ({GFD: "NVIDIA-A100-SXM4-80GB", MEMORY: "40960"}, ("NVIDIA-A100-SXM4-80GB", "gpu.memory=40960")),
    ({KARPENTER: "t4", "nvidia.com/gpu.compute.major": "9"}, ("instance-gpu-name=t4", "compute.major=9")),
    ({GFD: "NVIDIA-H200", "nvidia.com/mig-1g.5gb.count": "1"}, ("NVIDIA-H200", "mig-1g.5gb")),
    ({GFD: "NVIDIA-H200", MEMORY: "many"}, ("NVIDIA-H200", "gpu.memory=many")),
]


def _found(labels: dict[str, str], resource: str | None = None) -> tuple[str, ...]:
    return tuple(profile.id for profile in CATALOG.from_labels(labels, resource=resource))


@pytest.mark.parametrize(("label", "value", "ids"), ONE_LABEL)
def test_a_label_gives_every_type_that_it_covers(label: str, value: str, ids: tuple[str, ...]) -> None:
    """One label alone; no types where it does not speak of a GPU."""
    assert _found({label: value, "kubernetes.io/os": "linux"}) == ids


def test_every_value_of_every_table_is_in_the_catalog() -> None:
    """A table that names an id which is gone would silently match nothing."""
    for row in NAMING:
        for value, ids in row.values.items():
            assert ids
            assert set(ids) <= set(CATALOG.ids()), (row.label, value)
            assert value == value.lower()


def test_every_ecosystem_has_its_row() -> None:
    """The ecosystems that the documentation promises."""
    assert {row.ecosystem for row in (*NAMING, *NARROWING)} == {
        "GPU feature discovery",
        "GKE",
        "Karpenter AWS",
        "EKS Auto Mode",
        "EKS cluster autoscaler",
        "AKS",
        "AKS, old label",
        "Karpenter Azure",
        "CoreWeave",
        "Nebius",
        "any cloud",
    }


@pytest.mark.parametrize(("labels", "ids"), TOGETHER)
def test_labels_narrow_each_other(labels: dict[str, str], ids: tuple[str, ...]) -> None:
    """What all labels allow together remains, whatever their order."""
    assert _found(labels) == ids
    assert _found(dict(reversed(labels.items()))) == ids


@pytest.mark.parametrize(
    ("resource", "ids"),
    [
        ("nvidia.com/mig-3g.20gb", ("a100-sxm4-40gb-mig-3g.20gb",)),
        ("nvidia.com/mig-1g.5gb.me", ("a100-sxm4-40gb-mig-1g.5gb",)),
        ("nvidia.com/gpu", ("a100-sxm4-40gb",)),
        (None, ("a100-sxm4-40gb-mig-1g.5gb", "a100-sxm4-40gb-mig-3g.20gb")),
    ],
)
def test_under_the_mixed_strategy_the_resource_chooses_the_slice(resource: str | None, ids: tuple[str, ...]) -> None:
    """A node offers several profiles beside whole cards; without the resource, every profile on offer is possible."""
    assert _found(MIG_A100, resource) == ids


def test_under_the_single_strategy_the_ordinary_resource_is_the_slice() -> None:
    """There `nvidia.com/gpu` stands for a slice, and the product label says which."""
    labels = {GFD: "NVIDIA-H200-MIG-1g.18gb-SHARED", MEMORY: "16384", "nvidia.com/mig.strategy": "single"}
    assert _found(labels, "nvidia.com/gpu") == ("h200-mig-1g.18gb",)


def test_a_mig_resource_alone_gives_the_slices_of_every_card_that_has_them() -> None:
    """A pod that asks for nvidia.com/mig-1g.10gb without a node selector can land on several cards."""
    found = _found({}, "nvidia.com/mig-1g.10gb")
    assert "h100-sxm5-80gb-mig-1g.10gb" in found
    assert "a100-sxm4-80gb-mig-1g.10gb" in found
    assert all("-mig-1g.10gb" in id_ for id_ in found)


def test_a_mig_product_label_names_card_and_slice() -> None:
    """`nvidia.com/mig-3g.20gb.product` is as good as gpu.product."""
    assert _found({"nvidia.com/mig-3g.20gb.product": "NVIDIA-A100-PCIE-40GB-MIG-3g.20gb"}) == ("a100-pcie-40gb-mig-3g.20gb",)


@pytest.mark.parametrize("resource", ["nvidia.com/mig-9g.1gb", "nvidia.com/mig-", "nvidia.com/mig-" + "x" * 70000])
def test_an_unknown_mig_profile_is_refused_with_the_known_ones(resource: str) -> None:
    """The error lists what profiles there are."""
    with pytest.raises(UnknownGpuError, match=r"MIG profile unknown here; known: .*3g\.20gb") as error:
        _found({}, resource)
    assert len(str(error.value)) < 600


@pytest.mark.parametrize(("labels", "named"), CONTRADICTIONS)
def test_contradicting_labels_are_refused_by_name(labels: dict[str, str], named: tuple[str, str]) -> None:
    """Both labels are in the message, with what each of them means."""
    with pytest.raises(UnknownGpuError, match="contradict each other") as error:
        _found(labels)
    assert all(text in str(error.value) for text in named)


@pytest.mark.parametrize("label", [AKS, "accelerator"])
def test_a_label_that_names_no_model_says_so(label: str) -> None:
    """AKS tells that there is a GPU, not which."""
    with pytest.raises(UnknownGpuError, match="says that there is a GPU but not which"):
        _found({label: "nvidia"})


@pytest.mark.parametrize("row", [row for row in NAMING if not row.prefixes], ids=lambda row: row.label)
@pytest.mark.parametrize("value", ["NVIDIA-H999", "", "x" * 65536, "\u041d200", "amd-mi300x"])
def test_an_unknown_value_is_refused_and_the_label_named(row: object, value: str) -> None:
    """A wrong value of a naming label is never ignored: the wrong card would be compiled for."""
    with pytest.raises(UnknownGpuError, match="names a GPU unknown here") as error:
        _found({row.label: value})  # type: ignore[attr-defined]
    assert row.label in str(error.value)  # type: ignore[attr-defined]
    assert len(str(error.value)) < 500


def test_a_property_that_no_card_has_is_refused() -> None:
    """Compute capability 99 fits nothing."""
    with pytest.raises(UnknownGpuError, match="no GPU type here fits"):
        _found({"nvidia.com/gpu.compute.major": "99"})


@settings(deadline=None)
@given(
    st.dictionaries(
        st.one_of(
            st.sampled_from([row.label for row in (*NAMING, *NARROWING)]), st.just("nvidia.com/mig-1g.5gb.count"), st.text()
        ),
        st.one_of(
            st.text(max_size=70), st.integers(), st.none(), st.sampled_from(["h100", "NVIDIA-H200", "9", "nvidia", "81559"])
        ),
        max_size=5,
    )
)
def test_any_labels_give_types_or_the_error(labels: dict[str, str]) -> None:
    """Whatever stands in a node selector, nothing else is raised."""
    found: tuple[object, ...] = ()
    with contextlib.suppress(UnknownGpuError):
        found = CATALOG.from_labels(labels)
    assert set(found) <= set(CATALOG)
