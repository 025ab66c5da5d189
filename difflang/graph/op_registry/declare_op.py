"""`op` declares an op from Python: its type, a reference in NumPy, a lowering in JAX, and its derivative if it has one.

It becomes an `Op` of the registry, like those of `difflang.ops`: programs, graphs, passes and engines treat it alike.
"""

from __future__ import annotations

import inspect
import keyword
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from msgspec import Struct

from difflang.base.diagnostics import DifflangError
from difflang.base.error_codes import suggestion
from difflang.base.wording import count_of
from difflang.graph.builder import GraphBuilder
from difflang.graph.builder_attributes import type_from_spec
from difflang.graph.graph_errors import graph_error
from difflang.graph.graph_view import Value
from difflang.graph.op_registry.checked_rules import (
    ResultTypes,
    UserFunction,
    checked_cost,
    checked_lowering,
    checked_reference,
    operand_jvp,
    operand_transpose,
)
from difflang.graph.op_registry.op_samples import Samples, read_samples
from difflang.graph.op_registry.op_signature import (
    EXAMPLE,
    OpSignature,
    element_name,
    elementwise_signature,
    read_signature,
)
from difflang.graph.op_registry.rule_graphs import UserRule, batch_rule_of
from difflang.graph.value_operators import apply_operator
from difflang.ir.json_codec import RENAMED_OPS
from difflang.ir.op import OPS, Derivative, Inactive, Op, OperandRules, TypeMismatch, TypeRule, TypeSolver
from difflang.ir.tensor_types import DTYPES, DType, Tensor, Type

Rules = UserRule | Sequence[UserRule | None] | Mapping[str, UserRule]


class DeclaredOp(Struct, frozen=True, eq=False):
    """An op that a user declared. On values of a builder it emits an equation, as `b.name(…)` does."""

    op: Op
    operands: tuple[str, ...]
    attributes: tuple[str, ...]
    signature: OpSignature | None  # None where its type is a function

    @property
    def name(self) -> str:
        return self.op.name

    def __repr__(self) -> str:
        shown = self.signature.text if self.signature is not None else f"({', '.join(self.operands)})"
        return f"<op {self.name}{shown}>"

    def __call__(self, *operands: Value | complex, **attributes: Any) -> Any:
        """Its results on values of a graph under construction. Errors: DL1250."""
        if not any(isinstance(x, Value) for x in operands):
            way = "for numbers, call a function of a program, or run a graph"
            raise graph_error("DL1250", f"no operand of `{self.name}` is a value of a graph", help=way)
        return apply_operator(self.name, *operands, **attributes)


DECLARED: dict[str, DeclaredOp] = {}


def op(
    name: str,
    *,
    reference: UserFunction,
    lower: UserFunction,
    doc: str,
    type: str | Callable[..., Any] | None = None,
    jvp: Rules | None = None,
    transpose: Rules | None = None,
    multilinear: bool = False,
    inactive: bool = False,
    elementwise: bool = False,
    batch: UserRule | None = None,
    samples: Samples = (-2.0, 2.0),
    cost: Callable[..., Any] | None = None,
    lower_cpu: UserFunction | None = None,
    replace: bool = False,
) -> DeclaredOp:
    """Declare an op: programs call it by `extern op`, graphs have it as `b.name(…)`, and our rules differentiate it.

    `type` is a signature in the notation of the language, `"[T: float](x: T[n, m], w: T[m]) -> T[n]"`; parameters of
    type `dim` and `str` are attributes. For types that no signature says it is a function of a solver and the types of
    the operands, with attributes as keywords. An `elementwise` op needs none: all operands and the result have one
    type, of any floats.

    `reference` is the meaning of the op, a function of NumPy arrays; `lower` is traced with arrays of JAX. Both take
    the operands, and attributes as keywords. `lower_cpu` replaces `lower` on the CPU.

    The derivative is one of three. `jvp` has a rule for each operand, `(b, dx, y, *operands)`, linear in the tangent
    `dx`, where `b` builds its equations and `y` is the result, of several results the tuple. `transpose` says that the
    op is linear in all operands that have such a rule together (each by itself if `multilinear`): `(b, ct, *operands)`.
    `inactive` ops have none. Rules are a tuple, or a dict by operand; a single function will do for one operand.

    `batch` computes a whole batch, `(b, batched, *operands)`: operands that `batched` marks have the batch axis in
    front, as the results have. Without it a loop does, and an elementwise op needs none. `samples` are what the laws
    draw from; `cost` gives the number of operations for the types of the operands.

    A name is declared once, unless `replace` is set: what was built of the op before keeps it as it was.

    Errors: DL1270 for a declaration that makes no sense; `check_op` tests the rest.
    """
    check_name(name, replace)
    check_functions(name, reference=reference, lower=lower, batch=batch, cost=cost, lower_cpu=lower_cpu)
    if not isinstance(doc, str) or not doc.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
        raise graph_error("DL1270", f"`{name}` has no `doc`", help="say what it computes, and the derivative at kinks")
    signature = read_type(name, type, reference, elementwise)
    rule = signature.type_rule() if signature is not None else type_function(name, cast(Callable[..., Any], type))
    names, attributes = operand_names(name, rule), tuple(attribute_names_of(rule))
    results = ResultTypes(rule)
    new = Op(
        name,
        rule,
        checked_reference(name, reference, results),
        checked_lowering(name, "lowering", lower, results),
        doc.strip(),
        read_derivative(name, jvp, transpose, multilinear, inactive, names, signature, results),
        traits=("elementwise",) if elementwise else (),
        accepts=signature.accepted_dtypes() if signature is not None else (),
        samples=read_samples(name, samples, signature, names, attributes, elementwise=elementwise),
        cost=None if cost is None else checked_cost(name, cost),
        batch_rule=None if batch is None else batch_rule_of(name, batch, names),
        cpu_lower_rule=None
        if lower_cpu is None
        else checked_lowering(name, "lowering for the CPU", lower_cpu, results),
        module=sys._getframe(1).f_globals.get("__name__", "?"),  # pyright: ignore[reportPrivateUsage]
    )
    OPS[name] = new
    DECLARED[name] = found = DeclaredOp(new, names, attributes, signature)
    return found


