"""The options of `vllm serve`, read as vLLM's own parser reads them, without importing vLLM.

The options are data, one file per vLLM version, written by `tests/unit/podspec/generate_options.py` from the installed
parser. The standard library's argparse does the parsing here as it does there; `spelling.py` does what vLLM does to a list
before that.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from warmstart.errors import SpecError, UnsupportedError, shorten
from warmstart.pattern import pattern
from warmstart.podspec import values
from warmstart.podspec.neutral import NEUTRAL
from warmstart.podspec.spelling import folded
from warmstart.value import Value

DEFAULT_VERSION = "0.33.0"
VERSIONS = (DEFAULT_VERSION, "0.32.0", "0.26.0")

_OPEN_VALUE = pattern("[$`\ue000]")
"""In a value that is not known here: the spec's own spelling of it, or a mark of `unknowns`."""

_MOST_WORDS = 5000
UNSTATED: Any = object()
"""The default of an option whose default is no JSON value."""
JSON = Any
"""A JSON value: None, bool, int, float, str, list or dict of those."""


class Option(Value):
    """One option, as the data file holds it. `default` is UNSTATED where vLLM's default is no JSON value."""

    dest: str
    strings: tuple[str, ...]
    action: str
    type: str
    nargs: str | int | None = None
    optional: bool = False
    choices: tuple[Any, ...] | None = None
    const: Any = None
    negative: tuple[str, ...] = ()
    default: Any = UNSTATED


class Table:
    """All options of one vLLM version. A server is given a few of the hundreds, so each is made when it is asked for.

    `hashed` are environment variables that this version puts into its own key, and newer ones do not. `whole_artifacts` says
    whether its AOT artifacts hold their graphs, where VLLM_USE_MEGA_AOT_ARTIFACT does not say otherwise.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.vllm: str = document["vllm"]
        self.default_model: str = document["default_model"]
        self.hashed: frozenset[str] = frozenset(document.get("hashed", ()))
        self.whole_artifacts: bool = document.get("whole_artifacts", True)
        self._raw: dict[str, dict[str, Any]] = {raw["dest"]: raw for raw in document["options"]}
        self.destinations: dict[str, str] = {text: dest for dest, raw in self._raw.items() for text in raw["strings"]}
        """Every spelling of an option, and vLLM's own name of that."""
        self._short = frozenset(dest for text, dest in self.destinations.items() if not text.startswith("--"))

    @property
    def options(self) -> tuple[Option, ...]:
        """Every option, in vLLM's order."""
        return tuple(map(self.option, self._raw))

    @functools.cache  # noqa: B019 - a table lives as long as the process
    def option(self, dest: str) -> Option:
        """Return the option of that name."""
        lists = {name: tuple(value) for name, value in self._raw[dest].items() if isinstance(value, list)}
        return Option(**{**self._raw[dest], **lists})

    def near(self, words: Sequence[str]) -> tuple[str, ...]:
        """Return the names of all options that argparse could mean by any of these words: spelled so, or beginning so.

        Where a word has one dash, so are all options with one: argparse reads `-x1` and `-xy` in several ways.
        """
        spelled = {word.partition("=")[0] for word in words if word.startswith("--")}
        found = {self.destinations[word] for word in spelled & self.destinations.keys()}
        if any(word[:1] == "-" != word[1:2] for word in words):
            found |= self._short
        begun = tuple(spelled - self.destinations.keys())
        if begun:
            found |= {dest for text, dest in self.destinations.items() if text.startswith(begun)}
        return tuple(sorted(found))


class Split(NamedTuple):
    """An argument list, taken apart: the model it names (None where it names none), and the rest, as it was spelled."""

    model: str | None
    args: tuple[str, ...]


def table(version: str = DEFAULT_VERSION) -> Table:
    """Return the options of a vLLM version. Raises UnsupportedError where this package holds no table for it.

    A patch release has the options of its line, and so has a build for another CUDA ("0.33.0+cu129").
    """
    of_line = _of_line(version)
    if of_line is None:
        raise UnsupportedError(
            f"the options of vLLM {shorten(version, 40)} are not known", hint=f"supported: {', '.join(VERSIONS)}"
        )
    return _read(of_line)


@functools.cache
def _read(version: str) -> Table:
    return Table(json.loads(Path(__file__).with_name(f"options-{version}.json").read_bytes()))


