"""What goes wrong at a store is said in one line of ours, with what to do, and without a secret or a traceback of a library."""

from __future__ import annotations

import dataclasses
import errno
import os
import subprocess
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests import servers
from tests.store.cache import KEY
from tests.store.conftest import Entry, Place, s3_place
from tests.store.scripted import Answer, s3_answer, scripted

from warmstart.errors import (
    AccessDenied,
    EntryInvalid,
    EntryNotFound,
    NoSpaceError,
    StoreUnavailable,
    UsageError,
    WarmstartError,
)
from warmstart.store import StoreOptions, names, open_store
from warmstart.store.backend_local import LocalBackend

CLIENTS = ("obstore", "s3fs")
SECRETS = ("writer-secret-not-for-logs", "reader-secret-not-for-logs", "wrong-secret", "the-session-token")


def fails(kind: type[WarmstartError], call: Callable[[], object], *says: str) -> str:
    """Check that the call fails with that error, in one clean line; return the line."""
    with pytest.raises(WarmstartError) as caught:
        call()
    line, dump = str(caught.value), "".join(traceback.format_exception(caught.value))
    assert type(caught.value) is kind, line
    for word in says:
        assert word in line
    assert "\n" not in line
    assert len(line) < 700
    for secret in SECRETS:
        assert secret not in dump
    for library in ("Debug source", "ClientError", "RetryError"):
        assert library not in dump
    return line


def wrong(place: Place, **storage: object) -> Place:
    """Return the place with other storage options."""
    return dataclasses.replace(place, options={**place.options, "storage": {**place.options["storage"], **storage}})


@pytest.fixture(params=CLIENTS)
def seaweed(seaweedfs: servers.S3Server, request: pytest.FixtureRequest) -> Place:
    return s3_place(seaweedfs, request.param)


@pytest.fixture(params=CLIENTS)
def moto_place(moto: servers.S3Server, request: pytest.FixtureRequest) -> Place:
    return s3_place(moto, request.param)


def test_a_bucket_that_is_not_there_is_named_and_not_created(seaweed: Place, entry: Entry) -> None:
    seaweed.url = "s3://no-such-bucket/store"
    fails(UsageError, lambda: seaweed.store().lookup(KEY), "no such bucket", "s3://no-such-bucket/store", "create the bucket")
    fails(UsageError, lambda: seaweed.store().publish(KEY, entry.document, entry.layers), "no such bucket")
    fails(UsageError, lambda: list(seaweed.store().entries()), "no such bucket")


def test_a_bucket_that_is_not_there_is_named_by_another_server_too(moto_place: Place, entry: Entry) -> None:
    moto_place.url = "s3://no-such-bucket/store"
    fails(UsageError, lambda: moto_place.store().lookup(KEY), "no such bucket")
    fails(UsageError, lambda: moto_place.store().publish(KEY, entry.document, entry.layers), "no such bucket")


def test_a_wrong_secret_is_denied(seaweed: Place, entry: Entry) -> None:
    seaweed.store().publish(KEY, entry.document, entry.layers)
    stranger = wrong(seaweed, secret="wrong-secret")
    fails(AccessDenied, lambda: stranger.store().lookup(KEY), "does not accept these credentials", seaweed.url)
    fails(AccessDenied, lambda: stranger.store().publish(KEY, entry.document, entry.layers))
    fails(AccessDenied, lambda: stranger.store().verify())


def test_an_unknown_key_is_denied(seaweed: Place) -> None:
    fails(AccessDenied, lambda: wrong(seaweed, key="nobody").store().lookup(KEY), "does not accept these credentials")


def test_a_stranger_without_credentials_is_denied(seaweed: Place, entry: Entry) -> None:
    seaweed.store().publish(KEY, entry.document, entry.layers)
    stranger = wrong(seaweed, key=None, secret=None, anon=True)
    fails(AccessDenied, lambda: stranger.store().lookup(KEY), "access is denied")


