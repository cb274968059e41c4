"""The zstd module of this Python: the standard library's from 3.14 on, its backport before."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

WINDOW_LOG = 27
"""log2 of the largest window: 128 MiB, what a reader must be ready to hold. Ranks and graphs repeat each other far apart."""

__all__ = ["WINDOW_LOG", "zstd"]
