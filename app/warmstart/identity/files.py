"""The files that a server's configuration is made from, by content: config.json and what vLLM reads beside it.

Found as vLLM finds them: a folder, the Hugging Face cache, or the hub, where only these small files are fetched, never weights.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from warmstart.errors import ModelFilesError, shorten
from warmstart.podspec.options import canonical
from warmstart.value import Value, field

if TYPE_CHECKING:
    from warmstart.podspec.request import ServeRequest

MOST_BYTES = 64 << 20
_DEEPEST = 12

# What vLLM 0.33 reads before the model is built, beside config.json, each with what for.
COMPANIONS: Mapping[str, str] = {
    "params.json": "the configuration in Mistral's format",
    "generation_config.json": "sizes of diffusion models",
    "hf_quant_config.json": "quantisation by ModelOpt",
    "quantize_config.json": "quantisation by GPTQ",
    "quant_config.json": "quantisation by AWQ",
    "preprocessor_config.json": "sizes of images, audio and video, which the profile run takes",
    "video_preprocessor_config.json": "sizes of video",
    "processor_config.json": "sizes of images, audio and video",
    "modules.json": "pooling and dense layers of embedding models",
    "sentence_bert_config.json": "length of embedding models",
    "config_sentence_transformers.json": "pooling of embedding models",
    "1_Pooling/config.json": "pooling of embedding models",
    "joint_head_config.json": "heads of reward and decision models",
    "decision_config.json": "heads of reward and decision models",
    "adapter_config.json": "a model that is an adapter",
}
_CONFIGS = ("config.json", "params.json")


class Source(Protocol):
    """Where one model's files are."""

    where: str
    commit: str

    def read(self, name: str) -> bytes | None:
        """Return a file, None where there is none. Raises ModelFilesError where it cannot be read."""
        ...

    def names(self) -> Iterable[str]:
        """Return the names of all files."""
        ...

    def headers(self) -> Mapping[str, str]:
        """Return the dtypes of the checkpoint's tensors by name, as far as vLLM would read them. Raises as `read` does."""
        ...


class ModelFiles(Value, kw_only=True):
    """What identity needs of a model's files.

    `model` is the name or path that vLLM will hold for it, `digests` maps file names to SHA-256 (of the parsed JSON, so that
    spacing and line ends do not count), `related` holds other models that the server loads too, by what for.
    """

    model: str
    source: str
    digests: Mapping[str, str]
    config: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    commit: str = field(default="", compare=False)
    related: Mapping[str, ModelFiles] = field(default_factory=dict)

    def factors(self) -> dict[str, Any]:
        """Return what of it belongs in the key: name and contents, not where they were found."""
        factors: dict[str, Any] = {"name": self.model, "files": dict(self.digests)}
        if self.related:
            factors["related"] = {use: files.factors() for use, files in self.related.items()}
        return factors


def model_files(
    model: str,
    revision: str | None,
    *,
    folder: Path | None,
    env: Mapping[str, str],
    remote_code: bool = False,
    code_revision: str | None = None,
    overridden: bool = False,
    options: Mapping[str, Any] | None = None,
) -> ModelFiles:
    """Read the files of one model.

    Args:
        model: as the server is given it: a folder, a hub name, or a URL.
        revision: branch, tag or commit, None for the default branch.
        folder: stands in for the hub, and for a folder that is not mounted here.
        env: the server's environment; HF_HUB_OFFLINE and HF_HOME change how vLLM finds and names the model.
        remote_code: whether the server runs code from the model's repository (--trust-remote-code); then that code counts.
        code_revision: revision of code that lives in another repository.
        overridden: whether --hf-overrides changes the configuration, so that its architecture is not the model's.
        options: the server's arguments, of which some leave choices to the headers of the checkpoint (`headers.facts`).

    Raises:
        ModelFilesError: missing, gated, broken, too large.
        UsageError: the model needs --trust-remote-code.
        TemporaryError: the hub does not answer.

    """
    from warmstart.identity.sources import locate

    source, name = locate(model, revision, folder, env)
    documents: dict[str, dict[str, Any]] = {}
    for file in ("config.json", *COMPANIONS):
        content = source.read(file)
        if content is not None:
            documents[file] = parse(content, f"{source.where}: {file}")
    digests = {file: _digest(document) for file, document in documents.items()}
    config = documents.get("config.json", {})
    if not any(file in digests for file in _CONFIGS):
        raise ModelFilesError(
            f"{source.where} has no config.json", hint="give a folder that has it with --model-files, as the hub holds it"
        )
    if remote_code:
        digests |= _code(source, config, env, code_revision)
    elif not overridden:
        from warmstart.identity.native import refuse_remote_code

        refuse_remote_code(model, config)
    if options is not None:
        from warmstart.identity.headers import facts

        digests |= {f"headers: {name}": fact for name, fact in facts(source, documents, options).items()}
    return ModelFiles(model=name, source=source.where, digests=digests, config=config, commit=source.commit)