def test_a_reader_reads_and_is_told_once_that_it_cannot_write(seaweed: Place, entry: Entry) -> None:
    assert seaweed.server
    seaweed.store().publish(KEY, entry.document, entry.layers)
    reader = wrong(seaweed, key=seaweed.server.reader.key, secret=seaweed.server.reader.secret)
    reader.notices.clear()
    store = reader.store()
    assert store.lookup(KEY).manifest == entry.document
    assert b"".join(store.fetch(entry.layers[0].digest, entry.layers[0].size)) == entry.layers[0].path.read_bytes()
    store.touch(KEY)
    assert not store.read_only
    for _ in range(2):
        fails(AccessDenied, lambda: store.publish(KEY, entry.document, entry.layers), "access is denied")
        fails(AccessDenied, lambda: store.claim(KEY, "pod", 60))
    fails(AccessDenied, lambda: store.remove(KEY))
    assert store.read_only
    assert [notice for notice in reader.notices if "read-only" in notice] == [
        f"{seaweed.url} cannot be written with these credentials: it is used read-only"
    ]
    assert seaweed.store().verify().findings == ()


@pytest.mark.parametrize("client", CLIENTS)
def test_a_server_that_is_not_there_is_unavailable(client: str) -> None:
    (port,) = servers.free_ports(1)
    storage = {"key": "k", "secret": "wrong-secret", "endpoint_url": f"http://127.0.0.1:{port}"}
    store = open_store("s3://warm/store", StoreOptions(storage=storage, s3_client=client, timeout=2))  # type: ignore[arg-type]
    fails(StoreUnavailable, lambda: store.lookup(KEY), "s3://warm/store")


SCRIPTS = [
    (400, "ExpiredToken", AccessDenied, "expired"),
    (403, "ExpiredToken", AccessDenied, "expired"),
    (403, "InvalidAccessKeyId", AccessDenied, "does not accept"),
    (403, "SignatureDoesNotMatch", AccessDenied, "does not accept"),
    (403, "AccessDenied", AccessDenied, "s3:GetObject"),
    (403, "RequestTimeTooSkewed", AccessDenied, "clock"),
    (400, "AuthorizationHeaderMalformed", UsageError, "region"),
    (400, "IllegalLocationConstraintException", UsageError, "region"),
    (404, "NoSuchBucket", UsageError, "no such bucket"),
    (501, "NotImplemented", StoreUnavailable, "NotImplemented"),
    (418, "Teapot", StoreUnavailable, "Teapot"),
]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(("status", "code", "kind", "says"), SCRIPTS, ids=[f"{status}-{code}" for status, code, *_ in SCRIPTS])
def test_each_answer_of_a_server_has_its_meaning(
    client: str, status: int, code: str, kind: type[WarmstartError], says: str
) -> None:
    with scripted(lambda *_: s3_answer(status, code)) as server:
        storage = {"key": "k", "secret": "wrong-secret", "token": "the-session-token", "endpoint_url": server.endpoint}
        store = open_store("s3://warm/store", StoreOptions(storage=storage, s3_client=client, timeout=3))  # type: ignore[arg-type]
        fails(kind, lambda: store.lookup(KEY), says)


def test_a_redirect_to_another_region_is_said() -> None:
    """Through obstore; s3fs follows it to the region that AWS names."""
    with scripted(lambda *_: s3_answer(301, "PermanentRedirect")) as server:
        storage = {"key": "k", "secret": "wrong-secret", "endpoint_url": server.endpoint}
        store = open_store("s3://warm/store", StoreOptions(storage=storage, s3_client="obstore"))
        fails(UsageError, lambda: store.lookup(KEY), "another region", "AWS_REGION")


@pytest.mark.parametrize("client", CLIENTS)
def test_a_server_in_trouble_is_asked_again_and_then_unavailable(client: str) -> None:
    with scripted(lambda *_: s3_answer(503, "SlowDown")) as server:
        storage = {"key": "k", "secret": "wrong-secret", "endpoint_url": server.endpoint}
        store = open_store("s3://warm/store", StoreOptions(storage=storage, s3_client=client, timeout=3))  # type: ignore[arg-type]
        fails(StoreUnavailable, lambda: store.lookup(KEY), "does not serve it")
        assert len(server.requests) > 2


