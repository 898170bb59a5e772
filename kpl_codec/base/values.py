"""`Value`: the base of record classes that may get more fields in later versions. Their objects are immutable
and have slots. They are no tuples, because code that unpacks a tuple breaks when it gets another field.

A subclass lists its fields as a `typing.NamedTuple` does; those below ``_: KW_ONLY`` are given by name only.
To `dataclasses` (fields, replace, asdict), and so to pandas, it is a frozen dataclass, but it does not import
that module, which would take a quarter of the import time of a Lambda function
(tests/test_layers.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar

if TYPE_CHECKING:
    from dataclasses import KW_ONLY as KW_ONLY

    from typing_extensions import Self
    from typing_extensions import dataclass_transform as dataclass_transform
else:
    KW_ONLY = None  # `dataclasses` is not imported, see above

    def dataclass_transform(**_options):
        """For type checkers only; it does nothing at run time."""
        return lambda cls: cls


_Tuple = TypeVar("_Tuple", bound=tuple[Any, ...])


class _OfDataclass:
    """An attribute of dataclasses: `dataclasses` and `pprint` read it."""

    def __set_name__(self, _kind: type, name: str) -> None:
        self._name = name

    def __get__(self, value: object, kind: type[Value]) -> Any:
        from dataclasses import field, make_dataclass

        defaults, names = kind._defaults, kind.__match_args__
        required = names[: len(names) - len(defaults)]
        declared: list[Any] = [(name, kind.__annotations__[name]) for name in required]
        for name, default in zip(names[len(required) :], defaults, strict=True):
            declared.append((name, kind.__annotations__[name], field(default=default)))
        return getattr(make_dataclass(kind.__name__, declared, frozen=True, repr=False), self._name)


def _refuse(value: Value, name: str, *_new: object) -> NoReturn:
    raise AttributeError(
        f"{type(value).__name__} is immutable: its method replace makes another", name=name, obj=value
    )


@dataclass_transform(frozen_default=True)
class _Kind(type):
    """Makes two classes for a subclass of Value: a base with slots that can be set, and on it the class that
    users see. ``storage``: a compiled function that makes the base from the names of the fields.
    ``from_int``: a field that its constructor takes as a number, too, and the function that makes the field's
    value of that."""

    def __new__(
        cls,
        name: str,
        bases: tuple[type, ...],
        body: dict[str, Any],
        storage: Any = None,
        from_int: tuple[str, Callable[[int], Any]] | None = None,
    ) -> _Kind:
        if not bases:
            return super().__new__(cls, name, bases, body)
        if bases != (Value,):
            raise TypeError(f"{bases[0].__name__} cannot be subclassed: it may get more fields")
        annotations = body.get("__annotations__")
        if annotations is None:  # from Python 3.14 on
            annotations = body["__annotate_func__"](1)
        listed = [name for name, kind in annotations.items() if "ClassVar" not in str(kind)]
        positional = listed.index("_") if "_" in listed else len(listed)
        annotations.pop("_", None)
        names = tuple(name for name in listed if name != "_")
        defaults = tuple(body.pop(name) for name in names if name in body)
        if storage is None:
            setters = {"__setattr__": object.__setattr__, "__delattr__": object.__delattr__}
            below = super().__new__(cls, f"_{name}", bases, {"__slots__": names, **setters})
            bases, scope = (below,), {"new": object.__new__, "below": below}
            steps = [
                "self = new(below)",
                *(f"self.{name} = {name}" for name in names),
                "self.__class__ = cls",
            ]
        else:
            below = storage(names)
            bases, scope = (below, Value), {"new": below._new}
            steps = [f"self = new(cls, ({', '.join(names)},))"]
        body["_new_code"] = scope, steps
        given = ", ".join(names[:positional] + (("*", *names[positional:]) if names[positional:] else ()))
        lines = [*steps, "return self"]
        if from_int is not None:
            field, scope["of_number"] = from_int
            lines.insert(0, f"if type({field}) is int: {field} = of_number({field})")
        body["__new__"] = _function(f"__new__(cls, {given})", lines, scope)
        by_name = dict(zip(reversed(names), reversed(defaults), strict=False))
        body["__new__"].__defaults__ = tuple(by_name[name] for name in names[:positional] if name in by_name)
        body["__new__"].__kwdefaults__ = {
            name: by_name[name] for name in names[positional:] if name in by_name
        }
        body["__new__"].__qualname__ = name  # so that errors name the class
        body |= {
            "__slots__": (),
            "__match_args__": names,
            "_defaults": defaults,
            "_values": attrgetter(*names),
        }
        return super().__new__(cls, name, bases, {**body, "__setattr__": _refuse, "__delattr__": _refuse})


def _function(head: str, lines: list[str], scope: dict[str, Any]) -> Any:
    functions: dict[str, Any] = {}
    exec("\n ".join([f"def {head}:", *lines]), scope, functions)
    return functions.popitem()[1]


def each(kind: type[Value], *differing: str) -> Callable[..., Iterator[Any]]:
    """A function that makes many values of ``kind``. Its arguments: the class, an iterable for each field in
    ``differing``, and as keywords the fields that are equal in all values."""
    scope, steps = kind._new_code
    common = ", ".join(name for name in kind.__match_args__ if name not in differing)
    lines = [
        f"for {', '.join(differing)}, in zip({', '.join(differing)}):",
        *(f" {line}" for line in steps),
        " yield self",
    ]
    return _function(f"each(cls, {', '.join(differing)}, *, {common})", lines, scope)  # type: ignore[no-any-return]


class Value(metaclass=_Kind):
    """The base class. A value is equal, with an equal hash, to a value of the same class with equal fields.
    Values have no order, and are always true. It pickles by the names of its fields."""

    __slots__ = ()
    __match_args__: ClassVar[tuple[str, ...]]
    __dataclass_fields__: ClassVar[dict[str, Any]] = _OfDataclass()  # type: ignore[assignment]
    __dataclass_params__: ClassVar[Any] = _OfDataclass()
    #: Those of its last fields.
    _defaults: ClassVar[tuple[Any, ...]]
    #: Its fields, as a tuple.
    _values: ClassVar[Any]
    #: Names and lines of code for the ``__new__`` that is generated.
    _new_code: ClassVar[tuple[dict[str, Any], list[str]]]

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        equal: bool = self._values(self) == self._values(other)
        return equal

    def __hash__(self) -> int:
        return hash(self._values(self))

    def __repr__(self) -> str:
        fields = (f"{name}={value!r}" for name, value in self._fields().items())
        return f"{type(self).__name__}({', '.join(fields)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return restore, (type(self), self._fields())

    def replace(self, **changes: Any) -> Self:
        """A copy with these fields changed. Raises TypeError for a field that it does not have."""
        return type(self)(**{**self._fields(), **changes})

    __replace__ = replace  # `copy.replace` of Python 3.13

    def _fields(self) -> dict[str, Any]:
        return dict(zip(self.__match_args__, self._values(self), strict=True))


def describe_fields(**texts: str) -> Callable[[type[_Tuple]], type[_Tuple]]:
    """A decorator that sets the docstrings of a NamedTuple's fields, which ``help()`` shows. ``texts``: by
    field."""

    def describe(kind: type[_Tuple]) -> type[_Tuple]:
        for name, text in texts.items():
            getattr(kind, name).__doc__ = text
        kind.__new__.__doc__ = "Make one of its fields, in this order or by name."
        return kind

    return describe


def restore(kind: type[Value], fields: dict[str, Any]) -> Value:
    """The value in a pickle. A field that the pickle lacks gets its default."""
    return kind(**fields)
