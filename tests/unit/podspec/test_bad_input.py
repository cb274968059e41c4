"""Whatever comes in, one clear line comes out."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.podspec.pods import container, pod, request, text

from warmstart.errors import SpecError, WarmstartError
from warmstart.podspec import load

POD = text(pod(container("vllm", "serve", "M")))
BOMB = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{this}: &{this} [{','.join([f'*{last}'] * 10)}]\n" for last, this in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGES = "a: &a {k: v}\n" + "".join(
    f"{this}: &{this} {{<<: [{','.join([f'*{last}'] * 40)}]}}\n" for last, this in zip("abcd", "bcde", strict=True)
)
HEAD = "apiVersion: v1\nkind: Pod\n"
TEXTS = {
    "nothing": ("", "holds no Kubernetes object"),
    "blanks": (" \n\n", "holds no Kubernetes object"),
    "an empty document": ("---\n---\n", "holds no Kubernetes object"),
    "a word": ("hello", "document 1 is text, not a Kubernetes object"),
    "a number": ("5", "document 1 is a number, not a Kubernetes object"),
    "a list": ("- a\n- b", "document 1 is a list, not a Kubernetes object"),
    "a JSON list": ("[1]", "document 1 is a list, not a Kubernetes object"),
    "a mapping": ("a: 1", "not a Kubernetes object: it has no apiVersion"),
    "no kind": ("apiVersion: v1", "it has no kind"),
    "a kind of the wrong type": ("apiVersion: v1\nkind: [Pod]", "it has no kind"),
    "the second document": (POD + "\n---\n[", "not valid"),
    "an object without pods": ("apiVersion: v1\nkind: Service\nspec: {}", "holds no pod template, only Service"),
    "no containers": (HEAD + "spec: {containers: []}", "holds no pod template, only Pod"),
    "containers of the wrong type": (HEAD + "spec: {containers: [a]}", "holds no pod template"),
    "broken YAML": (HEAD + "spec: [", "not valid YAML: line"),
    "a tab": ("a:\n\t- b", "not valid YAML: line 2"),
    "a Python object": ("!!python/object/apply:os.system [id]", "not valid YAML: line 1: could not determine a constructor"),
    "a key twice": (HEAD + "kind: Job", "key 'kind' is given twice"),
    "a key twice in JSON": ('{"kind": "Pod", "kind": "Job"}', "not valid JSON: key 'kind' is given twice"),
    "half a JSON document": (POD[:-20], "not valid JSON"),
    "NaN": ('{"apiVersion": NaN}', "not valid JSON: NaN is not JSON"),
    "a key that is a number": (HEAD + "1: 2", "key 1 is not text"),
    "an alias bomb": (BOMB, "would unfold to more than"),
    "a merge bomb": (MERGES, "would unfold to more than"),
    "an alias inside itself": (HEAD + "spec: &a [*a]", "stands inside what it names"),
    "deep nesting": ("[" * 5000 + "]" * 5000, "nested"),
    "deep nesting in JSON": ('{"a":' * 200_000 + "1" + "}" * 200_000, "nested too deep"),
    "a huge text": ("x" * 4_000_001, "more than 4000000"),
    "binary": ("\x00\x01\x02", "not valid YAML"),
    "marks of ours, escaped": (POD.replace("serve", "serve\\ue000"), "private use area"),
    "half a character": (POD.replace("serve", "serve\\ud800"), "half of a character"),
    "the other half": (POD.replace("serve", "serve\\udc00"), "half of a character"),
    "marks of ours": (POD.replace("serve", "serve\ue000"), "private use area"),
    "a huge number": ("apiVersion: " + "9" * 5000, "not valid YAML"),
    "a merge of nothing": (HEAD + "<<: 5", "not valid YAML"),
    "List of the wrong type": ('{"apiVersion": "v1", "kind": "List", "items": 5}', "items must be a list"),
    "KServe without containers": (
        "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nspec: {predictor: {model: {}}}",
        "KServe takes its containers from a runtime",
    ),
}


@pytest.mark.parametrize(("source_text", "said"), TEXTS.values(), ids=TEXTS)
def test_a_text_that_is_no_spec_is_refused_by_name(source_text: str, said: str) -> None:
    """Not YAML, not Kubernetes, too large, or made to unfold: the message names the source and is short."""
    with pytest.raises(SpecError) as caught:
        load(source_text, source="spec.yaml")
    assert said in str(caught.value)
    assert "spec.yaml" in str(caught.value)
    assert len(str(caught.value)) < 400
    assert "\n" not in str(caught.value)


FIELDS: dict[str, tuple[dict[str, Any], str]] = {
    "a command that is text": ({"command": "vllm serve M"}, "command must be a list of text, not text"),
    "a number in args": ({"args": ["--port", 8000]}, r"args[1] must be text, not a number; put it in quotes"),
    "a boolean in env": ({"env": [{"name": "A", "value": True}]}, "env[0].value must be text, not a boolean; put it in quotes"),
    "env that is a mapping": ({"env": {"A": "1"}}, "env must be a list, not a mapping"),
    "env without a name": ({"env": [{"value": "1"}]}, "env[0] has no usable name"),
    "env from nowhere": ({"env": [{"name": "A", "valueFrom": {"x": {}}}]}, "valueFrom names no source that Kubernetes has"),
    "envFrom from nowhere": ({"envFrom": [{}]}, "names no configMapRef and no secretRef"),
    "resources that are a list": ({"resources": []}, "resources must be a mapping, not a list"),
    "an image that is a list": ({"image": ["a"]}, "image must be text, not a list"),
}


@pytest.mark.parametrize(("fields", "said"), FIELDS.values(), ids=FIELDS)
def test_a_field_of_the_wrong_type_is_named_with_its_place(fields: dict[str, Any], said: str) -> None:
    """What the API server would refuse too."""
    with pytest.raises(SpecError) as caught:
        request(*(() if "command" in fields else ("vllm", "serve", "M")), **fields)
    assert said in str(caught.value)
    assert "Pod/models/p" in str(caught.value)


ARGUMENTS = {
    "an unknown option": (["--max-model-length", "1"], "has no option --max-model-length; did you mean --max-model-len"),
    "a dotted unknown option": (
        ["--compile-config.mode", "3"],
        "no option --compile-config; did you mean --compilation-config",
    ),
    "a wrong value": (["--max-model-len", "long"], "argument --max-model-len: 'long' is no integer"),
    "a wrong choice": (["--dtype", "int3"], "argument --dtype: 'int3' is none of auto, bfloat16"),
    "no value": (["--port"], "argument --port: expected one argument"),
    "no value, dotted": (["--compilation-config.mode"], "--compilation-config.mode has no value"),
    "broken JSON": (["--hf-overrides", "{a: 1}"], "argument --hf-overrides: '{a: 1}' is no JSON object or text"),
    "deep JSON": (["--additional-config", '{"a":' * 20_000 + "1" + "}" * 20_000], "argument --additional-config"),
    "a deep dotted option": (["--hf-overrides." + ".".join("a" * 20_000), "1"], "nested too deep"),
    "two models": (["N"], "vLLM takes one model"),
    "an ambiguous option": (["--max", "1"], "ambiguous option"),
    "a long line": (["--" + "x" * 5000], "has no option"),
}


@pytest.mark.parametrize(("args", "said"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_arguments_that_vllm_would_refuse_are_refused_by_name(args: list[str], said: str) -> None:
    """With the container in the message, and the near match where there is one."""
    with pytest.raises(SpecError) as caught:
        request("vllm", "serve", "M", *args)
    assert said in str(caught.value)
    assert str(caught.value).startswith("Pod/models/p container 'vllm': ")
    assert len(str(caught.value)) < 600


def test_no_vllm_container_lists_what_is_there() -> None:
    """By name and image."""
    with pytest.raises(SpecError, match=r"no vLLM container among app \(nginx:1\), db \(postgres:17\)"):
        load(text(pod({"name": "app", "image": "nginx:1"}, {"name": "db", "image": "postgres:17"})), source="spec")


def test_kserve_s_own_command_is_named_where_the_spec_has_none() -> None:
    """It is a script that asks the running vLLM for its version: not to be known here."""
    document = {
        "apiVersion": "x/v1",
        "kind": "LLMInferenceService",
        "metadata": {"name": "n"},
        "spec": {"template": pod({"name": "main", "image": "kserve"})["spec"]},
    }
    with pytest.raises(SpecError, match="has no command: KServe adds its own"):
        load(text(document), source="spec")


KEYS = [
    "containers",
    "spec",
    "template",
    "name",
    "image",
    "command",
    "args",
    "env",
    "value",
    "valueFrom",
    "envFrom",
    "configMapRef",
    "resources",
    "limits",
    "nvidia.com/gpu",
    "nodeSelector",
    "affinity",
    "nodeAffinity",
    "metadata",
    "labels",
    "annotations",
    "volumes",
    "volumeMounts",
    "resourceClaims",
    "claims",
    "key",
]
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "vllm", "serve", "$(A)", "x", "Always"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(KEYS),
            inner,
            max_size=5,
        )
    ),
    max_leaves=25,
)


@settings(max_examples=400, deadline=None)
@given(
    spec=JSON_VALUES,
    server=JSON_VALUES,
    kind=st.sampled_from(["Pod", "Deployment", "LeaderWorkerSet", "List", "InferenceService"]),
)
def test_any_json_is_read_or_refused(spec: object, server: object, kind: str) -> None:
    """Wrong types anywhere end in one of our errors, never in a traceback."""
    containers = [{"name": "v", "command": ["vllm", "serve", "M"]} | (server if isinstance(server, dict) else {})]
    body = (spec if isinstance(spec, dict) else {}) | {"containers": containers}
    for document in ({"spec": spec}, {"spec": body}, {"spec": {"template": {"spec": body}}}, spec):
        if isinstance(document, dict):
            document = {"apiVersion": "v1", "kind": kind} | document
        with contextlib.suppress(WarmstartError):
            load(json.dumps(document), source="spec")


@settings(max_examples=300, deadline=None)
@given(source_text=st.text(alphabet="abk:{}[]&*!<|>-'\"#,? \n\t12%@", max_size=60))
def test_any_text_is_read_or_refused(source_text: str) -> None:
    """YAML's own corners included."""
    for prefix in ("", HEAD):
        with pytest.raises(SpecError):
            load(prefix + source_text, source="spec")


