"""A user's own entries: what is taken, and how each mistake is said."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from warmstart.errors import UnknownGpuError, UsageError
from warmstart.gpus import load_catalog, to_document, to_entry

BUILT_IN = load_catalog()


def _entry(**changes: Any) -> dict[str, Any]:
    entry = to_entry(BUILT_IN.get("h100-pcie-80gb"))
    return {**entry, "name": "NVIDIA X100", "sources": {"*": "the vendor's list"}, **changes}


def _write(path: Path, gpus: object, **more: object) -> Path:
    path.write_text(json.dumps({"schema": 1, "gpus": gpus, **more}))
    return path


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return tmp_path / "own gpus.json"


def test_an_entry_is_added_and_found_by_id_name_alias_and_label(own: Path) -> None:
    """An added card behaves like a built-in one."""
    catalog = load_catalog(_write(own, {"x100": _entry(aliases=["Big X"])}))
    for text in ("x100", "NVIDIA X100", "NVIDIA-X100-SHARED", "big-x"):
        assert catalog.parse(text).id == "x100"
    assert [profile.id for profile in catalog.from_labels({"nvidia.com/gpu.product": "NVIDIA-X100"})] == ["x100"]
    assert catalog.ids() == (*BUILT_IN.ids(), "x100")
    assert catalog.get("x100").sources["l2_cache_bytes"] == "the vendor's list"


def test_slices_of_an_added_card_are_found(own: Path) -> None:
    """A card may bring its MIG slices."""
    part = {
        "multiprocessors": 14,
        "memory_bytes": 2**33,
        "l2_cache_bytes": 2**22,
        "memory_bus_bits": 640,
        "sources": {"*": "seen"},
    }
    catalog = load_catalog(_write(own, {"x100": _entry(mig={"1g.8gb": part})}))
    assert catalog.parse("NVIDIA-X100-MIG-1g.8gb").multiprocessors == 14
    assert catalog.from_labels({}, resource="nvidia.com/mig-1g.8gb")[0].id == "x100-mig-1g.8gb"


def test_a_built_in_entry_is_replaced_only_when_the_file_says_so(own: Path) -> None:
    """Without "replaces" an id that is taken is a mistake; with it the entry takes the place, and slices stay."""
    changed = {**to_entry(BUILT_IN.get("h200")), "memory_bytes": 2**37}
    with pytest.raises(UsageError, match="'h200': replaces must be true"):
        load_catalog(_write(own, {"h200": changed}))
    catalog = load_catalog(_write(own, {"h200": {**changed, "replaces": True}}))
    assert catalog.get("NVIDIA H200").memory_bytes == 2**37
    assert catalog.ids() == BUILT_IN.ids()
    assert catalog.parse("H200 MIG 1g.18gb") == BUILT_IN.get("h200-mig-1g.18gb")


def test_a_slice_that_describe_wrote_replaces_the_built_in_one(own: Path) -> None:
    """The document of a live MIG device stands by itself; its name says which card it is cut from."""
    own.write_text(json.dumps(to_document(BUILT_IN.get("h200-mig-1g.18gb"))))
    catalog = load_catalog(own)
    assert catalog.parse("NVIDIA-H200-MIG-1g.18gb-SHARED").id == "h200-mig-1g.18gb"
    assert catalog.ids() == BUILT_IN.ids()


@pytest.mark.parametrize("id_", ["h200", "gb10", "a100-sxm4-40gb-mig-1g.5gb"])
def test_a_written_document_reads_back_as_the_same_profile(own: Path, id_: str) -> None:
    """to_document and load_catalog are inverse, sources included."""
    profile = BUILT_IN.get(id_)
    own.write_text(json.dumps(to_document(profile)))
    again = load_catalog(own).get(id_)
    assert again == profile
    assert again.sources == profile.sources


def test_replacing_what_is_not_there_is_a_mistake(own: Path) -> None:
    """A typing error in the id would else leave the built-in entry in place unnoticed."""
    with pytest.raises(UsageError, match="'h2oo': replaces is true, but there is no such entry"):
        load_catalog(_write(own, {"h2oo": _entry(replaces=True)}))


FIGURES = {
    "multiprocessors": 0,
    "memory_bytes": 143771,
    "shared_memory_per_block": 48,
    "shared_memory_per_block_optin": 227,
    "shared_memory_per_multiprocessor": 228,
    "registers_per_multiprocessor": 64,
    "max_threads_per_multiprocessor": 0,
    "max_threads_per_block": 0,
    "l2_cache_bytes": 50,
    "warp_size": 1,
    "clock_khz": 1980,
    "memory_clock_khz": 3201,
    "memory_bus_bits": 0,
}


@pytest.mark.parametrize(("figure", "value"), FIGURES.items())
def test_a_figure_in_the_wrong_unit_is_refused(own: Path, figure: str, value: int) -> None:
    """MiB for bytes or MHz for kHz is named with file, entry, field and the unit that was meant."""
    with pytest.raises(UsageError) as error:
        load_catalog(_write(own, {"x100": _entry(**{figure: value})}))
    text = str(error.value)
    assert str(own) in text
    assert f"entry 'x100': {figure} is {value}, must be from" in text
    assert "\n" not in text


@pytest.mark.parametrize("field", [*FIGURES, "name", "capability", "sources"])
def test_a_missing_field_is_named(own: Path, field: str) -> None:
    """An entry without one of its fields is refused."""
    entry = _entry()
    del entry[field]
    with pytest.raises(UsageError, match=f"entry 'x100': Object missing required field `{field}`"):
        load_catalog(_write(own, {"x100": entry}))


WRONG_ENTRIES = [
    ({"l2_cache": 5}, "unknown field `l2_cache`"),
    ({"memory_bytes": "80 GiB"}, r"Expected `int`, got `str` - at `\$.memory_bytes`"),
    ({"memory_bytes": 1.5}, "Expected `int`, got `float`"),
    ({"multiprocessors": True}, "Expected `int`, got `bool`"),
    ({"memory_bytes": 10**30}, "memory_bytes"),
    ({"capability": "nine"}, "capability is 'nine'"),
    ({"capability": 9.0}, "Expected `str`, got `float`"),
    ({"name": "  "}, "name and aliases must be printable"),
    ({"aliases": ["ﬀ"]}, "name and aliases must be printable"),
    ({"aliases": ["x" * 65536]}, "name and aliases must be printable"),
    ({"shared_memory_per_block_optin": 40000}, "shared_memory_per_block_optin is 40000, must lie between"),
    ({"sources": {}}, "sources lacks name"),
    ({"sources": {"name": "seen"}}, "sources lacks capability"),
    ({"sources": {"*": "seen", "colour": "seen"}}, "names 'colour', which is no figure"),
    ({"verified": True}, "verified is true, but the source of name is not 'read from the device'"),
    ({"mig": {"1g.5gb": {}}}, "missing required field"),
    (
        {
            "mig": {
                "big": {
                    "multiprocessors": 10**3,
                    "memory_bytes": 2**33,
                    "l2_cache_bytes": 2**22,
                    "memory_bus_bits": 640,
                    "sources": {},
                }
            }
        },
        "'x100-mig-big': multiprocessors is 1000, more than the card's 114",
    ),
]


@pytest.mark.parametrize(("changes", "said"), WRONG_ENTRIES)
def test_a_wrong_entry_is_refused_in_one_line_with_the_field(own: Path, changes: dict[str, Any], said: str) -> None:
    """File, entry and field are named, whatever is wrong with the value."""
    with pytest.raises(UsageError, match=said) as error:
        load_catalog(_write(own, {"x100": _entry(**copy.deepcopy(changes))}))
    assert str(own) in str(error.value)
    assert "'x100" in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 800


WRONG_FILES = [
    (b"", "is not JSON"),
    (b"{", "is not JSON"),
    (b"\xff\xfe\x00", "is not JSON"),
    (b"[" * 100_000, "is not JSON"),
    (b"[]", "Expected `object`, got `array`"),
    (b"{}", "missing required field `schema`"),
    (b'{"schema": 2, "gpus": {}}', "schema is 2, this program reads 1"),
    (b'{"schema": 1, "gpus": {}, "cards": {}}', "unknown field `cards`"),
    (b'{"schema": 1, "gpus": {"x": {"name": "a", "name": "b"}}}', "'name' is given twice"),
    (b'{"schema": 1, "gpus": {"x": {}, "x": {}}}', "'x' is given twice"),
    (b'{"schema": 1, "gpus": {"x": []}}', "entry 'x': Expected `object`"),
    (b'{"schema": 1, "gpus": {"X 1": {}}}', "the id must be"),
    (b" " * (5 * 2**20), "larger than 4 MiB"),
]


@pytest.mark.parametrize(("content", "said"), WRONG_FILES, ids=lambda value: repr(value[:40]))
def test_a_file_of_the_wrong_form_is_refused_in_one_line(own: Path, content: bytes, said: str) -> None:
    """Broken, empty, huge and foreign files are named with what is wrong."""
    own.write_bytes(content)
    with pytest.raises(UsageError, match=said) as error:
        load_catalog(own)
    assert str(own) in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 800


def test_a_file_that_is_not_there_and_a_folder_are_refused(tmp_path: Path) -> None:
    """The operating system's reason is given."""
    with pytest.raises(UsageError, match=r"missing\.json cannot be read: No such file"):
        load_catalog(tmp_path / "missing.json")
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        load_catalog(tmp_path)


