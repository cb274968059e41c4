"""`$(VAR)` in command, args and env values, expanded exactly as the kubelet does it."""

from __future__ import annotations

from collections.abc import Mapping


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Return the text with `$(NAME)` replaced by its value; `$$` gives `$`, and a reference to nothing stays as it stands.

    Values are not expanded again. `$$(NAME)` is how a spec spells a literal `$(NAME)`.
    """
    parts: list[str] = []
    position = 0
    while (dollar := text.find("$", position)) >= 0 and dollar + 1 < len(text):
        parts.append(text[position:dollar])
        follows = text[dollar + 1]
        end = text.find(")", dollar + 2) if follows == "(" else -1
        if follows == "$":
            parts.append("$")
            position = dollar + 2
        elif end >= 0:
            name = text[dollar + 2 : end]
            parts.append(variables.get(name, f"$({name})"))
            position = end + 1
        else:
            # Neither an escape nor a reference: the dollar and what follows it are plain text, and are passed over together.
            parts.append(text[dollar : dollar + 2])
            position = dollar + 2
    parts.append(text[position:])
    return "".join(parts)