BOMBS: dict[str, tuple[dict[str, Any], str]] = {
    "variables that double each other": (
        {"env": [{"name": "V0", "value": "x" * 1000}] + [{"name": f"V{i}", "value": f"$(V{i - 1})" * 2} for i in range(1, 40)]},
        "expands to more than 131072 characters",
    ),
    "shell variables that double each other": (
        {"command": ["sh", "-c", "X=xx;" + "X=$X$X;" * 60 + "vllm serve $X"]},
        "a word of more than 131072 characters",
    ),
    "a script of many commands": ({"command": ["sh", "-c", "a&&" * 30_000 + "vllm serve M"]}, "more than 500 commands"),
    "a script of nested defaults": (
        {"command": ["sh", "-c", "vllm serve " + "${a:-" * 20_000 + "}" * 20_000]},
        "nested too deep",
    ),
    "a script of open brackets": ({"command": ["sh", "-c", "vllm serve M " + "[" * 100_000]}, "takes one model"),
    "a script of open references": ({"command": ["sh", "-c", "vllm serve " + "$(" * 50_000]}, "nested too deep"),
    "a very long argument": ({"command": ["vllm", "serve", "M", "x" * 200_000]}, "longer than 131072 characters"),
    "very many arguments": ({"command": ["vllm", "serve", *["M"] * 6000]}, "more than 5000 words"),
    "many copies of the model": (
        {"command": ["vllm", "serve", "--served-model-name", *["M"] * 4000, "--port", "1", "N", "O"]},
        "one model",
    ),
    "a very long name": ({"name": "n" * 100_000, "command": ["vllm", "serve", "--nope"]}, "has no option --nope"),
}


