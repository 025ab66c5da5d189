"""The class of loaded functions in Python: called, differentiated, interpreted and checked."""

from __future__ import annotations

import inspect
from typing import Any, Self

from msgspec.structs import replace

from difflang.api.inspection import InspectMixin
from difflang.api.loaded_program import CallArguments, Dims, LoadedProgram
from difflang.api.notebook_display import function_mimebundle
from difflang.api.option_values import parse_size
from difflang.api.signature import Parameter, Signature, function_name, innermost_function, signature_of
from difflang.api.specialization import UNKNOWN, DispatchCache, Specialization, derivative_operator
from difflang.base.diagnostics import DifflangError
from difflang.base.error_codes import nearest_word
from difflang.base.errors import GradientMismatch, classify_error, classify_errors
from difflang.driver.python_warnings import issue_warning
from difflang.gradcheck.report import GradcheckReport
from difflang.runtime import pytrees
from difflang.runtime.foreign_values import convert_foreign, is_foreign
from difflang.syntax import tree
from difflang.tools import trace_call as tracing
from difflang.tools.check_grad import CheckGradOptions
from difflang.types.function_code import LinearMapCode
from difflang.types.language_types import ClosureType
from difflang.types.module_scope import ModuleScope
from difflang.types.type_errors import make_error


