"""Model configurations for passes that must be quick: real architectures and kernels, few and narrow layers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

EXAMPLE = Path(__file__).parents[2] / "examples" / "qwen3-0.6b" / "model"
NARROW: dict[str, Any] = {
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 4,
    "vocab_size": 2048,
}


def narrow(folder: Path, **changes: Any) -> Path:
    """Write the example model's configuration with four narrow layers and `changes` into `folder`, and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {**json.loads((EXAMPLE / "config.json").read_text()), **NARROW, **changes}
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    return folder
