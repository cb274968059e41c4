"""Every way to start a vLLM server comes to the same model, arguments and environment."""

from __future__ import annotations

import pytest
from tests.unit.podspec.pods import container, pod, request, script, text, variables

from warmstart.errors import SpecError
from warmstart.podspec import load

API_SERVER = "vllm.entrypoints.openai.api_server"
ENTRY = "vllm.entrypoints.launchers.api_server.entry"
SERVE = ("serve", "M", "--max-model-len", "4096")
FORMS = {
    "vllm serve": ("vllm", *SERVE),
    "a path": ("/usr/local/bin/vllm", *SERVE),
    "model as an option": ("vllm", "serve", "--max-model-len", "4096", "--model", "M"),
    "model after the options": ("vllm", "serve", "--max-model-len", "4096", "M"),
    "the module": ("python3", "-m", API_SERVER, "--model", "M", "--max-model-len", "4096"),
    "the module, flags first": ("python3.12", "-u", "-m", API_SERVER, "--model=M", "--max-model-len", "4096"),
    "the new module": ("python3", "-m", ENTRY, "--model", "M", "--max-model-len", "4096"),
    "the command's module": ("python", "-m", "vllm.entrypoints.cli.main", *SERVE),
    "flags joined with -m": ("python3", "-um", "vllm.entrypoints.cli.main", *SERVE),
    "a script's path": (
        "python3", "/usr/lib/python3/vllm/entrypoints/openai/api_server.py", "--model", "M", "--max-model-len", "4096",
    ),
    "python and the vllm script": ("python3", "/usr/local/bin/vllm", *SERVE),
    "env": ("/usr/bin/env", "A=1", "vllm", *SERVE),
    "tini": ("/usr/bin/tini", "-g", "--", "vllm", *SERVE),
    "numactl": ("numactl", "--cpunodebind=0", "-m", "0", "vllm", *SERVE),
    "nsys": ("nsys", "profile", "-o", "/profiles/x", "--trace=cuda,nvtx", "python3", "-m", "vllm.entrypoints.cli.main", *SERVE),
    "sh -c": ("sh", "-c", "vllm serve M --max-model-len 4096"),
    "bash -lc with exec": ("bash", "-lc", "exec vllm serve M --max-model-len 4096"),
    "bash -ec, several lines": ("/bin/bash", "-ec", "mkdir -p /x\n\nexec vllm serve M \\\n  --max-model-len 4096\n"),
    "bash with options apart": ("bash", "-e", "-o", "pipefail", "-c", "vllm serve M --max-model-len 4096"),
    "a chain": ("sh", "-c", "cd / && echo ready && vllm serve 'M' --max-model-len \"4096\""),
    "a pipe": ("sh", "-c", "vllm serve M --max-model-len 4096 2>&1 | tee /tmp/log"),
    "the background": ("sh", "-c", "vllm serve M --max-model-len 4096 & wait"),
    "words from the container's args": ("sh", "-c", 'exec vllm serve "$@"', "--", "M", "--max-model-len", "4096"),
    "words by number": ("sh", "-c", "vllm serve $1 --max-model-len ${2}", "sh", "M", "4096"),
    "a shell in a shell": ("sh", "-c", "exec bash -c 'vllm serve M --max-model-len 4096'"),
    "a comment": ("sh", "-c", "# start\nvllm serve M --max-model-len 4096 # all of it"),
    "tini and a shell": ("tini", "--", "sh", "-c", "vllm serve M --max-model-len 4096"),
    "a default": ("sh", "-c", "vllm serve ${MODEL:-M} --max-model-len 4096"),
}  # fmt: skip


@pytest.mark.parametrize("command", FORMS.values(), ids=FORMS)
def test_the_form_is_understood(command: tuple[str, ...]) -> None:
    """The same server, however it is started."""
    found = request(*command)
    assert (found.model, found.args) == ("M", ("--max-model-len", "4096"))
    assert not [note for note in found.unresolved if note.compiles]


def test_command_and_args_are_one_command_line() -> None:
    """The kubelet puts args behind command."""
    found = request("vllm", args=["serve", "M", "--port", "1"])
    assert (found.model, found.args) == ("M", ("--port", "1"))


