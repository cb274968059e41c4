"""The code fingerprint tells builds apart, and not places or installers."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

import pytest

from warmstart.errors import UnsupportedError, UsageError
from warmstart.identity import CodeFingerprint, fingerprint


def _line(path: str, content: str) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest()).rstrip(b"=").decode()
    return f"{path},sha256={digest},{len(content)}"


def install(site: Path, name: str, version: str, files: dict[str, str], *, installer: str = "pip", extra: str = "") -> Path:
    """Install a package as an installer does: files, and a RECORD with its own additions."""
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    lines = []
    for path, content in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(content)
        lines.append(_line(path, content))
    lines += [
        _line(f"../../../bin/{name}", f"#!{site}/bin/python"),
        _line(f"{info.name}/INSTALLER", installer),
        _line(f"{info.name}/METADATA", f"Name: {name}\nVersion: {version}\n"),
        f"{info.name}/RECORD,,",
    ]
    lines += [f"{path.removesuffix('.py')}.cpython-311.pyc,," for path in files]
    (info / "RECORD").write_text("\n".join(lines if installer == "pip" else reversed(lines)) + "\n" + extra)
    return info


def digest(site: Path, package: str = "vllm") -> str:
    return fingerprint([str(site)]).packages[package]


FILES = {"vllm/__init__.py": "x = 1\n", "vllm/_C.abi3.so": "ELF"}


def test_place_and_installer_do_not_count(tmp_path: Path) -> None:
    install(tmp_path / "a", "vllm", "0.33.0", FILES)
    install(tmp_path / "b" / "deeper", "vllm", "0.33.0", dict(reversed(FILES.items())), installer="uv")
    assert digest(tmp_path / "a") == digest(tmp_path / "b" / "deeper")
    assert digest(tmp_path / "a").startswith("0.33.0 sha256:")


def test_a_patched_build_of_the_same_version_differs(tmp_path: Path) -> None:
    install(tmp_path / "a", "vllm", "0.33.0", FILES)
    install(tmp_path / "b", "vllm", "0.33.0", {**FILES, "vllm/__init__.py": "x = 2\n"})
    assert digest(tmp_path / "a") != digest(tmp_path / "b")


def test_a_file_of_vllm_changed_in_place_is_seen_by_its_size(tmp_path: Path) -> None:
    install(tmp_path, "vllm", "0.33.0", FILES)
    stock = digest(tmp_path)
    (tmp_path / "vllm" / "__init__.py").write_text("x = 1  # patched\n")
    patched = digest(tmp_path)
    (tmp_path / "vllm" / "__init__.py").write_text("x = 1  # Patched\n")
    assert len({stock, patched, digest(tmp_path)}) == 3
    (tmp_path / "vllm" / "__init__.py").unlink()
    assert digest(tmp_path) not in {stock, patched}


def test_a_package_that_is_not_there_is_recorded_as_absent(tmp_path: Path) -> None:
    install(tmp_path, "vllm", "0.33.0", FILES)
    packages = fingerprint([str(tmp_path), str(tmp_path / "nowhere")]).packages
    assert packages["torch"] == "absent"
    with pytest.raises(UnsupportedError, match="torch is not installed here"):
        fingerprint([str(tmp_path)]).version("torch")


def test_names_are_compared_as_python_does(tmp_path: Path) -> None:
    install(tmp_path, "Compressed_Tensors", "0.17.0", {"compressed_tensors/__init__.py": ""})
    assert digest(tmp_path, "compressed-tensors").startswith("0.17.0 ")


def test_the_first_on_the_path_counts(tmp_path: Path) -> None:
    install(tmp_path / "a", "vllm", "0.33.0", FILES)
    install(tmp_path / "b", "vllm", "0.32.0", FILES)
    assert fingerprint([str(tmp_path / "a"), str(tmp_path / "b")]).version("vllm") == "0.33.0"


def test_an_editable_install_is_hashed_by_its_files(tmp_path: Path) -> None:
    source = tmp_path / "src folder" / "vllm"
    (source / "vllm").mkdir(parents=True)
    (source / "vllm" / "__init__.py").write_text("x = 1\n")
    site = tmp_path / "site"
    info = site / "vllm-0.33.0.dev1.dist-info"
    info.mkdir(parents=True)
    (info / "RECORD").write_text("__editable__.vllm.pth,sha256=x,1\n")
    (info / "direct_url.json").write_text(json.dumps({"url": source.as_uri(), "dir_info": {"editable": True}}))
    before = digest(site)
    (source / "vllm" / "__pycache__").mkdir()
    (source / "vllm" / "__pycache__" / "x.so").write_text("byte code does not count")
    assert digest(site) == before
    (source / "vllm" / "__init__.py").write_text("x = 2\n")
    assert digest(site) != before
    (source / "vllm" / "__init__.py").unlink()
    (source / "vllm" / "__pycache__" / "x.so").unlink()
    (source / "vllm" / "__pycache__").rmdir()
    (source / "vllm").rmdir()
    source.rmdir()
    with pytest.raises(UsageError, match="editable install whose source"):
        digest(site)


def test_a_package_without_a_record_is_hashed_by_its_files(tmp_path: Path) -> None:
    info = install(tmp_path, "vllm", "0.33.0", FILES)
    (info / "RECORD").unlink()
    before = digest(tmp_path)
    (tmp_path / "vllm" / "_C.abi3.so").write_text("elf")
    assert digest(tmp_path) != before


def test_a_plugin_of_vllm_counts_by_its_entry_points(tmp_path: Path) -> None:
    install(tmp_path, "vllm", "0.33.0", FILES)
    plain = install(tmp_path, "helper", "1.0", {"helper/__init__.py": ""})
    plugin = install(tmp_path, "my-plugin", "1.0", {"my_plugin/__init__.py": ""})
    (plain / "entry_points.txt").write_text("[console_scripts]\nhelper = helper:main\n")
    (plugin / "entry_points.txt").write_text("[vllm.general_plugins]\nmine = my_plugin:register\n")
    packages = fingerprint([str(tmp_path)]).packages
    assert packages["plugin my-plugin"].startswith("1.0 sha256:")
    assert not any("helper" in name for name in packages)


def test_the_installed_vllm_is_fingerprinted_with_what_it_needs() -> None:
    found = fingerprint()
    assert found.version("vllm") == "0.33.0"
    assert all(found.packages[name] != "absent" for name in ("torch", "triton", "transformers", "flashinfer-python"))
    assert found == fingerprint()
    assert set(found.python) == {"implementation", "version", "cache_tag", "machine"}


def test_a_fingerprint_is_read_from_a_plan_or_an_identity(tmp_path: Path) -> None:
    factors = {"code": {"vllm": "0.33.0 sha256:aa"}, "python": {"version": "3.12"}}
    for document in (factors, {"factors": factors}, [{"state": "problem", "factors": None}, {"factors": factors}]):
        path = tmp_path / "code.json"
        path.write_text(json.dumps(document))
        assert CodeFingerprint.read(path).version("vllm") == "0.33.0"


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"code": 3}', '{"code": {"vllm": 1}, "python": {}}', "null", '"x"'])
def test_a_document_without_a_fingerprint_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "code.json"
    path.write_text(content)
    with pytest.raises(UsageError, match=r"code\.json"):
        CodeFingerprint.read(path)


def test_a_fingerprint_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read the code fingerprint"):
        CodeFingerprint.read(tmp_path / "none.json")
