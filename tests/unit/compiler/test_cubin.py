"""Registers are read from a compiled kernel as the driver would tell them; ptxas itself says how many it gave."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path

import pytest

from warmstart.compiler.cubin import registers
from warmstart.errors import CompileError

# Sums `count` values that are loaded before: the more, the more registers are alive at once.
_PTX = """.version 8.0
.target {target}
.address_size 64
.visible .entry sum(.param .u64 from) {{
.reg .b64 %a<2>; .reg .f32 %f<{count}>;
ld.param.u64 %a0, [from];
{loads}
bar.sync 0;
{adds}
st.global.f32 [%a0], %f0;
ret; }}
"""


def assembled(folder: Path, target: str, count: int) -> tuple[bytes, int]:
    """Return a cubin, and the registers that ptxas says it takes."""
    spec = importlib.util.find_spec("triton")
    assert spec is not None
    assert spec.origin is not None
    ptxas = Path(spec.origin).parent / "backends" / "nvidia" / "bin" / "ptxas"
    loads = "\n".join(f"ld.volatile.global.f32 %f{i}, [%a0+{4 * i}];" for i in range(count))
    adds = "\n".join(f"add.f32 %f0, %f0, %f{i};" for i in range(1, count))
    source, out = folder / "sum.ptx", folder / "sum.cubin"
    source.write_text(_PTX.format(target=target, count=count, loads=loads, adds=adds))
    command = [str(ptxas), "-v", f"-arch={target}", str(source), "-o", str(out)]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    return out.read_bytes(), int(re.findall(r"Used (\d+) registers", said.stdout + said.stderr)[0])


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90"])
def test_the_registers_are_those_that_ptxas_gave(target: str, tmp_path: Path) -> None:
    """Few and many."""
    few, many = (assembled(tmp_path, target, count) for count in (4, 90))
    assert (registers(few[0]), registers(many[0])) == (few[1], many[1])
    assert many[1] > few[1]


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"no cubin at all" * 9])
def test_what_is_no_cubin_is_refused(data: bytes) -> None:
    """In one line, not by a traceback."""
    with pytest.raises(CompileError):
        registers(data)
