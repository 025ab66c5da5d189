"""Records in Python: a frozen dataclass for each declaration, which JAX knows as a structure."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import make_dataclass
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from difflang.api.enums import Enums
from difflang.check.modules import Module
from difflang.check.types import RecordType
from difflang.syntax import tree

MARK = "_difflang_"


class Shape(NamedTuple):
    """What a pickled record says of its class."""

    module: str
    name: str
    fields: tuple[str, ...]
    static: tuple[str, ...]


CLASSES: WeakValueDictionary[Shape, type] = WeakValueDictionary()
"""The latest class of each shape."""


def record_class(shape: Shape, space: dict[str, Any]) -> type:
    """A frozen dataclass that JAX takes apart, and that pickles by its shape, as NumPy arrays: JAX may narrow f64."""
    from difflang.runtime.trees import on_host, register_record

    def values(record: Any) -> tuple[Any, ...]:
        return tuple([getattr(record, name) for name in shape.fields])

    ways = {
        "__reduce__": lambda record: (restored, (shape, on_host(values(record)))),
        "__copy__": lambda record: type(record)(*values(record)),
        "__deepcopy__": lambda record, memo: type(record)(*deepcopy(values(record), memo)),
    }
    fields = [(n, Any) for n in shape.fields]
    cls = make_dataclass(shape.name, fields, frozen=True, eq=False, namespace={**space, **ways})
    cls.__module__ = shape.module
    register_record(cls, [n for n in shape.fields if n not in shape.static], shape.static)
    CLASSES[shape] = cls
    return cls


def restored(shape: Shape, values: tuple[Any, ...]) -> Any:
    """A record out of a pickle: of the class of a loaded module, or of one that only has its fields."""
    cls = CLASSES.get(shape) or UNLOADED.setdefault(shape, record_class(shape, {}))
    return cls(*values)


UNLOADED: dict[Shape, type] = {}
"""Classes of pickled records whose modules are not loaded."""


class Records:
    """The classes of a module's records and of their tangents."""

    def __init__(self, module: Module, name: str) -> None:
        self.module, self.name = module, name
        self.known: dict[Any, type] = {}
        self.enums = Enums(name)

    def join(self, other: Records) -> None:
        """Have the classes of another one: declarations that both know stand for the same class."""
        self.known, self.enums = other.known, other.enums

    def of(self, type: RecordType) -> type:
        """The class for values of this type. Tangents have the fields that have a tangent."""
        decl = type.decl if type.decl in self.module.records.homes else None
        return self.find(decl, type.decl.name, type.names, type.tangent)

    def declared(self, decl: tree.Record) -> type:
        return self.find(decl, decl.name, tuple(f.name for f in decl.fields), False)

    def find(self, decl: tree.Record | None, name: str, names: tuple[str, ...], tangent: bool) -> type:
        if tangent and decl is not None and names == tuple(f.name for f in decl.fields):
            tangent = False  # every field has a tangent: a change is held as a value is, as optimizers expect
        key = (decl, name, names, tangent)
        if key not in self.known:
            self.known.setdefault(key, self.make(decl, name, names, tangent))
        return self.known[key]

    def make(self, decl: tree.Record | None, name: str, names: tuple[str, ...], tangent: bool) -> type:
        shown = f"D_{name}" if tangent and decl is not None else name
        written = {f.name: f for f in decl.fields} if decl is not None else {}
        space: dict[str, Any] = {
            "__doc__": decl.doc if decl is not None and not tangent else None,
            MARK: (decl, tangent),
        }
        if tangent and decl is not None:
            space["__doc__"] = f"How a small change of `{name}` is given: the fields that have a tangent."
        static = tuple([n for n in names if n in written and is_text(written[n].type)])
        return record_class(Shape(self.name, shown, names, static), space)


def is_text(written: tree.TypeExpr | None) -> bool:
    return isinstance(written, tree.TypeName) and written.path == ("str",)


def declaration(value: Any) -> tuple[tree.Record | None, bool] | None:
    """The record that a value of one of these classes is of, and whether it is a tangent."""
    return getattr(type(value), MARK, None)
