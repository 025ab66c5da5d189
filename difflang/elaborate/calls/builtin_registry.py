"""The registry of built-in functions by name, and the reader of their arguments."""

from __future__ import annotations

from collections.abc import Callable

from difflang.base.diagnostics import DifflangError
from difflang.base.fixes import did_you_mean
from difflang.base.source import Span
from difflang.base.wording import count_of
from difflang.elaborate.calls.call_args import CallArgs
from difflang.elaborate.context import AlreadyReported, ElabContext
from difflang.elaborate.expressions.broadcasting import as_array
from difflang.elaborate.terms import Array, PoisonTerm, Term, Tuple, type_of
from difflang.elaborate.trampoline import Walk
from difflang.ir.symbolic_dims import Dim
from difflang.types.dtype_variables import DTypeVar, prune_dtype
from difflang.types.language_types import show_type
from difflang.types.type_errors import DeferCheck

TRANSFORM_NAMES = (
    "grad",
    "value_and_grad",
    "jvp",
    "vjp",
    "deriv",
    "vmap",
    "linearize",
    "jacobian",
    "jacfwd",
    "jacrev",
    "hvp",
    "hessian",
    "jet",
)


BuiltinFunction = Callable[[ElabContext, "CallArgs"], Walk[Term]]


BUILTINS: dict[str, BuiltinFunction] = {}


# The parameters of each: `axis?` may be left out, `..sizes` is any number of them, `|` parts two forms of a call.
PARAMETERS: dict[str, str] = {}


def builtin(*names: str, takes: str) -> Callable[[Callable[..., Term]], Callable[..., Term]]:
    """Registers a built-in that returns its term directly and needs no walk."""

    def register(function: Callable[..., Term]) -> Callable[..., Term]:
        for name in names:
            register_builtin(name, as_builtin(function, name), takes)
        return function

    return register


def register_builtin(name: str, walk: BuiltinFunction, takes: str) -> None:
    BUILTINS[name], PARAMETERS[name] = walk, takes


def as_builtin(function: Callable[..., Term], name: str) -> BuiltinFunction:
    def walk(cx: ElabContext, args: CallArgs) -> Walk[Term]:
        return function(cx, args, name)
        yield

    return walk


class BuiltinArgs:
    """Reads the arguments of a built-in function by position or name, and reports wrong ones."""

    def __init__(self, cx: ElabContext, args: CallArgs, name: str, takes: str = "") -> None:
        self.cx, self.args, self.name = cx, args, name
        self.params = (takes or PARAMETERS[name]).rpartition("| ")[2].split()
        names = [p.rstrip("?") for p in self.params]
        self.by_name = dict(zip(names, args.items, strict=False))
        needed = [p for p in self.params if not p.endswith("?")]
        unknown = [n for n in args.named if n not in names]
        twice = [n for n in args.named if n in self.by_name]
        self.by_name |= args.named
        if len(args.items) > len(names) or unknown or twice or any(n not in self.by_name for n in needed):
            signature = ", ".join(p if not p.endswith("?") else f"{p[:-1]} = …" for p in self.params)
            way = f"usage: `{name}({signature})`"
            if unknown:
                place = args.name_spans.get(unknown[0], args.span)
                said, fixes = did_you_mean(unknown[0], names, place)
                raise cx.error("DL0319", f"`{name}` has no parameter `{unknown[0]}`", place, said, way, fixes)
            wanted = next((n for n in needed if n not in self.by_name), None)
            what = f"`{name}` is missing `{wanted}`" if wanted else f"`{name}` has too many arguments"
            place = args.items[len(names)][1] if len(args.items) > len(names) else args.span
            raise cx.error("DL0319", what, place, "", way)

    def term(self, name: str) -> Term:
        term = self.by_name[name][0]
        if isinstance(term, PoisonTerm):
            raise AlreadyReported
        return term

    def array(self, name: str) -> Array:
        return as_array(self.cx, *self.by_name[name])

    def span(self, name: str) -> Span:
        return self.by_name[name][1] if name in self.by_name else self.args.span

    def is_present(self, name: str) -> bool:
        return name in self.by_name

    def static(self, name: str, default: Dim) -> Dim:
        if name not in self.by_name:
            return default
        term, span = self.by_name[name]
        return self.cx.static(term, span, f"`{name}`")

    def integer(self, name: str, default: int) -> int:
        value = self.static(name, default)
        if not isinstance(value, int):
            raise DeferCheck
        return value

    def flag(self, name: str, *, default: bool = False) -> bool:
        if name not in self.by_name:
            return default
        term, span = self.by_name[name]
        if not isinstance(term, Array) or not isinstance(term.static, bool):
            raise self.cx.error("DL0305", f"`{name}` must be the literal `true` or `false`", span)
        return term.static

    def axes(self, rank: int, name: str = "axis") -> tuple[int, ...] | None:
        """The requested axes, counted from the front; None without the argument."""
        if name not in self.by_name:
            return None
        term, span = self.by_name[name]
        items = term.items if isinstance(term, Tuple) else (term,)
        if not all(isinstance(t, PoisonTerm) or (isinstance(t, Array) and may_be_integer(t)) for t in items):
            raise self.axis_error(name, term, span)
        # A negative axis counts from the end, as in NumPy.
        numbers = [self.cx.static(t, span, f"`{name}`") for t in items]
        axes = tuple(n + rank if isinstance(n, int) and n < 0 else n for n in numbers)
        if any(not isinstance(a, int) or not 0 <= a < rank for a in axes) or len(set(axes)) != len(axes):
            raise self.cx.error(
                "DL0335",
                f"this axis does not exist: the array has {count_of(rank, 'axis', 'axes')}",
                span,
                f"axes are 0 to {rank - 1}" if rank > 1 else "its only axis is 0" if rank else "",
            )
        return tuple(sorted(a for a in axes if isinstance(a, int)))

    def axis_error(self, name: str, term: Term, span: Span) -> DifflangError:
        """The report of a float where an axis is expected, as in `sum(1.0, 2.0)`."""
        message = f"`{name}` of `{self.name}` must be the number of an axis"
        several = ", ".join(place.text for _, place in self.args.items)
        way = f"for several numbers, write `{self.name}([{several}])`" if len(self.args.items) > 1 else ""
        return self.cx.error("DL0313", message, span, f"this is {show_type(type_of(term))}", way)


def may_be_integer(x: Array) -> bool:
    dtype = prune_dtype(x.tensor.dtype)
    return any(c.is_integer for c in (dtype.candidates if isinstance(dtype, DTypeVar) else (dtype,)))
