"""`--config FILE`: found among the stream's own objects, the files handed in, or on this disk; merged as vLLM merges it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import NoReturn

from warmstart.errors import SpecError, shorten
from warmstart.podspec import options
from warmstart.podspec.documents import MAX_CHARACTERS, yaml_documents
from warmstart.podspec.objects import Objects
from warmstart.podspec.plain import Plain, mapping, mappings, text
from warmstart.podspec.unknowns import refuse_marks
from warmstart.podspec.workloads import PodTemplate


class Files:
    """The files that a container sees, as far as the spec holds them."""

    def __init__(
        self,
        container: Plain,
        pod: PodTemplate,
        objects: Objects,
        given: Mapping[str, str] | None,
        *,
        on_disk: bool,
        where: str,
    ) -> None:
        self._container, self._pod, self._objects = container, pod, objects
        self._given, self._on_disk, self._where = given or {}, on_disk, where

    def read(self, path: str) -> str:
        """Return a file's text. Raises SpecError that says where the file would come from, and how to hand it in."""
        if path in self._given:
            return self._given[path]
        mount = self._mount(path)
        found = self._from_volume(path, mount) if mount is not None else None
        if found is not None:
            return found
        if self._on_disk:
            return self._from_disk(path)
        return self._refuse(path, mount)

    def _mount(self, path: str) -> Plain | None:
        """Return the volume mount with the longest path that holds the file."""
        target = PurePosixPath(path)
        fitting = [
            mount
            for mount in mappings(self._container, "volumeMounts", self._where)
            if target.is_relative_to(text(mount, "mountPath", self._where) or "/dev/null")
        ]
        return max(fitting, key=lambda mount: len(text(mount, "mountPath", self._where)), default=None)

    def _volume(self, mount: Plain) -> Plain:
        name = text(mount, "name", self._where)
        volumes = mappings(self._pod.spec, "volumes", self._pod.where)
        return next((volume for volume in volumes if volume.get("name") == name), {})

    def _from_volume(self, path: str, mount: Plain) -> str | None:
        inside = PurePosixPath(path).relative_to(text(mount, "mountPath", self._where))
        key = str(PurePosixPath(text(mount, "subPath", self._where)) / inside)
        volume = self._volume(mount)
        projected = mappings(mapping(volume, "projected", self._pod.where), "sources", self._pod.where)
        for source in [volume, *projected]:
            for kind, field, name_key in (("ConfigMap", "configMap", "name"), ("Secret", "secret", "secretName")):
                reference = mapping(source, field, self._pod.where)
                name = text(reference, name_key, self._pod.where) or text(reference, "name", self._pod.where)
                data = self._objects.data(kind, self._pod.workload.namespace, name) if name else None
                if data is None:
                    continue
                items = mappings(reference, "items", self._pod.where)
                paths = {text(item, "path", self._where): text(item, "key", self._where) for item in items}
                wanted = paths.get(key) if items else key
                if wanted in data:
                    return data[wanted]
        return None

    def _from_disk(self, path: str) -> str:
        try:
            file = Path(path)
            if file.stat().st_size > MAX_CHARACTERS:
                raise SpecError(f"--config {path} is larger than {MAX_CHARACTERS} bytes")
            return file.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise SpecError(
                f"--config {shorten(path, 120)} cannot be read here: {shorten(error, 120)}",
                hint="mount it at the same path in the init container",
            ) from error

    def _refuse(self, path: str, mount: Plain | None) -> NoReturn:
        where = "is in the image"
        if mount is not None:
            volume = self._volume(mount)
            source = next((key for key in volume if key != "name"), "unknown")
            where = f"is on volume {text(mount, 'name', self._where)!r} ({source}), which the spec does not hold"
        raise SpecError(
            f"--config {shorten(path, 120)} of {self._where} {where}",
            hint="add its ConfigMap to the spec, or hand the file in",
        )


def merge(args: Sequence[str], files: Files, *, serve: bool, version: str = options.DEFAULT_VERSION) -> tuple[str, ...]:
    """Return the arguments with the options of `--config FILE` put in where vLLM puts them, so that those given directly win.

    As in vLLM, only the two words `--config FILE` are read; a `--model X` given to `vllm serve` counts as the positional.

    Raises SpecError: no file named, two files, a file that cannot be read or is no mapping, no model in either place.
    """
    words = list(args)
    if serve:
        words = _model_first(words)
    if words.count("--config") == 0:
        return tuple(words)
    if words.count("--config") > 1:
        raise SpecError("--config is given more than once")
    index = words.index("--config")
    if index + 1 == len(words):
        raise SpecError("--config has no value")
    path = words[index + 1]
    added = _options(files.read(path), path, serve=serve, version=version)
    before, after = words[:index], words[index + 2 :]
    has_model = bool(words) and not words[0].startswith("-")
    if serve and not has_model and "--model" not in added:
        raise SpecError(f"no model: neither the command nor --config {shorten(path, 80)} names one")
    if has_model:
        return (words[0], *added, *before[1:], *after)
    return (*added, *before, *after)


def _model_first(words: list[str]) -> list[str]:
    spot = next((i for i, word in enumerate(words) if word == "--model" or word.startswith("--model=")), None)
    if spot is None:
        return words
    if words[spot] != "--model":
        return [words[spot].removeprefix("--model="), *words[:spot], *words[spot + 1 :]]
    if spot + 1 == len(words):
        raise SpecError("--model has no value")
    return [words[spot + 1], *words[:spot], *words[spot + 2 :]]


def _options(content: str, path: str, *, serve: bool, version: str) -> list[str]:
    """Return a config file's options as words."""
    if path.rsplit(".", 1)[-1] not in ("yaml", "yml"):
        raise SpecError(f"--config {shorten(path, 120)}: vLLM reads only .yaml and .yml files")
    refuse_marks(content, f"--config {path}")
    documents = yaml_documents(content, f"--config {path}", strict=False)
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise SpecError(f"--config {shorten(path, 120)} is not one mapping of options")
    # `vllm serve` looks for `--no-x` among the options of the outer command, which has none: false is dropped there.
    negatable = () if serve else options.table(version).destinations
    words: list[str] = []
    for key, value in documents[0].items():
        if isinstance(value, bool):
            name = f"--{key}" if value else f"--no-{key}"
            words += [name] if value or name in negatable else []
        elif isinstance(value, list):
            words += [f"--{key}", *map(str, value)] if value else []
        elif isinstance(value, dict):
            words += [f"--{key}", _json(value, path)]
        else:
            words += [f"--{key}", str(value)]
    return words


def _json(value: object, path: str) -> str:
    try:
        return json.dumps(value)
    except TypeError as error:
        raise SpecError(f"--config {shorten(path, 120)}: {shorten(error, 120)}") from None
