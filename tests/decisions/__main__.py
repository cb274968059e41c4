"""Write docs/decisions.md, and say what of the installed vLLM has no answer yet."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from tests.decisions.known import DOCUMENT, Decisions
from tests.decisions.scan import findings

decisions = Decisions.read()
DOCUMENT.write_text(decisions.page())
spec = importlib.util.find_spec("vllm")
if spec is not None and spec.origin is not None:
    found = findings(Path(spec.origin).parent, tuple(decisions.outside))
    answered = {line for known in decisions.known for line in known.lines}
    for line in sorted(found.keys() - answered):
        print(f"no answer: {line} ({', '.join(sorted(found[line])[:3])})")
    for line in sorted(answered - found.keys()):
        print(f"gone: {line}")
    sys.exit(int(found.keys() != answered))
