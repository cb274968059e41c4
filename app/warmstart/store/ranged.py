"""One large object as several ranged requests side by side, in order, in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from warmstart.errors import EntryInvalid

if TYPE_CHECKING:
    from concurrent.futures import Future

PART = 8 << 20
"""Bytes of one request. Large enough that its round trip does not count, small enough that a few of them are little memory."""

MOST_PARTS = 4
"""Parts of one object under way at the same time. Several layers are read at once, each with this many."""


def read_ranged(
    whole: Callable[[], bytes], read: Callable[[int, int], bytes], size: int, parallel: int, what: str
) -> Iterator[bytes]:
    """Yield `size` bytes: from `whole()` where they fit one part, else from `read(start, length)`, in bounded memory.

    At most `MOST_PARTS` + 1 parts are held. An object of another size is an error here already: parts behind a gap would
    otherwise follow it unnoticed.
    """
    if size <= PART:
        yield _checked(whole(), size, what)
        return

    def part(start: int) -> bytes:
        wanted = min(PART, size - start)
        return _checked(read(start, wanted), wanted, what)

    from concurrent.futures import ThreadPoolExecutor  # 7 ms that an entry of ordinary size does not need

    parallel = min(parallel, MOST_PARTS)
    pool = ThreadPoolExecutor(parallel)
    ahead: deque[Future[bytes]] = deque()
    try:
        for start in range(0, size, PART):
            ahead.append(pool.submit(part, start))
            if len(ahead) >= parallel:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
    finally:
        # Parts under way are not waited for: who stops reading has no use for them.
        pool.shutdown(wait=False, cancel_futures=True)


def _checked(data: bytes, wanted: int, what: str) -> bytes:
    if len(data) != wanted:
        raise EntryInvalid(f"{what} has other than the number of bytes that its manifest states")
    return data
