"""Write `app/warmstart/podspec/options-<version>.json` from the parser of the installed vLLM, and what of its key is its own.

    python tests/unit/podspec/generate_options.py [--check]

Run it after adding a vLLM version. It needs neither a GPU nor a CPU build: vLLM's parser only wants a platform with a name.
`--check` writes nothing and exits 1 where the file differs.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path
from typing import Any

from warmstart.compiler.lines import installed

ROOM = Path(__file__).resolve().parents[3] / "app/warmstart/podspec"
PLAIN_TYPES = {"str": "str", "int": "int", "float": "float", "loads": "json", "human_readable_int": "human_int"}
NAMED_TYPES = {
    "human_readable_int_or_auto": "human_int_or_auto",
    "_compute_kwargs.<locals>.parse_dataclass": "config",
    "union_dict_and_str": "json_or_str",
    "parse_reasoning_parser": "reasoning_parser",
}
LAMBDAS = {
    "device_ids": "device_ids",
    "moe_backend": "backend",
    "linear_backend": "backend",
    "sparse_indexer_topk_backend": "backend",
}
ACTIONS = {
    "_StoreAction": "store",
    "_StoreTrueAction": "store_true",
    "_AppendAction": "append",
    "EnableDisableAction": "switch",
    "BooleanOptionalAction": "switch",
    "LoRAParserAction": "store",
    "DeprecatedLogConfigFileAction": "store",
}


def vllm_parser() -> argparse.ArgumentParser:
    """Return the parser of `vllm serve`, as a CUDA build makes it."""
    import vllm.platforms
    from vllm.platforms.interface import Platform, PlatformEnum

    class Described(Platform):
        _enum = PlatformEnum.CUDA
        device_name = device_type = "cuda"

    vllm.platforms._current_platform = Described()
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    module = importlib.import_module(installed().arg_parser)
    parser: argparse.ArgumentParser = module.make_arg_parser(FlexibleArgumentParser(prog="vllm serve"))
    return parser


def type_name(action: argparse.Action) -> tuple[str, bool]:
    """Return the class of an option's values, and whether "None" and "" mean null."""
    function: Any = action.type
    optional = False
    while getattr(function, "__qualname__", "").endswith(("._optional_type", "._parse_type")):
        optional |= function.__qualname__.endswith("._optional_type")
        cells = dict(zip(function.__code__.co_freevars, function.__closure__, strict=True))
        function = cells["return_type"].cell_contents
    if function is None:
        return "str", optional
    if "<lambda>" in function.__qualname__:
        return LAMBDAS[action.dest], optional
    return NAMED_TYPES.get(function.__qualname__) or PLAIN_TYPES[function.__qualname__], optional


def is_plain(value: object) -> bool:
    """Say whether JSON gives the value back as it was."""
    if isinstance(value, list):
        return all(is_plain(item) for item in value)
    return value is None or type(value) in (bool, int, float, str) or value == {}


def describe(action: argparse.Action, strings: list[str]) -> dict[str, Any]:
    """Return one option as the data file holds it."""
    kind, optional = type_name(action)
    option: dict[str, Any] = {"dest": action.dest, "strings": strings, "action": ACTIONS[type(action).__name__], "type": kind}
    if action.nargs is not None and action.nargs != 0:
        option["nargs"] = action.nargs
    if optional:
        option["optional"] = True
    if action.choices is not None:
        option["choices"] = list(action.choices)
    if action.const is not None and option["action"] == "store":
        option["const"] = action.const
    if option["action"] == "switch":
        # argparse's own switch knows its negative spellings by how they begin, vLLM's by name.
        negative = getattr(action, "negative_option_strings", {name for name in strings if name.startswith("--no-")})
        option["negative"] = sorted(set(strings) & negative)
    if is_plain(action.default) and action.default != argparse.SUPPRESS:
        option["default"] = action.default
    return option


def own_key() -> dict[str, Any]:
    """Return what this version keeps otherwise than the newest: variables that only it hashes, and where graphs lie."""
    from vllm import envs

    from warmstart.identity.environment import IGNORED, PER_POD, counts

    hashed = sorted(name for name in envs.compile_factors() if name not in PER_POD and (name in IGNORED or not counts(name)))
    found = {"hashed": hashed, "whole_artifacts": bool(envs.use_mega_aot_artifact())}
    return {name: value for name, value in found.items() if value not in ([], True)}


def table() -> dict[str, Any]:
    """Return the whole data file."""
    import vllm

    parser = vllm_parser()
    strings: dict[int, list[str]] = {}
    for string, action in parser._option_string_actions.items():
        strings.setdefault(id(action), []).append(string)
    actions = [action for action in parser._actions if action.dest != "help" and id(action) in strings]
    model = next(action for action in actions if action.dest == "model")
    return {
        "vllm": vllm.__version__,
        "default_model": model.default,
        **own_key(),
        "options": [describe(action, strings[id(action)]) for action in actions],
    }


def main() -> int:
    """Write the file, or compare it."""
    found = table()
    lines = ",\n".join("  " + json.dumps(option) for option in found.pop("options"))
    head = json.dumps(found)[:-1]
    text = f'{head}, "options": [\n{lines}\n]}}\n'
    path = ROOM / f"options-{found['vllm']}.json"
    if "--check" in sys.argv:
        return int(path.read_text(encoding="utf-8") != text)
    path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
