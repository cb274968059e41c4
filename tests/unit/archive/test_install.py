"""Installing puts an entry beside what is there, whole or not at all, and knows when it has nothing to do."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.store.cache import AOT_KEY, KEY, facts, make_cache, snapshot
from tests.unit.archive.blobs import KEY as HAND_KEY
from tests.unit.archive.blobs import layer_of, manifest_of, pieces, tar

from warmstart.archive import Fetch, Installed, Packed, find_installed, install, pack
from warmstart.errors import EntryInvalid, NoSpaceError, StoreUnavailable, UsageError

MODEL = f"torch_compile_cache/torch_aot_compile/{AOT_KEY}/rank_0_0/model"


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Packed:
    folder = tmp_path_factory.mktemp("packed")
    return pack(make_cache(folder / "cache", ranks=2), folder / "work", key=KEY, factors={}, facts=facts(ranks=2), level=3)


def fetcher(packed: Packed) -> Fetch:
    blobs = {item.layer.digest: item.path for item in packed.layers}
    return lambda digest, _: pieces(blobs[digest].read_bytes(), 10_000)


def put_in(packed: Packed, root: Path, **options: object) -> Installed:
    return install(packed.manifest, fetcher(packed), root, **options)  # type: ignore[arg-type]


def no_fetch(digest: str, size: int) -> Iterator[bytes]:
    raise AssertionError(f"nothing should be fetched, but {digest} was ({size} bytes)")


def leftovers(root: Path) -> list[str]:
    return [path.name for path in (root / ".warmstart").iterdir() if not path.name.endswith(".json")]


def test_an_entry_is_installed_whole(packed: Packed, tmp_path: Path) -> None:
    root = tmp_path / "deep/down/root"
    done = put_in(packed, root)
    assert (done.already, done.files, done.placed, done.kept, done.replaced) == (False, 7, 7, 0, 0)
    assert done.raw_bytes == packed.manifest.raw_bytes == sum(len(data) for data, _ in snapshot(root).values())
    assert done.fetched_bytes == sum(item.layer.size for item in packed.layers)
    assert done.aot_keys == (AOT_KEY,)
    assert leftovers(root) == []


def test_a_second_install_does_nothing_and_fetches_nothing(packed: Packed, tmp_path: Path) -> None:
    put_in(packed, tmp_path)
    before = snapshot(tmp_path)
    again = install(packed.manifest, no_fetch, tmp_path)
    assert again.already
    assert (again.files, again.fetched_bytes) == (7, 0)
    assert find_installed(tmp_path, KEY) == again
    assert snapshot(tmp_path) == before


def test_what_was_never_installed_is_not_found(tmp_path: Path) -> None:
    assert find_installed(tmp_path, KEY) is None
    assert find_installed(tmp_path / "none", KEY) is None


@pytest.mark.parametrize(
    "loss", ["missing", "shorter", "marker gone", "marker damaged", "marker of another key", "marker newer"]
)
def test_an_install_that_lost_something_is_done_again(packed: Packed, tmp_path: Path, loss: str) -> None:
    put_in(packed, tmp_path)
    whole = snapshot(tmp_path)
    marker = tmp_path / f".warmstart/{KEY}.json"
    if loss == "missing":
        (tmp_path / MODEL).unlink()
    elif loss == "shorter":
        (tmp_path / MODEL).write_bytes(b"cut")
    elif loss == "marker gone":
        marker.unlink()
    elif loss == "marker damaged":
        marker.write_bytes(marker.read_bytes()[:-9])
    elif loss == "marker of another key":
        marker.write_bytes(marker.read_bytes().replace(KEY.encode(), b"0" * 64))
    else:
        marker.write_bytes(marker.read_bytes().replace(b'"format":1', b'"format":2'))
    assert find_installed(tmp_path, KEY) is None
    again = put_in(packed, tmp_path)
    assert not again.already
    assert again.placed + again.replaced == (1 if loss in ("missing", "shorter") else 0)
    assert snapshot(tmp_path) == whole


def test_other_entries_in_the_root_are_kept_as_they_are(packed: Packed, tmp_path: Path) -> None:
    make_cache(tmp_path, ranks=1, aot_key="bb" * 32, seed=4)
    before = {path: file for path, file in snapshot(tmp_path).items() if "bb" * 32 in path or "inductor" in path}
    put_in(packed, tmp_path)
    after = snapshot(tmp_path)
    assert {path: after[path] for path in before} == before


def test_an_equal_file_is_left_alone_and_a_different_one_is_replaced_whole(packed: Packed, tmp_path: Path) -> None:
    put_in(packed, tmp_path)
    (tmp_path / f".warmstart/{KEY}.json").unlink()
    equal, different = tmp_path / MODEL, tmp_path / MODEL.replace("rank_0", "rank_1")
    inode = equal.stat().st_ino
    different.write_bytes(b"what an earlier, broken compile left")
    reader = different.open("rb")
    done = put_in(packed, tmp_path)
    assert (done.kept, done.replaced) == (6, 1)
    assert equal.stat().st_ino == inode
    assert reader.read() == b"what an earlier, broken compile left"
    reader.close()


def test_a_folder_in_the_way_of_a_file_is_said_and_nothing_is_broken(packed: Packed, tmp_path: Path) -> None:
    (tmp_path / MODEL / "x").mkdir(parents=True)
    with pytest.raises(UsageError, match="in the way"):
        put_in(packed, tmp_path)
    assert find_installed(tmp_path, KEY) is None
    assert leftovers(tmp_path) == []


def test_a_file_in_the_way_of_a_folder_is_said(packed: Packed, tmp_path: Path) -> None:
    (tmp_path / "torch_compile_cache").write_text("?")
    with pytest.raises(UsageError, match="in the way"):
        put_in(packed, tmp_path)


def test_only_the_ranks_of_this_node_are_installed_and_the_rest_later(packed: Packed, tmp_path: Path) -> None:
    some = put_in(packed, tmp_path, layers=frozenset({"shared", "rank-1-0"}))
    assert some.files == 4
    assert not (tmp_path / MODEL).exists()
    assert install(packed.manifest, no_fetch, tmp_path, layers=frozenset({"rank-1-0"})).already
    rest = put_in(packed, tmp_path)
    assert (rest.already, rest.placed, rest.kept) == (False, 3, 4)
    with pytest.raises(EntryInvalid, match="rank-7-0"):
        put_in(packed, tmp_path, layers=frozenset({"rank-7-0"}))


def test_group_zero_can_write_what_was_installed(packed: Packed, tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        put_in(packed, tmp_path / "root")
    finally:
        os.umask(old)
    for path in [tmp_path / "root", *(tmp_path / "root").rglob("*")]:
        wanted = 0o775 if path.is_dir() else 0o664
        assert path.stat().st_mode & 0o777 == wanted, path


def damaged(packed: Packed, name: str) -> Fetch:
    whole = fetcher(packed)
    victim = next(item.layer.digest for item in packed.layers if item.layer.name == name)

    def fetch(digest: str, size: int) -> Iterator[bytes]:
        blob = bytearray(b"".join(whole(digest, size)))
        if digest == victim:
            blob[len(blob) // 2] ^= 1
        yield bytes(blob)

    return fetch


@pytest.mark.parametrize("name", ["shared", "rank-0-0", "rank-1-0"])
def test_one_damaged_layer_means_that_nothing_is_placed(packed: Packed, tmp_path: Path, name: str) -> None:
    with pytest.raises(EntryInvalid, match=name):
        install(packed.manifest, damaged(packed, name), tmp_path)
    assert snapshot(tmp_path) == {}
    assert leftovers(tmp_path) == []


def test_an_error_of_the_store_half_way_leaves_nothing_and_comes_through(packed: Packed, tmp_path: Path) -> None:
    closed = []

    def fetch(digest: str, size: int) -> Iterator[bytes]:
        try:
            yield next(fetcher(packed)(digest, size))[:100]
            raise StoreUnavailable("the network went away")
        finally:
            closed.append(digest)

    with pytest.raises(StoreUnavailable, match="went away"):
        install(packed.manifest, fetch, tmp_path)
    assert snapshot(tmp_path) == {}
    assert leftovers(tmp_path) == []
    assert closed


def test_one_path_in_two_layers_is_refused(tmp_path: Path) -> None:
    one, blob_one = layer_of(tar(("A/f", b"1")), files=1)
    two, blob_two = layer_of(tar(("a/F", b"2")), files=1, name="rank-0-0")
    blobs = {one.digest: blob_one, two.digest: blob_two}
    with pytest.raises(EntryInvalid, match="in two layers"):
        install(manifest_of(one, two), lambda digest, _: pieces(blobs[digest]), tmp_path)
    assert snapshot(tmp_path) == {}


def test_a_made_up_marker_cannot_be_unpacked(tmp_path: Path) -> None:
    layer, blob = layer_of(tar((f".warmstart/{HAND_KEY}.json", b"{}")), files=1)
    with pytest.raises(EntryInvalid, match="lies in"):
        install(manifest_of(layer), lambda *_: pieces(blob), tmp_path)


def test_a_full_disk_is_said_before_anything_is_fetched(small_disk: Path) -> None:
    noise = random.Random(1).randbytes(3 << 20)  # noqa: S311
    layer, _ = layer_of(tar(("model", noise)), files=1)
    with pytest.raises(NoSpaceError, match="the entry needs"):
        install(manifest_of(layer), no_fetch, small_disk)


def test_a_disk_that_fills_up_half_way_leaves_nothing(small_disk: Path) -> None:
    noise = random.Random(1).randbytes(900_000)  # noqa: S311
    layer, blob = layer_of(tar(("model", noise)), files=1)

    def fetch(*_: object) -> Iterator[bytes]:
        (small_disk / "someone else").write_bytes(bytes(400_000))
        yield from pieces(blob)

    with pytest.raises(NoSpaceError, match="No space left"):
        install(manifest_of(layer), fetch, small_disk)
    assert {path.name for path in small_disk.iterdir()} == {".warmstart", "someone else"}
    assert leftovers(small_disk) == []


def test_a_read_only_disk_is_said(packed: Packed, read_only_disk: Path) -> None:
    with pytest.raises(UsageError, match="Read-only file system"):
        put_in(packed, read_only_disk)


def test_a_folder_without_permission_is_said_with_the_user(tmp_path: Path) -> None:
    """Run as another user: root may write anywhere."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o755)
    program = """
        import os, sys
        from pathlib import Path
        from warmstart.archive import install
        from warmstart.errors import UsageError
        from tests.unit.archive.blobs import layer_of, manifest_of, pieces, tar
        layer, blob = layer_of(tar(("a", b"x")), files=1)
        os.setgid(65534); os.setuid(65534)
        try:
            install(manifest_of(layer), lambda *_: pieces(blob), Path(sys.argv[1]))
        except UsageError as error:
            print(error)
    """
    for parent in tmp_path.parents[:3]:
        parent.chmod(parent.stat().st_mode | 0o755)
    tmp_path.chmod(0o755)
    done = run_python(program, str(closed))
    assert "Permission denied" in done.stdout, done.stderr
    assert "user 65534" in done.stdout


