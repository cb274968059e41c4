"""Who compiles for a key now, as objects: so that N pods that miss together compile once. No flock, no lock service.

`claims/<key>/<generation>.json` is created with the create-only condition; the highest generation is the claim. Its owner
keeps it alive by writing it again, and lets go by writing that it is released. A claim that is released, or that has not been
written for its `ttl` on the server's clock, is succeeded by creating the next generation, which one taker wins. Generations
only grow: nobody can mistake a new claim for an old one. Two may compile at once only where an owner stood still past its ttl;
publishing stays safe then, and the first notices at its next heartbeat.
"""

from __future__ import annotations

import contextlib
import secrets

from warmstart.errors import EntryInvalid, WarmstartError
from warmstart.store import names
from warmstart.store.backend import Backend, ObjectInfo, ObjectMissing
from warmstart.store.clock import ServerClock
from warmstart.typed import dumps, loads, read
from warmstart.value import Value

LONGEST_TTL = 3600.0
_LIMIT = 4096


class Body(Value, kw_only=True):
    """What a claim's object says. `token` is drawn for each claim, so that equal owner names are told apart."""

    format: int
    owner: str
    token: str
    ttl: float
    released: bool = False


class ObjectClaim:
    """A claim held by this process."""

    def __init__(self, backend: Backend, key: str, generation: int, body: Body) -> None:
        self._backend = backend
        self._generation = generation
        self._body = body
        self._key = key
        self._gone = False

    @property
    def key(self) -> str:
        """The key that is claimed."""
        return self._key

    @property
    def owner(self) -> str:
        """Who holds it."""
        return self._body.owner

    def heartbeat(self) -> bool:
        """Extend the claim. False where another has taken it over. Raises what the store raises when it does not answer."""
        if self._gone:
            return False
        self._backend.put(self._name(), dumps(self._body.items()))
        if max(_generations(self._backend, self._key), default=0) > self._generation:
            self._gone = True
        return not self._gone

    def release(self) -> None:
        """Let go. A store that does not answer is left to the expiry."""
        if self._gone:
            return
        self._gone = True
        with contextlib.suppress(WarmstartError):
            self._backend.put(self._name(), dumps(self._body.replace(released=True).items()))
            for generation in _generations(self._backend, self._key):
                if generation < self._generation:
                    self._backend.delete(names.claim(self._key, generation))

    def _name(self) -> str:
        return names.claim(self._key, self._generation)


class ObjectClaims:
    """Makes claims in a store."""

    def __init__(self, backend: Backend, clock: ServerClock, *, exclusive: bool) -> None:
        self._backend = backend
        self._clock = clock
        self._exclusive = exclusive

    def claim(self, key: str, owner: str, ttl: float) -> ObjectClaim | None:
        """Claim `key` for `ttl` seconds, or None where a living owner holds it.

        `owner` names one process at a time: a claim of the same name is that of a dead predecessor and is succeeded at once.
        """
        names.check_key(key)
        held = _generations(self._backend, key)
        last = max(held, default=0)
        if held and not self._is_free(held[last], owner):
            return None
        body = Body(format=1, owner=owner[:256], token=secrets.token_hex(16), ttl=min(max(ttl, 1.0), LONGEST_TTL))
        name = names.claim(key, last + 1)
        if not self._backend.put_create(name, dumps(body.items())):
            return None
        if not self._exclusive and self._read(name) != body:
            return None
        return ObjectClaim(self._backend, key, last + 1, body)

    def _is_free(self, info: ObjectInfo, owner: str) -> bool:
        body = self._read(info.name)
        if body is not None and (body.released or body.owner == owner[:256]):
            return True
        # A claim that cannot be read gets the longest time: it may be of a newer program.
        ttl = LONGEST_TTL if body is None else min(body.ttl, LONGEST_TTL)
        return self._clock.now() - info.modified > ttl

    def _read(self, name: str) -> Body | None:
        try:
            return read(Body, loads(self._backend.get(name, _LIMIT)))
        except (ObjectMissing, EntryInvalid, ValueError):
            return None


def _generations(backend: Backend, key: str) -> dict[int, ObjectInfo]:
    """Return the objects of a key's claims by generation."""
    found = ((names.parse_claim(info.name), info) for info in backend.objects(f"{names.CLAIMS}{key}/"))
    return {parsed[1]: info for parsed, info in found if parsed}