# ---- Names and functions


def check_name(name: Any, replace: bool) -> None:
    """Errors: DL1270 for what is no name, is one of the package or of the builder, or is declared already."""
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
        raise graph_error("DL1270", f"{name!r:.60} is no name for an op", help="write it like a function: `swish`")
    if (name in OPS and name not in DECLARED) or name in RENAMED_OPS:
        raise graph_error("DL1270", f"the package has an op `{name}`", help="choose another name")
    if hasattr(GraphBuilder, name) or name in RESERVED:
        raise graph_error("DL1270", f"`{name}` is a part of every builder of graphs", help="choose another name")
    if name in DECLARED and not replace:
        way = "`replace=True` replaces it; two modules cannot share a name"
        raise graph_error("DL1270", f"the op `{name}` is declared already, in `{OPS[name].module}`", help=way)


# What a builder has besides its methods.
RESERVED = ("home", "base", "outer", "inputs", "borrowed", "region", "closed", "graph", "output")


def check_functions(name: str, **given: Any) -> None:
    """Errors: DL1270 for what cannot be called."""
    for what, function in given.items():
        if function is not None and not callable(function):
            raise graph_error("DL1270", f"`{what}` of `{name}` is a function, not {function!r:.40}")
        if function is None and what in ("reference", "lower"):
            raise graph_error("DL1270", f"`{name}` has no `{what}`")


# ---- Types


def read_type(name: str, type: Any, reference: UserFunction, elementwise: bool) -> OpSignature | None:
    """The signature; None if the type is a function. Errors: DL1270."""
    if isinstance(type, str):
        found = read_signature(name, type)
    elif type is None and elementwise:
        found = elementwise_signature(name, reference)
    elif callable(type):
        if elementwise:
            raise graph_error("DL1270", f"`{name}` is elementwise: its type is a signature, or left out")
        return None
    else:
        way = f"write its signature, {EXAMPLE}; only with `elementwise=True` it may be left out"
        raise graph_error("DL1270", f"`{name}` has no type" if type is None else f"{type!r:.60} is no type", help=way)
    shapes = {p.type.span.text.partition("[")[2] for p in (*found.operands,) if p.type is not None}
    shapes |= {r.span.text.partition("[")[2] for r in found.results}
    if elementwise and (len(shapes) > 1 or len(found.results) > 1):
        message = f"`{name}` is elementwise, but its type has several {'shapes' if len(shapes) > 1 else 'results'}"
        raise graph_error("DL1270", message, help="leave the type out, or `elementwise`")
    return found


def type_function(name: str, function: Callable[..., Any]) -> TypeRule:
    """The type rule that a function of the user is. Its results are types of arrays, or texts such as `i32[3]`."""

    def rule(same: TypeSolver, *types: Type, regions: Any = (), **attrs: Any) -> tuple[Type, ...]:
        try:
            found = function(same, *types, **attrs)
            several = isinstance(found, (tuple, list))
            return tuple([result_type(t) for t in (cast(Sequence[Any], found) if several else (found,))])
        except TypeMismatch:
            raise
        except DifflangError as error:
            raise TypeMismatch(f"its type rule failed: {error.diagnostics[0].message}") from error
        except (Exception, SystemExit) as error:
            raise TypeMismatch(f"its type rule raised {error.__class__.__name__}: {error}") from error

    try:
        parameters = inspect.signature(function)
    except (TypeError, ValueError):
        raise graph_error("DL1270", f"the parameters of the type of `{name}` are not known") from None
    if len(parameters.parameters) < 2:
        way = "it takes a solver, which compares types, then the types of the operands: `lambda same, x: x`"
        raise graph_error("DL1270", f"the type of `{name}` takes too few parameters", help=way)
    rule.__signature__ = parameters  # pyright: ignore[reportFunctionMemberAccess]
    return rule


