"""Which GPUs a pod asks for and can land on."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.podspec.pods import container, pod, text

from warmstart.errors import SpecError, UnknownGpuError, UnsupportedError
from warmstart.podspec import ServeRequest, load

PRODUCT = "nvidia.com/gpu.product"


def gpus_of(*objects: object, gpu: str | None = None, resources: dict[str, Any] | None = None, **spec: Any) -> ServeRequest:
    """Return the request of a pod with these fields."""
    server = container("vllm", "serve", "M", resources=resources or {})
    document = pod(server, nodeSelector=spec.pop("nodeSelector", None), annotations=spec.pop("annotations", None), **spec)
    (found,) = load(text(document, *objects), source="spec", gpu=gpu)
    return found


def affinity(*terms: list[tuple[str, str, list[str]]]) -> dict[str, Any]:
    """Return a required node affinity with one term for each list of expressions."""
    expressions = [{"matchExpressions": [{"key": k, "operator": o, "values": v} for k, o, v in term]} for term in terms]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": expressions}}}


@pytest.mark.parametrize(("asked", "count"), [("2", 2), (8, 8), ("0", 0)])
def test_the_count_is_what_the_container_asks_for(asked: object, count: int) -> None:
    """As text or as a number, the two ways that people write it."""
    assert gpus_of(resources={"limits": {"nvidia.com/gpu": asked}}, gpu="h200").gpu_count == count


@pytest.mark.parametrize("asked", ["1.5", "two", True, -1, [1], "1Gi", 10**9])
def test_a_count_that_is_none_is_an_error(asked: object) -> None:
    """The API server would refuse it too."""
    with pytest.raises(SpecError, match="must be a whole number of GPUs"):
        gpus_of(resources={"limits": {"nvidia.com/gpu": asked}})


def test_requests_count_where_there_are_no_limits() -> None:
    """The two must be equal where both are given."""
    assert gpus_of(resources={"requests": {"nvidia.com/gpu": 4}}, gpu="h200").gpu_count == 4


def test_a_gpu_of_another_vendor_is_refused() -> None:
    """There is nothing to compile for it here."""
    with pytest.raises(UnsupportedError, match=r"asks for amd.com/gpu; warmstart compiles for NVIDIA GPUs"):
        gpus_of(resources={"limits": {"amd.com/gpu": 1}})


def test_the_argument_wins_over_annotation_over_labels() -> None:
    """The first that answers; several names are several types."""
    spec: dict[str, Any] = {"annotations": {"warmstart.dev/gpu": "l40s,h200"}, "nodeSelector": {PRODUCT: "NVIDIA-L4"}}
    assert gpus_of(gpu="NVIDIA H200", **spec).gpus == ("h200",)
    assert gpus_of(**spec).gpus == ("l40s", "h200")
    assert gpus_of(nodeSelector={PRODUCT: "NVIDIA-L4"}).gpus == ("l4",)


def test_an_unknown_name_is_refused_everywhere() -> None:
    """Never a guess."""
    for spec in (
        {"gpu": "h2000"},
        {"annotations": {"warmstart.dev/gpu": "h2000"}},
        {"nodeSelector": {PRODUCT: "NVIDIA-H2000"}},
    ):
        with pytest.raises(UnknownGpuError, match=r"(?i)h2000"):
            gpus_of(**spec)  # type: ignore[arg-type]


def test_affinity_alternatives_are_all_candidates_in_order() -> None:
    """Values of one term and several terms are alternatives; the node selector narrows each of them."""
    assert gpus_of(affinity=affinity([(PRODUCT, "In", ["NVIDIA-L40S", "NVIDIA-H200"])])).gpus == ("l40s", "h200")
    both = affinity([(PRODUCT, "In", ["NVIDIA-H200"])], [("cloud.google.com/gke-accelerator", "In", ["nvidia-l4"])])
    assert gpus_of(affinity=both).gpus == ("h200", "l4")
    assert gpus_of(affinity=both, nodeSelector={"zone": "a"}).gpus == ("h200", "l4")
    several = affinity([(PRODUCT, "In", ["NVIDIA-L40S", "NVIDIA-H200", "NVIDIA-L4"]), (PRODUCT, "NotIn", ["NVIDIA-L4"])])
    assert gpus_of(affinity=several).gpus == ("l40s", "h200")
    assert gpus_of(affinity=several, nodeSelector={PRODUCT: "NVIDIA-H200"}).gpus == ("h200",)


def test_an_alternative_that_names_no_gpu_is_said() -> None:
    """The pod could land anywhere by that term."""
    found = gpus_of(affinity=affinity([(PRODUCT, "In", ["NVIDIA-H200"])], [("zone", "In", ["a"])]))
    (note,) = found.unresolved
    assert (found.gpus, note.what, note.compiles) == (("h200",), "gpu", True)


def test_a_pod_that_names_no_gpu_is_said() -> None:
    """Inside the pod a device in sight will tell; outside, the user must."""
    (note,) = gpus_of().unresolved
    assert (note.what, note.compiles) == ("gpu", True)
    assert "--gpu or the annotation warmstart.dev/gpu" in note.why


def test_too_many_alternatives_are_refused() -> None:
    """A hostile affinity multiplies out."""
    keys = [(f"k{i}", "In", ["a", "b", "c"]) for i in range(12)]
    with pytest.raises(SpecError, match="more than 256 alternatives"):
        gpus_of(affinity=affinity(keys))


def test_a_mig_slice_is_its_own_type() -> None:
    """Under the mixed strategy the resource says which slice of the card."""
    found = gpus_of(resources={"limits": {"nvidia.com/mig-1g.18gb": 1}}, nodeSelector={PRODUCT: "NVIDIA-H200"})
    assert (found.gpus, found.gpu_count) == (("h200-mig-1g.18gb",), 1)
    with pytest.raises(SpecError, match="several kinds of GPU"):
        gpus_of(resources={"limits": {"nvidia.com/mig-1g.18gb": 1, "nvidia.com/gpu": 1}})


def claim_template(*expressions: str, device_class: str = "gpu.nvidia.com", nested: bool = True) -> dict[str, Any]:
    """Return a ResourceClaimTemplate with one request for two devices."""
    exact = {
        "deviceClassName": device_class,
        "count": 2,
        "selectors": [{"cel": {"expression": text_}} for text_ in expressions],
    }
    request = {"name": "gpu", "exactly": exact} if nested else {"name": "gpu"} | exact
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "two"},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }


CLAIMS = {"resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "two"}], "resources": {"claims": [{"name": "gpus"}]}}
ATTRIBUTE = 'device.attributes["gpu.nvidia.com"].productName'


@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize(
    ("expression", "gpus"),
    [
        (f'{ATTRIBUTE} == "NVIDIA H200"', ("h200",)),
        (f"{ATTRIBUTE} == 'NVIDIA H200' && device.attributes['gpu.nvidia.com'].driverVersion == '1'", ("h200",)),
        (f'{ATTRIBUTE} == "NVIDIA H200" || {ATTRIBUTE} == "NVIDIA L40S"', ("h200", "l40s")),
        (f'{ATTRIBUTE} in ["NVIDIA L40S", "NVIDIA H200"]', ("l40s", "h200")),
    ],
)
def test_dra_claims_name_products(expression: str, gpus: tuple[str, ...], nested: bool) -> None:
    """In `resource.k8s.io/v1` (`exactly`) and the betas before it."""
    found = gpus_of(claim_template(expression, nested=nested), **CLAIMS)  # type: ignore[arg-type]
    assert (found.gpus, found.gpu_count, found.unresolved) == (gpus, 2, ())


@pytest.mark.parametrize(
    "expression",
    [
        f'{ATTRIBUTE}.lowerAscii().matches("^.*h200.*$")',
        f'{ATTRIBUTE} != "NVIDIA H200"',
        f'!({ATTRIBUTE} == "NVIDIA H200")',
        f'{ATTRIBUTE} == "NVIDIA H200" || device.driver == "x"',
        f'true ? {ATTRIBUTE} == "NVIDIA H200" : true',
    ],
)
def test_a_selector_that_would_have_to_be_evaluated_is_named(expression: str) -> None:
    """Nothing is guessed from part of an expression."""
    found = gpus_of(claim_template(expression), **CLAIMS)  # type: ignore[arg-type]
    (note,) = found.unresolved
    assert (found.gpus, note.what, note.compiles) == ((), "gpu", True)
    assert "by more than a product name" in note.why


def test_a_claim_that_the_stream_does_not_hold_is_named() -> None:
    """By kind and name."""
    (note,) = gpus_of(**CLAIMS).unresolved  # type: ignore[arg-type]
    assert "ResourceClaimTemplate/two is not in the spec" in note.why


def test_a_claim_that_names_no_product_leaves_it_to_the_labels() -> None:
    """The class alone says that it is a GPU."""
    found = gpus_of(claim_template(), nodeSelector={PRODUCT: "NVIDIA-H200"}, **CLAIMS)  # type: ignore[arg-type]
    assert (found.gpus, found.gpu_count) == (("h200",), 2)
