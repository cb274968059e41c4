"""What a compiled kernel says of itself: the figures that a driver tells of it after loading, read from the file."""

from __future__ import annotations

import io
import struct

from warmstart.errors import CompileError

_REGISTERS = 0x2F  # EIATTR_REGCOUNT of `.nv.info`: (symbol, registers of a thread); `cuobjdump --dump-elf` names it so
_SIZED = 4  # the format of an attribute whose value has a length of its own


def registers(cubin: bytes) -> int:
    """Return the registers that a thread of a cubin's kernel takes; of several kernels, the most.

    Raises:
        CompileError: it is no cubin, or it does not say.

    """
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        section = ELFFile(io.BytesIO(cubin)).get_section_by_name(".nv.info")
        data = section.data() if section is not None else b""
        found = [value for kind, value in _attributes(data) if kind == _REGISTERS]
    except (ELFError, struct.error) as error:
        raise CompileError(f"a compiled kernel cannot be read: {error}") from error
    if not found:
        raise CompileError("a compiled kernel does not say how many registers it takes")
    return max(found)


def _attributes(data: bytes) -> list[tuple[int, int]]:
    """Return (kind, value of its symbol) of those attributes in `.nv.info` that hold a symbol and a number."""
    found, at = [], 0
    while at < len(data):
        form, kind, size = struct.unpack_from("<BBH", data, at)
        at += 4
        if form == _SIZED:
            if size == 8:
                found.append((kind, struct.unpack_from("<II", data, at)[1]))
            at += size
    return found