def result_type(given: Any) -> Type:
    return given if isinstance(given, Tensor) else type_from_spec(given)


def array_type(dtype: str, shape: Sequence[Any]) -> Tensor:
    """The type of an array, for type rules: `array_type("i32", x.shape)`. Errors: DL1210."""
    found: DType | None = DTYPES.get(dtype) if isinstance(dtype, str) else dtype  # pyright: ignore[reportUnnecessaryIsInstance]
    if found is None:
        raise graph_error("DL1210", f"there is no element type `{dtype}`", help=suggestion(str(dtype), DTYPES))
    return Tensor(found, tuple(shape))


def operand_names(name: str, rule: TypeRule) -> tuple[str, ...]:
    """The operands that a type rule names, without its solver. Errors: DL1270 for any number of them."""
    parameters = list(inspect.signature(rule).parameters.values())
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        raise graph_error("DL1270", f"the type of `{name}` takes any number of operands", help="name each operand")
    if any(p.name == "regions" for p in parameters):
        message = f"`{name}` has regions, which only an op of the package can have"
        way = "use `b.cond` and `b.loop` in a graph, or a function of the language that takes functions"
        raise graph_error("DL1270", message, help=way)
    return tuple([p.name for p in parameters[1:] if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)])


def attribute_names_of(rule: TypeRule) -> list[str]:
    return [p.name for p in inspect.signature(rule).parameters.values() if p.kind is p.KEYWORD_ONLY]


# ---- Derivatives


def read_derivative(
    name: str,
    jvp: Any,
    transpose: Any,
    multilinear: bool,
    inactive: bool,
    names: Sequence[str],
    signature: OpSignature | None,
    results: ResultTypes,
) -> Derivative:
    """The position of an op on its derivative. Errors: DL1270 if it takes none, or two that exclude each other."""
    if inactive or (jvp is None and transpose is None and signature is not None and counts_only(signature)):
        if jvp is not None or transpose is not None:
            raise graph_error("DL1270", f"`{name}` is inactive, so it has no `jvp` and no `transpose`")
        return Inactive()
    if jvp is None and transpose is None:
        way = "give `jvp`, or `transpose` if it is linear, or say `inactive=True` if its results carry no tangent"
        raise graph_error("DL1270", f"`{name}` does not say what its derivative is", help=way)
    if multilinear and transpose is None:
        raise graph_error("DL1270", f"`{name}` is multilinear, but has no `transpose`")
    pushes = None if jvp is None else read_rules(name, "jvp", jvp, names)
    pulls = None if transpose is None else read_rules(name, "transpose", transpose, names)
    return OperandRules(
        jvp=None
        if pushes is None
        else [operand_jvp(name, n, r, names, results) if r else None for n, r in zip(names, pushes, strict=True)],
        transpose=None
        if pulls is None
        else [operand_transpose(name, i, r, names) if r else None for i, r in enumerate(pulls)],
        multilinear=multilinear,
    )


def read_rules(name: str, what: str, given: Any, names: Sequence[str]) -> list[UserRule | None]:
    """A rule for each operand, or None. Errors: DL1270."""
    if isinstance(given, Mapping):
        by_name = cast(Mapping[Any, Any], given)
        if unknown := [n for n in by_name if n not in names]:
            way = suggestion(str(unknown[0]), names)
            raise graph_error("DL1270", f"`{name}` has no operand `{unknown[0]}` for a `{what}`", help=way)
        rules = [by_name.get(n) for n in names]
    else:
        rules = list(cast(Sequence[Any], given)) if isinstance(given, (tuple, list)) else [given]
    if len(rules) != len(names):
        shown = ", ".join([f'"{n}": …' for n in names])
        way = f"give one for each operand, None for one without a derivative, or a dict: `{what}={{{shown}}}`"
        message = f"`{name}` has {count_of(len(names), 'operand')}, but its `{what}` is {count_of(len(rules), 'rule')}"
        raise graph_error("DL1270", message, help=way)
    if wrong := [r for r in rules if r is not None and not callable(r)]:
        raise graph_error("DL1270", f"a `{what}` of `{name}` is a function, not {wrong[0]!r:.40}")
    if not any(rules):
        raise graph_error("DL1270", f"no operand of `{name}` has a `{what}`", help="say `inactive=True` instead")
    return rules


def counts_only(signature: OpSignature) -> bool:
    """Whether no result can carry a tangent: all are integers or bools."""
    return all(
        (dtype := DTYPES.get(element_name(r))) is not None and not dtype.differentiable for r in signature.results
    )
