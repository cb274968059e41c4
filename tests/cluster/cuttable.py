"""A way to the API server that a test can cut: a TCP forwarder on loopback."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import yaml


class Way:
    """Forwards connections until it is cut; a cut way refuses new ones and resets those that are open."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._pumps: list[threading.Thread] = []
        self._cut = False
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Reset every connection, and every new one."""
        with self._lock:
            self._cut = True
            for one in self._open:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        """Let connections through again."""
        self._cut = False

    def close(self) -> None:
        """Cut for good."""
        self.cut()
        self._listener.close()
        for thread in self._pumps:
            thread.join(5)
        for one in self._open:
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                if self._cut:
                    near.close()
                    continue
                far = socket.create_connection(self._target)
                with self._lock:
                    self._open |= {near, far}
                for source, sink in ((near, far), (far, near)):
                    self._pumps.append(threading.Thread(target=_pump, args=(source, sink), daemon=True))
                    self._pumps[-1].start()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    for one in (source, sink):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def cuttable(kubeconfig: Path, target: Path) -> Iterator[tuple[Way, Path]]:
    """Write a kubeconfig that reaches the same API server through a way that can be cut; yield both."""
    document = yaml.safe_load(kubeconfig.read_text())
    cluster = document["clusters"][0]["cluster"]
    host, _, port = cluster["server"].removeprefix("https://").rpartition(":")
    way = Way((host, int(port)))
    cluster["server"] = f"https://127.0.0.1:{way.port}"
    target.write_text(yaml.safe_dump(document))
    try:
        yield way, target
    finally:
        way.close()
