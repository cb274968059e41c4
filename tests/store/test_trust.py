"""Signatures: who may publish what a server will run."""

from __future__ import annotations

import base64
import dataclasses
from pathlib import Path

import msgspec
import pytest
from tests.store.cache import KEY
from tests.store.conftest import Entry, Place

from warmstart.errors import EntryInvalid, EntryNotTrusted, UsageError
from warmstart.store import keygen, names
from warmstart.store.trust import PAYLOAD_TYPE


@dataclasses.dataclass(frozen=True)
class Keys:
    private: Path
    public: Path


def make_keys(folder: Path, name: str) -> Keys:
    return Keys(folder / name, keygen(folder / name))


@pytest.fixture(scope="session")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return make_keys(tmp_path_factory.mktemp("keys"), "ours")


@pytest.fixture(scope="session")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return make_keys(tmp_path_factory.mktemp("keys"), "theirs")


def publish(place: Place, entry: Entry, keys: Keys | None) -> str:
    signing = {"signing_key": keys.private} if keys else {}
    return place.store(**signing).publish(KEY, entry.document, entry.layers).outcome


def test_a_signed_entry_is_found_by_who_trusts_the_key(place: Place, entry: Entry, ours: Keys, theirs: Keys) -> None:
    assert publish(place, entry, ours) == "published"
    found = place.store(trusted_keys=(theirs.public, ours.public), require_signature=True).lookup(KEY)
    assert found.manifest == entry.document
    assert len(found.signed_by) == 1
    (summary,) = place.store(trusted_keys=(ours.public,)).entries()
    assert summary.signed_by == found.signed_by


def test_a_signature_by_another_key_is_refused_also_where_none_is_required(
    folder: Place, entry: Entry, ours: Keys, theirs: Keys
) -> None:
    publish(folder, entry, theirs)
    for required in (False, True):
        with pytest.raises(EntryNotTrusted, match="no trusted key"):
            folder.store(trusted_keys=(ours.public,), require_signature=required).lookup(KEY)


def test_an_unsigned_entry_is_refused_where_a_signature_is_required_and_used_with_a_word_where_not(
    folder: Place, entry: Entry, ours: Keys
) -> None:
    publish(folder, entry, None)
    with pytest.raises(EntryNotTrusted, match="not signed"):
        folder.store(trusted_keys=(ours.public,), require_signature=True).lookup(KEY)
    store = folder.store(trusted_keys=(ours.public,))
    store.lookup(KEY)
    store.lookup(KEY)
    assert len(folder.notices) == 1
    assert "without a signature" in folder.notices[0]


def test_without_keys_digests_alone_are_checked_and_that_is_said_once(folder: Place, entry: Entry, ours: Keys) -> None:
    publish(folder, entry, ours)
    folder.notices.clear()
    store = folder.store()
    assert store.lookup(KEY).signed_by == ()
    store.lookup(KEY)
    assert folder.notices == ["entries are checked by digest only: no trusted keys are configured"]


def test_a_signer_is_not_locked_out_by_an_unsigned_entry(place: Place, entry: Entry, ours: Keys) -> None:
    publish(place, entry, None)
    assert publish(place, entry, ours) == "beside"
    assert publish(place, entry, ours) == "beside"
    assert len(list(place.backend().objects(names.ENTRIES))) == 2
    found = place.store(trusted_keys=(ours.public,), require_signature=True).lookup(KEY)
    assert found.name.startswith("other-")


def test_keys_rotate_with_both_trusted_for_a_while(folder: Place, entry: Entry, ours: Keys, theirs: Keys) -> None:
    publish(folder, entry, ours)
    publish(folder, entry, theirs)
    for trusted in ((ours.public,), (theirs.public,), (ours.public, theirs.public)):
        assert folder.store(trusted_keys=trusted, require_signature=True).lookup(KEY).manifest == entry.document


def tampered(envelope: bytes, how: str, entry: Entry) -> bytes:
    document = msgspec.json.decode(envelope)
    if how == "payload":
        other = entry.document.replace(b"NVIDIA H200", b"NVIDIA H100")
        document["payload"] = base64.b64encode(other).decode()
    elif how == "signature":
        raw = bytearray(base64.b64decode(document["signatures"][0]["sig"]))
        raw[5] ^= 1
        document["signatures"][0]["sig"] = base64.b64encode(raw).decode()
    elif how == "key id":
        document["signatures"][0]["keyid"] = "00" * 32
    elif how == "no signatures":
        document["signatures"] = []
    elif how == "type":
        document["payloadType"] = "application/vnd.in-toto+json"
    elif how == "many":
        document["signatures"] *= 40
    elif how == "not base64":
        document["payload"] = "!!!"
    return msgspec.json.encode(document)


@pytest.mark.parametrize("how", ["payload", "signature", "key id", "no signatures", "type", "many", "not base64"])
def test_an_envelope_that_was_tampered_with_is_refused(folder: Place, entry: Entry, ours: Keys, how: str) -> None:
    publish(folder, entry, ours)
    name = names.entry(KEY)
    folder.backend().put(name, tampered(folder.backend().get(name, 1 << 20), how, entry))
    with pytest.raises(EntryInvalid):
        folder.store(trusted_keys=(ours.public,), require_signature=True).lookup(KEY)


