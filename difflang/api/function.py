"""Functions of a loaded file in Python: called, differentiated, interpreted, lowered."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from difflang.api.given import article, bytes_in, size_of
from difflang.api.loaded import Given, Loaded, Unchanging, doorway
from difflang.api.lowered import Lowered
from difflang.api.signature import Parameter, Signature, innermost, name_of, signature_of
from difflang.api.specialization import UNKNOWN, Specialization, Table, operator_of
from difflang.audit.report import Report
from difflang.base.codes import nearest
from difflang.base.diagnostics import DifflangError
from difflang.base.errors import GradientMismatch, classified
from difflang.check.closures import DerivativeCode, FnCode, MapCode, Wrt
from difflang.check.reports import mistake
from difflang.check.types import ClosureType
from difflang.driver import trace as tracing
from difflang.driver.artifact.write import PLATFORMS, refused, save
from difflang.driver.check_grad import Options
from difflang.driver.entry import Argument, Entry
from difflang.driver.guard import guarded
from difflang.driver.memory import Report as Memory
from difflang.driver.memory import reported
from difflang.driver.pipeline import staged
from difflang.driver.running import ready
from difflang.driver.specs import declared_arguments
from difflang.driver.warned import warn
from difflang.elaborate.context import Session
from difflang.ir.text import to_text
from difflang.runtime import trees
from difflang.runtime.texts import jaxpr_text, lower

WrtGiven = int | str | Sequence[int | str]


class Function(Unchanging):
    """A function of a loaded file. Called with NumPy or JAX arrays and Python numbers, it gives JAX arrays.

    Records are given as their dataclass, or as a dict, NamedTuple or dataclass with the same fields, and come back as
    the dataclass. In a JAX transformation a check that fails makes its float results NaN; see `checked`.
    """

    def __init__(self, loaded: Loaded, type: ClosureType, captured: tuple[Any, ...] = ()) -> None:
        self.loaded = loaded
        self.function_type = type
        self.captured = captured
        self.expected = type.code.takes if isinstance(type.code, MapCode) else None
        self.signature: Signature = signature_of(type)
        self.__name__ = self.__qualname__ = name_of(type)
        self.__module__ = loaded.name
        self.__doc__ = getattr(getattr(innermost(type).code, "decl", None), "doc", None)
        self._dims = frozenset(p.name for p in self.signature.parameters if p.is_dim)
        with loaded.lock:
            self._table: Table = loaded.tables.setdefault(type, Table())

    @property
    def __signature__(self) -> inspect.Signature:
        return self.signature.python

    @property
    def operator(self) -> str:
        """The derivative operator that made it, or nothing."""
        return operator_of(self.function_type)

    def __repr__(self) -> str:
        return f"<difflang function {self.__name__}{self.signature.python}>"

    # ---- calls

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Its value. Errors: ArgumentError before anything is traced; IndexFailure, AssertionFailure afterwards."""
        if not kwargs and not self.captured:
            try:
                value = self._table.call(args)
            except DifflangError as error:
                raise classified(error) from None
            if value is not UNKNOWN:
                return value
        with doorway():
            given, key = self._given(args, kwargs)
            found = self._found(given)
            value = found.run(given.leaves, key)
            if not kwargs and not self.captured and not self._dims:
                self._table.learn(found, args)
            return value

    def interpret(self, /, *args: Any, **kwargs: Any) -> Any:
        """Its value by the interpreter: NumPy arrays in the same structure."""
        with doorway():
            given, key = self._given(args, kwargs)
            return self._found(given).interpret(given.leaves, key)

    def run_checked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], Any]:
        """The numbers of a failure and the value; see `checked`."""
        given, key = self._given(args, kwargs)
        return self._found(given).run_checked(given.leaves, key)

    def _found(self, given: Given) -> Specialization:
        key = given.key
        found = self._table.found.get(key)
        if found is None:
            with self.loaded.lock:
                found = self._table.found.get(key)
                if found is None:
                    found = Specialization(
                        self.loaded, self.__name__, self.signature, self.function_type, given, Function
                    )
                    self._table.found[key] = found
                    warn((*found.entry.warnings, *found.executable.notes))
        return found

    def _given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Given, Any]:
        """The arguments by name, the sizes among them apart, the rest as leaves."""
        key = kwargs.pop("key", None) if "key" not in self.signature.names else None
        named = self._named(args, kwargs)
        dims = tuple((n, size_of(n, named[n])) for n in named if n in self._dims)
        values = tuple(v for n, v in named.items() if n not in self._dims)
        leaves, structure = trees.flatten((self.captured, values))
        return Given(tuple(named), dims, leaves, structure, self.expected), key

    def _named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Arguments by parameter, in the parameters' order. Errors: DL1207."""
        signature, names = self.signature, self.signature.names
        if not signature.fixed:
            if kwargs:
                raise mistake("DL1207", f"`{self.__name__}` takes its arguments by position")
            return {f"_{i}": x for i, x in enumerate(args)}
        if len(args) > len(names):
            raise wrong_arguments(self, f"takes {len(names)} argument{'s' * (len(names) != 1)}, not {len(args)}")
        named = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name not in names:
                near = nearest(name, names)
                raise wrong_arguments(self, f"has no parameter `{name}`", f"did you mean `{near}`?" if near else "")
            if name in named:
                raise wrong_arguments(self, f"is given `{name}` twice")
            named[name] = value
        missing = [
            p
            for p in signature.parameters
            if p.name not in named and not (p.optional and may_miss(signature, p, named))
        ]
        if missing:
            raise wrong_arguments(self, "needs " + ", ".join(f"`{p.name}`" for p in missing) + " too")
        return {n: named[n] for n in names if n in named}

    # ---- derivatives

    def grad(self, wrt: WrtGiven = 0, *more: int | str) -> Function:
        """The gradient in a parameter: by position, by name, or by a path of fields such as `"m.w"`.

        Several give a record with those names. The function's result must be one real number.
        """
        return self._derivative("grad", wrt, more)

    def value_and_grad(self, wrt: WrtGiven = 0, *more: int | str) -> Function:
        """The value, and the gradient as `grad` gives it."""
        return self._derivative("value_and_grad", wrt, more)

    def jvp(self, wrt: WrtGiven = 0, *more: int | str) -> Function:
        """A function of the arguments, then a tangent for each `wrt`: the value, and its change along them."""
        return self._derivative("jvp", wrt, more)

    def vjp(self, wrt: WrtGiven = 0, *more: int | str) -> Function:
        """A function of the arguments: the value, and the pullback, a function of a cotangent of the value."""
        return self._derivative("vjp", wrt, more)

    def linearize(self, wrt: WrtGiven = 0, *more: int | str) -> Function:
        """A function of the arguments: the value, and the derivative there, a function of a tangent."""
        return self._derivative("linearize", wrt, more)

    def hvp(self, wrt: WrtGiven = 0, *more: int | str) -> Function:
        """A function of the arguments, then a tangent for each `wrt`: the product of the Hessian with these."""
        return self._derivative("hvp", wrt, more)

    def hessian(self, wrt: int | str = 0) -> Function:
        """All second derivatives in an array, `[..argument, ..argument]`."""
        return self._derivative("hessian", wrt, ())

    def jacobian(self, wrt: int | str = 0) -> Function:
        """All derivatives of an array in an array, `[..result, ..argument]`, in the cheaper mode."""
        return self._derivative("jacobian", wrt, ())

    def jacfwd(self, wrt: int | str = 0) -> Function:
        """The same in forward mode."""
        return self._derivative("jacfwd", wrt, ())

    def jacrev(self, wrt: int | str = 0) -> Function:
        """The same in reverse mode."""
        return self._derivative("jacrev", wrt, ())

    def deriv(self, wrt: int | str = 0) -> Function:
        """The derivative of a function of one number."""
        return self._derivative("deriv", wrt, ())

    def jet(self, order: int, wrt: int | str = 0) -> Function:
        """The Taylor coefficients to an order in a parameter that is one number, along a new first axis."""
        return self._derivative("jet", wrt, (), order)

    def _derivative(self, operator: str, wrt: WrtGiven, more: tuple[int | str, ...], order: int = 1) -> Function:
        wanted: list[object] = list(wrt) if isinstance(wrt, (list, tuple)) else [wrt]
        with doorway():
            places = tuple(self._place(w) for w in (*wanted, *more))
            type = ClosureType(DerivativeCode(operator, places, order), (self.function_type,))
            return Function(self.loaded, type, self.captured)

    def _place(self, wrt: object) -> Wrt:
        """A parameter, and a path of fields in it. Errors: DL0403."""
        names = self.signature.names
        if not isinstance(wrt, (int, str)) or isinstance(wrt, bool):
            help = f"the derivative is a function of the arguments: `{self.__name__}.grad()(…)`"
            raise mistake("DL0403", f"a parameter is named by a text or a number, not by {article(wrt)}", help=help)
        if isinstance(wrt, int):
            if self.signature.fixed and not -len(names) <= wrt < len(names):
                raise mistake(
                    "DL0403", f"`{self.__name__}` has no parameter {wrt}", help=f"it has {', '.join(names) or 'none'}"
                )
            return (wrt % len(names) if self.signature.fixed else wrt,)
        first, *path = wrt.split(".")
        if first not in names:
            near = nearest(first, names)
            help = f"did you mean `{near}`?" if near else f"it has {', '.join(names) or 'none'}"
            raise mistake("DL0403", f"`{self.__name__}` has no parameter `{first}`", help=help)
        return (first, *path)

    def check_grad(
        self,
        *args: Any,
        wrt: int | str | None = None,
        order: int = 1,
        directions: int = 3,
        seed: int = 0,
        compiled: bool = True,
        **kwargs: Any,
    ) -> Report:
        """Audit its derivative at these arguments: compiled, interpreted, in both modes and by differences.

        In all real parameters, or in the one that `wrt` names; the seed decides the directions. Gives a report with a
        `.table()`; `str` of it shows that.

        Errors: GradientMismatch where the derivative is wrong; it names the first operation at fault and its line.
        DifflangWarning where there is none: the kink is named.
        """
        with doorway():
            given, key = self._given(args, kwargs)
            name = None if wrt is None else self._spelled(self._place(wrt))
            report = self._found(given).audited(given.leaves, key, Options(order, directions, seed, name, compiled))
            found = report.diagnostics()
            if not report.right:
                error = GradientMismatch(*found)
                error.report = report
                raise error
        if found:
            warn(found)
        return report

    def trace(self, *args: Any, wrt: int | str | None = None, rows: int = tracing.ROWS, **kwargs: Any) -> tracing.Trace:
        """The evaluation at these arguments row by row: values, tangents, adjoints, and the line of each.

        Columns of tangents are for scalar parameters, or for the one that `wrt` names; adjoints are those of the first
        real result, if that is a number. `str` of it is a table of at most so many rows; it has `.to_latex()`,
        `.to_html()` and `.to_json()`.

        Errors: as a call's; DL1222 for a run of more than 100,000 steps.
        """
        with doorway():
            given, key = self._given(args, kwargs)
            name = None if wrt is None else self._spelled(self._place(wrt))
            return self._found(given).traced(given.leaves, key, tracing.Options(wrt=name, rows=rows))

    def _spelled(self, place: Wrt) -> str:
        """A parameter, or a field of it, as its values are called."""
        first, *path = place
        return ".".join([self.signature.names[first] if isinstance(first, int) else first, *map(str, path)])

    # ---- the levels below

    def _entry(self, specs: tuple[Any, ...], named: dict[str, Any]) -> Entry:
        """The graph for arguments described by specs, made anew."""
        return self.loaded.entry(self.__name__, self.function_type, self._arguments(specs, named), Session())

    def _arguments(self, specs: tuple[Any, ...], named: dict[str, Any]) -> tuple[Argument, ...]:
        """The arguments described by specs; without any, those that the declaration says."""
        base = innermost(self.function_type).code
        if not specs and not named and isinstance(base, FnCode):
            names = tuple([p.name for p in base.decl.params])
            if self.signature.names == names:
                return declared_arguments(self.loaded.module, base.decl, {})
        given, _ = self._given(specs, dict(named))
        return self.loaded.typed(self.__name__, self.signature, given, specs=True).arguments

    def lower(self, *specs: Any, platform: str | None = None, **named: Any) -> Lowered:
        """The program for such arguments, lowered for XLA: made anew from the checked source each time.

        A spec is an array, a `jax.ShapeDtypeStruct`, or a string such as `"f32[3, 4]"` or `"Mlp[64, 32, 10]"`. None
        are needed where the declaration says every size.
        """
        with doorway():
            entry = self._entry(specs, named)
            graph = ready(entry.graph)
            graph = guarded(graph) if entry.fails else graph
            return Lowered(graph, lower(graph, platform), entry)

    def ir(self, stage: str = "ir", *specs: Any, **named: Any) -> str:
        """The program's graph as text: elaborated (`ir`), without derivative operators (`derived`), or `optimized`."""
        with doorway():
            return to_text(staged(self._entry(specs, named).graph, stage))

    def memory(
        self, *specs: Any, wrt: WrtGiven | None = None, budget: str | int = 0, compiled: bool = False, **named: Any
    ) -> Memory:
        """What it, or its gradient in `wrt`, needs in memory for such arguments, under a budget such as `"64 MiB"`.

        Nothing is compiled, unless it is to be `compiled` and compared with what XLA takes. `str` of the report is a
        table by lines. Errors: DL1012 where the budget is too small.
        """
        if wrt is not None:
            return self.grad(wrt).memory(*specs, budget=budget, compiled=compiled, **named)
        with doorway():
            return reported(self._entry(specs, named).graph, f"`{self.__name__}`", bytes_in(budget), compiled=compiled)

    def jaxpr(self, *specs: Any, **named: Any) -> str:
        """The program as JAX's primitives."""
        with doorway():
            return jaxpr_text(ready(self._entry(specs, named).graph))

    def stablehlo(self, *specs: Any, platform: str | None = None, **named: Any) -> str:
        """The program as XLA reads it."""
        return self.lower(*specs, platform=platform, **named).as_text()

    def export(
        self, path: str | Path, *specs: Any, platforms: Sequence[str] = PLATFORMS, source: bool = True, **named: Any
    ) -> None:
        """Write it to a file that `difflang.runtime.load` reads, for arguments that are told as `lower` takes them.

        Beside the program that loads everywhere the file holds StableHLO for the `platforms`, which need not be here,
        and the text of the program, for its reports, unless `source` is false.

        Errors: ArtifactError for a function that prints, or takes or gives functions; DL1210 where a size is not told.
        """
        with doorway():
            if self.captured:
                raise refused(f"`{self.__name__}` holds values of this process", "export the function that made it")
            session = Session()
            arguments = self._arguments(specs, named)
            entry = self.loaded.entry(self.__name__, self.function_type, arguments, session)
            made = self.loaded.made(self, entry, arguments, session)
            save(Path(path), made, platforms, source=source)


def wrong_arguments(function: Function, what: str, help: str = "") -> DifflangError:
    shown = f"it is {function.__name__}{function.signature.python}"
    return mistake("DL1207", f"`{function.__name__}` {what}", help=f"{help}\n{shown}" if help else shown)


def may_miss(signature: Signature, parameter: Parameter, named: dict[str, Any]) -> bool:
    """Whether a parameter with a default may be left out: of a derivative, only with all after it but the tangents."""
    if signature.gaps:
        return True
    after = signature.parameters[signature.parameters.index(parameter) + 1 :]
    return not any(p.name in named and p.tangent_of is None for p in after)


def taken_apart(f: Function) -> tuple[tuple[Any, ...], Any]:
    return f.captured, (f.loaded, f.function_type)


def put_together(rest: Any, captured: Any) -> Function:
    loaded, type = rest
    return Function(loaded, type, tuple(captured))


trees.register_node(Function, taken_apart, put_together)
