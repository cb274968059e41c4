"""Both images as a restricted pod runs them: any user in group 0, a read-only root file system, no network, no capability."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.chart.tools import Helm, env_of, injected, merge
from tests.image.conftest import PYTHON_BASE, Images
from tests.image.engine import ROOT

_POD = """\
apiVersion: v1
kind: Pod
metadata: {name: server}
spec:
  nodeSelector: {nvidia.com/gpu.product: NVIDIA-H200}
  containers:
    - name: vllm
      image: vllm/vllm-openai:v0.33.0
      args: [--model, Qwen/Qwen3-0.6B]
"""


def _config(images: Images, name: str) -> dict[str, Any]:
    described = json.loads(images.engine.buildah("inspect", "--type", "image", name).out)
    return dict(described["OCIv1"]["config"])


def test_the_build_proves_that_no_version_of_the_vllm_image_changed(images: Images) -> None:
    """The log counts what is unchanged, and what was added is not in vLLM's image."""
    found = re.search(r"unchanged: (\d+) distributions; added: (.+)", images.compiler_log)
    if found is None:  # layers were kept from an earlier build: ask the images themselves
        before, after = (_versions(images, name) for name in (images.vllm, images.compiler))
        assert before.items() <= after.items()
        return
    assert int(found[1]) > 10
    assert "vllm-warmstart" in found[2]
    assert "s3fs" in found[2]
    assert "pydantic " not in found[2]


def _versions(images: Images, name: str) -> dict[str, str]:
    script = (
        "import importlib.metadata as m, json; print(json.dumps({d.metadata['Name']: d.version for d in m.distributions()}))"
    )
    done = images.engine.run(name, "-c", script, options=("--entrypoint", "python3"))
    assert done.code == 0, done.log
    return dict(json.loads(done.out))