def test_every_bit_of_payload_and_signature_counts(folder: Place, entry: Entry, ours: Keys) -> None:
    publish(folder, entry, ours)
    name = names.entry(KEY)
    good = folder.backend().get(name, 1 << 20)
    store = folder.store(trusted_keys=(ours.public,), require_signature=True)
    backend = folder.backend()
    for position in range(0, len(good), 7):
        bad = bytearray(good)
        bad[position] ^= 1 << (position % 8)
        backend.put(name, bytes(bad))
        try:
            found = store.lookup(KEY)
        except EntryInvalid:
            continue
        assert found.manifest == entry.document, f"byte {position}"


def test_verify_reports_entries_that_are_not_trusted(folder: Place, entry: Entry, ours: Keys, theirs: Keys) -> None:
    publish(folder, entry, theirs)
    (finding,) = folder.store(trusted_keys=(ours.public,)).verify().findings
    assert "no trusted key" in finding.problem
    assert finding.name == names.entry(KEY)
    assert folder.store(trusted_keys=(theirs.public,)).verify().findings == ()


def test_a_private_key_is_only_its_owners_and_is_never_overwritten(tmp_path: Path) -> None:
    public = keygen(tmp_path / "key")
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert b"PRIVATE" not in public.read_bytes()
    with pytest.raises(UsageError, match="exists"):
        keygen(tmp_path / "key")
    with pytest.raises(UsageError, match="cannot write"):
        keygen(tmp_path / "no such folder" / "key")


def test_a_folder_of_public_keys_is_a_set_of_them(
    folder: Place, entry: Entry, ours: Keys, theirs: Keys, tmp_path: Path
) -> None:
    mounted = tmp_path / "trusted"
    mounted.mkdir()
    (mounted / "a.pem").write_bytes(ours.public.read_bytes())
    (mounted / "b.pub").write_bytes(theirs.public.read_bytes())
    (mounted / "notes.txt").write_text("not a key")
    publish(folder, entry, ours)
    assert folder.store(trusted_keys=(mounted,), require_signature=True).lookup(KEY).signed_by


def test_keys_that_cannot_be_used_are_said_at_opening(folder: Place, ours: Keys, theirs: Keys, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    elliptic = ec.generate_private_key(ec.SECP256R1())
    (tmp_path / "ec").write_bytes(
        elliptic.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    (tmp_path / "ec.pub").write_bytes(
        elliptic.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    (tmp_path / "junk").write_bytes(b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n")
    (tmp_path / "empty").write_bytes(b"")
    wrong: list[tuple[dict[str, object], str]] = [
        ({"trusted_keys": (tmp_path / "none",)}, "cannot read"),
        ({"trusted_keys": (tmp_path / "empty",)}, "no public key"),
        ({"trusted_keys": (tmp_path / "junk",)}, "not readable"),
        ({"trusted_keys": (tmp_path / "ec.pub",)}, "not Ed25519"),
        ({"trusted_keys": (ours.private,)}, "no public key"),
        ({"signing_key": tmp_path / "empty"}, "not a private key"),
        ({"signing_key": ours.public}, "not a private key"),
        ({"signing_key": tmp_path / "ec"}, "not an Ed25519 key"),
        ({"require_signature": True}, "no trusted key"),
        ({"signing_key": ours.private, "trusted_keys": (theirs.public,)}, "not among the trusted"),
    ]
    for options, message in wrong:
        with pytest.raises(UsageError, match=message):
            folder.store(**options)


def test_the_envelope_is_dsse_as_others_write_it(folder: Place, entry: Entry, ours: Keys) -> None:
    """The pre-authentication encoding is put together here by hand, from the DSSE specification."""
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    publish(folder, entry, ours)
    envelope = msgspec.json.decode(folder.backend().get(names.entry(KEY), 1 << 20))
    payload = base64.b64decode(envelope["payload"])
    assert payload == entry.document
    signed = b" ".join([b"DSSEv1", str(len(PAYLOAD_TYPE)).encode(), PAYLOAD_TYPE.encode(), str(len(payload)).encode(), payload])
    key = load_pem_public_key(ours.public.read_bytes())
    key.verify(base64.b64decode(envelope["signatures"][0]["sig"]), signed)  # type: ignore[union-attr,call-arg]


def test_a_made_up_signature_does_not_keep_the_signer_out(folder: Place, entry: Entry, ours: Keys) -> None:
    publish(folder, entry, ours)
    name = names.entry(KEY)
    folder.backend().put(name, tampered(folder.backend().get(name, 1 << 20), "signature", entry))
    assert publish(folder, entry, ours) == "beside"
    assert folder.store(trusted_keys=(ours.public,), require_signature=True).lookup(KEY).manifest == entry.document


def test_publishing_what_one_would_not_read_is_said(folder: Place, entry: Entry, ours: Keys) -> None:
    folder.store(trusted_keys=(ours.public,), require_signature=True).publish(KEY, entry.document, entry.layers)
    assert [notice for notice in folder.notices if "published without one" in notice]