def _of_line(version: str) -> str | None:
    """Return the version whose table holds for `version`: its own, else that of a release of the same line."""
    public = version.partition("+")[0]
    line = public.rpartition(".")[0]
    return public if public in VERSIONS else next((one for one in VERSIONS if one.rpartition(".")[0] == line), None)


def known(version: str) -> str:
    """Return the version whose options to read arguments by: `version`, or the default where there is no table for it."""
    return version if _of_line(version) else DEFAULT_VERSION


class _Switch(argparse.Action):
    """`--enable-x`/`--disable-x` and `--x`/`--no-x`: which spelling was used decides the value."""

    def __init__(self, *, negative: tuple[str, ...], **kwargs: Any) -> None:
        super().__init__(nargs=0, **kwargs)
        self.negative = negative

    def __call__(
        self, _parser: object, namespace: argparse.Namespace, _values: object, option_string: str | None = None
    ) -> None:
        setattr(namespace, self.dest, option_string not in self.negative)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise SpecError(f"vLLM's arguments do not parse: {shorten(message, 200)}")


def _formatter(prog: str) -> argparse.HelpFormatter:
    """Return what argparse checks each option's form with: of a fixed width, which it would ask the terminal for each time."""
    return argparse.HelpFormatter(prog, width=100)


@functools.lru_cache(maxsize=16)
def _parser(version: str, destinations: tuple[str, ...]) -> _Parser:
    """Return a parser that knows those options: making all of them takes longer than all of a hit's other Python code."""
    parser = _Parser(prog="vllm serve", add_help=False, argument_default=argparse.SUPPRESS, formatter_class=_formatter)
    for option in map(table(version).option, destinations):
        kwargs: dict[str, Any] = {"dest": option.dest, "default": argparse.SUPPRESS}
        if option.action == "switch":
            kwargs |= {"action": _Switch, "negative": option.negative}
        elif option.action == "store_true":
            kwargs |= {"action": "store_true"}
        else:
            kwargs |= {"action": option.action, "type": _reader(option)}
            if option.nargs is not None:
                kwargs["nargs"] = option.nargs
            if option.const is not None:
                kwargs["const"] = option.const
        parser.add_argument(*option.strings, **kwargs)
    return parser


def _reader(option: Option) -> Callable[[str], Any]:
    """Return the function that turns one word into a value; it is named for argparse's messages."""
    read = values.READERS[option.type]

    def reader(text: str) -> Any:
        try:
            value = None if option.optional and text in ("", "None") else read(text)
        except (ValueError, RecursionError) as error:
            if _OPEN_VALUE.search(text):
                return text  # a value that only the running pod knows; vLLM would refuse this spelling of it
            raise argparse.ArgumentTypeError(f"{shorten(text, 60)!r} is no {values.NAMES[option.type]}") from error
        if option.choices is None or value in option.choices or _OPEN_VALUE.search(text):
            return value
        listed = ", ".join(str(choice) for choice in option.choices if choice is not None)
        raise argparse.ArgumentTypeError(f"{shorten(text, 60)!r} is none of {listed}")

    return reader


def _parse(args: Sequence[str], version: str) -> tuple[dict[str, Any], list[str]]:
    """Return the options that were given, by destination, and the words that belong to none. Raises SpecError."""
    if len(args) > _MOST_WORDS:
        raise SpecError(f"vLLM is given {len(args)} words, more than {_MOST_WORDS}")
    words = folded(args)
    namespace, rest = _parser(version, table(version).near(words)).parse_known_args(words)
    unknown = next((word for word in rest if word.startswith("-") and word != "-"), None)
    if unknown is not None:
        _refuse(unknown, version)
    return vars(namespace), rest


def _refuse(word: str, version: str) -> NoReturn:
    import difflib  # 4 ms that only a wrong name needs

    name = word.split("=", 1)[0].split(".", 1)[0]
    known = list(table(version).destinations)
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    raise SpecError(
        f"vLLM {version} has no option {shorten(name, 60)}",
        hint=f"did you mean {' or '.join(near)}?" if near else "`vllm serve --help=all` lists all of them",
    )