def test_an_added_card_under_a_known_name_makes_the_name_ambiguous(own: Path) -> None:
    """Two entries of one driver name are never chosen between silently."""
    catalog = load_catalog(
        _write(own, {"my-h200": {**to_entry(BUILT_IN.get("h200")), "sources": {"*": "seen"}, "verified": False}})
    )
    with pytest.raises(UnknownGpuError, match=r"covers 2 types: h200 .*my-h200"):
        catalog.parse("NVIDIA H200")


def test_a_yaml_file_is_taken_as_well(tmp_path: Path) -> None:
    """The same form in YAML, by the file's name."""
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump({"schema": 1, "gpus": {"x100": _entry()}}))
    assert load_catalog(path).get("x100").name == "NVIDIA X100"


WRONG_YAML = [
    ("schema: 1\ngpus: {x: {name: a, name: b}}", "'name' is given twice"),
    ("schema: 1\ngpus: &a {x: *a}", "is not YAML: aliases are not taken"),
    ("schema: 1\ngpus: {1: {}}", "is not YAML: keys must be text"),
    ("schema: 1\ngpus: {[1]: {}}", "is not YAML: keys must be text"),
    ("schema: [", "is not YAML"),
    ("!!python/object/apply:os.getcwd []", "is not YAML"),
    ("a: 1\n---\na: 2", "is not YAML"),
    ("\0", "is not YAML"),
    ("", "Expected `object`, got `null`"),
    ("[" * 5000, "is not YAML"),
]


@pytest.mark.parametrize(("content", "said"), WRONG_YAML, ids=lambda value: repr(value[:40]))
def test_yaml_of_the_wrong_form_is_refused_in_one_line(tmp_path: Path, content: str, said: str) -> None:
    """Aliases, repeated keys, foreign tags and broken text are named."""
    path = tmp_path / "own.yml"
    path.write_text(content)
    with pytest.raises(UsageError, match=said) as error:
        load_catalog(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
