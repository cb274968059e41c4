"""The hub as a snapshot in the local cache answers for it: which files a repository has, and the headers of its weights.

A pass whose model files were handed over in a folder has them in a hub cache, and no network. The hub's client answers from
such a cache for files alone; vLLM also asks it which files there are and what their headers say, and without an answer takes
another configuration than a server that reaches the hub.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled
from huggingface_hub.utils import SafetensorsFileMetadata, TensorInfo


class SnapshotApi(HfApi):  # type: ignore[misc]
    """A hub client for the repositories that the local cache holds. For others it is offline."""

    def list_repo_files(self, repo_id: str, *, revision: str | None = None, **_options: Any) -> list[str]:
        """Return the names of the snapshot's files."""
        folder = self._folder(repo_id, revision)
        return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())

    def file_exists(self, repo_id: str, filename: str, *, revision: str | None = None, **_options: Any) -> bool:
        """Tell whether the snapshot has a file."""
        return (self._folder(repo_id, revision) / filename).is_file()

    def parse_safetensors_file_metadata(
        self, repo_id: str, filename: str, *, revision: str | None = None, **_options: Any
    ) -> SafetensorsFileMetadata:
        """Return what the header of a file of the snapshot says."""
        with (self._folder(repo_id, revision) / filename).open("rb") as file:
            header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        return SafetensorsFileMetadata(
            metadata=header.pop("__metadata__", {}),
            tensors={
                name: TensorInfo(dtype=entry["dtype"], shape=entry["shape"], data_offsets=tuple(entry["data_offsets"]))
                for name, entry in header.items()
            },
        )

    @staticmethod
    def _folder(repo_id: str, revision: str | None) -> Path:
        try:
            return Path(snapshot_download(repo_id, revision=revision, local_files_only=True))
        except LocalEntryNotFoundError as error:
            raise OfflineModeIsEnabled(f"{repo_id} was not handed over with the model's files") from error
