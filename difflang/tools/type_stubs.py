"""Python type stubs (`.pyi`) of a checked file, for type checkers.

A record is a frozen dataclass, a variant of an enum a dataclass below its enum. Each function has a class of its own,
so that its members keep its parameters: `grad` of it takes the same arguments and returns a parameter's type. Sizes and
element types have no Python type: an array is `jax.Array` as a result, and any array-like as an argument.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from keyword import iskeyword

from msgspec import Struct

from difflang.driver.checked_program import CheckedProgram
from difflang.elaborate.calls.signatures import is_dim
from difflang.ir.tensor_types import DTYPES, Tensor
from difflang.syntax import tree
from difflang.tools.emit import transitive_effects, typed_signature
from difflang.types.dtype_variables import DTYPE_BOUNDS
from difflang.types.language_types import LangType, RecordType, SumType, TextType, TupleType, VariantType, array_axes
from difflang.types.module_scope import ModuleScope

STUB_HEADER = "# Written by `difflang stubs`"
STUB_IMPORTS = """
import typing as _t
from collections.abc import Iterator as _Iterator
from collections.abc import Mapping as _Mapping
from collections.abc import Sequence as _Sequence
from dataclasses import dataclass as _dataclass

from difflang import Function as _Function
from jax import Array as _Array
from jax.typing import ArrayLike as _ArrayLike

