"""The zstd module of this Python: the standard library's from 3.14 on, its backport before."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

LARGEST_WINDOW_LOG = 27
"""log2 of the largest window that a reader takes: 128 MiB of memory."""

_WIDEST_WRITTEN = 23
_NARROWEST = 20


def window_log(raw_bytes: int) -> int:
    """Return log2 of the window to compress that many bytes with: all of them in sight, up to 8 MiB.

    The graphs of an artifact repeat each other far apart: with zstd's own choice for level 12 (4 MiB) the 23 MB artifact of
    Qwen3-0.6B is 1.4 times as large, with 8 MiB 1.04 times. A reader holds a window for each layer that it unpacks at the same
    time, and fetching 32 MiB of fresh memory from the kernel takes it longer than decompressing into them.
    """
    return min(max(raw_bytes.bit_length(), _NARROWEST), _WIDEST_WRITTEN)


__all__ = ["LARGEST_WINDOW_LOG", "window_log", "zstd"]