@pytest.mark.parametrize("client", CLIENTS)
def test_a_server_that_recovers_is_not_noticed(client: str) -> None:
    failures = iter([503, 500])

    def answer(method: str, path: str, headers: dict[str, str]) -> Answer:
        del method, headers
        if "manifest.json" in path and (status := next(failures, None)):
            return s3_answer(status, "SlowDown")
        return s3_answer(404, "NoSuchKey") if "list-type" not in path else _empty_list()

    with scripted(answer) as server:
        storage = {"key": "k", "secret": "wrong-secret", "endpoint_url": server.endpoint}
        store = open_store("s3://warm/store", StoreOptions(storage=storage, s3_client=client, timeout=3))  # type: ignore[arg-type]
        fails(EntryNotFound, lambda: store.lookup(KEY))


def _empty_list() -> Answer:
    body = (
        '<?xml version="1.0"?><ListBucketResult><Name>warm</Name><Prefix>store/</Prefix><KeyCount>0</KeyCount>'
        "<MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated></ListBucketResult>"
    )
    return Answer(200, body.encode(), (("Content-Type", "application/xml"),))


@pytest.mark.parametrize("client", CLIENTS)
def test_an_answer_that_is_no_s3_is_unavailable(client: str) -> None:
    def answer(method: str, path: str, headers: dict[str, str]) -> Answer:
        del method, headers
        return Answer(200, b"<html>log in to the wifi</html>") if "list-type" in path else s3_answer(404, "NoSuchKey")

    with scripted(answer) as server:
        storage = {"key": "k", "secret": "wrong-secret", "endpoint_url": server.endpoint}
        store = open_store("s3://warm/store", StoreOptions(storage=storage, s3_client=client, timeout=3))  # type: ignore[arg-type]
        with pytest.raises((StoreUnavailable, EntryNotFound)):
            store.lookup(KEY)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_portal_in_the_way_is_not_taken_for_a_store(client: str) -> None:
    with scripted(
        lambda *_: Answer(200, b"<html>log in to the wifi</html>", (("Last-Modified", "Mon, 30 Nov 2026 07:00:00 GMT"),))
    ) as server:
        storage = {"key": "k", "secret": "wrong-secret", "endpoint_url": server.endpoint}
        store = open_store("s3://warm/store", StoreOptions(storage=storage, s3_client=client, timeout=3))  # type: ignore[arg-type]
        fails(EntryInvalid, lambda: store.lookup(KEY), names.MARKER)


def test_a_server_that_ignores_the_condition_is_said_once_and_stays_safe(entry: Entry, rival: Entry) -> None:
    with servers.rclone_s3() as server:
        place = s3_place(server, "obstore")
        store = place.store()
        assert store.publish(KEY, entry.document, entry.layers).outcome == "published"
        assert store.publish(KEY, rival.document, rival.layers).outcome == "beside"
        assert store.publish(KEY, entry.document, entry.layers).outcome == "present"
        said = [notice for notice in place.notices if "create-only" in notice]
        assert len(said) == 1
        assert place.store().lookup(KEY).manifest == entry.document
        held = store.claim(KEY, "a", 60)
        assert held is not None
        assert store.claim(KEY, "b", 60) is None


BAD_URLS = {
    "empty": ("", "empty"),
    "nul": ("/srv/a\0b", "NUL"),
    "unknown scheme": ("carrier-pigeon://loft", "carrier-pigeon"),
    "a file system that shows half-written files": ("sftp://host/x", "sftp"),
    "http": ("http://host/x", "http"),
    "credentials": ("s3://key:wrong-secret@bucket/x", "credentials"),
    "no bucket": ("s3://", "not an S3 URL"),
    "a bucket of capitals": ("s3://A_/x", "not an S3 URL"),
    "parent in prefix": ("s3://bucket/a/../b", "prefix"),
    "empty part in prefix": ("s3://bucket/a//b", "prefix"),
    "host in file url": ("file://server/share", "names a host"),
    "package not installed": ("abfs://container@account.dfs.core.windows.net/x", "adlfs"),
    "package not installed either": ("gs://bucket/x", "gcsfs"),
}