_R = _t.TypeVar("_R")
"""
INDENT = "    "
WRT = "wrt: int | str | _Sequence[int | str] = 0, *more: int | str"
AXES = "int | _Sequence[int | None] | _Mapping[str, int | None]"
SLOPES = ("jacobian", "jacfwd", "jacrev", "hessian", "deriv")


def generate_stub(checked: CheckedProgram, source: str) -> str:
    """The stub of a file called `source`, including declarations that it imports from other files of the program."""
    body = "\n".join([*ModuleStub(checked, checked.module, "").lines(), ""])
    needed = [line for line in STUB_IMPORTS.split("\n") if not line or imported_name(line) in body]
    return "\n".join([f"{STUB_HEADER} from {source}: do not edit.", *needed, body])


def imported_name(line: str) -> str:
    """The name that a line at the head of a stub declares."""
    return line.split(" as ")[-1].split(" = ")[0].split(":")[0]


class ModuleStub(Struct, frozen=True, eq=False):
    """The stub of one module of a program; `prefix` qualifies its names, as in `model.`, or is empty."""

    checked: CheckedProgram
    module: ModuleScope
    prefix: str

    def lines(self) -> list[str]:
        module = self.module
        found = [*self.imports()]
        for name, record in module.records.items():
            if module.declaring_module(record) is module and "." not in name and is_python_name(name):
                found += self.record(record) if isinstance(record, tree.Record) else self.enum(record)
        for name, decl in module.fns.items():
            if not decl.host and is_python_name(name):
                found += self.function(decl)
        return found

    # ---- Other modules

    def imports(self) -> Iterator[str]:
        """The imports: a class for each file of the program, and aliases for names imported from it."""
        for name, other in self.module.modules.items():
            if other in self.program_modules:
                yield from (
                    "",
                    f"class {name}:",
                    *indent_lines(ModuleStub(self.checked, other, f"{self.prefix}{name}.").lines()),
                )
        named: dict[ModuleScope, str] = {m: n for n, m in self.module.modules.items() if m in self.program_modules}
        for name, meant in self.module.imported.items():
            other = meant.module
            if other in self.program_modules and not exports_name(other, meant.name):
                continue
            if other not in self.program_modules:
                yield f"{name}: _t.Any"
                continue
            if other not in named:
                named[other] = f"_{other.name}" if other.name.isidentifier() else f"_module{len(named)}"
                inner = ModuleStub(self.checked, other, f"{self.prefix}{named[other]}.").lines()
                yield from ("", f"class {named[other]}:", *indent_lines(inner))
            yield f"{name} = {self.prefix}{named[other]}.{name}"

    @property
    def program_modules(self) -> set[ModuleScope]:
        """The files of the program, without the library."""
        return {file.module for file in self.checked.imported if not file.library}

    # ---- Records and enums

    def record(self, decl: tree.Record) -> list[str]:
        """A class of the fields, and a class of its tangent if that differs."""
        generics = generic_bounds(decl.generics)
        lines = ["", *self.made(decl.name, "", decl.fields, generics, decl.span.text, decl.doc)]
        lines += [f"{INDENT}{line}" for line in item_methods(decl)]
        moving = [f for f in decl.fields if self.moves(f.type, generics)]
        kinds = [(self.tangent_class(f.type, generics), self.returned_type(f.type, generics)) for f in decl.fields]
        if len(moving) < len(decl.fields) or any(tangent != own for tangent, own in kinds):
            head = f"class D_{decl.name}:"
            body = [f"{f.name}: {self.tangent_class(f.type, generics)}" for f in moving if is_python_name(f.name)]
            lines += ["", "@_t.type_check_only", head, *[f"{INDENT}{line}" for line in body or ["..."]]]
        return lines

    def enum(self, decl: tree.Enum) -> list[str]:
        lines = ["", f"class {decl.name}:", *docstring(decl.span.text, decl.doc)]
        for variant in decl.variants:
            if is_python_name(variant.name):
                made = self.made(
                    variant.name, decl.name, variant.fields, generic_bounds(decl.generics), variant.span.text, None
                )
                lines += ["", *made]
        return lines

    def made(
        self, name: str, base: str, fields: Sequence[tree.Field], generics: Bounds, shown: str, doc: str | None
    ) -> list[str]:
        """A frozen dataclass whose constructor also takes NumPy arrays and numbers."""
        head = f"class {name}({base}):" if base else f"class {name}:"
        there = [f for f in fields if is_python_name(f.name)]
        attributes = [f"{f.name}: {self.returned_type(f.type, generics)}" for f in there]
        taken = "".join(f", {f.name}: {self.accepted_type(f.type, generics)}" for f in there)
        me = "self" if all(f.name != "self" for f in there) else "_self"
        init = f"def __init__({me}{taken}) -> None: ..."
        return ["@_dataclass(frozen=True, init=False, eq=False)", head, *docstring(shown, doc),
                *[f"{INDENT}{line}" for line in (*attributes, init)]]  # fmt: skip

    # ---- Functions

    def function(self, decl: tree.Fn) -> list[str]:
        """The class of a function, generic in its result: its derivatives share the parameters but not the result."""
        generics, name = generic_bounds(decl.generics), f"_{decl.name}_"
        took = self.parameters(decl, generics)
        body = [f"def __call__(self{took}) -> _R: ...", f"def interpret(self{took}) -> _t.Any: ..."]
        body += self.derivatives(decl, generics, name)
        result = self.result(decl, generics)
        return [
            "", f"class {name}(_Function, _t.Generic[_R]):", *docstring(typed_signature(self.checked, decl), decl.doc),
            *[f"{INDENT}{line}" for line in body], "", f"{decl.name}: {self.prefix}{name}[{result}]",
        ]  # fmt: skip

    def parameters(self, decl: tree.Fn, generics: Bounds) -> str:
        """The parameters as in `def`. Positional only if a name is not valid in Python or clashes with `self`."""
        shown = [(p.name, self.accepted_type(p.type, generics), p.default is not None) for p in decl.params]
        named = all(is_python_name(name) and name != "self" for name, _, _ in shown)
        seen, parts = False, list[str]()
        for i, (name, type, optional) in enumerate(shown):
            seen = seen or all(o for _, _, o in shown[i:])
            parts.append(f"{name if named else f'_{i}'}: {type}" + (" = ..." if optional and seen else ""))
        if not named:
            parts.append("/")
        if "rand" in transitive_effects(self.checked, decl) and "key" not in [n for n, _, _ in shown]:
            parts += ["*", "key: _ArrayLike | None = None"]
        return "".join(f", {part}" for part in parts)

    def derivatives(self, decl: tree.Fn, generics: Bounds, name: str) -> Iterator[str]:
        """The members that return functions of the same parameters."""
        mine = f"{self.prefix}{name}"
        places = [(i, p.name, self.tangent_class(p.type, generics)) for i, p in enumerate(decl.params)]
        moving = [(i, n, t) for i, n, t in places if t]
        for member, gives in (("grad", "{}"), ("value_and_grad", "tuple[_R, {}]")):
            for i, n, type in moving:
                wrt = f'_t.Literal[{i}, "{n}"]' + (" = 0" if i == 0 else "")
                # One overload per parameter, since the gradient's type depends on it.
                yield "@_t.overload"
                yield f"def {member}(self, wrt: {wrt}) -> {mine}[{gives.format(type)}]: ..."
            yield from ("@_t.overload",) if moving else ()
            unknown = gives.format("_t.Any")
            yield f"def {member}(self, {WRT}) -> {mine}[{unknown}]: ..."
        for member in ("vjp", "linearize"):
            yield f"def {member}(self, {WRT}) -> {mine}[tuple[_R, _Function]]: ..."
        for member in SLOPES:
            yield f"def {member}(self, wrt: int | str = 0) -> {mine}[_t.Any]: ..."
        yield f"def vmap(self, in_axes: {AXES} = 0, out_axes: int | _Sequence[int] = 0) -> {mine}[_R]: ..."
        # These take tangents too, and binding a `dim` parameter changes the signature.
        for member in ("jvp", "hvp"):
            yield f"def {member}(self, {WRT}) -> _Function: ..."
        yield "def jet(self, order: int, wrt: int | str = 0) -> _Function: ..."
        bound = "_Function" if any(is_dim(p.type) for p in decl.params) else f"{mine}[_R]"
        yield f"def bind(self, **dims: int) -> {bound}: ..."

    def result(self, decl: tree.Fn, generics: Bounds) -> str:
        if decl.result is not None:
            return self.returned_type(decl.result, generics)
        found = self.checked.session.definition_results.get(decl)
        return self.inferred_type(found.type) if found is not None else "_t.Any"

    # ---- Types

    def accepted_type(self, written: tree.TypeExpr | None, generics: Bounds) -> str:
        """The Python type that an argument of a written type may have."""
        if written is not None and (found := self.array_parts(written, generics)) is not None:
            item, axes = self.accepted_type(found[0], generics), len(found[1])
            return f"{item} | _Sequence[{item if axes == 1 else '_t.Any'}]" if item != "_t.Any" else item
        return self.type_text(written, generics, "_ArrayLike")

    def returned_type(self, written: tree.TypeExpr | None, generics: Bounds) -> str:
        """The Python type of a result of a written type."""
        return self.type_text(written, generics, "_Array")

    def array_parts(self, written: tree.TypeExpr, generics: Bounds) -> ItemArray | None:
        """The item type and the axes of an array of records, enums or texts; None for another type."""
        match written:
            case tree.TypeArray(item=item, axes=axes):
                return item, axes
            case tree.TypeApply(path=("str",), args=axes):
                return tree.TypeName(written.span, written.path), axes
            case tree.TypeApply(path=path, args=axes) if ".".join(path) not in generics:
                decl = self.module.records.get(".".join(path))
                return None if decl is None or decl.generics else (tree.TypeName(written.span, path), axes)
            case _:
                return None

    def type_text(self, written: tree.TypeExpr | None, generics: Bounds, array: str) -> str:
        if written is not None and (found := self.array_parts(written, generics)) is not None:
            # A record's class holds stacked arrays. An array of enums has a class of its own, one of texts is a tuple.
            item = self.type_text(found[0], generics, array)
            return "_t.Any" if item == "str" or self.is_enum(found[0]) else item
        match written:
            case tree.TypeTuple(items=(only,)):
                return self.type_text(only, generics, array)
            case tree.TypeTuple(items=items):
                return f"tuple[{', '.join(self.type_text(t, generics, array) for t in items) or '()'}]"
            case tree.TypeFn():
                return "_Function"
            case tree.TypeApply(path=(name,)) if name in generics and generics[name] not in DTYPE_BOUNDS:
                return "_t.Any"  # an array of values of any type
            case tree.TypeName(path=path) | tree.TypeApply(path=path):
                return self.named_type(".".join(path), generics, array)
            case _:
                return "_t.Any"

    def named_type(self, name: str, generics: Bounds, array: str) -> str:
        if name in generics:
            return "_t.Any" if generics[name] == "vec" else array
        if name in DTYPES or name == "key":
            return array
        if name in ("dim", "str"):
            return {"dim": "int", "str": "str"}[name]
        record = self.module.records.get(name)
        return self.class_name(record) if record is not None else "_t.Any"

    def is_enum(self, written: tree.TypeExpr) -> bool:
        named = isinstance(written, (tree.TypeName, tree.TypeApply))
        return named and isinstance(self.module.records.get(".".join(written.path)), tree.Enum)

    def class_name(self, record: tree.Record | tree.Enum, change: bool = False) -> str:
        """The class of a record or an enum, by its name in the stub."""
        home, name = self.module.declaring_module(record), f"{'D_' if change else ''}{record.name}"
        if not is_python_name(record.name):
            return "_t.Any"
        if home is self.module:
            return f"{self.prefix}{name}"
        known = next((n for n, m in self.module.modules.items() if m is home and m in self.program_modules), None)
        return f"{self.prefix}{known}.{name}" if known is not None else "_t.Any"

    def moves(self, written: tree.TypeExpr | None, generics: Bounds) -> bool:
        return bool(self.tangent_class(written, generics))

    def tangent_class(self, written: tree.TypeExpr | None, generics: Bounds) -> str:
        """The type of a gradient in such a value; empty if it has none."""
        if written is not None and (found := self.array_parts(written, generics)) is not None:
            return self.tangent_class(found[0], generics)
        match written:
            case tree.TypeTuple(items=(only,)):
                return self.tangent_class(only, generics)
            case tree.TypeName(path=path) | tree.TypeApply(path=path):
                name = ".".join(path)
                if name in ("dim", "str", "key") or (name in DTYPES and not DTYPES[name].differentiable):
                    return ""
                record = self.module.records.get(name) if name not in generics else None
                if record is None:
                    return self.named_type(name, generics, "_Array")
                return self.record_tangent(record)
            case _:
                return "_t.Any"

    def record_tangent(self, record: tree.Record | tree.Enum) -> str:
        """The class of a record's tangent: the record's own if every field has a tangent."""
        if isinstance(record, tree.Enum) or self.module.declaring_module(record) is not self.module:
            return "_t.Any"
        generics = generic_bounds(record.generics)
        kinds = [(self.tangent_class(f.type, generics), self.returned_type(f.type, generics)) for f in record.fields]
        if not any(change for change, _ in kinds):
            return ""
        return self.class_name(record, change=any(change != own for change, own in kinds))

    def inferred_type(self, type: LangType) -> str:
        match type:
            case Tensor():
                return "_Array"
            case TupleType(items=items):
                return f"tuple[{', '.join(map(self.inferred_type, items)) or '()'}]"
            case SumType(tag=Tensor(shape=(_, *_))):
                return "_t.Any"
            case RecordType(decl=decl) | VariantType(decl=decl):
                return self.class_name(decl) if not type.tangent else "_t.Any"
            case SumType(variants=(first, *_)):
                return self.class_name(first.decl) if not first.tangent else "_t.Any"
            case TextType() if not array_axes(type):
                return "str"
            case _:
                return "_t.Any"


Bounds = dict[str, str | None]
ItemArray = tuple[tree.TypeExpr, tuple[tree.TypeExpr | tree.AnyShape, ...]]


def item_methods(decl: tree.Record) -> Iterator[str]:
    """The methods of a record's class for an array of such records."""
    yield "def __len__(self) -> int: ..."
    yield "def __getitem__(self, index: _t.Any) -> _t.Self: ..."
    yield "def __iter__(self) -> _Iterator[_t.Self]: ..."
    if all(f.name != "stack" for f in decl.fields):
        yield from ("@classmethod", "def stack(cls, records: _Sequence[_t.Self]) -> _t.Self: ...")


