"""Binding Python functions to the `extern fn`s of a program: traced by JAX or called back, with derivatives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from msgspec import Struct
from msgspec.structs import replace

from difflang.api.argument_types import ArgumentReader
from difflang.api.item_arrays import read_source
from difflang.api.record_classes import RecordClasses
from difflang.api.result_values import ValueBuilder, result_maker
from difflang.base.diagnostics import DifflangError
from difflang.base.error_codes import nearest_word
from difflang.base.errors import classify_error
from difflang.base.source import Span
from difflang.elaborate.calls.signatures import is_dim
from difflang.ir.tensor_types import DTYPES, Tensor
from difflang.ops.control.extern_call import ExternFunction, differentiable_types
from difflang.runtime import pytrees
from difflang.syntax import tree
from difflang.syntax.tree_queries import mentioned_names
from difflang.types.annotations import AnnotationResolver
from difflang.types.function_code import FnCode
from difflang.types.language_types import (
    UNIT,
    ClosureType,
    LangType,
    RecordType,
    SumType,
    TextType,
    TupleType,
    VariantType,
    leaf_types,
    tangent_type,
)
from difflang.types.module_scope import ModuleScope
from difflang.types.type_errors import DeferCheck, make_error
from difflang.types.unify import Unifier

PythonFunction = Callable[..., Any]


class Extern(Struct, frozen=True, eq=False):
    """A function for an `extern fn`, with its options; see `extern`."""

    function: PythonFunction
    host: bool = False
    jvp: PythonFunction | None = None
    vjp: PythonFunction | None = None


def extern(
    function: PythonFunction,
    *,
    host: bool = False,
    jvp: PythonFunction | None = None,
    vjp: PythonFunction | None = None,
) -> Extern:
    """A function to bind to an `extern fn`, with options.

    Without `host` JAX traces it and its derivatives; with `host` they are called back with NumPy arrays while the
    program runs. They must be pure: the same result for the same arguments, and no side effects.

    `jvp(*args, *tangents)` returns the tangent of the result, for a tangent of each argument that has one; `vjp(*args,
    ct)` returns a cotangent of each such argument, as a tuple if there are several. They support real numbers and first
    derivatives; a `rule` in the language has no such limits. They are not verified: `f.check_grad(…)` checks them.

    Errors: ArgumentError for an argument that is not callable.
    """
    for given in (function, jvp, vjp):
        if given is not None and not callable(given):
            raise classify_error(make_error("DL1207", f"`extern` takes functions, not {given!r:.60}"))
    return Extern(function, host, jvp, vjp)


def bind_externs(module: ModuleScope, records: RecordClasses, externs: Mapping[str, Any]) -> None:
    """Bind functions to the declarations of a program: `f`, or `model.f` of a module imported as `model`.

    Errors: DL1207 for an unknown name, and for a value that is not a function.
    """
    if not hasattr(externs, "items"):
        raise make_error("DL1207", f"`externs` is a dict of functions, not {externs!r:.60}", help='write `{"f": f}`')
    there = dict(extern_declarations(module))
    for name, given in externs.items():
        if name not in there:
            near = nearest_word(name, there)
            has = f"it has {', '.join(there)}" if there else "it has none"
            way = f"did you mean `{near}`?" if near else has
            raise make_error("DL1207", f"there is no `extern fn {name}` in {module.source.name}", help=way)
        home, decl = there[name]
        home.externs[decl.name] = BoundExtern(given if isinstance(given, Extern) else extern(given), records)


def extern_declarations(module: ModuleScope) -> Iterator[tuple[str, tuple[ModuleScope, tree.Fn]]]:
    """The `extern fn`s that a file can name, each with its module."""
    for prefix, home in {"": module, **{f"{name}.": other for name, other in module.modules.items()}}.items():
        for name, decl in home.fns.items():
            if is_bound_from_python(decl):
                yield f"{prefix}{name}", (home, decl)
    for name, meant in module.imported.items():
        decl = meant.module.fns.get(meant.name)
        if decl is not None and is_bound_from_python(decl):
            yield name, (meant.module, decl)


def is_bound_from_python(decl: tree.Fn) -> bool:
    """Whether it is an `extern fn`; an `extern op` finds its op in the registry."""
    return isinstance(decl.body, tree.Foreign) and not decl.body.op


def is_extern(type: ClosureType) -> bool:
    """Whether a function is bound from Python."""
    return isinstance(type.code, FnCode) and is_bound_from_python(type.code.decl)


class BoundExtern:
    """A bound function, and its adapters by argument and result types."""

    def __init__(self, given: Extern, records: RecordClasses) -> None:
        from difflang.embed.extern_functions import is_x64_enabled

        self.binding, self.records = given, records
        self.wide = is_x64_enabled()
        self.adapters: dict[Any, ExternFunction] = {}

    def at(
        self, decl: tree.Fn, module: ModuleScope, arguments: tuple[LangType | int, ...], result: LangType
    ) -> ExternFunction:
        key = (arguments, result)
        if key not in self.adapters:
            self.adapters[key] = ExternAdapter(self, decl, module, arguments, result).build()
        return self.adapters[key]


class ExternAdapter:
    """Adapts one function to certain types: from leaves to its own values, and its result back to leaves."""

    def __init__(
        self,
        bound: BoundExtern,
        decl: tree.Fn,
        module: ModuleScope,
        arguments: tuple[LangType | int, ...],
        result: LangType,
    ) -> None:
        self.bound, self.decl, self.module = bound, decl, module
        self.arguments, self.result = arguments, result
        self.types = [t for t in arguments if not isinstance(t, int)]
        self.tangent_types = [t for t in map(tangent_type, self.types) if t != UNIT]
        self.params = leaf_tensors(self.types)
        self.results = leaf_tensors([result])

    def build(self) -> ExternFunction:
        """The function with its derivatives."""
        given, name = self.bound.binding, self.decl.name
        function = self.adapt(given.function, name, [], self.result)
        # JAX differentiates a traced function itself.
        if given.jvp is None and given.vjp is None:
            return function
        self.check_differentiable()
        change = tangent_type(self.result)
        back = self.tangent_types[0] if len(self.tangent_types) == 1 else TupleType(tuple(self.tangent_types))
        if given.jvp is not None:
            function.jvp = self.adapt(given.jvp, f"{name}.jvp", self.tangent_types, change)
        if given.vjp is not None:
            function.vjp = self.adapt(given.vjp, f"{name}.vjp", [change], back)
        # Each is the transpose of the other.
        if function.jvp is not None and function.vjp is not None:
            function.jvp.transposed, function.vjp.transposed = function.vjp, function.jvp
        return function

    def adapt(self, python: PythonFunction, name: str, more: Sequence[LangType], result: LangType) -> ExternFunction:
        from difflang.embed.extern_functions import HostExtern, JaxExtern

        makers = [self.argument_maker(type) for type in (*self.arguments, *more)]

        def on_leaves(*leaves: Any) -> list[Any]:
            rest = iter(leaves)
            return self.flatten_result(python(*[make(rest) for make in makers]), result, name)

        params, results = (*self.params, *leaf_tensors(more)), leaf_tensors([result])
        if self.bound.binding.host:
            return HostExtern(name, params, results, self.decl.name_span, on_leaves)
        return JaxExtern(name, params, results, self.decl.name_span, on_leaves, self.bound.wide)

    def argument_maker(self, type: LangType | int) -> ValueBuilder:
        return dim_maker(type) if isinstance(type, int) else result_maker(type, self.bound.records, reject_function)

    def flatten_result(self, value: Any, result: LangType, name: str) -> list[Any]:
        """The leaves of a returned value. Errors: DL1230."""
        leaves, structure = pytrees.flatten_tree(value)
        reader = ArgumentReader(self.module)
        reader.span = self.result_span
        try:
            reader.read_expected(pytrees.tree_of_slots(leaves, structure), result, f"{name}(…)")
        except DifflangError as error:
            raise result_type_error(error) from None
        return [read_source(s, leaves, t) for s, t in zip(reader.leaf_order, leaf_types(result), strict=True)]

    @property
    def result_span(self) -> Span:
        return self.decl.result.span if self.decl.result is not None else self.decl.name_span

    def check_differentiable(self) -> None:
        """Errors: DL1230 if a derivative supplied from Python could be misunderstood."""
        types = [*self.params, *self.results]
        what = ""
        if any(t.dtype.is_complex for t in types):
            what = "complex numbers, for which JAX and the language use different cotangent conventions"
        elif leaf_tensors(self.tangent_types) != differentiable_types(self.params) or leaf_tensors(
            [tangent_type(self.result)]
        ) != differentiable_types(self.results):
            what = "enums"
        elif not self.tangent_types or not differentiable_types(self.results):
            what = "nothing that has a tangent"
        if what:
            message = f"`{self.decl.name}` has {what}: its derivative cannot be supplied from Python"
            way = f"write it in the language: `rule {self.decl.name}(…) {{ … }}`"
            raise make_error("DL1230", message, (self.decl.name_span, "declared here"), help=way)


def leaf_tensors(types: Sequence[LangType]) -> tuple[Tensor, ...]:
    return tuple([leaf for type in types for leaf in leaf_types(type)])


def dim_maker(value: int) -> ValueBuilder:
    """A `dim`, which is passed to Python unchanged."""
    return lambda leaves: value


def reject_function(*_: Any) -> NoReturn:
    raise AssertionError("functions cannot be passed to Python")


def result_type_error(error: DifflangError) -> DifflangError:
    """The error for a result of the wrong type, as a mistake of the Python function."""
    (first, *_) = error.diagnostics
    message = first.message.replace(" was given", " is what the function returns")
    return DifflangError(replace(first, code="DL1230", message=message))


# ---- Verification at binding time


def verify_externs(module: ModuleScope) -> None:
    """Verify bound functions against their declarations before any call.

    If a declaration names sizes, samples are tried: a result of another type is an error, and so is a failure for a
    reason that is independent of sizes; other failures are left to the sizes of a call. Errors: DL1230, DL1232.
    """
    for home, decl in {decl: (home, decl) for home, decl in dict(extern_declarations(module)).values()}.values():
        bound = home.externs.get(decl.name)
        if isinstance(bound, BoundExtern) and not bound.binding.host:
            verify_extern(bound, decl, home)


def verify_extern(bound: BoundExtern, decl: tree.Fn, module: ModuleScope) -> None:
    from difflang.embed.extern_functions import is_size_independent

    failures: list[DifflangError] = []
    for sizes in SAMPLE_SIZES:
        try:
            if not try_sizes(bound, decl, module, sizes):
                return
        except DifflangError as error:
            if error.diagnostics[0].code == "DL1230" or not size_names(decl, module):
                raise
            failures.append(error)
    # A failure at one sample may be due to its sizes; the same failure at all of them is not.
    causes = [error.__cause__ for error in failures if error.__cause__ is not None]
    if len(causes) == len(SAMPLE_SIZES) and is_size_independent(causes):
        raise failures[0]


# Sizes to try, for the names of a declaration in order. Distinct primes, so that no two agree by accident.
SAMPLE_SIZES = ((5, 7, 11, 13), (2, 3, 5, 7))


def try_sizes(bound: BoundExtern, decl: tree.Fn, module: ModuleScope, sizes: tuple[int, ...]) -> bool:
    """Verify a function at these sizes; whether other sizes are worth trying. Errors: DL1230, DL1232."""
    names = size_names(decl, module)
    found = dict(zip(names, sizes, strict=False))
    if len(found) < len(names):
        return False
    annotations = AnnotationResolver(Unifier(), module.records.get, dict(found), {})
    try:
        written = [(p.name, p.type) for p in decl.params if p.type is not None]
        types = [found[name] if is_dim(type) else annotations.type(type) for name, type in written]
        result = annotations.type(decl.result) if decl.result is not None else UNIT
    except (DifflangError, DeferCheck):  # a type without enough detail, such as `f32[..s]`
        return False
    if any(is_undetermined(t) for t in types):
        return False
    bound.at(decl, module, tuple(types), result)
    return bool(names)


def size_names(decl: tree.Fn, module: ModuleScope) -> list[str]:
    """The size names in a declaration's parameters, in order."""
    found: dict[str, None] = {}
    for param in decl.params:
        if is_dim(param.type):
            found[param.name] = None
        elif param.type is not None:
            known = {*DTYPES, *module.records, "str", "key"}
            found |= dict.fromkeys(n for n in mentioned_names(param.type) if n not in known)
    return list(found)


def is_undetermined(type: LangType | int) -> bool:
    """Whether the type depends on the call: the content of a text, the variant of an enum."""
    match type:
        case TextType() | SumType() | VariantType():
            return True
        case TupleType(items=inner) | RecordType(fields=inner):
            return any(map(is_undetermined, inner))
        case _:
            return False
