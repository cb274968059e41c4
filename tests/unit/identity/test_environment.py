"""The table of variables that do not count is vLLM's own, and says where it differs."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path

from warmstart.identity import explain, hazards, relevant
from warmstart.identity.environment import _ALSO, IGNORED, PER_POD, STRICTER, counts

_OURS = ("TORCH", "TRITON")


def _vllm() -> tuple[set[str], set[str], set[str]]:
    """Return what vLLM's envs.py ignores, knows, and hashes beside its own variables, read from its source."""
    spec = importlib.util.find_spec("vllm")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    tree = ast.parse((Path(next(iter(spec.submodule_search_locations))) / "envs.py").read_text())
    ignored: set[str] = set()
    known: set[str] = set()
    ray: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign | ast.Assign):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            name = getattr(target, "id", "")
            if name == "ignored_factors" and isinstance(node.value, ast.Set):
                ignored = {ast.literal_eval(element) for element in node.value.elts}
            elif name == "environment_variables" and isinstance(node.value, ast.Dict):
                known = {ast.literal_eval(key) for key in node.value.keys if key is not None}
            elif name == "ray_noset_env_vars":
                ray = set(ast.literal_eval(node.value))
    assert len(ignored) > 50
    assert len(known) > 200
    return ignored, known, ray


def test_what_is_ignored_here_is_what_vllm_ignores() -> None:
    ignored, known, _ = _vllm()
    ours = {name for name in IGNORED if not name.startswith(_OURS)}
    assert ours == ignored - set(STRICTER)
    assert set(STRICTER) <= ignored
    assert set(PER_POD) <= known - ignored


def test_every_variable_in_vllms_own_key_counts_here_unless_it_is_per_pod() -> None:
    ignored, known, ray = _vllm()
    left_out = {name for name in (known - ignored) | ray if not counts(name)}
    assert left_out == set(PER_POD)


def test_no_entry_of_the_table_of_others_is_dead() -> None:
    _, known, _ = _vllm()
    assert known >= _ALSO


def test_every_variable_that_torchs_settings_read_counts_or_is_ignored_for_a_reason() -> None:
    """Inductor's and functorch's settings are factors of vLLM's key, and some of them are read from variables."""
    (torch,) = (Path(folder) for folder in importlib.util.find_spec("torch").submodule_search_locations)  # type: ignore[union-attr]
    sources = "".join((torch / part / "config.py").read_text() for part in ("_inductor", "_functorch"))
    read = set(re.findall(r"""(?:environ\.get\(|getenv\(|environ\[|env_name_\w+=\[?)\s*"([A-Z][A-Z0-9_]+)\"""", sources))
    assert len(read) > 100
    # Read in one company's own builds alone (is_fbcode).
    assert {name for name in read if not counts(name) and name not in IGNORED} <= {"MAST_HPC_JOB_NAME", "ROLE_RANK"}


def test_each_reason_is_said() -> None:
    assert all(reason.strip() for table in (IGNORED, STRICTER, PER_POD) for reason in table.values())


def test_only_what_counts_is_kept_in_order() -> None:
    env = {"VLLM_B": "1", "PATH": "/bin", "TORCH_LOGS": "x", "TRITON_A": "2", "VLLM_HOST_IP": "1.2.3.4", "NVCC_THREADS": "4"}
    assert list(relevant(env)) == ["NVCC_THREADS", "TRITON_A", "VLLM_B"]


def test_a_variable_that_spoils_vllms_key_is_warned_of() -> None:
    (warning,) = hazards({"MOONCAKE_REQUESTER_LOCAL_HOSTNAME": "pod-7"})
    assert "MOONCAKE_REQUESTER_LOCAL_HOSTNAME" in warning


def test_a_variable_from_a_field_of_the_pod_is_warned_of_when_it_counts() -> None:
    (warning,) = hazards({}, {"VLLM_SOMETHING": "the pod's status.podIP", "MY_IP": "the pod's status.podIP"})
    assert "VLLM_SOMETHING comes from the pod's status.podIP" in warning


def test_what_only_torch_reads_is_no_difference_from_a_servers_own_list_of_variables() -> None:
    """The document of a server lists vLLM's variables with their defaults, and none of torch's."""
    ours = {"format": 1, "environment": {"CXX": "/opt/gcc/bin/g++", "CI": "true", "VLLM_USE_V2_MODEL_RUNNER": "0"}}
    theirs = {"environment": {"VLLM_LOGGING_LEVEL": "INFO"}}
    assert [one.factor for one in explain(ours, theirs)] == ["environment.VLLM_USE_V2_MODEL_RUNNER"]
