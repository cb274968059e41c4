"""`$(VAR)` in command, args and env values, expanded exactly as the kubelet does it."""

from __future__ import annotations

from collections.abc import Mapping

from warmstart.errors import SpecError

LONGEST = 131_072
"""Linux passes no argument and no variable longer than this (MAX_ARG_STRLEN), so nothing that runs is longer."""


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Return the text with `$(NAME)` replaced by its value; `$$` gives `$`, and a reference to nothing stays as it stands.

    Values are not expanded again. `$$(NAME)` is how a spec spells a literal `$(NAME)`. Raises SpecError: the result is longer
    than Linux passes (references that double each other grow without bound).
    """
    parts: list[str] = []
    length = position = 0
    last = text.rfind(")")  # known once, so that a text of many open references is not searched again for each
    while (dollar := text.find("$", position)) >= 0 and dollar + 1 < len(text):
        parts.append(text[position:dollar])
        follows = text[dollar + 1]
        end = text.find(")", dollar + 2) if follows == "(" and last > dollar else -1
        if follows == "$":
            parts.append("$")
            position = dollar + 2
        elif end >= 0:
            name = text[dollar + 2 : end]
            value = variables.get(name, f"$({name})")
            parts.append(value)
            length += len(value)
            if length > LONGEST:
                raise SpecError(f"$({name[:60]}) expands to more than {LONGEST} characters")
            position = end + 1
        else:
            # Neither an escape nor a reference: the dollar and what follows it are plain text, and are passed over together.
            parts.append(text[dollar : dollar + 2])
            position = dollar + 2
    parts.append(text[position:])
    return _passable("".join(parts))


def _passable(text: str) -> str:
    if len(text) > LONGEST:
        raise SpecError(f"an argument or variable is longer than {LONGEST} characters, which Linux does not pass")
    return text
