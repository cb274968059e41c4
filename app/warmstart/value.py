"""Frozen values with named fields: what `dataclasses` offers, at a tenth of the time to start.

`dataclasses` imports `inspect` and compiles methods for every class: a fifth of the time that `warmstart run` has for a hit.
These classes share their methods instead. They are dataclasses to `dataclasses.replace`, `asdict` and `fields`, and to type
checkers.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import dataclasses
    from collections.abc import Callable, Mapping
    from typing import Any, ClassVar, Self, dataclass_transform
else:

    def dataclass_transform(**_told):
        """Return the class as it is: only type checkers read this mark."""
        return lambda cls: cls


MISSING: Any = object()
"""The default of a field that has none."""


class Field:
    """What a class says of one field. `metadata` is the class's own business."""

    __slots__ = ("compare", "default", "default_factory", "metadata", "name", "repr")

    def __init__(
        self, default: Any, default_factory: Any, compare: bool, repr_: bool, metadata: Mapping[str, Any] | None
    ) -> None:
        self.name = ""
        self.default = default
        self.default_factory = default_factory
        self.compare = compare
        self.repr = repr_
        self.metadata = metadata or {}


def field(
    *,
    default: Any = MISSING,
    default_factory: Callable[[], Any] = MISSING,
    compare: bool = True,
    repr: bool = True,  # noqa: A002 - the name that type checkers and readers know from dataclasses
    metadata: Mapping[str, Any] | None = None,
) -> Any:
    """Declare a field with more than a plain default."""
    return Field(default, default_factory, compare, repr, metadata)


class _AsDataclass:
    """Makes `__dataclass_fields__` when somebody asks for it, who has imported `dataclasses` already."""

    def __get__(self, _value: object, cls: type[Value]) -> dict[str, dataclasses.Field[Any]]:
        import dataclasses

        def of(found: Field) -> Any:
            kwargs: dict[str, Any] = {"compare": found.compare, "repr": found.repr, "metadata": found.metadata}
            if found.default is not MISSING:
                kwargs["default"] = found.default
            elif found.default_factory is not MISSING:
                kwargs["default_factory"] = found.default_factory
            return dataclasses.field(**kwargs)

        made = dataclasses.make_dataclass(
            cls.__name__, [(name, object, of(found)) for name, found in cls.__fields__.items()], kw_only=True
        )
        fields: dict[str, dataclasses.Field[Any]] = vars(made)["__dataclass_fields__"]
        return fields


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Value:
    """Base of frozen values: equal where class and compared fields are, hashable where those are."""

    __fields__: ClassVar[dict[str, Field]] = {}
    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]
    else:
        __dataclass_fields__ = _AsDataclass()

    __by_name__: ClassVar[bool] = False

    def __init_subclass__(cls, *, kw_only: bool = False) -> None:
        cls.__by_name__ = kw_only
        fields = dict(cls.__fields__)
        for name, annotation in cls.__annotations__.items():
            if annotation.startswith("ClassVar"):
                continue
            default = cls.__dict__.get(name, MISSING)
            found = default if isinstance(default, Field) else Field(default, MISSING, True, True, None)
            found.name = name
            fields[name] = found
            if found is default:
                if found.default is MISSING:
                    delattr(cls, name)
                else:
                    setattr(cls, name, found.default)
        cls.__fields__ = fields

    def __init__(self, *args: Any, **given: Any) -> None:
        fields = self.__fields__
        if len(args) > (0 if self.__by_name__ else len(fields)):
            raise TypeError(f"{type(self).__name__} is given too many values without a name")
        values = dict(zip(fields, args, strict=False))
        if values and not values.keys().isdisjoint(given):
            raise TypeError(f"{type(self).__name__} is given a field twice")
        values.update(given)
        if len(values) < len(fields):
            for name, found in fields.items():
                if name not in values:
                    if found.default_factory is not MISSING:
                        values[name] = found.default_factory()
                    elif found.default is not MISSING:
                        values[name] = found.default
                    else:
                        raise TypeError(f"{type(self).__name__} lacks its field {name}")
        if values.keys() != fields.keys():
            raise TypeError(f"{type(self).__name__} has no field {next(iter(values.keys() - fields.keys()))}")
        self.__dict__.update(values)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with other values in some fields."""
        return type(self)(**{**{name: self.__dict__[name] for name in self.__fields__}, **changes})

    def items(self) -> dict[str, Any]:
        """Return the fields by name, in order; what they hold is shared, not copied."""
        return {name: self.__dict__[name] for name in self.__fields__}

    def _compared(self) -> tuple[Any, ...]:
        return tuple(self.__dict__[name] for name, found in self.__fields__.items() if found.compare)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._compared() == other._compared()

    def __hash__(self) -> int:
        return hash(self._compared())

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={self.__dict__[name]!r}" for name, found in self.__fields__.items() if found.repr)
        return f"{type(self).__qualname__}({shown})"

    if not TYPE_CHECKING:

        def __setattr__(self, name, _value):
            import dataclasses

            raise dataclasses.FrozenInstanceError(f"{type(self).__name__} is frozen: its field {name} cannot be set")

        def __delattr__(self, name):
            import dataclasses

            raise dataclasses.FrozenInstanceError(f"{type(self).__name__} is frozen: its field {name} cannot be removed")