class Function(InspectMixin):
    """A function of a loaded file. Called with NumPy or JAX arrays and Python numbers, it returns JAX arrays.

    Records are passed as their dataclass, or as a dict, NamedTuple or dataclass with the same fields, and are returned
    as the dataclass. In a JAX transformation a failed check makes the float results NaN; see `checked`.
    """

    def __init__(
        self, loaded: LoadedProgram, type: ClosureType, captured: tuple[Any, ...] = (), sizes: Dims = ()
    ) -> None:
        self.loaded = loaded
        self.function_type = type
        self.captures, self.sizes = captured, sizes
        base = innermost_function(type)
        self.expected_type = base.code.domain if isinstance(base.code, LinearMapCode) else None
        self.full_signature: Signature = replace(signature_of(type), effects=loaded.effects_of(base), sizes=sizes)
        self.signature: Signature = self.full_signature.drop_dims(dict(sizes))
        self.__name__ = self.__qualname__ = function_name(type)
        self.__module__ = loaded.name
        self.__doc__ = getattr(getattr(base.code, "decl", None), "doc", None)
        self._dims = {p.name: p.span for p in self.full_signature.parameters if p.is_dim}
        is_size = [p.is_dim for p in self.signature.parameters]
        # Equal functions share their specializations, also those that transformations create again.
        with loaded.lock:
            self._dispatch: DispatchCache = loaded.tables.setdefault((type, sizes), DispatchCache(is_size))

    @property
    def __signature__(self) -> inspect.Signature:
        return self.signature.python_signature

    @property
    def operator(self) -> str:
        """The derivative operator that made it, or an empty string."""
        return derivative_operator(self.function_type)

    def __repr__(self) -> str:
        bound = f" with {self.signature.bound}" if self.sizes else ""
        return f"<difflang function {self.__name__}{self.signature.python_signature}{bound}>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """The notebook display: signature, doc text and parameters, as plain text, HTML and Markdown."""
        return function_mimebundle(self)

    # ---- Calls

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Its value. Errors: ArgumentError before anything is traced; IndexFailure, AssertionFailure afterwards."""
        # The fast path: positional arguments of types seen before skip all Python analysis.
        if not kwargs and not self.captures:
            try:
                value = self._dispatch.try_call(args)
            except DifflangError as error:
                raise classify_error(error) from None
            if value is not UNKNOWN:
                return value
        with classify_errors():
            given, key = self._bind_arguments(args, kwargs)
            found = self._specialize(given)
            value = found.run(given.leaves, key)
            if not kwargs and not self.captures and not any(map(is_foreign, args)):
                self._dispatch.remember(found, args)
            return value

    def _with_type(self, type: ClosureType, sizes: Dims | None = None) -> Self:
        return self.__class__(self.loaded, type, self.captures, self.sizes if sizes is None else sizes)

    def interpret(self, /, *args: Any, **kwargs: Any) -> Any:
        """Its value by the interpreter: NumPy arrays in the same structure."""
        with classify_errors():
            given, key = self._bind_arguments(args, kwargs)
            return self._specialize(given).interpret(given.leaves, key)

    def run_checked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], Any]:
        """The numbers of a failure and the value; see `checked`."""
        given, key = self._bind_arguments(args, kwargs)
        return self._specialize(given).run_checked(given.leaves, key)

    def _specialize(self, given: CallArguments) -> Specialization:
        key = given.key
        found = self._dispatch.specializations.get(key)
        if found is None:
            with self.loaded.lock:
                found = self._dispatch.specializations.get(key)
                if found is None:
                    found = Specialization(
                        self.loaded, self.__name__, self.full_signature, self.function_type, given, Function
                    )
                    self.loaded.warn((*found.entry.warnings, *found.unlimited.made.executable.offload_warnings))
                    self._dispatch.specializations[key] = found
                    self._drop_least_recent(found)
        else:
            self.loaded.recent.get(found)
        return found

    def _drop_least_recent(self, added: Specialization) -> None:
        """Make room for a specialization. The lock is held."""
        for gone, table in self.loaded.recent.add(added, (added, self._dispatch)):
            table.forget(gone)
            gone.release()

    def _bind_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[CallArguments, Any]:
        """Bind arguments to parameters: sizes separately, the rest as leaves."""
        key = kwargs.pop("key", None) if "key" not in self.signature.names else None
        named = self._arguments_by_name(args, kwargs)
        if self.sizes:
            # Bound sizes are passed as arguments of the full signature.
            named |= {n: size for n, size in self.sizes if n in self._dims}
            named = {n: named[n] for n in self.full_signature.names if n in named}
        dims = tuple((n, parse_size(n, named[n], self._dims[n])) for n in named if n in self._dims)
        values = tuple(self._plain_value(n, v) for n, v in named.items() if n not in self._dims)
        leaves, structure = pytrees.flatten_tree((self.captures, values))
        return CallArguments(tuple(named), dims, leaves, structure, self.expected_type, self.sizes), key

    def _plain_value(self, name: str, value: Any) -> Any:
        """A value of another library as arrays. Errors: DL1206."""
        if not is_foreign(value):
            return value
        parameters = [p for p in self.full_signature.parameters if p.name == name]
        declared = parameters[0].declared_type if parameters else None
        return convert_foreign(value, record_fields(declared, self.loaded.module), name)

    def _arguments_by_name(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Arguments by parameter, in the parameters' order. Errors: DL1207."""
        signature, names = self.signature, self.signature.names
        if not signature.fixed:
            if kwargs:
                raise make_error("DL1207", f"`{self.__name__}` takes its arguments by position only")
            return {f"_{i}": x for i, x in enumerate(args)}
        if len(args) > len(names):
            raise wrong_call(self, f"takes {len(names)} argument{'s' * (len(names) != 1)}, not {len(args)}")
        named = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name not in names:
                near = nearest_word(name, names)
                raise wrong_call(self, f"has no parameter `{name}`", f"did you mean `{near}`?" if near else "")
            if name in named:
                raise wrong_call(self, f"got `{name}` twice")
            named[name] = value
        missing = [
            p
            for p in signature.parameters
            if p.name not in named and not (p.optional and can_omit(signature, p, named))
        ]
        if missing:
            raise wrong_call(self, "is missing " + ", ".join(f"`{p.name}`" for p in missing))
        return {n: named[n] for n in names if n in named}

    def check_grad(
        self,
        *args: Any,
        wrt: int | str | None = None,
        order: int = 1,
        directions: int = 3,
        seed: int = 0,
        compiled: bool = True,
        **kwargs: Any,
    ) -> GradcheckReport:
        """Check its gradient at these arguments: compiled, interpreted, in both modes and by finite differences.

        It checks all real parameters, or the one that `wrt` names; the seed chooses the directions. The report has a
        `.table()`; `str` of it shows that.

        Errors: GradientMismatch if the derivative is wrong; it names the first operation at fault and its line.
        DifflangWarning if there is no derivative: the kink is named.
        """
        with classify_errors():
            given, key = self._bind_arguments(args, kwargs)
            name = None if wrt is None else self._wrt_name(self._wrt_path(wrt))
            report = self._specialize(given).gradient_report(
                given.leaves,
                key,
                CheckGradOptions(order, directions, seed, name, compiled, mesh=self.loaded.checked.session.mesh),
            )
            found = report.diagnostics()
            if not report.right:
                error = GradientMismatch(*found)
                error.report = report
                raise error
        if found:
            issue_warning(found)
        return report

    def trace(self, *args: Any, wrt: int | str | None = None, rows: int = tracing.ROWS, **kwargs: Any) -> tracing.Trace:
        """The evaluation at these arguments row by row: values, tangents, adjoints, and the line of each.

        Tangent columns are for scalar parameters, or for the one that `wrt` names; adjoints are those of the first real
        result, if that is a scalar. `str` of it is a table of at most `rows` rows; it has `.to_latex()`, `.to_html()`
        and `.to_json()`.

        Errors: as in a call; DL1222 for a run of more than 100,000 steps.
        """
        with classify_errors():
            given, key = self._bind_arguments(args, kwargs)
            name = None if wrt is None else self._wrt_name(self._wrt_path(wrt))
            return self._specialize(given).evaluation_trace(
                given.leaves, key, tracing.TraceOptions(wrt=name, rows=rows)
            )


def record_fields(declared: tree.TypeExpr | None, module: ModuleScope) -> list[str] | None:
    """The fields of the record that a parameter is declared as, or an array of; None for another type."""
    written = declared.item if isinstance(declared, tree.TypeArray) else declared
    found = module.records.get(".".join(written.path)) if isinstance(written, (tree.TypeName, tree.TypeApply)) else None
    return [f.name for f in found.fields] if isinstance(found, tree.Record) else None


def wrong_call(function: Function, what: str, help: str = "") -> DifflangError:
    shown = f"it is {function.__name__}{function.signature.python_signature}"
    return make_error("DL1207", f"`{function.__name__}` {what}", help=f"{help}\n{shown}" if help else shown)


def can_omit(signature: Signature, parameter: Parameter, named: dict[str, Any]) -> bool:
    """Whether a parameter with a default may be omitted: in a derivative only together with all later ones but
    tangents.
    """
    if signature.gaps:
        return True
    after = signature.parameters[signature.parameters.index(parameter) + 1 :]
    return not any(p.name in named and p.tangent_of is None for p in after)


def flatten_function(f: Function) -> tuple[tuple[Any, ...], Any]:
    return f.captures, (f.loaded, f.function_type, f.sizes)


def unflatten_function(rest: Any, captured: Any) -> Function:
    loaded, type, sizes = rest
    return Function(loaded, type, tuple(captured), sizes)


pytrees.register_node(Function, flatten_function, unflatten_function)