@pytest.mark.parametrize(("url", "says"), BAD_URLS.values(), ids=BAD_URLS.keys())
def test_a_url_that_cannot_be_used_is_said_at_opening(url: str, says: str) -> None:
    fails(UsageError, lambda: open_store(url), says)


BAD_OPTIONS = {
    "key without secret": {"key": "k"},
    "endpoint without scheme": {"key": "k", "secret": "wrong-secret", "endpoint_url": "host:9000"},
    "unknown addressing": {"key": "k", "secret": "wrong-secret", "config_kwargs": {"s3": {"addressing_style": "diagonal"}}},
    "certificates that are not there": {"key": "k", "secret": "wrong-secret", "client_kwargs": {"verify": "/none.pem"}},
}


@pytest.mark.parametrize("storage", BAD_OPTIONS.values(), ids=BAD_OPTIONS.keys())
def test_s3_options_that_cannot_be_used_are_said_at_opening(storage: dict[str, object]) -> None:
    fails(UsageError, lambda: open_store("s3://bucket/x", StoreOptions(storage=storage)))


# Folders


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Give a function that mounts a small tmpfs with options."""
    folders: list[Path] = []

    def mount(options: str) -> Path:
        folder = tmp_path / f"mount{len(folders)}"
        folder.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)
        folders.append(folder)
        return folder

    yield mount
    for folder in folders:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_volume_is_said_and_leaves_no_entry(mounted: Callable[[str], Path], tmp_path: Path) -> None:
    import random

    from tests.store.cache import AOT_KEY, facts, make_cache

    from warmstart.archive import pack
    from warmstart.store import LayerFile

    root = make_cache(tmp_path / "cache")
    noise = random.Random(3).randbytes(2 << 20)  # noqa: S311
    (root / f"torch_compile_cache/torch_aot_compile/{AOT_KEY}/rank_0_0/model").write_bytes(noise)
    packed = pack(root, tmp_path / "work", key=KEY, factors={}, facts=facts(), level=1)
    layers = [LayerFile(item.path, item.layer.digest, item.layer.size) for item in packed.layers]
    volume = mounted("size=1m") / "store"
    store = open_store(str(volume))
    fails(NoSpaceError, lambda: store.publish(KEY, packed.document, layers), "No space left", str(volume))
    fails(EntryNotFound, lambda: open_store(str(volume)).lookup(KEY))
    assert list(volume.rglob(".tmp-*")) == []


def test_a_volume_mounted_read_only_is_read_and_writing_is_denied(
    mounted: Callable[[str], Path], entry: Entry, folder: Place
) -> None:
    volume = mounted("size=4m")
    open_store(str(volume / "store")).publish(KEY, entry.document, entry.layers)
    subprocess.run(["mount", "-o", "remount,ro", str(volume)], check=True)
    reader = dataclasses.replace(folder, url=str(volume / "store"))
    store = reader.store()
    assert store.lookup(KEY).manifest == entry.document
    store.touch(KEY)
    fails(AccessDenied, lambda: store.publish(KEY, entry.document, entry.layers), "Read-only file system")
    assert store.read_only
    assert any("read-only" in notice for notice in reader.notices)


def test_a_volume_without_permission_is_denied(tmp_path: Path, folder: Place, entry: Entry) -> None:
    """Run as another user: root may write anywhere."""
    folder.store().publish(KEY, entry.document, entry.layers)
    program = """
        import os, sys
        from warmstart.errors import AccessDenied
        from warmstart.store import open_store
        import warmstart.store.claims, warmstart.store.backend_local, warmstart.store.opening
        os.setgid(65534); os.setuid(65534)
        store = open_store(sys.argv[1])
        print(len(store.lookup(sys.argv[2]).manifest))
        store.touch(sys.argv[2])
        try:
            store.claim(sys.argv[2], "pod", 60)
        except AccessDenied as error:
            print(error)
    """
    for parent in [tmp_path, *list(tmp_path.parents)[:3]]:
        parent.chmod(parent.stat().st_mode | 0o755)
    for path in [Path(folder.url), *Path(folder.url).rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    here = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), folder.url, KEY],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(here / "app")},
    )  # fmt: skip
    length, denied = done.stdout.splitlines()
    assert int(length) == len(entry.document), done.stderr
    assert "Permission denied" in denied


def test_a_store_path_that_is_a_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    fails(UsageError, lambda: open_store(str(tmp_path / "file")).lookup(KEY), "must name a folder")


def test_lost_and_found_does_not_make_a_volume_someone_elses(folder: Place, entry: Entry) -> None:
    (Path(folder.url) / "lost+found").mkdir(parents=True)
    (Path(folder.url) / "lost+found/#123").write_text("fragment")
    assert folder.store().publish(KEY, entry.document, entry.layers).outcome == "published"


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP, errno.EMLINK])
def test_a_volume_without_hard_links_still_creates_once(folder: Place, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """No file system at hand is without hard links, so the call is made to fail as it does there."""

    def no_link(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", no_link)
    backend = LocalBackend(Path(folder.url))
    assert backend.put_create("a", b"1")
    assert not backend.put_create("a", b"2")
    assert backend.get("a", 10) == b"1"
    assert backend.exclusive


def test_a_link_whose_answer_was_lost_counts_as_made(folder: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no NFS at hand, so the call is made to answer as its client does after a lost reply."""
    real = os.link

    def link(source: str, target: str) -> None:
        real(source, target)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))

    backend = LocalBackend(Path(folder.url))
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", link)
        assert backend.put_create("a", b"1")
    assert not backend.put_create("a", b"2")
    assert backend.get("a", 10) == b"1"