@pytest.mark.parametrize(("fields", "said"), BOMBS.values(), ids=BOMBS)
def test_what_grows_without_bound_is_refused(fields: dict[str, Any], said: str) -> None:
    """Each of these takes seconds to hours, or gigabytes, where nothing bounds it."""
    with pytest.raises(SpecError) as caught:
        load(
            text(pod({"name": "vllm", "image": "vllm/vllm-openai", "command": ["vllm", "serve", "M"]} | fields)), source="spec"
        )
    assert said in str(caught.value)
    assert len(str(caught.value)) < 600


@settings(max_examples=400, deadline=None)
@given(
    source=st.lists(
        st.sampled_from(
            [
                "vllm serve M",
                "exec ",
                "$",
                "$(",
                ")",
                "${A",
                "}",
                ":-",
                "'",
                '"',
                ";",
                "&&",
                "||",
                "|",
                "\n",
                " ",
                "export ",
                "A=",
                "env ",
                "-u",
                "sh -c ",
                "eval ",
                "{",
                "x",
                "#",
                "<",
                ">",
                "&",
                "\\",
                "`",
                "$@",
                "-O",
                "--config ",
                "--a.b",
                "=",
                "[",
                "]",
                "*",
                "~",
                "!",
            ]
        ),
        max_size=12,
    ).map("".join),
    program=st.sampled_from(
        [["sh", "-c"], ["bash", "-lc"], ["env"], ["tini", "--"], ["python3"], ["vllm", "serve"], ["numactl"]]
    ),
)
def test_any_command_is_read_or_refused(source: str, program: list[str]) -> None:
    """As one script, and as words."""
    for command in ([*program, source], [*program, *source.split()]):
        with contextlib.suppress(WarmstartError):
            request(*command, "vllm")


def test_whole_characters_outside_the_basic_plane_are_text() -> None:
    """JSON escapes them as two halves."""
    assert request("vllm", "serve", "M", "--served-model-name", "\U0001f680").args[1] == "\U0001f680"
