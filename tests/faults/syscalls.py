"""Run a function in a forked child that is killed with SIGKILL at its n-th system call that writes.

The kernel itself reports the calls: a seccomp filter with a listener stops the child at each one, in every thread and below
every library, and hands it to this process, which lets it go on, or kills. No ptrace, no preloaded library.
The call at which the child dies is not made; a `write` may first be made in part, as a kill in the middle of one leaves it.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import fcntl
import os
import platform
import select
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable

_X86_64 = {
    "write": 1, "open": 2, "pwrite64": 18, "writev": 20, "sendfile": 40, "fsync": 74, "fdatasync": 75, "truncate": 76,
    "ftruncate": 77, "rename": 82, "mkdir": 83, "rmdir": 84, "creat": 85, "link": 86, "unlink": 87, "symlink": 88, "chmod": 90,
    "fchmod": 91, "openat": 257, "mkdirat": 258, "unlinkat": 263, "renameat": 264, "linkat": 265, "symlinkat": 266,
    "fchmodat": 268, "utimensat": 280, "fallocate": 285, "syncfs": 306, "renameat2": 316, "copy_file_range": 326,
}  # fmt: skip
_AARCH64 = {
    "mkdirat": 34, "unlinkat": 35, "symlinkat": 36, "linkat": 37, "renameat": 38, "truncate": 45, "ftruncate": 46,
    "fallocate": 47, "fchmod": 52, "fchmodat": 53, "openat": 56, "write": 64, "writev": 66, "pwrite64": 68, "sendfile": 71,
    "fsync": 82, "fdatasync": 83, "utimensat": 88, "syncfs": 267, "renameat2": 276, "copy_file_range": 285,
}  # fmt: skip
_MACHINES = {"x86_64": (_X86_64, 317), "aarch64": (_AARCH64, 277)}
_CALLS, _SECCOMP = _MACHINES[platform.machine()]
NAMES = {number: name for name, number in _CALLS.items()}
_FLAGS_ARGUMENT = {"open": 1, "openat": 2}

_PR_SET_NO_NEW_PRIVS = 38
_SET_MODE_FILTER = 1
_FLAG_NEW_LISTENER = 8
_RET_ALLOW = 0x7FFF0000
_RET_USER_NOTIF = 0x7FC00000
_CONTINUE = 1
_NOTIF_RECV = 0xC0502100
_NOTIF_SEND = 0xC0182101
_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_ARGUMENTS_OFFSET = 16
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a child ended: `calls` it made or was about to make, `killed_at` the name of the last where it was killed there."""

    calls: int
    killed_at: str
    torn: bool
    status: int


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def _filter() -> bytes:
    """Return BPF: notify for calls that write, and for opens that may create or truncate; allow the rest."""

    def line(code: int, yes: int, no: int, value: int) -> bytes:
        return struct.pack("HBBI", code, yes, no, value)

    program = b""
    for name, argument in _FLAGS_ARGUMENT.items():
        if name in _CALLS:
            creates = os.O_CREAT | os.O_TRUNC
            program += line(_LOAD, 0, 0, 0) + line(_EQUAL, 0, 4, _CALLS[name])
            program += line(_LOAD, 0, 0, _ARGUMENTS_OFFSET + 8 * argument) + line(_ANY_BIT, 0, 1, creates)
            program += line(_RETURN, 0, 0, _RET_USER_NOTIF) + line(_RETURN, 0, 0, _RET_ALLOW)
    program += line(_LOAD, 0, 0, 0)
    for name, number in _CALLS.items():
        if name not in _FLAGS_ARGUMENT:
            program += line(_EQUAL, 0, 1, number) + line(_RETURN, 0, 0, _RET_USER_NOTIF)
    return program + line(_RETURN, 0, 0, _RET_ALLOW)


_FILTER = _filter()


def _listen() -> int:
    """Install the filter on this process; return the descriptor on which its calls are reported."""
    _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    text = ctypes.create_string_buffer(_FILTER, len(_FILTER))
    program = _Program(len(_FILTER) // 8, ctypes.cast(text, ctypes.c_void_p))
    descriptor: int = _LIBC.syscall(_SECCOMP, _SET_MODE_FILTER, _FLAG_NEW_LISTENER, ctypes.byref(program))
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "this kernel gives no seccomp listener")
    return descriptor


def run_until(action: Callable[[], None], kill_at: int, *, torn: float = 0.0) -> Ended:
    """Run `action` in a forked child; kill it at its `kill_at`-th call that writes (counted from 1), or never where that is 0.

    With `torn` between 0 and 1, a `write` at which the child dies is first made with that part of its bytes.
    """
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        _child(action, ours, theirs)
    with ours:
        theirs.close()
        _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
    if not descriptors:
        os.waitpid(pid, 0)
        raise OSError("this kernel gives no seccomp listener")
    try:
        calls, killed_at, was_torn = _supervise(descriptors[0], pid, kill_at, torn)
    finally:
        os.close(descriptors[0])
    _, status = os.waitpid(pid, 0)
    return Ended(calls, killed_at, was_torn, os.waitstatus_to_exitcode(status))


def _child(action: Callable[[], None], ours: socket.socket, theirs: socket.socket) -> None:
    try:
        ours.close()
        listener = _listen()
        socket.send_fds(theirs, [b"x"], [listener])
        os.close(listener)
        theirs.close()
        action()
    except BaseException:  # noqa: BLE001 - the child must end here, whatever it was
        traceback.print_exc(file=sys.stderr)
        os._exit(70)
    os._exit(0)


def _supervise(listener: int, pid: int, kill_at: int, torn: float) -> tuple[int, str, bool]:
    calls = 0
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    while True:
        if not poll.poll()[0][1] & select.POLLIN:
            return calls, "", False
        notification = bytearray(80)
        try:
            fcntl.ioctl(listener, _NOTIF_RECV, notification)
        except FileNotFoundError:  # the thread is gone
            continue
        number = struct.unpack_from("i", notification, 16)[0]
        calls += 1
        if calls == kill_at:
            part = torn > 0 and NAMES[number] == "write" and _write_part(notification, pid, torn)
            os.kill(pid, signal.SIGKILL)
            return calls, NAMES[number], bool(part)
        answer = struct.pack("QqiI", struct.unpack_from("Q", notification)[0], 0, 0, _CONTINUE)
        with contextlib.suppress(FileNotFoundError):
            fcntl.ioctl(listener, _NOTIF_SEND, answer)


def _write_part(notification: bytearray, pid: int, torn: float) -> bool:
    """Make part of a reported `write` on the child's own open file; return whether it was neither none nor all."""
    number, address, length = struct.unpack_from("QQQ", notification, 32)
    part = int(length * torn)
    if not 0 < part < length:
        return False
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:  # noqa: PTH123 - unbuffered, at an address
        memory.seek(address)
        data = memory.read(part)
    pidfd = os.pidfd_open(pid)
    try:
        copy = _LIBC.syscall(438, pidfd, int(number), 0)  # pidfd_getfd, the same number everywhere
    finally:
        os.close(pidfd)
    if copy < 0:
        return False
    try:
        os.write(copy, data)
    finally:
        os.close(copy)
    return True