@pytest.mark.parametrize("args", [["M", "--port", "1"], ["--model", "M", "--port", "1"]])
def test_args_alone_go_to_the_official_image_s_entrypoint(args: list[str]) -> None:
    """`vllm serve` is the entrypoint of the vllm-openai image."""
    found = request(args=args)
    assert (found.model, found.args, found.unresolved) == ("M", ("--port", "1"), ())


def test_an_image_with_a_port_in_its_registry_and_a_digest_is_recognised() -> None:
    """The repository's name is what counts."""
    found = request(args=["M"], image="registry:5000/mirror/vllm-openai@sha256:" + "0" * 64)
    assert found.model == "M"


def test_the_entrypoint_of_another_vllm_image_is_named_as_an_assumption() -> None:
    """A custom image may start something else."""
    (note,) = request(args=["M"], image="registry/team/my-vllm:1").unresolved
    assert (note.what, note.compiles) == ("entrypoint", False)


def test_without_a_model_vllm_s_own_default_is_served() -> None:
    """`vllm serve` alone serves Qwen/Qwen3-0.6B."""
    assert request("vllm", "serve").model == "Qwen/Qwen3-0.6B"


def test_the_module_ignores_a_positional_model_and_that_is_an_error() -> None:
    """VLLM would silently serve its default model there."""
    with pytest.raises(SpecError, match="ignores the positional model 'M'; name the model with --model"):
        request("python3", "-m", "vllm.entrypoints.openai.api_server", "M")


def test_arguments_keep_the_server_s_order_and_spelling() -> None:
    """They go to vLLM's own parser unchanged: repeated, with underscores, dotted and as JSON."""
    args = (
        "--max_model_len=1k", "--max-model-len", "2k", "-tp=2", "-O3", "--compilation-config.mode", "3",
        "--hf-overrides", '{"num_hidden_layers": 2}', "--headless", "-dp", "4", "--data-parallel-rank", "1",
    )  # fmt: skip
    assert request("vllm", "serve", "M", *args).args == args


def test_env_of_the_shell_and_of_env_reaches_the_server() -> None:
    """Assignments in front, exports before, `env`, and `-u`."""
    found = script(
        "export VLLM_USE_V2=1 B=2\nLOCAL=x\nexport LOCAL\nPLAIN=no\nC=3 env D=$B -u GONE vllm serve M",
        env=variables(A="0", GONE="x"),
    )
    assert found.env == {"A": "0", "VLLM_USE_V2": "1", "B": "2", "LOCAL": "x", "C": "3", "D": "2"}


def test_a_variable_of_the_container_stays_exported_when_the_script_sets_it() -> None:
    """As in a shell."""
    assert script("A=1; unset B; vllm serve M", env=variables(A="0", B="0")).env == {"A": "1"}


def test_env_i_starts_from_nothing() -> None:
    """`env -i` drops what the container has."""
    assert request("env", "-i", "A=1", "vllm", "serve", "M", env=variables(B="2")).env == {"A": "1"}


NEEDS_SHELL = {
    "a loop": ("for i in 1 2; do vllm serve M; done", "`for`"),
    "a condition": ('if [ "$A" ]; then vllm serve M; fi', "`if`"),
    "a while loop": ("while true; do vllm serve M; done", "`while`"),
    "case": ("case $A in a) vllm serve M;; esac", "`case`"),
    "eval": ('eval "vllm serve M $ARGS"', "`eval`"),
    "a function": ("start() { vllm serve M; }; start", "function"),
    "a subshell": ("(vllm serve M)", "subshell"),
    "a here-document": ("vllm serve M <<EOF\nx\nEOF", "here-document"),
    "brace expansion": ("vllm serve M --x {a,b}", "brace expansion"),
    "unquoted JSON": ('vllm serve M --hf-overrides {"a":1,"b":2}', "brace expansion"),
    "an open quote": ("vllm serve 'M", "quote that is not closed"),
    "an array": ("ARGS+=(--port 1); vllm serve M", "ARGS"),
    "set --": ("set -- M; vllm serve $1", "`set -- M`"),
    "a required variable": ("vllm serve ${MODEL:?no model}", "MODEL is not set"),
}


@pytest.mark.parametrize(("source", "named"), NEEDS_SHELL.values(), ids=NEEDS_SHELL)
def test_what_needs_a_shell_is_named(source: str, named: str) -> None:
    """Nothing is guessed: the construct is in the message."""
    with pytest.raises(SpecError, match="needs a shell") as caught:
        script(source)
    assert named in str(caught.value)


