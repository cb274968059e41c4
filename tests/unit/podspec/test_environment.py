"""A container's environment, as the kubelet makes it."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.podspec.pods import config_map, request, variables

from warmstart.errors import SpecError
from warmstart.podspec import changes_compilation
from warmstart.podspec.kubelet import expand

SERVE = ("vllm", "serve", "M")
PLAIN = st.text(alphabet="ab()$ {}A", max_size=12)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(A)", "1"),
        ("x$(A)y$(B)", "x1y"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$$$$(A)", "$$(A)"),
        ("$(UNSET)", "$(UNSET)"),
        ("$(A", "$(A"),
        ("$A ${A}", "$A ${A}"),
        ("$", "$"),
        ("a$", "a$"),
        ("$$", "$"),
        ("$()", "$()"),
        ("$(A $(A))", "$(A $(A))"),
        ("$($(A)", "$($(A)"),
        ("$x$(A)", "$x1"),
    ],
)
def test_references_are_expanded_as_the_kubelet_does_it(text: str, expected: str) -> None:
    """The cases of Kubernetes' own expansion tests, and the odd ones."""
    assert expand(text, {"A": "1", "B": ""}) == expected


@given(text=PLAIN)
def test_doubling_every_dollar_gives_the_text_itself(text: str) -> None:
    """`$$` is how a spec spells a dollar."""
    assert expand(text.replace("$", "$$"), {"A": "1", "": "x"}) == text


@given(text=PLAIN)
def test_a_text_without_dollar_pairs_and_known_names_stays(text: str) -> None:
    """An undefined reference is literal, not empty."""
    if "$$" not in text:
        assert expand(text, {}) == text


@given(value=PLAIN)
def test_values_are_not_expanded_again(value: str) -> None:
    """A value that looks like a reference is text."""
    assert expand("<$(A)>", {"A": value, "B": "no"}) == f"<{value}>"


def test_env_values_refer_to_what_stands_before_them() -> None:
    """A later one stays literal; args see all of them."""
    found = request(*SERVE, "--port", "$(C)", env=variables(A="8", B="$(A)0$(C)", C="$$(A)"))
    assert found.env == {"A": "8", "B": "80$(C)", "C": "$(A)"}
    assert found.args == ("--port", "$(A)")


def test_config_maps_and_secrets_of_the_stream_are_read() -> None:
    """By key, as a whole with a prefix, and literal entries win."""
    secret = {
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"},
        "data": {"token": base64.b64encode(b"t1").decode()}, "stringData": {"plain": "t2"},
    }  # fmt: skip
    env = [
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "token"}}},
        {"name": "GONE", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "no", "optional": True}}},
        {"name": "P_B", "value": "mine $(P_A)"},
    ]
    env_from = [{"prefix": "P_", "configMapRef": {"name": "c"}}, {"secretRef": {"name": "s"}}]
    found = request(*SERVE, env=env, envFrom=env_from, objects=(config_map("c", A="1", B="2"), secret))
    assert found.env == {"P_A": "1", "P_B": "mine 1", "token": "t1", "plain": "t2", "TOKEN": "t1"}
    assert found.unresolved == ()


def test_what_the_stream_does_not_hold_is_unresolved_and_judged_by_name() -> None:
    """A token cannot change what is compiled; a vLLM setting can."""
    env = [
        {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}},
        {"name": "VLLM_X", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "x"}}},
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "URL", "value": "http://$(POD_IP)/"},
    ]
    found = request(*SERVE, env=env, envFrom=[{"secretRef": {"name": "more"}}])
    assert found.env == {}
    assert {note.what: note.compiles for note in found.unresolved} == {
        "envFrom Secret/more": True, "HF_TOKEN": False, "VLLM_X": True, "POD_IP": False, "URL": False,
    }  # fmt: skip
    assert "ConfigMap/c key x" in next(note.why for note in found.unresolved if note.what == "VLLM_X")


def test_the_own_environment_answers_inside_the_pod() -> None:
    """The init container is given the same references."""
    env = [{"name": "VLLM_X", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "x"}}}]
    own = {"VLLM_X": "7", "TORCH_LOGS": "x", "UNRELATED": "1"}
    found = request(*SERVE, env=env, envFrom=[{"configMapRef": {"name": "d"}}], load_with={"env": own})
    assert found.env == {"VLLM_X": "7", "TORCH_LOGS": "x"}
    assert [note.compiles for note in found.unresolved] == [False]


def test_an_argument_whose_value_only_the_pod_knows_keeps_its_spelling() -> None:
    """In list form and inside a shell script, where `$(POD_IP)` must not be taken for command substitution."""
    env = [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
    for found in (
        request(*SERVE, "--data-parallel-address", "$(POD_IP)", env=env),
        request("sh", "-c", 'vllm serve M --data-parallel-address "$(POD_IP)"', env=env),
    ):
        assert found.args == ("--data-parallel-address", "$(POD_IP)")
        assert [(note.what, note.compiles) for note in found.unresolved] == [
            ("--data-parallel-address", False),
            ("POD_IP", False),
        ]


def test_variables_of_services_are_set_by_the_kubelet() -> None:
    """They are neither literal nor empty, only not known here."""
    env = variables(URL="http://$(ROUTER_SERVICE_HOST)")
    listed = request(*SERVE, "--master-addr", "$(ROUTER_SERVICE_HOST)", env=env)
    shell = request("sh", "-c", "vllm serve M --master-addr $ROUTER_SERVICE_HOST", env=env)
    assert listed.args == shell.args == ("--master-addr", "$(ROUTER_SERVICE_HOST)")
    assert not [note for note in (*listed.unresolved, *shell.unresolved) if note.compiles]


def test_fields_that_the_template_fixes_are_known() -> None:
    """Namespace and labels stand in the spec."""
    env = [{"name": "NS", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}]
    assert request(*SERVE, env=env).env == {"NS": "models"}


@pytest.mark.parametrize(
    ("name", "matters"),
    [
        ("VLLM_USE_AOT_COMPILE", True), ("TORCHINDUCTOR_CACHE_DIR", True), ("TRITON_CACHE_DIR", True),
        ("NCCL_P2P_DISABLE", True), ("HF_HUB_OFFLINE", True), ("HF_HOME", True),
        ("CUDA_VISIBLE_DEVICES", True), ("LD_LIBRARY_PATH", True), ("HOME", True),
        ("HF_TOKEN", False), ("VLLM_API_KEY", False), ("VLLM_HOST_IP", False), ("AWS_SECRET_ACCESS_KEY", False),
        ("MY_VALUE", False),
    ],
)  # fmt: skip
def test_which_names_can_change_compilation(name: str, matters: bool) -> None:
    """Judged by name, generously."""
    assert changes_compilation(name) is matters


def test_a_key_that_the_stream_s_config_map_lacks_is_an_error() -> None:
    """The container would not start."""
    env = [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "no"}}}]
    with pytest.raises(SpecError, match="ConfigMap/c has no key 'no'"):
        request(*SERVE, env=env, objects=(config_map("c", A="1"),))
