"""A Job has the server's variables and not its volumes: the pass gets folders that it can write."""

from __future__ import annotations

import os
from pathlib import Path

from warmstart.identity.environment import counts
from warmstart.workflow import habitat
from warmstart.workflow.habitat import habitable


def test_a_folder_that_cannot_be_written_is_replaced_and_others_stay(tmp_path: Path) -> None:
    writable = tmp_path / "models"
    env = {
        "HF_HOME": "/proc/models",
        "HOME": "/sys",
        "TRITON_CACHE_DIR": str(writable / "made" / "later"),
        "VLLM_CONFIG_ROOT": str(tmp_path / "file" / "below"),
        "VLLM_USE_V2_MODEL_RUNNER": "1",
        "PATH": "/bin",
    }
    (tmp_path / "file").write_text("a file is in the way")
    changed = habitable(env, tmp_path / "work")
    assert {name for name in env if changed[name] != env[name]} == {"HF_HOME", "HOME", "VLLM_CONFIG_ROOT"}
    for name in ("HF_HOME", "HOME", "VLLM_CONFIG_ROOT"):
        assert Path(changed[name]).is_relative_to(tmp_path / "work")
        assert os.access(changed[name], os.W_OK)


def test_an_offline_server_keeps_the_place_of_its_model(tmp_path: Path) -> None:
    env = {"HF_HUB_OFFLINE": "1", "HF_HOME": "/proc/models", "HOME": "/proc/home"}
    changed = habitable(env, tmp_path)
    assert changed["HF_HOME"] == "/proc/models"
    assert changed["HOME"] != "/proc/home"


def test_nothing_that_counts_in_the_key_is_replaced() -> None:
    assert not [name for name in (*habitat._PLACES, *habitat._HUB_PLACES) if counts(name)]