def test_a_changed_version_fails_the_build_and_is_named(tmp_path: Path) -> None:
    """The check of docker/versions.py ends with exit code 1 and says which version became which."""
    import subprocess

    script = ROOT / "docker" / "versions.py"
    pins = tmp_path / "base.txt"
    subprocess.run([sys.executable, script, "write", pins], check=True)
    assert subprocess.run([sys.executable, script, "check", pins], check=False, capture_output=True).returncode == 0
    pins.write_text(re.sub(r"^msgspec==.*$", "msgspec==0.0.1", pins.read_text(), flags=re.MULTILINE) + "no-such-thing==1\n")
    done = subprocess.run([sys.executable, script, "check", pins], check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "msgspec 0.0.1 -> " in done.stderr
    assert "no-such-thing 1 -> gone" in done.stderr


def test_a_build_on_an_image_that_would_have_to_change_fails(images: Images, tmp_path: Path) -> None:
    """An older fsspec in vLLM's image than warmstart can use: pip may not replace it, so there is no image."""
    old = "localhost/warmstart-test/vllm:old-fsspec"
    containerfile = tmp_path / "Containerfile"
    install = "PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install --no-cache-dir --root-user-action=ignore fsspec==2025.9.0"
    containerfile.write_text(f"FROM {images.vllm}\nRUN {install}\n")
    images.engine.build(containerfile, old, context=tmp_path)
    arguments = {"VLLM_IMAGE": old, "PYTHON_IMAGE": PYTHON_BASE}
    with pytest.raises(AssertionError, match=r"Cannot install fsspec>=2026"):
        images.engine.build(
            ROOT / "Dockerfile", "localhost/warmstart-test/none", context=ROOT, target="warmstart", args=arguments
        )
    assert not images.engine.has("localhost/warmstart-test/none")


@pytest.mark.parametrize("target", ["compiler", "store"])
def test_an_image_says_what_it_is_and_starts_warmstart_as_no_root(images: Images, target: str) -> None:
    """Entrypoint, user and OCI labels, of which the base is that of the target."""
    config = _config(images, getattr(images, target))
    assert config["Entrypoint"] == ["warmstart"]
    assert config["User"] == "65532:0"
    labels = config["Labels"]
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert labels["org.opencontainers.image.revision"] == "0123abc"
    assert labels["org.opencontainers.image.base.name"].startswith("localhost/warmstart-test/")
    assert "PIP_ROOT_USER_ACTION=ignore" in config["Env"]


@pytest.mark.parametrize("target", ["compiler", "store"])
def test_any_user_with_a_read_only_root_can_run_it(images: Images, target: str) -> None:
    """The catalog comes out as JSON on standard output."""
    done = images.engine.run(getattr(images, target), "gpus", "--output", "json")
    assert done.code == 0, done.log
    assert "NVIDIA H200" in done.out


def test_the_compiler_image_holds_a_stand_in_for_the_driver(images: Images) -> None:
    """It exports what the image's extension modules want, and answers that there is no device (100)."""
    script = "import ctypes, os; print(ctypes.CDLL(os.environ['WARMSTART_CUDA_STUB']).cuInit(0))"
    done = images.engine.run(images.compiler, "-c", script, options=("--entrypoint", "python3"))
    assert (done.code, done.out.strip()) == (0, "100"), done.log


def _model(folder: Path) -> str:
    """Return the volume option for a folder with a model's config files, as a pod's mount would show them."""
    shutil.copytree(ROOT / "examples" / "qwen3-0.6b" / "model", folder / "model")
    return f"{folder / 'model'}:/model:ro"


def _plan(images: Images, model: str) -> dict[str, Any]:
    done = images.engine.run(
        images.compiler,
        *("plan", "--factors", "-f", "-", "--model-files", "/model", "--store", "/store"),
        options=("--volume", model, "--tmpfs", "/store:mode=1777"),
        stdin=_POD,
    )
    assert done.code == 0, done.log
    (plan,) = json.loads(done.out)
    return dict(plan)


def test_the_compiler_image_plans_for_a_pod_spec_from_standard_input(images: Images, tmp_path: Path) -> None:
    """The plan names the GPU type, and a miss in an empty folder store."""
    plan = _plan(images, _model(tmp_path))
    assert "h200" in json.dumps(plan).lower()
    assert re.search(r'"[0-9a-f]{64}"', json.dumps(plan))


@pytest.mark.parametrize("pull_only", [False, True], ids=["compiler image", "store image"])
def test_an_init_container_of_the_chart_looks_up_the_planned_key(images: Images, tmp_path: Path, pull_only: bool) -> None:
    """As the chart renders it: env, arguments, mounts, user, read-only root. A miss is told by both images, with the same key.

    The store image has no vLLM to look at: it is given the code fingerprint that the compiler image wrote.
    """
    model = _model(tmp_path)
    plan = _plan(images, model)
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "code.json").write_text(json.dumps([plan]))
    values = {"store": {"claim": {"existingClaim": "c"}}, "init": {"onMiss": "skip", "pullOnly": pull_only}}
    if pull_only:
        values["init"]["code"] = {"configMap": "code"}
    policy = Helm("helm4").template(merge(values, {"injection": {"enabled": True}})).one("MutatingAdmissionPolicy")
    (init,) = injected(policy)["containers"]
    pod = yaml.safe_load(_POD)
    pod["spec"]["containers"][0]["env"] = [{"name": "VLLM_CACHE_ROOT", "value": "/var/cache/vllm"}]  # as the policy adds it
    env = env_of(init) | {"WARMSTART_POD_SPEC": json.dumps(pod), "WARMSTART_MODEL_FILES": "/model"}
    options = [part for name, value in env.items() for part in ("--env", f"{name}={value}")]
    options += ["--volume", model, "--volume", f"{tmp_path / 'code'}:/warmstart/code:ro"]
    options += ["--tmpfs", "/warmstart/store:mode=1777", "--tmpfs", "/var/cache/vllm:mode=1777"]
    done = images.engine.run(images.store if pull_only else images.compiler, *init["args"], options=tuple(options))
    assert done.code == 0, done.log
    result = json.loads(done.out)
    assert (result["command"], result["outcome"]) == ("run", "miss"), done.log
    assert result["request_key"] in json.dumps(plan)


def test_the_store_image_has_no_vllm_and_looks_after_a_store(images: Images) -> None:
    """`store ls` of an empty folder store works where nothing but /tmp can be written."""
    versions = _versions(images, images.store)
    assert "vllm" not in versions
    assert "torch" not in versions
    done = images.engine.run(images.store, "store", "ls", "--store", "file:///store", options=("--tmpfs", "/store:mode=1777"))
    assert done.code == 0, done.log


@pytest.mark.parametrize("target", ["compiler", "store"])
def test_what_is_wrong_is_one_line_and_exit_code_2(images: Images, target: str) -> None:
    """No traceback reaches the log of a Job."""
    done = images.engine.run(getattr(images, target), "precompile", "-f", "/nowhere.yaml")
    assert done.code == 2
    assert "Traceback" not in done.log
