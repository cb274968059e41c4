"""Whom an entry comes from: Ed25519 signatures over the manifest, in a DSSE envelope that takes the manifest's place.

The envelope goes around the manifest, not beside it, so that one write publishes both and one read gets both: no reader sees a
manifest whose signature is still on its way. The manifest names every layer by digest, so its signature covers them all.
`cryptography` is imported where a key is in use, and only there.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from warmstart.errors import EntryInvalid, EntryNotTrusted, UsageError, shorten
from warmstart.typed import dumps, loads, read
from warmstart.value import Value

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

PAYLOAD_TYPE = "application/vnd.warmstart.manifest+json"
_MOST_SIGNATURES = 16


class Signature(Value):
    """One signature: of the key with that id (see `key_id`), base64."""

    keyid: str
    sig: str


class Envelope(Value):
    """A DSSE envelope; `payload` is base64."""

    payload: str
    payloadType: str  # noqa: N815 - the field's name in the format
    signatures: tuple[Signature, ...]


class Trust:
    """The rules of one opened store: which keys count, and whether an entry without one of them is used."""

    def __init__(
        self, trusted: Iterable[Path], signing_key: Path | None, *, require: bool, notice: Callable[[str], None]
    ) -> None:
        self._trusted = {key_id(key): key for path in trusted for key in read_public_keys(path)}
        self._signing = read_private_key(signing_key) if signing_key else None
        self._require = require
        self._notice = notice
        if require and not self._trusted:
            raise UsageError(
                "signatures are required, but no trusted key is given", hint="name public keys with --trusted-keys"
            )
        if self._signing is not None and self._trusted and self.signer not in self._trusted:
            raise UsageError(
                f"the signing key {signing_key} is not among the trusted keys: this store's own entries would be refused",
                hint="add its public key to --trusted-keys",
            )

    @property
    def signer(self) -> str:
        """The id of the key that `seal` signs with; empty where there is none."""
        return key_id(self._signing.public_key()) if self._signing else ""

    def seal(self, document: bytes) -> bytes:
        """Return what is stored for a manifest: an envelope where there is a signing key, the manifest itself where not."""
        if self._signing is None:
            return document
        signature = Signature(keyid=self.signer, sig=_base64(self._signing.sign(_pae(document))))
        return dumps({"payload": _base64(document), "payloadType": PAYLOAD_TYPE, "signatures": [signature.items()]})

    def ours(self, document: bytes, signatures: Iterable[Signature]) -> bool:
        """Whether the manifest is signed by the own key; True where there is none, since then nothing more could be asked."""
        if self._signing is None:
            return True
        key = self._signing.public_key()
        return any(_verifies(key, signature, document) for signature in signatures if signature.keyid == self.signer)

    def open(self, stored: bytes) -> tuple[bytes, tuple[str, ...]]:
        """Return the manifest and the ids of the trusted keys that signed it. Raises EntryNotTrusted, EntryInvalid.

        Without trusted keys nothing is known of anyone, so signatures are not looked at. With them, an entry signed only by
        others is refused, and an unsigned one is too where signatures are required.
        """
        document, signatures = unwrap(stored)
        if not self._trusted:
            self._notice("entries are checked by digest only: no trusted keys are configured")
            return document, ()
        signers = tuple(
            sorted({s.keyid for s in signatures if s.keyid in self._trusted and _verifies(self._trusted[s.keyid], s, document)})
        )
        if signers:
            return document, signers
        if signatures:
            ids = shorten(", ".join(sorted({signature.keyid[:16] for signature in signatures})), 80)
            raise EntryNotTrusted(
                f"the entry is signed, but by no trusted key ({ids})", hint="add the key, or publish the entry anew"
            )
        if self._require:
            raise EntryNotTrusted("the entry is not signed", hint="publish it with --signing-key")
        self._notice("an entry without a signature is used: signatures are not required")
        return document, ()


def unwrap(stored: bytes) -> tuple[bytes, tuple[Signature, ...]]:
    """Return the manifest and the signatures on it, none of them checked."""
    try:
        said = loads(stored)
        if not isinstance(said, dict):
            raise ValueError("it is not an object")  # noqa: TRY301, TRY004 - every wrong document is told in one place
        if said.get("payloadType") is None:
            return stored, ()
        envelope = read(Envelope, said)
        if envelope.payloadType != PAYLOAD_TYPE or len(envelope.signatures) > _MOST_SIGNATURES:
            raise EntryInvalid(f"the entry is an envelope of {shorten(envelope.payloadType, 60)!r}, which is not a manifest")
        return _unbase64(envelope.payload), envelope.signatures
    except ValueError as error:
        raise EntryInvalid(f"the manifest is not readable: {shorten(error)}") from error


def keygen(private: Path) -> Path:
    """Write a new private key to `private` (mode 0600) and its public key beside it, `.pub` added; return that path."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    public = private.with_name(private.name + ".pub")
    secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    pem = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    for path, data, mode in ((private, secret, 0o600), (public, pem, 0o644)):
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        except FileExistsError as error:
            raise UsageError(f"{path} exists", hint="choose another name: an old key is not overwritten") from error
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}") from error
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    return public


def key_id(key: Ed25519PublicKey) -> str:
    """Return the id of a public key: SHA-256 (hex) of its DER SubjectPublicKeyInfo."""
    from cryptography.hazmat.primitives import serialization

    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()


def read_public_keys(path: Path) -> list[Ed25519PublicKey]:
    """Return the keys in a PEM file, or in the `.pem` and `.pub` files of a folder (a mounted Secret or ConfigMap)."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in (".pem", ".pub"))
        keys = [key for file in files for key in read_public_keys(file)]
    else:
        end = b"-----END PUBLIC KEY-----"
        keys = []
        for block in _read(path).split(end)[:-1]:
            try:
                key = load_pem_public_key(block + end)
            except ValueError as error:
                raise UsageError(f"{path} holds a public key that is not readable: {shorten(error)}") from error
            if not isinstance(key, Ed25519PublicKey):
                raise UsageError(f"{path} holds a public key that is not Ed25519", hint="make one with warmstart store keygen")
            keys.append(key)
    if not keys:
        raise UsageError(f"{path} holds no public key", hint="give PEM files with BEGIN PUBLIC KEY")
    return keys


def read_private_key(path: Path) -> Ed25519PrivateKey:
    """Return the private key in a PEM file without a passphrase."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(_read(path), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise UsageError(f"{path} is not a private key in PEM without a passphrase: {shorten(error, 120)}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise UsageError(f"{path} is not an Ed25519 key", hint="make one with warmstart store keygen")
    return key


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read the key {path}: {error.strerror}") from error


def _verifies(key: Ed25519PublicKey, signature: Signature, document: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        key.verify(_unbase64(signature.sig), _pae(document))
    except (InvalidSignature, ValueError):
        return False
    return True


def _pae(document: bytes) -> bytes:
    """Return what is signed: DSSE's pre-authentication encoding, v1."""
    return b"DSSEv1 %d %s %d %s" % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(document), document)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _unbase64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