def run_python(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    here = Path(__file__).resolve().parents[3]
    env = {**os.environ, "PYTHONPATH": f"{here / 'app'}:{here}", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", textwrap.dedent(program), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False, timeout=60)


def test_a_killed_install_is_cleaned_up_by_the_next_and_a_living_one_is_not(packed: Packed, tmp_path: Path) -> None:
    program = """
        import sys, time
        from pathlib import Path
        from warmstart.archive.staging import staging
        with staging(Path(sys.argv[1])) as tree:
            (tree / "half").write_bytes(b"half a file")
            print(tree, flush=True)
            time.sleep(60)
    """
    here = Path(__file__).resolve().parents[3]
    env = {**os.environ, "PYTHONPATH": f"{here / 'app'}:{here}"}
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as dead,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as alive,
    ):
        assert dead.stdout
        assert alive.stdout
        abandoned, busy = Path(dead.stdout.readline().strip()), Path(alive.stdout.readline().strip())
        dead.send_signal(signal.SIGKILL)
        dead.wait()
        put_in(packed, tmp_path)
        assert not abandoned.exists()
        assert (busy / "half").exists()
        alive.send_signal(signal.SIGKILL)


def test_what_a_process_left_that_died_after_its_marker_is_removed_by_a_start_that_has_nothing_to_do(
    packed: Packed, tmp_path: Path
) -> None:
    put_in(packed, tmp_path)
    reserved = tmp_path / ".warmstart"
    left = reserved / "staging-0011223344556677"
    (left / "tree" / "deep").mkdir(parents=True)
    (left / "tree" / "deep" / "file").write_bytes(b"x")
    (left / "lock").touch()
    old, fresh = reserved / "new-0011223344556677", reserved / "new-8899aabbccddeeff"
    old.write_bytes(b"half a manifest")
    fresh.write_bytes(b"another's, being written now")
    an_hour_ago = time.time() - 3700
    os.utime(old, (an_hour_ago, an_hour_ago))
    again = find_installed(tmp_path, KEY)
    assert again is not None
    assert again.already
    assert leftovers(tmp_path) == [fresh.name]


def test_installs_that_race_into_one_root_all_succeed(packed: Packed, tmp_path: Path) -> None:
    with ThreadPoolExecutor(6) as pool:
        done = list(pool.map(lambda _: put_in(packed, tmp_path), range(6)))
    assert all(item.files == 7 for item in done)
    put_in(packed, tmp_path / "alone")
    alone = snapshot(tmp_path / "alone")
    assert {path: file for path, file in snapshot(tmp_path).items() if not path.startswith("alone/")} == alone
    assert leftovers(tmp_path) == []


def test_another_entry_of_the_same_key_is_installed_over_the_first(packed: Packed, tmp_path: Path) -> None:
    put_in(packed, tmp_path / "root")
    other = pack(
        make_cache(tmp_path / "cache", ranks=2, seed=8), tmp_path / "work", key=KEY, factors={}, facts=facts(ranks=2), level=3
    )
    done = put_in(other, tmp_path / "root")
    assert not done.already
    assert done.replaced == 7
    assert put_in(other, tmp_path / "root").already


def test_memory_stays_bounded_whatever_the_entry_weighs(tmp_path: Path) -> None:
    program = """
        import resource, sys
        from pathlib import Path
        from tests.unit.archive.blobs import layer_of, manifest_of, pieces, tar
        from warmstart.archive import install
        layer, blob = layer_of(tar(("model", bytes(300 << 20))), files=1)
        del tar
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        install(manifest_of(layer), lambda *_: pieces(blob), Path(sys.argv[1]))
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    """
    grown = run_python(program, str(tmp_path))
    assert int(grown.stdout) < 64 << 10, grown.stderr


def test_the_marker_names_the_manifest_and_every_file(packed: Packed, tmp_path: Path) -> None:
    import msgspec

    put_in(packed, tmp_path)
    marker = msgspec.json.decode((tmp_path / f".warmstart/{KEY}.json").read_bytes())
    assert marker["manifest"] == hashlib.sha256(packed.document).hexdigest()
    assert dict(marker["files"]) == {path: len(data) for path, (data, _) in snapshot(tmp_path).items()}


def test_a_manifest_without_layers_for_this_node_installs_nothing(packed: Packed, tmp_path: Path) -> None:
    done = put_in(packed, tmp_path, layers=frozenset())
    assert done.files == 0
    assert snapshot(tmp_path) == {}


def test_times_of_files_do_not_depend_on_the_clock(packed: Packed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 10.0**10)
    put_in(packed, tmp_path)
    assert all(time_ns < 1.8e18 for _, time_ns in snapshot(tmp_path).values())
