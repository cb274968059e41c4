"""Settings: an option goes before its variable, a variable before the default; what cannot be read is said in one line."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from warmstart import settings as configuration
from warmstart.errors import UsageError
from warmstart.settings import Settings, unknown_variables

VALID = {
    "store": "s3://bucket/prefix",
    "store_options": '{"key": "k", "secret": "hunter2"}',
    "store_timeout": "5s",
    "signing_key": "/keys/private.pem",
    "trusted_keys": "/keys/a.pem, /keys/b.pem",
    "require_signature": "true",
    "claims": "lease",
    "claim_ttl": "5m",
    "pod_spec": "pod.yaml",
    "pod_name": "qwen-0",
    "pod_namespace": "models",
    "container": "vllm",
    "gpu": "h200, h100-sxm",
    "gpu_file": "/gpus.yaml",
    "model_files": "/models/qwen",
    "code_file": "/code.json",
    "image_mismatch": "warn",
    "job_template": "/job.yaml",
    "cache_root": "~/cache",
    "work_dir": "/work-dir",
    "on_miss": "skip",
    "cuda_stub": "/opt/libcuda.so.1",
    "device": "cuda",
    "tuning_memory": "2GiB",
    "jobs": "4",
    "deadline": "2h",
    "fail_closed": "on",
    "log_level": "debug",
    "log_format": "json",
    "output": "text",
    "termination_log": "/t",
    "metrics_textfile": "/m.prom",
    "pushgateway": "http://user:hunter2@push:9091",
}
INVALID = [
    ("store", " "),
    ("store_options", "{"),
    ("store_options", "[1]"),
    ("require_signature", "maybe"),
    ("claims", "mutex"),
    ("claim_ttl", "-1"),
    ("claim_ttl", "1w"),
    ("claim_ttl", "inf"),
    ("claim_ttl", "1e9"),
    ("gpu", "h200,,h100"),
    ("image_mismatch", "ignore"),
    ("on_miss", "panic"),
    ("device", "h200"),
    ("tuning_memory", "8MB"),
    ("tuning_memory", "-1"),
    ("tuning_memory", "1.5GiB"),
    ("jobs", "-1"),
    ("jobs", "2.5"),
    ("jobs", "99999999999"),
    ("deadline", "soon"),
    ("fail_closed", "2"),
    ("log_level", "verbose"),
    ("log_format", "xml"),
    ("output", "yaml"),
]


def test_every_setting_has_a_valid_value_here() -> None:
    assert set(VALID) == set(configuration.fields())


@pytest.mark.parametrize("name", VALID)
def test_a_setting_is_read_from_its_variable(name: str) -> None:
    given = Settings.read({configuration.variable(name): VALID[name]})
    assert getattr(given, name) != getattr(Settings(), name)
    others = [field for field in configuration.fields() if field != name]
    assert all(getattr(given, other) == getattr(Settings(), other) for other in others)


@pytest.mark.parametrize("name", VALID)
def test_an_option_goes_before_the_variable(name: str) -> None:
    by_option = Settings.read({configuration.variable(name): "\0nonsense"}, {name: VALID[name]})
    assert by_option == Settings.read({configuration.variable(name): VALID[name]})


def test_values_are_of_their_types() -> None:
    given = Settings.read({configuration.variable(name): value for name, value in VALID.items()})
    assert given.claim_ttl == 300
    assert given.deadline == 7200
    assert given.jobs == 4
    assert given.tuning_memory == 2 << 30
    assert given.trusted_keys == (Path("/keys/a.pem"), Path("/keys/b.pem"))
    assert given.cache_root == Path("~/cache").expanduser()
    assert given.gpus == ("h200", "h100-sxm")
    assert given.store_options == {"key": "k", "secret": "hunter2"}
    assert given.require_signature is given.fail_closed is True


@pytest.mark.parametrize(("name", "value"), INVALID)
def test_a_value_that_cannot_be_read_is_refused_in_one_line(name: str, value: str) -> None:
    for env, options, origin in (
        ({configuration.variable(name): value}, {}, configuration.variable(name)),
        ({}, {name: value}, configuration.option_name(name)),
    ):
        if not value.strip() and not options:
            continue  # an empty variable counts as unset
        with pytest.raises(UsageError) as raised:
            Settings.read(env, options)
        assert str(raised.value).startswith(f"{origin}: cannot use ")
        assert "\n" not in str(raised.value)


def test_an_empty_variable_counts_as_unset() -> None:
    assert Settings.read({configuration.variable(name): "" for name in VALID}) == Settings()


def test_a_secret_is_neither_shown_nor_quoted_in_errors() -> None:
    given = Settings.read({"WARMSTART_STORE_OPTIONS": VALID["store_options"], "WARMSTART_PUSHGATEWAY": VALID["pushgateway"]})
    assert "hunter2" not in repr(given)
    with pytest.raises(UsageError) as raised:
        Settings.read({"WARMSTART_STORE_OPTIONS": '{"secret": "hunter2"'})
    assert "hunter2" not in str(raised.value)


def test_settings_do_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().jobs = 3  # type: ignore[misc]


def test_a_misspelt_variable_is_found_and_what_kubernetes_sets_is_not() -> None:
    env = {
        "WARMSTART_STROE": "x",
        "WARMSTART_STORE": "x",
        "WARMSTART_SERVICE_HOST": "10.0.0.1",
        "WARMSTART_SERVICE_PORT": "80",
        "WARMSTART_SERVICE_PORT_HTTP": "80",
        "WARMSTART_PORT": "tcp://10.0.0.1:80",
        "WARMSTART_PORT_80_TCP_ADDR": "10.0.0.1",
        "WARMSTART_STORE_PORT_9000_TCP": "tcp://10.0.0.1:9000",
        "WARMSTART_STORE_SERVICE_HOST": "10.0.0.1",
        "PATH": "/bin",
    }
    assert unknown_variables(env) == ["WARMSTART_STROE"]


def test_no_setting_is_called_like_a_service_link() -> None:
    assert not [name for name in configuration.fields() if configuration._SERVICE_LINK.match(configuration.variable(name))]


def test_the_page_of_variables_is_generated_from_the_settings() -> None:
    page = Path(__file__).parents[3] / "docs" / "environment.md"
    assert page.read_text() == configuration.document(), "run: python -m warmstart.settings > docs/environment.md"


def test_the_page_holds_every_setting_with_option_default_and_meaning() -> None:
    page = configuration.document()
    for name, field in configuration.fields().items():
        assert f"### `{configuration.variable(name)}`" in page
        assert f"`{configuration.option_name(name)}`" in page
        assert field.metadata["help"] in page