def generic_bounds(generics: Sequence[tree.Generic]) -> Bounds:
    """The element types and vectors among generic names: those with a capital letter, as types have."""
    return {g.name: g.bound for g in generics if g.bound is not None or g.name[:1].isupper()}


def exports_name(module: ModuleScope, name: str) -> bool:
    """Whether a module exports a name to Python."""
    found = module.fns.get(name)
    return is_python_name(name) and (
        (found is not None and not found.host) or name in module.records or name in module.variants
    )


def is_python_name(name: str) -> bool:
    """Whether Python can write the name."""
    return name.isidentifier() and not iskeyword(name)


def indent_lines(lines: Sequence[str]) -> list[str]:
    return [f"{INDENT}{line}" if line else "" for line in lines] or [f"{INDENT}..."]


def docstring(shown: str, doc: str | None) -> list[str]:
    """The declaration as a docstring, for hovers in Python editors."""
    text = "\n\n".join([" ".join(shown.split()), *([doc] if doc else [])])
    rows = text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"').split("\n")
    if len(rows) == 1 and not text.endswith('"'):
        return [f'{INDENT}"""{rows[0]}"""']
    return [f'{INDENT}"""{rows[0]}', *[f"{INDENT}{row}".rstrip() for row in rows[1:]], f'{INDENT}"""']