def request_files(request: ServeRequest, *, folder: Path | None, env: Mapping[str, str]) -> ModelFiles:
    """Read the files of every model that a server loads its configuration from: its own, --hf-config-path, the draft model.

    `folder` is the model's own folder, or holds one for each model, by name (`folder/Qwen/Qwen3-0.6B`).
    Raises what `model_files` raises, and SpecError for arguments that do not parse.
    """
    options = canonical(request.args, request.vllm)
    remote_code = options.get("trust_remote_code") is True
    revision, code_revision = _text(options.get("revision")), _text(options.get("code_revision"))
    related: dict[str, ModelFiles] = {}
    config_path = _text(options.get("hf_config_path"))
    if config_path:
        related["hf_config_path"] = model_files(
            config_path, revision, folder=_inside(folder, config_path), env=env, remote_code=remote_code
        )
    speculative = options.get("speculative_config")
    if isinstance(speculative, dict) and isinstance(draft := speculative.get("model"), str) and _is_model(draft, speculative):
        draft_revision = _text(speculative.get("revision"))
        place = _inside(folder, draft)
        related["speculative"] = model_files(
            draft,
            draft_revision,
            folder=place if draft != request.model else folder,
            env=env,
            remote_code=remote_code,
            options={**options, "quantization": speculative.get("quantization")},
        )
    main = model_files(
        request.model,
        revision,
        folder=_inside(folder, request.model) or folder,
        env=env,
        remote_code=remote_code,
        code_revision=code_revision,
        overridden=bool(options.get("hf_overrides")),
        options=options,
    )
    return main.replace(related=related)


def parse(content: bytes, where: str) -> dict[str, Any]:
    """Return a JSON object. Raises ModelFilesError that says where it is broken."""
    try:
        document = json.loads(content.decode("utf-8"))  # as transformers reads it: a byte order mark is an error
    except (ValueError, RecursionError) as error:
        raise ModelFilesError(f"{where} is not JSON: {shorten(error, 120)}") from error
    if isinstance(document, list):
        return {"": document}
    if not isinstance(document, dict):
        raise ModelFilesError(f"{where} is not a JSON object")
    return document


def _inside(folder: Path | None, model: str) -> Path | None:
    """Return the folder of a model below `folder`, where it is kept there by name."""
    if folder is None or model.startswith("/") or ".." in model.split("/"):
        return None
    inside = folder / model
    return inside if any((inside / name).is_file() for name in _CONFIGS) else None


def _is_model(draft: str, speculative: Mapping[str, Any]) -> bool:
    """Whether a speculative configuration's `model` is a model: ngram and the like are methods without one."""
    return draft not in {"ngram", "[ngram]", "suffix"} and speculative.get("method") not in {"ngram", "suffix", "ngram_gpu"}


def _code(source: Source, config: Mapping[str, Any], env: Mapping[str, str], code_revision: str | None) -> dict[str, str]:
    """Return digests of the Python files that remote code may run, those of other repositories included."""
    from warmstart.identity.sources import locate

    digests = {}
    for name in sorted(source.names()):
        if name.endswith(".py"):
            content = source.read(name)
            digests[name] = hashlib.sha256(content or b"").hexdigest()
    for repository in sorted(_code_repositories(config)):
        other, _ = locate(repository, code_revision, None, env)
        for name in sorted(other.names()):
            if name.endswith(".py"):
                digests[f"{repository}--{name}"] = hashlib.sha256(other.read(name) or b"").hexdigest()
    return digests


def _code_repositories(config: Mapping[str, Any]) -> set[str]:
    auto_map = config.get("auto_map")
    places = auto_map.values() if isinstance(auto_map, dict) else ()
    return {place.split("--", 1)[0] for place in places if isinstance(place, str) and "--" in place}


def _digest(document: object) -> str:
    from warmstart.identity.key import canonical_json

    return hashlib.sha256(canonical_json(document)).hexdigest()


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def refuse_size(size: int, where: str) -> None:
    """Raise ModelFilesError where a file is larger than any configuration."""
    if size > MOST_BYTES:
        raise ModelFilesError(f"{where} has {size} bytes, more than any configuration file ({MOST_BYTES})")