def split(args: Sequence[str], version: str = DEFAULT_VERSION, *, serve: bool = True) -> Split:
    """Take the model out of the arguments that follow `vllm serve` (or, with `serve` false, the module `api_server`).

    `--config` must be merged already (`configfile.merge`). For `vllm serve` a positional wins over `--model`, and the first
    `--model` over later ones; the module ignores a positional and takes the last `--model`. The model is None where the list
    names none.

    Raises SpecError: unknown option, value of the wrong type, option without value, more than one positional.
    """
    _, rest = _parse(args, version)
    positional = _only(rest)
    kept, named = _without_model(args)
    if positional is None:
        return Split((named[0] if serve else named[-1]) if named else None, tuple(kept))
    if not serve and not named:
        raise SpecError(
            f"the module vllm.entrypoints.openai.api_server ignores the positional model {shorten(positional, 80)!r}",
            hint="name the model with --model, or start `vllm serve`",
        )
    return Split(positional if serve else named[-1], _without_positional(kept, positional, version))


def _only(words: Sequence[str]) -> str | None:
    if len(words) > 1:
        raise SpecError(
            f"vLLM takes one model, and these words belong to no option: {shorten(' '.join(words), 120)}",
            hint="name the model once, first, and quote values that contain spaces",
        )
    return words[0] if words else None


def _without_model(args: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the list without `--model`, and the models it named."""
    kept: list[str] = []
    named: list[str] = []
    words = iter(args)
    for word in words:
        if word == "--model":
            named.append(next(words))
        elif word.startswith("--model="):
            named.append(word.removeprefix("--model="))
        else:
            kept.append(word)
    return kept, named


def _without_positional(args: list[str], positional: str, version: str) -> tuple[str, ...]:
    """Return the list without the positional, wherever that stands: it may also be some option's value."""
    # A value that is not known fits every option, so that the parser can be asked where each copy of the word goes.
    marked = [f"\ue000{i}\ue001" if word == positional and args[i - 1 : i] != ["-O"] else word for i, word in enumerate(args)]
    _, rest = _parse(marked, version)
    if len(rest) == 1 and rest[0] in marked:
        spot = marked.index(rest[0])
        return (*args[:spot], *args[spot + 1 :])
    raise SpecError(f"the model {shorten(positional, 80)!r} cannot be told from the options", hint="name it first")


def canonical(args: Sequence[str], version: str = DEFAULT_VERSION) -> dict[str, JSON]:
    """Return the options given, by vLLM's own names, each in one spelling: equal for lists that vLLM reads alike.

    Aliases, abbreviations, underscores, `=`, order, repetition, human-readable numbers and dotted options are folded as
    vLLM's parser folds them; a value that equals the parser's default is left out. (Not for a patch release that is read by
    its line's table: its defaults may be others.) Keys are sorted. Values that `split` would refuse raise SpecError.
    """
    given, rest = _parse(args, version)
    if rest:
        raise SpecError(f"these words belong to no option: {shorten(' '.join(rest), 120)}")
    held = table(version)
    exact = version.partition("+")[0] == held.vllm
    try:
        return {
            dest: _finite(given[dest]) for dest in sorted(given) if not (exact and _is_default(held.option(dest), given[dest]))
        }
    except RecursionError:
        raise SpecError("the JSON value of an option is nested too deep") from None


def _finite(value: JSON) -> JSON:
    """Return a value that JSON can hold: vLLM reads "nan" and "inf" as numbers, which JSON has not."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return {key: _finite(item) for key, item in value.items()} if isinstance(value, dict) else value


def _is_default(option: Option, value: JSON) -> bool:
    if option.default is UNSTATED or isinstance(value, bool) != isinstance(option.default, bool):
        return False
    return bool(value == option.default)


def compile_factors(args: Sequence[str], version: str = DEFAULT_VERSION) -> dict[str, JSON]:
    """Return `canonical(args)` without what no artifact depends on (`neutral.NEUTRAL`): what belongs in a key."""
    return {dest: value for dest, value in canonical(args, version).items() if dest not in NEUTRAL}


def destination(word: str, version: str = DEFAULT_VERSION) -> str | None:
    """Return vLLM's own name of the option that a word spells: `--max_model_len=1` → `max_model_len`; None for no option."""
    name = folded([word.split("=", 1)[0].split(".", 1)[0]])[0] if word.startswith("-") else word
    return table(version).destinations.get(name)