def test_a_substitution_in_an_option_is_unresolved_and_judged_by_the_option() -> None:
    """An address cannot change what is compiled; a data type can."""
    found = script("vllm serve M --host $(hostname -i) --kv-cache-dtype `pick`")
    assert found.args == ("--host", "$(hostname -i)", "--kv-cache-dtype", "`pick`")
    assert [(note.what, note.compiles) for note in found.unresolved] == [("--host", False), ("--kv-cache-dtype", True)]


def test_a_model_that_only_a_shell_knows_is_an_error() -> None:
    """Without the model there is nothing to plan."""
    with pytest.raises(SpecError, match=r"the model is \$\(cat /m\), and .* needs a shell; write the model out"):
        script("vllm serve $(cat /m)")


def test_a_variable_set_from_a_substitution_is_unresolved() -> None:
    """It is exported, so the server sees it; its name decides whether it matters."""
    found = script("export VLLM_HOST_IP=$(hostname -i) VLLM_ATTENTION=$(pick)\nvllm serve M")
    assert [(note.what, note.compiles) for note in found.unresolved] == [("VLLM_HOST_IP", False), ("VLLM_ATTENTION", True)]
    assert found.env == {}


def test_a_variable_set_under_a_condition_is_unresolved() -> None:
    """Whether the test holds is not known here."""
    (note,) = script("[ -f /x ] && export VLLM_A=1\nvllm serve M").unresolved
    assert note.what == "VLLM_A"
    assert "under a condition" in note.why


def test_a_variable_set_in_the_chain_that_ends_in_vllm_is_certain() -> None:
    """VLLM runs only where everything before it did."""
    assert script("[ -f /x ] && export VLLM_A=1 && vllm serve M").env == {"VLLM_A": "1"}


def test_an_unset_variable_is_taken_as_empty_and_named() -> None:
    """The image may set it; the spec does not."""
    found = script("vllm serve M $EXTRA_ARGS")
    assert found.args == ()
    assert [(note.what, note.compiles) for note in found.unresolved] == [("$EXTRA_ARGS", True)]


def test_a_default_that_was_taken_is_named() -> None:
    """`${PORT:-8000}` is 8000 unless the image sets PORT."""
    found = script("vllm serve M --port ${PORT:-8000} ${SET+--seed 1}", env=variables(SET="1"))
    assert found.args == ("--port", "8000", "--seed", "1")
    assert [(note.what, note.compiles) for note in found.unresolved] == [("${PORT:-8000}", False)]


def test_commands_that_may_change_the_installed_code_are_named() -> None:
    """`pip install` before the server makes it another server."""
    found = script("pip install --no-deps x==1 && nvidia-smi && . /opt/env.sh && vllm serve M")
    assert [note.what for note in found.unresolved if note.compiles] == ["pip install --no-deps x==1", ". /opt/env.sh"]


def test_a_script_in_a_file_cannot_be_read_and_says_so() -> None:
    """The spec does not hold the file."""
    with pytest.raises(SpecError, match=r"script file '/opt/start-vllm.sh', which the spec does not hold"):
        request("bash", "/opt/start-vllm.sh")


def test_two_servers_in_one_script_are_refused() -> None:
    """One server for each container."""
    with pytest.raises(SpecError, match="starts vLLM more than once"):
        script("vllm serve A || vllm serve B")


def test_what_comes_after_the_server_does_not_matter() -> None:
    """It runs when the server has ended, or beside it."""
    assert script("vllm serve M --port 1; eval x; sleep infinity").args == ("--port", "1")


@pytest.mark.parametrize(
    "command", [["vllm", "bench", "serve"], ["vllm", "launch", "render", "M"], ["python3", "-c", "import vllm"]]
)
def test_other_vllm_commands_are_no_server(command: list[str]) -> None:
    """Benchmarks and renderers compile nothing."""
    with pytest.raises(SpecError, match="no vLLM container among vllm"):
        request(*command)


def test_a_sidecar_among_the_init_containers_counts() -> None:
    """An init container with restartPolicy Always runs beside the others; one without does not."""
    sidecar = container("vllm", "serve", "M", name="draft", restartPolicy="Always")
    once = container("vllm", "serve", "N", name="once")
    (found,) = load(text(pod({"name": "app", "image": "app"}, initContainers=[once, sidecar])), source="spec")
    assert (found.container, found.model) == ("draft", "M")
