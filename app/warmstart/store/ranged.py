"""One large object as several ranged requests side by side, in order, in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from warmstart.errors import EntryInvalid

PART = 8 << 20
"""Bytes of one request. Large enough that its round trip does not count, small enough that a few of them are little memory."""


def read_ranged(read: Callable[[int, int], bytes], size: int, parallel: int, what: str) -> Iterator[bytes]:
    """Yield `size` bytes that `read(start, length)` gives, at most `parallel` + 1 parts in memory.

    An object that has become shorter is an error here already: parts behind the gap would otherwise follow it unnoticed.
    """

    def part(start: int) -> bytes:
        wanted = min(PART, size - start)
        data = read(start, wanted)
        if len(data) != wanted:
            raise EntryInvalid(f"{what} has fewer than the {size} bytes that its manifest states")
        return data

    starts = iter(range(0, size, PART))
    if size <= PART:
        yield from (part(start) for start in starts)
        return
    with ThreadPoolExecutor(parallel) as pool:
        ahead: deque[Future[bytes]] = deque()
        try:
            for start in starts:
                ahead.append(pool.submit(part, start))
                if len(ahead) >= parallel:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()
