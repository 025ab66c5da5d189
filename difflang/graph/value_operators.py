"""Arithmetic on values of a graph under construction: the operators of Python emit equations."""

from __future__ import annotations

from typing import Any, Protocol

from difflang.ir.graph import Value as IrValue


class EmittingScope(Protocol):
    """A graph that a value belongs to. One that is finished refuses to emit; of two, the deeper one emits."""

    @property
    def depth(self) -> int: ...

    def emit_named(self, name: str, *operands: Any, **attributes: Any) -> Any: ...


class ValueOperators:
    """The operators of values. `ir` is the value in the IR, `scope` what it belongs to."""

    __slots__ = ("ir", "scope")

    def __init__(self, ir: IrValue, scope: Any) -> None:
        self.ir, self.scope = ir, scope

    def __add__(self, other: Any) -> Any:
        return apply_operator("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return apply_operator("add", other, self)

    def __sub__(self, other: Any) -> Any:
        return apply_operator("sub", self, other)

    def __rsub__(self, other: Any) -> Any:
        return apply_operator("sub", other, self)

    def __mul__(self, other: Any) -> Any:
        return apply_operator("mul", self, other)

    def __rmul__(self, other: Any) -> Any:
        return apply_operator("mul", other, self)

    def __truediv__(self, other: Any) -> Any:
        return apply_operator("div", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return apply_operator("div", other, self)

    def __pow__(self, other: Any) -> Any:
        """A power; with a Python integer the op for such powers, whose derivative exists everywhere."""
        if type(other) is int:
            return apply_operator("integer_pow", self, n=other)
        return apply_operator("pow", self, other)

    def __neg__(self) -> Any:
        return apply_operator("neg", self)

    def __abs__(self) -> Any:
        return apply_operator("abs", self)

    def __lt__(self, other: Any) -> Any:
        return apply_operator("lt", self, other)

    def __le__(self, other: Any) -> Any:
        return apply_operator("le", self, other)

    def __gt__(self, other: Any) -> Any:
        return apply_operator("gt", self, other)

    def __ge__(self, other: Any) -> Any:
        return apply_operator("ge", self, other)

    def __bool__(self) -> bool:
        raise TypeError("a value of a graph has no truth value before the graph runs: use `cond` or `select`")


def apply_operator(name: str, *operands: Any, **attributes: Any) -> Any:
    """Emit the op where the innermost operand belongs to. Errors: those of the builder; DL1250 in a finished graph."""
    scopes: list[EmittingScope] = [x.scope for x in operands if isinstance(x, ValueOperators)]
    return max(scopes, key=lambda scope: scope.depth).emit_named(name, *operands, **attributes)
