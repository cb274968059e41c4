"""Small files come from the hub through its own client; what the hub refuses is told in one line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.identity.conftest import CONFIG
from tests.unit.identity.hub_server import COMMIT, Hub, serve
from tests.unit.identity.test_files import cached

from warmstart.errors import ModelFilesError, TemporaryError
from warmstart.identity import ModelFiles, model_files

MODEL = "Qwen/Qwen3-0.6B"


@pytest.fixture
def hub() -> Iterator[Hub]:
    files = {
        "config.json": json.dumps(CONFIG).encode(),
        "generation_config.json": b"{}",
        "model.safetensors": b"weights",
        "tokenizer.json": b"{}",
    }
    with serve(Hub(files)) as running:
        yield running


def read(hub: Hub, tmp_path: Path, revision: str | None = None, **env: str) -> ModelFiles:
    return model_files(MODEL, revision, folder=None, env={"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf"), **env})


def test_only_the_small_files_are_asked_for(hub: Hub, tmp_path: Path) -> None:
    files = read(hub, tmp_path)
    assert set(files.digests) == {"config.json", "generation_config.json"}
    assert files.model == MODEL
    assert files.commit == COMMIT
    assert not any("safetensors" in path or "tokenizer" in path for path in hub.asked)


def test_the_hub_and_a_folder_give_the_same_digests(hub: Hub, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "generation_config.json"):
        (folder / name).write_bytes(hub.files[name])
    assert read(hub, tmp_path).factors() == model_files(MODEL, None, folder=folder, env={}).factors()


def test_the_revision_is_asked_for(hub: Hub, tmp_path: Path) -> None:
    read(hub, tmp_path, "v1.5")
    assert hub.asked[0].endswith("/revision/v1.5")


def test_a_gated_model_needs_a_token(hub: Hub, tmp_path: Path) -> None:
    hub.token = "right"
    with pytest.raises(ModelFilesError, match="is gated") as raised:
        read(hub, tmp_path)
    assert "HF_TOKEN" in raised.value.hint
    assert read(hub, tmp_path, HF_TOKEN="right").digests


@pytest.mark.parametrize(
    ("status", "code", "complaint"),
    [
        (404, "RepoNotFound", "the hub has no model"),
        (401, "", r"refuses to show .* \(401\)"),
        (404, "RevisionNotFound", "no such revision"),
        (403, "", r"refuses to show .* \(403\)"),
    ],
)
def test_what_the_hub_refuses_is_told(hub: Hub, tmp_path: Path, status: int, code: str, complaint: str) -> None:
    hub.status, hub.error_code = status, code
    with pytest.raises(ModelFilesError, match=complaint):
        read(hub, tmp_path)


def test_a_hub_that_does_not_answer_is_temporary(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(TemporaryError, match="the hub does not answer"):
        read(hub, tmp_path, HF_ENDPOINT="http://127.0.0.1:9")
    hub.status = 500
    with pytest.raises(TemporaryError, match=r"the hub answers 500|the hub does not answer"):
        read(hub, tmp_path)


def test_while_the_hub_is_away_the_cache_is_good_enough(hub: Hub, tmp_path: Path) -> None:
    cached(tmp_path / "hf" / "hub", MODEL)
    hub.status = 500
    assert read(hub, tmp_path).model == MODEL


def test_a_snapshot_that_lacks_a_companion_gives_the_key_that_the_hub_gives(hub: Hub, tmp_path: Path) -> None:
    snapshot = cached(tmp_path / "hf" / "hub", MODEL, commit=COMMIT)
    assert not (snapshot / "generation_config.json").exists()
    assert set(read(hub, tmp_path, COMMIT).digests) == {"config.json", "generation_config.json"}


def test_the_hub_is_asked_although_the_cache_holds_an_older_commit(hub: Hub, tmp_path: Path) -> None:
    cached(tmp_path / "hf" / "hub", MODEL)
    assert read(hub, tmp_path).commit == COMMIT


def test_a_file_that_is_too_large_is_refused_before_it_travels(hub: Hub, tmp_path: Path) -> None:
    hub.sizes["config.json"] = 1 << 40
    with pytest.raises(ModelFilesError, match="more than any configuration file"):
        read(hub, tmp_path)
    assert not any("resolve" in path for path in hub.asked)


def test_a_broken_config_on_the_hub_is_told(hub: Hub, tmp_path: Path) -> None:
    hub.files["config.json"] = b"<html>"
    with pytest.raises(ModelFilesError, match=r"Qwen/Qwen3-0\.6B on the hub: config\.json is not JSON"):
        read(hub, tmp_path)


def test_code_is_read_from_the_hub_where_it_is_trusted(hub: Hub, tmp_path: Path) -> None:
    hub.files |= {"modeling.py": b"x = 1"}
    env = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path)}
    files = model_files(MODEL, None, folder=None, env=env, remote_code=True)
    assert "modeling.py" in files.digests
