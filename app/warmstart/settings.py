"""The settings of warmstart, and the one reader of its environment variables.

Each field of `Settings` declares its environment variable, how its text is read, its default and its help. The command line
(`cli.py`) makes options of the same fields, and `docs/environment.md` is generated from them. A value is taken from the
option, else from the variable, else from the default; an empty variable counts as unset, which is how charts leave one out.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from warmstart.errors import UsageError, shorten
from warmstart.pattern import pattern
from warmstart.value import MISSING, Field, Value, field

PREFIX = "WARMSTART_"

# What the kubelet sets for a Service that happens to be called "warmstart" or "warmstart-…"; never meant for us.
_SERVICE_LINK = pattern(r"WARMSTART_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)$")
_DURATION = pattern(r"(\d+(?:\.\d+)?)\s*(s|m|h|d|)")
_UNIT_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_SIZE = pattern(r"(\d{1,15})\s*(kib|mib|gib|)")
_UNIT_BYTES = {"": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})


def text(value: str) -> str:
    """Read any text that is not blank."""
    if not value.strip():
        raise ValueError("it is blank")
    return value


def path(value: str) -> Path:
    """Read a path; `~` stands for the home folder."""
    return Path(text(value)).expanduser()


def paths(value: str) -> tuple[Path, ...]:
    """Read paths separated by commas or line ends."""
    return tuple(path(part.strip()) for part in re.split(r"[,\n]", value) if part.strip())


def gpu_names(value: str) -> str:
    """Read names separated by commas."""
    names = [part.strip() for part in value.split(",")]
    if not all(names):
        raise ValueError("one of its names is blank")
    return ",".join(names)


def flag(value: str) -> bool:
    """Read true, 1, yes, on, or false, 0, no, off."""
    word = value.strip().lower()
    if word not in _TRUE | _FALSE:
        raise ValueError("it is neither true nor false")
    return word in _TRUE


def count(value: str) -> int:
    """Read a whole number, 0 or more."""
    if not re.fullmatch(r"\d{1,9}", value.strip()):
        raise ValueError("it is not a whole number of 0 or more")
    return int(value)


def seconds(value: str) -> float:
    """Read a duration: seconds, or a number with s, m, h or d after it."""
    match = _DURATION.fullmatch(value.strip().lower())
    if match is None or not math.isfinite(float(match[1])):
        raise ValueError("it is not a duration such as 90, 90s, 15m or 2h")
    return float(match[1]) * _UNIT_SECONDS[match[2]]


def size(value: str) -> int:
    """Read a size: bytes, or a number with KiB, MiB or GiB after it."""
    match = _SIZE.fullmatch(value.strip().lower())
    if match is None:
        raise ValueError("it is not a size such as 8388608, 8MiB or 2GiB")
    return int(match[1]) * _UNIT_BYTES[match[2]]


def json_object(value: str) -> Mapping[str, Any]:
    """Read a JSON object."""
    try:
        read = json.loads(value)
    except ValueError as error:
        raise ValueError(f"it is not JSON ({error})") from error
    if not isinstance(read, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004 (a reader says what is wrong by ValueError)
    return read


def one_of(*words: str) -> Callable[[str], str]:
    """Return a reader that takes one of the words, in any case."""

    def choice(value: str) -> str:
        word = value.strip().lower()
        if word not in words:
            raise ValueError(f"it is none of {', '.join(words)}")
        return word

    choice.__doc__ = f"Read one of {', '.join(words)}."
    choice.words = words  # type: ignore[attr-defined]
    return choice


def _setting(read: Callable[[str], Any], default: Any, group: str, note: str, *, shown: str = "", secret: bool = False) -> Any:
    """Declare a field: how its text is read, its default (as `shown` in documents), its group and its help."""
    metadata = {"read": read, "help": note, "group": group, "shown": shown, "secret": secret}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=metadata, repr=not secret)
    return field(default=default, metadata=metadata, repr=not secret)


class Settings(Value, kw_only=True):
    """Everything that a caller can set. Paths are not checked to exist here: the step that needs one says what is wrong."""

    store: str | None = _setting(
        text, None, "Store", "Where entries are kept: a folder, file:///path, s3://bucket/prefix, or another fsspec URL."
    )
    store_options: Mapping[str, Any] = _setting(
        json_object,
        {},
        "Store",
        "Options of the store's fsspec file system, as a JSON object, such as an endpoint URL.",
        secret=True,
    )
    store_timeout: float = _setting(seconds, 30.0, "Store", "Longest time that one request to the store may take.", shown="30s")
    signing_key: Path | None = _setting(path, None, "Store", "File with the Ed25519 private key that signs what is published.")
    trusted_keys: tuple[Path, ...] = _setting(
        paths,
        (),
        "Store",
        "Files with the Ed25519 public keys whose signatures are accepted, separated by commas.",
        shown="none",
    )
    require_signature: bool = _setting(flag, False, "Store", "Refuse entries that no trusted key signed.")
    claims: str = _setting(
        one_of("store", "lease", "off"),
        "store",
        "Store",
        "How pods that miss together agree on who compiles: objects in the store, Kubernetes Leases, or not at all.",
    )
    claim_ttl: float = _setting(
        seconds, 120.0, "Store", "How long a claim to compile outlives the last sign of life of its owner.", shown="120s"
    )

    pod_spec: str | None = _setting(
        text,
        None,
        "What the server runs",
        "The pod spec, YAML or JSON: a file, - for standard input, or the text itself. Left out in a pod: the pod's own.",
    )
    pod_name: str | None = _setting(
        text, None, "What the server runs", "Name of the own pod, from the Downward API (metadata.name)."
    )
    pod_namespace: str | None = _setting(
        text, None, "What the server runs", "Namespace of the own pod, from the Downward API (metadata.namespace)."
    )
    container: str | None = _setting(
        text, None, "What the server runs", "Name of the container that runs vLLM, where the pod has more than one candidate."
    )
    gpu: str | None = _setting(
        gpu_names,
        None,
        "What the server runs",
        "GPU type, any spelling that `warmstart gpus` lists; `precompile` and `plan` take several, separated by commas.",
        shown="what the pod spec says, or the device in sight",
    )
    gpu_file: Path | None = _setting(path, None, "What the server runs", "YAML or JSON file with GPU types of your own.")
    model_files: Path | None = _setting(
        path, None, "What the server runs", "Folder with config.json and companions that stands in for the Hugging Face hub."
    )
    image_mismatch: str = _setting(
        one_of("refuse", "warn"),
        "refuse",
        "What the server runs",
        "When the server's image names another vLLM version than the one installed here: refuse, or warn and go on.",
    )

    code_file: Path | None = _setting(
        path,
        None,
        "What the server runs",
        "Document of `warmstart plan --factors` from the server's image; for an image without vLLM to look at.",
    )

    job_template: Path | None = _setting(
        path,
        None,
        "Cluster",
        "YAML or JSON file with a Job that those of `job` and `prewarm` are made from.",
        shown="a built-in Job",
    )

    cache_root: Path | None = _setting(
        path,
        None,
        "Where and how",
        "Folder that vLLM uses as VLLM_CACHE_ROOT.",
        shown="the server's VLLM_CACHE_ROOT, or vLLM's default",
    )
    work_dir: Path | None = _setting(
        path, None, "Where and how", "Folder on local disk for work in progress.", shown="the system's temporary folder"
    )
    on_miss: str = _setting(
        one_of("compile", "skip"), "compile", "Where and how", "What `run` does when the store has no entry: compile, or skip."
    )
    cuda_stub: Path | None = _setting(
        path,
        None,
        "Where and how",
        "Stand-in for libcuda.so.1 that was built before, for an image without a C compiler.",
        shown="built when needed; the image of this project has one",
    )
    device: str = _setting(
        one_of("none", "cuda"),
        "none",
        "Where and how",
        "Compile without a GPU, or (cuda) on the GPUs in sight, one for each rank.",
    )
    tuning_memory: int = _setting(
        size,
        8 << 20,
        "Where and how",
        "Memory of each GPU that `--device cuda` may take for tuning kernels; 0 for all that is free.",
        shown="8MiB",
    )
    jobs: int = _setting(count, 0, "Where and how", "Ranks compiled at once; 0 chooses by cores and memory.")
    deadline: float | None = _setting(
        seconds, None, "Where and how", "Longest time that the command may take; 0 for none.", shown="900s for `run`, else none"
    )
    fail_closed: bool = _setting(
        flag,
        False,
        "Where and how",
        "Let `run` exit with the error's code instead of 0, so that the pod does not start without a cache.",
    )

    log_level: str = _setting(
        one_of("debug", "info", "warning", "error"), "info", "Reports", "Least level of log lines on standard error."
    )
    log_format: str = _setting(
        one_of("auto", "json", "text"), "auto", "Reports", "Form of log lines; auto gives text on a terminal, else JSON."
    )
    output: str = _setting(one_of("json", "text"), "json", "Reports", "Form of the result on standard output.")
    termination_log: Path | None = _setting(
        path,
        None,
        "Reports",
        "File that gets the result as compact JSON of less than 4096 bytes.",
        shown="/dev/termination-log where it exists",
    )
    metrics_textfile: Path | None = _setting(
        path, None, "Reports", "File that gets the metrics for node-exporter's textfile collector; its name ends in .prom."
    )
    pushgateway: str | None = _setting(
        text, None, "Reports", "URL of a Prometheus Pushgateway that gets the metrics.", secret=True
    )

    @classmethod
    def read(cls, env: Mapping[str, str], options: Mapping[str, Any] | None = None) -> Settings:
        """Return the settings of one call.

        Args:
            env: the process environment; only `WARMSTART_*` is looked at.
            options: what the command line gives, by field name: text as typed, or True for a switch; None is not given.

        Raises:
            UsageError: a value cannot be read; the message names the variable or option, the value and what is wrong.

        """
        given: dict[str, Any] = {}
        for name, setting in cls.__fields__.items():
            option = (options or {}).get(name)
            if option is not None:
                given[name] = option if option is True else _read(setting, option, option_name(name))
            elif env.get(variable(name), "").strip():
                given[name] = _read(setting, env[variable(name)], variable(name))
        return cls(**given)

    @property
    def gpus(self) -> tuple[str, ...]:
        """The GPU types asked for, each as it was spelled; none where the pod spec or the device decides."""
        return tuple(self.gpu.split(",")) if self.gpu else ()


def variable(name: str) -> str:
    """Return the environment variable of a field: WARMSTART_ON_MISS for on_miss."""
    return PREFIX + name.upper()


def option_name(name: str) -> str:
    """Return the command-line option of a field: --on-miss for on_miss."""
    return "--" + name.replace("_", "-")


def fields() -> Mapping[str, Field]:
    """Return the fields of `Settings` by name, in order of declaration."""
    return Settings.__fields__


def unknown_variables(env: Iterable[str]) -> list[str]:
    """Return the WARMSTART_* variables that nothing reads: a misspelling to warn of. Service links are left out."""
    known = {variable(name) for name in fields()}
    return sorted(name for name in env if name.startswith(PREFIX) and name not in known and not _SERVICE_LINK.match(name))


def _read(setting: Field, value: object, origin: str) -> Any:
    try:
        return setting.metadata["read"](str(value))
    except ValueError as error:
        shown = "the value given" if setting.metadata["secret"] else repr(shorten(value, 80))
        raise UsageError(f"{origin}: cannot use {shown}: {error}", hint=setting.metadata["help"]) from error


def document() -> str:
    """Return docs/environment.md: every setting with its variable, option, default and meaning."""
    lines = [
        "# Environment variables",
        "",
        "Generated from `app/warmstart/settings.py` by `python -m warmstart.settings`; a test keeps it equal.",
        "",
        "A command-line option goes before its variable, a variable before the default. An empty variable counts as unset.",
        "Durations are seconds, or a number followed by `s`, `m`, `h` or `d`. Switches take `true` or `false`.",
        "",
        "Variables of other programs matter too. Those that change what is compiled (`VLLM_*`, `TORCH*`, `TRITON*` and others)",
        "are read from the pod spec's container and, below that, from this process, which runs in the same image and so knows",
        "what the image sets. `HF_TOKEN`, `HF_HOME`, `HF_ENDPOINT` and `HF_HUB_OFFLINE` decide in the same way how a model's",
        "config files are found. Credentials of the store (`AWS_*` and the like) are read by its file system.",
    ]
    group = ""
    for name, setting in fields().items():
        meta = setting.metadata
        if meta["group"] != group:
            group = meta["group"]
            lines += ["", f"## {group}"]
        lines += [
            "",
            f"### `{variable(name)}`",
            "",
            f"Option: `{option_name(name)}`{_values(setting)}. Default: {default_text(setting)}.",
            "",
        ]
        lines.append(meta["help"])
    return "\n".join(lines) + "\n"


def _values(setting: Field) -> str:
    words = getattr(setting.metadata["read"], "words", ())
    return " (" + ", ".join(f"`{word}`" for word in words) + ")" if words else ""


def default_text(setting: Field) -> str:
    """Return the default of a field as documents show it."""
    if setting.metadata["shown"]:
        return str(setting.metadata["shown"])
    if setting.default is None or setting.default is MISSING:
        return "none"
    return f"`{str(setting.default).lower() if isinstance(setting.default, bool) else setting.default}`"


if __name__ == "__main__":
    print(document(), end="")
