"""The other objects of the stream that a pod refers to: ConfigMaps, Secrets, DRA claims; looked up by name and namespace."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence

from warmstart.errors import SpecError
from warmstart.podspec.plain import Plain, mapping, strings, text
from warmstart.podspec.unknowns import refuse_marks


class Objects:
    """Lookup over one stream of documents.

    An object without a namespace fits every namespace, as `kubectl apply -n` would put it there.
    """

    def __init__(self, documents: Sequence[Plain]) -> None:
        self._found: dict[tuple[str, str], list[tuple[str, Plain]]] = {}
        for document in documents:
            kind = text(document, "kind", "object")
            metadata = mapping(document, "metadata", kind)
            name = text(metadata, "name", f"{kind}.metadata")
            self._found.setdefault((kind, name), []).append((text(metadata, "namespace", f"{kind}.metadata"), document))

    def find(self, kind: str, namespace: str, name: str) -> Plain | None:
        """Return the object of that kind and name, None where the stream does not hold it."""
        for theirs, document in self._found.get((kind, name), ()):
            if not theirs or not namespace or theirs == namespace:
                return document
        return None

    def data(self, kind: str, namespace: str, name: str) -> dict[str, str] | None:
        """Return the keys and values of a ConfigMap or Secret, None where the stream does not hold it.

        Raises SpecError: a Secret whose data is not base64 of text.
        """
        found = self.find(kind, namespace, name)
        if found is None:
            return None
        where = f"{kind}/{name}"
        if kind == "ConfigMap":
            return strings(found, "data", where)
        decoded = {key: _decode(value, f"{where}.data.{key}") for key, value in strings(found, "data", where).items()}
        return decoded | strings(found, "stringData", where)


def _decode(value: str, where: str) -> str:
    try:
        decoded = base64.b64decode(value, validate=True).decode()
    except (binascii.Error, ValueError):
        raise SpecError(f"{where} is not base64 of text") from None
    refuse_marks(decoded, where)
    return decoded
