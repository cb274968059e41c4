"""What `run` needs and the pod spec does not decide, begun while that is read: the code's fingerprint, and the store.

The fingerprint is Python code over forty thousand lines, so a copy of this process computes it. The store is opened in a
thread: connecting and greeting a server are waits more than work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warmstart.aside import Aside, Forked

if TYPE_CHECKING:
    from warmstart.identity import CodeFingerprint
    from warmstart.settings import Settings
    from warmstart.store import Store


_begun: list[Forked] = []


def begin() -> None:
    """Begin to compute the fingerprint before the settings are read, which may show that it is not needed after all."""
    if not _begun:
        _begun.append(Forked(_fingerprint))


class Ahead:
    """Work that is under way. What goes wrong in it shows when its result is asked for, as if it was begun only then."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.notices: list[str] = []
        begun = _begun.pop() if _begun else None
        if settings.code_file and begun:
            begun.close()
        # Before the thread: only a process with one can be copied.
        self._fingerprint = None if settings.code_file else begun or Forked(_fingerprint)
        self._store = Aside(self._open)

    def code(self) -> CodeFingerprint:
        """Return the fingerprint of the server's code. Raises what `resolve.code` raises."""
        from warmstart.identity import CodeFingerprint
        from warmstart.workflow import resolve

        told = self._fingerprint.result() if self._fingerprint else None
        return resolve.code(self._settings) if told is None else CodeFingerprint.decode(told)

    def store(self) -> Store:
        """Return the store. Raises what `entries.open_from` raises."""
        return self._store.result()

    def close(self) -> None:
        """Leave nothing behind."""
        if self._fingerprint:
            self._fingerprint.close()

    def _open(self) -> Store:
        from warmstart.workflow import entries

        store = entries.open_from(self._settings, self.notices)
        store.greet()
        return store


def _fingerprint() -> bytes:
    from warmstart import identity

    return identity.fingerprint().encode()
