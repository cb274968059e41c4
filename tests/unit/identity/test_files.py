"""Model files are found as vLLM finds them, told by content, and refused in one line where they cannot be used."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import pytest
from tests.unit.identity.conftest import CONFIG, REQUEST

from warmstart.errors import ModelFilesError, UsageError
from warmstart.identity import ModelFiles, model_files, request_files
from warmstart.identity.files import COMPANIONS, MOST_BYTES

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def read(folder: Path, **options: object) -> ModelFiles:
    return model_files(str(folder), None, folder=None, env={}, **options)  # type: ignore[arg-type]


def test_a_folder_is_read_and_tokenizer_files_are_left_alone(model_folder: Path) -> None:
    files = read(model_folder)
    assert set(files.digests) == {"config.json", "generation_config.json"}
    assert files.model == str(model_folder)


@pytest.mark.parametrize("companion", COMPANIONS)
def test_each_companion_counts(model_folder: Path, companion: str) -> None:
    before = read(model_folder).digests
    path = model_folder / companion
    path.parent.mkdir(exist_ok=True)
    path.write_text('{"changed": true}')
    after = read(model_folder).digests
    assert after != before
    assert companion in after


def test_spacing_and_order_do_not_count_and_values_do(model_folder: Path) -> None:
    before = read(model_folder).digests
    (model_folder / "config.json").write_text(json.dumps(dict(reversed(CONFIG.items())), indent=4) + "\r\n")
    assert read(model_folder).digests == before
    (model_folder / "config.json").write_text(json.dumps({**CONFIG, "hidden_size": 2048}))
    assert read(model_folder).digests != before


def test_the_folder_given_stands_in_for_the_hub(model_folder: Path) -> None:
    files = model_files("Qwen/Qwen3-0.6B", None, folder=model_folder, env={})
    assert files.model == "Qwen/Qwen3-0.6B"
    assert files.digests == read(model_folder).digests


def test_a_model_in_mistrals_format_needs_no_config_json(tmp_path: Path) -> None:
    (tmp_path / "params.json").write_text('{"dim": 4096}')
    assert set(read(tmp_path).digests) == {"params.json"}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "is not JSON"),
        ('{"a": ', "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ('"text"', "is not a JSON object"),
        ("17", "is not a JSON object"),
        ("\ufeff{}", "is not JSON"),
    ],
)
def test_a_broken_config_is_refused_with_its_place(model_folder: Path, content: str, complaint: str) -> None:
    (model_folder / "config.json").write_text(content)
    with pytest.raises(ModelFilesError, match=complaint) as raised:
        read(model_folder)
    assert "config.json" in str(raised.value)


def test_bytes_that_are_no_text_are_refused(model_folder: Path) -> None:
    (model_folder / "config.json").write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(ModelFilesError, match="is not JSON"):
        read(model_folder)


def test_a_folder_without_a_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFilesError, match=r"has no config\.json"):
        read(tmp_path)


def test_a_file_larger_than_any_config_is_refused_unread(model_folder: Path) -> None:
    with (model_folder / "config.json").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(ModelFilesError, match="more than any configuration file"):
        read(model_folder)


def test_a_loop_of_links_is_refused(model_folder: Path) -> None:
    (model_folder / "config.json").unlink()
    (model_folder / "config.json").symlink_to("config.json")
    with pytest.raises(ModelFilesError, match="cannot read"):
        read(model_folder)


def test_a_link_to_nowhere_is_refused_and_not_taken_for_a_missing_file(model_folder: Path) -> None:
    (model_folder / "hf_quant_config.json").symlink_to("nowhere")
    with pytest.raises(ModelFilesError, match="its link leads nowhere"):
        read(model_folder)


def test_a_fifo_is_refused_at_once(model_folder: Path) -> None:
    (model_folder / "config.json").unlink()
    os.mkfifo(model_folder / "config.json")
    with pytest.raises(ModelFilesError, match="is not a regular file"):
        read(model_folder)


def test_a_folder_in_the_place_of_a_file_is_refused(model_folder: Path) -> None:
    (model_folder / "quant_config.json").mkdir()
    with pytest.raises(ModelFilesError, match=r"quant_config\.json"):
        read(model_folder)


@pytest.mark.parametrize(
    ("model", "complaint"),
    [
        ("/models/not-mounted", "is not there"),
        ("./relative", "is not there"),
        ("s3://bucket/model", "cannot be read from here"),
        ("../../etc/passwd", "is not there"),
        ("a/b/c", "is not there"),
        ("", "is not there"),
    ],
)
def test_a_model_that_is_nowhere_is_refused(
    model: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if model == "":
        monkeypatch.chdir("/")
    with pytest.raises(ModelFilesError, match=complaint if model else r"has no config\.json"):
        model_files(model, None, folder=None, env={})


def test_a_gguf_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    with pytest.raises(ModelFilesError, match="is a single file"):
        model_files(str(path), None, folder=None, env={})


def test_a_url_with_a_folder_in_its_place_keeps_its_name(model_folder: Path) -> None:
    assert model_files("s3://bucket/qwen", None, folder=model_folder, env={}).model == "s3://bucket/qwen"


def test_modelscope_is_not_asked() -> None:
    with pytest.raises(ModelFilesError, match="ModelScope"):
        model_files("Qwen/Qwen3-0.6B", None, folder=None, env={"VLLM_USE_MODELSCOPE": "true"})


# The Hugging Face cache


def cached(hub: Path, model: str = "Qwen/Qwen3-0.6B", commit: str = COMMIT, ref: str = "main") -> Path:
    """Lay a snapshot out as huggingface_hub does: blobs, links to them, refs."""
    repository = hub / f"models--{model.replace('/', '--')}"
    snapshot = repository / "snapshots" / commit
    for folder in (snapshot, repository / "blobs", repository / "refs"):
        folder.mkdir(parents=True, exist_ok=True)
    (repository / "refs" / ref).write_text(commit)
    (repository / "blobs" / commit).write_text(json.dumps(CONFIG))
    (snapshot / "config.json").symlink_to(f"../../blobs/{commit}")
    return snapshot


def test_offline_the_cache_is_read_and_the_model_is_named_as_vllm_names_it(tmp_path: Path) -> None:
    snapshot = cached(tmp_path / "hub")
    files = model_files("Qwen/Qwen3-0.6B", None, folder=None, env={"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)})
    assert files.model == str(snapshot)
    assert files.commit == COMMIT
    assert set(files.digests) == {"config.json"}


@pytest.mark.parametrize(
    "env",
    [
        {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": "{}/hub"},
        {"TRANSFORMERS_OFFLINE": "yes", "HUGGINGFACE_HUB_CACHE": "{}/hub"},
        {"HF_HUB_OFFLINE": "true", "XDG_CACHE_HOME": "{}"},
        {"HF_HUB_OFFLINE": "ON", "HOME": "{}"},
    ],
)
def test_the_cache_is_where_the_servers_environment_says(tmp_path: Path, env: dict[str, str]) -> None:
    below = {"XDG_CACHE_HOME": "huggingface/hub", "HOME": ".cache/huggingface/hub"}
    hub = tmp_path / next((path for name, path in below.items() if name in env), "hub")
    snapshot = cached(hub)
    found = model_files("Qwen/Qwen3-0.6B", None, folder=None, env={name: value.format(tmp_path) for name, value in env.items()})
    assert found.model == str(snapshot)


def test_offline_with_a_folder_the_name_is_still_the_snapshots_path(tmp_path: Path, model_folder: Path) -> None:
    env = {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path / "hub")}
    with pytest.raises(ModelFilesError, match=r"names Qwen/Qwen3-0\.6B by its snapshot.s path"):
        model_files("Qwen/Qwen3-0.6B", None, folder=model_folder, env=env)
    snapshot = cached(tmp_path / "hub")
    files = model_files("Qwen/Qwen3-0.6B", None, folder=model_folder, env=env)
    assert files.model == files.source == str(snapshot)


def test_offline_without_the_model_is_refused(tmp_path: Path) -> None:
    cached(tmp_path / "hub", ref="v2")
    env = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    with pytest.raises(ModelFilesError, match=r"does not hold Qwen/Qwen3-0\.6B"):
        model_files("Qwen/Qwen3-0.6B", None, folder=None, env=env)
    with pytest.raises(ModelFilesError, match="at v3"):
        model_files("Qwen/Qwen3-0.6B", "v3", folder=None, env=env)
    with pytest.raises(ModelFilesError, match="does not hold"):
        model_files("Qwen/Qwen3-0.6B", "../../../etc", folder=None, env=env)
    assert model_files("Qwen/Qwen3-0.6B", "v2", folder=None, env=env).commit == COMMIT


def test_a_full_commit_that_is_cached_is_good_enough_while_the_hub_is_away(tmp_path: Path) -> None:
    cached(tmp_path / "hub")
    env = {"HF_HOME": str(tmp_path), "HF_ENDPOINT": "http://127.0.0.1:9"}
    files = model_files("Qwen/Qwen3-0.6B", COMMIT, folder=None, env=env)
    assert files.model == "Qwen/Qwen3-0.6B"


# Remote code

REMOTE = {**CONFIG, "architectures": ["MineForCausalLM"], "model_type": "mine", "auto_map": {"AutoConfig": "conf.MineConfig"}}


def test_a_model_with_its_own_code_is_refused_without_the_flag(model_folder: Path) -> None:
    (model_folder / "config.json").write_text(json.dumps(REMOTE))
    with pytest.raises(UsageError, match="MineForCausalLM") as raised:
        read(model_folder)
    assert "--trust-remote-code" in raised.value.hint


def test_a_native_architecture_with_a_foreign_config_is_refused_too(model_folder: Path) -> None:
    (model_folder / "config.json").write_text(json.dumps({**REMOTE, "architectures": ["Qwen3ForCausalLM"]}))
    with pytest.raises(UsageError, match="model type mine"):
        read(model_folder)


def test_a_model_that_vllm_holds_itself_may_bring_code(model_folder: Path) -> None:
    native = {**CONFIG, "auto_map": {"AutoConfig": "conf.Config", "AutoModelForCausalLM": "model.Model"}}
    (model_folder / "config.json").write_text(json.dumps(native))
    (model_folder / "conf.py").write_text("x = 1")
    assert "conf.py" not in read(model_folder).digests


@pytest.mark.parametrize(
    ("architecture", "model_type"),
    [("DeepseekV3ForCausalLM", "deepseek_v3"), ("LongcatFlashForCausalLM", None), ("ChatGLMModel", "chatglm")],
)
def test_models_that_vllm_is_known_to_take_over_are_not_refused(
    model_folder: Path, architecture: str, model_type: str | None
) -> None:
    config = {"architectures": [architecture], "model_type": model_type, "auto_map": {"AutoConfig": "conf.C"}}
    (model_folder / "config.json").write_text(json.dumps(config))
    assert read(model_folder).digests


def test_overrides_make_another_model_of_it(model_folder: Path) -> None:
    (model_folder / "config.json").write_text(json.dumps(REMOTE))
    with pytest.raises(UsageError, match="MineForCausalLM"):
        of(request(), model_folder)
    assert of(request('--hf-overrides={"architectures": ["Qwen3ForCausalLM"]}'), model_folder).digests


def test_with_the_flag_the_code_counts(model_folder: Path) -> None:
    (model_folder / "config.json").write_text(json.dumps(REMOTE))
    (model_folder / "conf.py").write_text("x = 1")
    before = read(model_folder, remote_code=True).digests
    assert "conf.py" in before
    (model_folder / "conf.py").write_text("x = 2")
    assert read(model_folder, remote_code=True).digests != before


def test_code_of_another_repository_counts(tmp_path: Path, model_folder: Path) -> None:
    snapshot = cached(tmp_path / "hub", "org/code")
    (snapshot / "conf.py").write_text("x = 1")
    (model_folder / "config.json").write_text(json.dumps({**REMOTE, "auto_map": {"AutoConfig": "org/code--conf.Config"}}))
    env = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    files = model_files(str(model_folder), None, folder=None, env=env, remote_code=True)
    assert "org/code--conf.py" in files.digests


# All models of a request


def request(*args: str, model: str = "Qwen/Qwen3-0.6B") -> object:
    return dataclasses.replace(REQUEST, args=args, model=model)


def of(request_: object, folder: Path | None) -> ModelFiles:
    return request_files(request_, folder=folder, env={})  # type: ignore[arg-type]


def test_a_folder_may_hold_one_model_or_several_by_name(tmp_path: Path, model_folder: Path) -> None:
    (tmp_path / "all" / "Qwen").mkdir(parents=True)
    (tmp_path / "all" / "Qwen" / "Qwen3-0.6B").symlink_to(model_folder)
    assert of(request(), model_folder) == dataclasses.replace(of(request(), tmp_path / "all"), source=str(model_folder))


def test_the_draft_model_counts(tmp_path: Path, model_folder: Path) -> None:
    draft = tmp_path / "draft"
    draft.mkdir()
    (draft / "config.json").write_text('{"architectures": ["LlamaForCausalLMEagle3"]}')
    speculative = json.dumps({"method": "eagle3", "model": str(draft), "num_speculative_tokens": 3})
    files = of(request(f"--speculative-config={speculative}"), model_folder)
    assert files.related["speculative"].model == str(draft)
    assert "speculative" in files.factors()["related"]
    (draft / "config.json").write_text('{"architectures": ["LlamaForCausalLMEagle"]}')
    assert of(request(f"--speculative-config={speculative}"), model_folder) != files


def test_a_draft_model_that_is_missing_is_refused(model_folder: Path) -> None:
    speculative = '--speculative-config={"model": "/models/gone", "num_speculative_tokens": 3}'
    with pytest.raises(ModelFilesError, match="/models/gone"):
        of(request(speculative), model_folder)


def test_a_method_without_a_model_needs_none(model_folder: Path) -> None:
    files = of(request('--speculative-config={"method": "ngram", "num_speculative_tokens": 3}'), model_folder)
    assert not files.related


def test_the_folder_of_hf_config_path_counts(tmp_path: Path, model_folder: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text("{}")
    files = of(request(f"--hf-config-path={other}"), model_folder)
    assert files.related["hf_config_path"].model == str(other)


def test_a_folder_that_is_not_there_is_refused() -> None:
    with pytest.raises(ModelFilesError, match="folder of model files /nowhere is not there"):
        of(request(), Path("/nowhere"))
