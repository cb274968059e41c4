"""Names in every spelling that people, drivers and clusters use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import warmstart
from warmstart.errors import UnknownGpuError
from warmstart.gpus import load_catalog

CATALOG = load_catalog()
APP = Path(warmstart.__file__).parents[1]

SPELLINGS = {
    "h200": [
        "H200",
        "h200",
        " NVIDIA H200 ",
        "NVIDIA-H200",
        "nvidia_h200",
        "nvidia-h200-141gb",
        "H200-SXM-141GB",
        "NVIDIA-H200-SHARED",
    ],
    "h200-nvl": ["NVIDIA H200 NVL", "NVIDIA-H200-NVL", "h200 nvl"],
    "h100-sxm5-80gb": [
        "NVIDIA H100 80GB HBM3",
        "NVIDIA-H100-80GB-HBM3",
        "NVIDIA-H100-80GB-HBM3-SHARED",
        "H100 SXM",
        "h100-sxm5",
    ],
    "h100-pcie-80gb": ["NVIDIA H100 PCIe", "NVIDIA-H100-PCIe", "H100_PCIE", "H100 80GB PCIe"],
    "h100-nvl": ["NVIDIA H100 NVL", "H100-94GB"],
    "a100-sxm4-40gb": ["A100-SXM4-40GB", "NVIDIA-A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB", "A100 40GB SXM"],
    "a100-pcie-40gb": ["A100-PCIE-40GB", "NVIDIA A100-PCIE-40GB", "A100 40GB PCIe"],
    "a100-sxm4-80gb": ["A100-SXM4-80GB", "NVIDIA-A100-SXM4-80GB-SHARED"],
    "a100-pcie-80gb": ["NVIDIA A100 80GB PCIe", "NVIDIA-A100-80GB-PCIe", "A100-PCIE-80GB"],
    "t4": ["Tesla T4", "Tesla-T4", "nvidia-tesla-t4", "T4", "NVIDIA T4"],
    "v100-sxm2-16gb": ["Tesla V100-SXM2-16GB", "Tesla-V100-SXM2-16GB"],
    "l4": ["NVIDIA L4", "nvidia-l4", "L4"],
    "l40s": ["NVIDIA L40S", "NVIDIA-L40S-SHARED", "l40s"],
    "rtx-4090": ["NVIDIA GeForce RTX 4090", "NVIDIA-GeForce-RTX-4090", "GeForce RTX 4090", "RTX 4090", "4090"],
    "rtx-6000-ada": ["NVIDIA RTX 6000 Ada Generation", "NVIDIA-RTX-6000-Ada-Generation", "RTX6000 Ada"],
    "rtx-pro-6000-blackwell-server": ["NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", "RTX PRO 6000"],
    "gh200-480gb": ["NVIDIA GH200 480GB", "NVIDIA-GH200-480GB"],
    "b300": ["NVIDIA B300 SXM6 AC", "NVIDIA-B300-SXM6-AC", "B300"],
    "gb10": ["NVIDIA GB10", "DGX Spark"],
    "a100-sxm4-40gb-mig-1g.5gb": [
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "A100-SXM4-40GB-MIG-1g.5gb",
        "A100-SXM4-40GB-MIG-1g.5gb-SHARED",
        "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb.me",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb+me",
    ],
    "h100-sxm5-80gb-mig-3g.40gb": ["NVIDIA-H100-80GB-HBM3-MIG-3g.40gb", "NVIDIA H100 80GB HBM3 MIG 3g.40gb"],
    "h100-nvl-mig-1g.12gb": ["NVIDIA-H100-NVL-MIG-1g.12gb"],
    "h200-mig-7g.141gb": ["NVIDIA-H200-MIG-7g.141gb-SHARED", "h200-mig-7g.141gb", "H200 MIG 7g.141gb"],
}

AMBIGUOUS = {
    "H100": {"h100-sxm5-80gb", "h100-pcie-80gb", "h100-nvl"},
    "a100": {"a100-sxm4-40gb", "a100-pcie-40gb", "a100-sxm4-80gb", "a100-pcie-80gb"},
    "A100-80GB": {"a100-sxm4-80gb", "a100-pcie-80gb"},
    "nvidia-tesla-v100": {"v100-sxm2-16gb", "v100-sxm2-32gb", "v100-pcie-16gb", "v100-pcie-32gb"},
    "GH200": {"gh200-480gb", "gh200-120gb", "gh200-144gb"},
    "H100-MIG-1g.10gb": {"h100-sxm5-80gb-mig-1g.10gb", "h100-pcie-80gb-mig-1g.10gb"},
    "MIG-1g.5gb": {"a100-sxm4-40gb-mig-1g.5gb", "a100-pcie-40gb-mig-1g.5gb"},
}

HOSTILE = [
    "",
    " ",
    "-",
    "\0",
    "MIG",
    "-MIG-",
    "-SHARED",
    "x" * 65536,
    "H" + "-" * 65536 + "200",
    "NVIDIA " * 9000,
    "H\uff12\uff10\uff10",
    "\u041d100",
    "\U0001f680",
    "h100\nh200",
    "NVIDIA",
]


@pytest.mark.parametrize(("id_", "text"), [(id_, text) for id_, texts in SPELLINGS.items() for text in texts])
def test_a_spelling_names_its_type(id_: str, text: str) -> None:
    """Ids, driver names, label values and names in common use lead to one type."""
    assert CATALOG.parse(text).id == id_
    assert CATALOG.get(text).id == id_


@pytest.mark.parametrize("id_", CATALOG.ids())
def test_every_id_name_and_label_form_of_a_name_is_a_spelling(id_: str) -> None:
    """Also as GPU feature discovery writes a name: spaces as dashes, and -SHARED behind."""
    profile = CATALOG.get(id_)
    for text in (id_, id_.upper(), profile.name, profile.name.replace(" ", "-"), profile.name.replace(" ", "-") + "-SHARED"):
        assert CATALOG.parse(text) == profile


@pytest.mark.parametrize(("text", "ids"), AMBIGUOUS.items())
def test_a_name_of_several_types_is_refused_with_all_of_them(text: str, ids: set[str]) -> None:
    """The user must choose, so the error lists what there is to choose from."""
    assert {profile.id for profile in CATALOG.candidates(text)} == ids
    for read in (CATALOG.get, CATALOG.parse):
        with pytest.raises(UnknownGpuError, match=f"covers {len(ids)} types") as error:
            read(text)
        assert all(id_ in str(error.value) for id_ in ids)


@pytest.mark.parametrize(
    ("text", "near"), [("H10O", "h100"), ("nvidia-h201", "h200"), ("RTX 4091", "rtx-4090"), ("A100-SXM4-4OGB", "a100")]
)
def test_an_unknown_name_is_refused_with_near_spellings(text: str, near: str) -> None:
    """A typing error is answered with what was probably meant."""
    with pytest.raises(UnknownGpuError, match="unknown GPU") as error:
        CATALOG.parse(text)
    assert near in error.value.hint


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: repr(text[:12]))
def test_hostile_text_is_refused_in_one_short_line(text: str) -> None:
    """Empty, huge, foreign and broken names end in the same error, and it stays readable."""
    for read in (CATALOG.get, CATALOG.parse, CATALOG.candidates, CATALOG.from_dra):
        with pytest.raises(UnknownGpuError) as error:
            read(text)
        assert "\n" not in str(error.value)
        assert len(str(error.value)) < 500


@pytest.mark.parametrize("value", [None, 7, b"H200", ["H200"]])
def test_a_value_that_is_no_text_is_refused(value: object) -> None:
    """YAML gives numbers and lists where a name was meant."""
    with pytest.raises(UnknownGpuError):
        CATALOG.parse(value)  # type: ignore[arg-type]


@settings(deadline=None)
@given(st.text(max_size=300))
def test_any_text_gives_types_or_the_error(text: str) -> None:
    """No text raises anything else."""
    if CATALOG.matches(text):
        assert CATALOG.candidates(text)
    else:
        with pytest.raises(UnknownGpuError):
            CATALOG.candidates(text)


def test_a_dra_product_name_gives_all_that_it_covers() -> None:
    """DRA's productName is NVML's name; a selector may hold less of it."""
    assert [profile.id for profile in CATALOG.from_dra("NVIDIA H100 80GB HBM3")] == ["h100-sxm5-80gb"]
    assert len(CATALOG.from_dra("H100")) == 3


def test_the_catalog_is_read_with_the_standard_library_alone() -> None:
    """`warmstart run` pays for no import here."""
    code = (
        "import sys; from warmstart.gpus import load_catalog; load_catalog().parse('H200'); "
        "print([name for name in sys.modules if name.partition('.')[0] in "
        "('msgspec','pydantic','yaml','torch','ctypes','difflib','kubernetes','fsspec')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(APP)}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
