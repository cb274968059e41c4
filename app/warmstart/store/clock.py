"""The server's own clock, read off the time it gives to an object that was just written.

Expiry and age are judged by the clock that also stamped the objects: machines whose clocks are hours off still agree.
"""

from __future__ import annotations

import time

from warmstart.errors import StoreUnavailable
from warmstart.store import names
from warmstart.store.backend import Backend

_TRUST_SECONDS = 300.0


class ServerClock:
    """Asks the server once, then counts on with this machine's monotonic clock; asks again after some minutes."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._asked = 0.0
        self._answer = 0.0

    def now(self) -> float:
        """Return seconds since 1970 on the server's clock. Needs write permission."""
        elapsed = time.monotonic() - self._asked
        if not self._asked or elapsed > _TRUST_SECONDS:
            self._backend.put(names.CLOCK, b"")
            info = self._backend.stat(names.CLOCK)
            if info is None:
                raise StoreUnavailable(f"{self._backend.url}: an object is missing right after it was written")
            self._asked, self._answer, elapsed = time.monotonic(), info.modified, 0.0
        return self._answer + elapsed