def put_object(server: servers.S3Server, key: str) -> None:
    """Write an object of any name, as other tools do."""
    import botocore.session

    client = botocore.session.get_session().create_client(
        "s3",
        region_name="us-east-1",
        endpoint_url=server.endpoint,
        aws_access_key_id=server.writer.key,
        aws_secret_access_key=server.writer.secret,
    )
    client.put_object(Bucket=server.bucket, Key=key, Body=b"")


@pytest.mark.parametrize("name", ["x//y", "../z", "./q", "plain"])
def test_other_peoples_objects_of_any_name_are_refused(moto_place: Place, name: str) -> None:
    assert moto_place.server
    prefix = moto_place.url.removeprefix(f"s3://{moto_place.server.bucket}/")
    put_object(moto_place.server, f"{prefix}/{name}")
    fails(UsageError, lambda: moto_place.store().lookup(KEY), moto_place.url)


def test_a_folder_that_a_console_made_is_an_empty_store(moto_place: Place, entry: Entry) -> None:
    assert moto_place.server
    put_object(moto_place.server, moto_place.url.removeprefix(f"s3://{moto_place.server.bucket}/") + "/")
    fails(EntryNotFound, lambda: moto_place.store().lookup(KEY))
    assert moto_place.store().publish(KEY, entry.document, entry.layers).outcome == "published"


def test_sigterm_ends_a_call_to_a_server_that_never_answers() -> None:
    """The request's own time limit is far away: what ends the process in time is the signal."""
    program = """
        import os, signal, socket, threading
        from warmstart.store import StoreOptions, open_store

        def stop(*_):
            raise SystemExit(143)

        signal.signal(signal.SIGTERM, stop)
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        storage = {"key": "k", "secret": "s", "endpoint_url": f"http://127.0.0.1:{listener.getsockname()[1]}"}
        store = open_store("s3://warm/x", StoreOptions(storage=storage, s3_client="obstore", timeout=600))
        threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGTERM)).start()
        try:
            store.lookup("a" * 64)
        except SystemExit:
            print("stopped", flush=True)
            os._exit(143)
    """
    here = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True, text=True, check=False, timeout=60, env={**os.environ, "PYTHONPATH": str(here / "app")},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (143, "stopped\n"), done.stderr
