"""A model's small files on the Hugging Face hub, through huggingface_hub. Weights are never asked for."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from warmstart.errors import ModelFilesError, TemporaryError, shorten

_SECONDS = 10.0


class HubSource:
    """Files of one commit on the hub. Importing the client takes most of a second, so it happens here and only when needed."""

    def __init__(self, model: str, revision: str | None, env: Mapping[str, str]) -> None:
        from huggingface_hub import HfApi

        self._model = model
        self._api = HfApi(endpoint=env.get("HF_ENDPOINT") or None, token=env.get("HF_TOKEN") or None)
        self.where = f"{model} on the hub" + (f" at {revision}" if revision else "")
        info = self._ask(lambda: self._api.model_info(model, revision=revision, timeout=_SECONDS, files_metadata=True))
        self.commit = str(info.sha)
        self._sizes = {file.rfilename: int(file.size or 0) for file in info.siblings or ()}

    def read(self, name: str) -> bytes | None:
        """Return a file, None where there is none."""
        from warmstart.identity.files import refuse_size

        if name not in self._sizes:
            return None
        refuse_size(self._sizes[name], f"{self.where}: {name}")
        with tempfile.TemporaryDirectory(prefix="warmstart-") as folder:
            path = self._ask(lambda: self._api.hf_hub_download(self._model, name, revision=self.commit, local_dir=folder))
            return Path(path).read_bytes()

    def headers(self) -> dict[str, str]:
        """Return the dtypes of all tensors by name, from the first bytes of .safetensors files, as vLLM asks for them."""
        from huggingface_hub.errors import NotASafetensorsRepoError
        from huggingface_hub.utils import disable_progress_bars

        disable_progress_bars()  # a bar for headers of some kilobytes would be all that a start prints
        try:
            repository = self._ask(
                lambda: self._api.get_safetensors_metadata(self._model, revision=self.commit, timeout=_SECONDS)
            )
            files = list(repository.files_metadata.values())
        except NotASafetensorsRepoError:
            # Neither model.safetensors nor its index: older checkpoints name their files otherwise.
            files = [
                self._ask(lambda name=name: self._api.parse_safetensors_file_metadata(self._model, name, revision=self.commit))
                for name in sorted(self._sizes)
                if name.endswith(".safetensors")
            ]
        return {name: str(tensor.dtype) for file in files for name, tensor in file.tensors.items()}

    def names(self) -> Iterator[str]:
        """Yield the names of all files."""
        yield from self._sizes

    def _ask(self, call: Any) -> Any:
        from huggingface_hub.errors import (
            GatedRepoError,
            HfHubHTTPError,
            NotASafetensorsRepoError,
            RepositoryNotFoundError,
            RevisionNotFoundError,
            SafetensorsParsingError,
        )

        try:
            return call()
        except NotASafetensorsRepoError:
            raise
        except SafetensorsParsingError as error:
            raise ModelFilesError(f"{self.where}: a safetensors header is broken: {shorten(error, 160)}") from error
        except GatedRepoError as error:
            raise ModelFilesError(f"{self._model} is gated", hint="set HF_TOKEN to a token that may read it") from error
        except RevisionNotFoundError as error:
            raise ModelFilesError(f"{self.where}: there is no such revision") from error
        except RepositoryNotFoundError as error:
            raise ModelFilesError(
                f"the hub has no model {self._model}, or does not show it without a token",
                hint="check the name, set HF_TOKEN, or give a folder with --model-files",
            ) from error
        except HfHubHTTPError as error:
            status = getattr(error.response, "status_code", 0)
            if status in {401, 403}:
                raise ModelFilesError(f"the hub refuses to show {self._model} ({status})", hint="check HF_TOKEN") from error
            raise TemporaryError(f"the hub answers {status} for {self._model}") from error
        except Exception as error:
            # Whatever the client's HTTP library raises for a connection that does not work.
            raise TemporaryError(
                f"the hub does not answer for {self._model}: {shorten(error, 160)}", hint="give a folder with --model-files"
            ) from error
