"""The class of functions loaded from artifacts: called, differentiated, interpreted, and used in JAX programs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from difflang.artifact import graph_derivatives, jacobians
from difflang.artifact.artifact_graph import ArtifactContext, ArtifactProgram, GraphFunction, refuse_broken_graph
from difflang.artifact.graph_derivatives import WrtTarget, wrt_targets
from difflang.artifact.symbolic_sizes import sizes_of_call, with_sizes
from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.base.error_codes import suggestion
from difflang.base.errors import Unpicklable, classify_errors
from difflang.driver.python_parameters import UnquotedText, parameter_kind
from difflang.driver.python_warnings import issue_warning
from difflang.runtime import pytrees
from difflang.runtime.jax_export import load_exported
from difflang.runtime.value_layouts import RecordLayout, StaticLayout

WrtSpec = int | str | Sequence[int | str]


class ArtifactFunction(Unpicklable):
    """A function from an artifact, for arguments of the types that it was exported for.

    Called with NumPy or JAX arrays and Python numbers, it returns JAX arrays. Records are passed as their dataclass, or
    as a dict, NamedTuple or dataclass with the same fields. It can be part of any JAX program, whose transformations
    differentiate it by the compiler's own rules.
    """

    def __init__(self, surface: ArtifactContext, body: GraphFunction, held: Sequence[Any] | None = None) -> None:
        self._context, self._body = surface, body
        self._held_arrays = surface.constants if held is None else held
        self._runner: ArtifactProgram | None = None
        self.__name__ = self.__qualname__ = body.name
        self.__module__ = surface.contents.module
        self.__doc__ = surface.contents.doc if body.name == surface.contents.name else None

    @property
    def __signature__(self) -> inspect.Signature:
        body, optional = self._body, True
        kind, empty = parameter_kind([p.name for p in body.params]), inspect.Parameter.empty
        params: list[inspect.Parameter] = []
        for p in reversed(body.params):
            optional = optional and isinstance(p.layout, StaticLayout)
            default = p.layout.value if optional and isinstance(p.layout, StaticLayout) else empty
            params.insert(0, inspect.Parameter(p.name, kind, default=default, annotation=UnquotedText(p.layout)))
        if body.random:
            params.append(inspect.Parameter("key", inspect.Parameter.KEYWORD_ONLY, annotation=UnquotedText("key")))
        return inspect.Signature(params, return_annotation=UnquotedText(body.result))

    def __repr__(self) -> str:
        return f"<difflang function {self.__name__}{self.__signature__} from an artifact>"

    @property
    def classes(self) -> dict[str, type]:
        """The classes of the records and variants in its parameters and result, by name."""
        layouts = [*[p.layout for p in self._body.params], self._body.result]
        found: dict[str, type] = {}
        while layouts:
            layout = layouts.pop()
            layouts += getattr(layout, "parts", ())
            if isinstance(layout, RecordLayout):
                found[layout.shape.name] = self._context.class_of(layout)
        return found

    # ---- Calls

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Its value. Errors: ArgumentError before anything runs; IndexFailure, AssertionFailure afterwards."""
        with classify_errors():
            if self._body.sizes:
                return self._for_call(args, kwargs)(*args, **kwargs)
            self._program.sync_capacity()
            return self._program.call(self._arrays(args, kwargs))

    def interpret(self, /, *args: Any, **kwargs: Any) -> Any:
        """Its value by the interpreter: NumPy arrays in the same structure."""
        with classify_errors():
            if self._body.sizes:
                return self._for_call(args, kwargs).interpret(*args, **kwargs)
            return self._program.interpreted(self._arrays(args, kwargs))

    def bind(self, **sizes: Any) -> ArtifactFunction:
        """The function with numbers for some of its symbolic sizes. Errors: ArgumentError for other names."""
        with classify_errors():
            for name, size in sizes.items():
                if name not in self._body.sizes:
                    raise self._argument_error(f"has no symbolic size `{name}`")
                if isinstance(size, bool) or not isinstance(size, int) or size < 0:
                    raise self._argument_error(f"got {size!r:.40} for the size `{name}`")
            return self._for_sizes(sizes)

    def _for_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ArtifactFunction:
        """The function for the sizes of these arguments."""
        names = [p.name for p in self._body.params]
        given = {n: x for n, x in kwargs.items() if n != "key" or n in names}
        return self._for_sizes(sizes_of_call(self._body, self._bind_arguments(names, args, given)))

    def _for_sizes(self, sizes: dict[str, int]) -> ArtifactFunction:
        key = self._body, tuple([sizes.get(name, -1) for name in self._body.sizes])
        with self._context.run_context.lock:
            found = self._context.sized.get(key)
            if found is None:
                found = ArtifactFunction(self._context, with_sizes(self._body, sizes), self._held_arrays)
                self._context.sized.add(key, found)
            return found

    @property
    def _program(self) -> ArtifactProgram:
        if self._runner is None:
            # One lock for all functions of the file.
            with self._context.run_context.lock:
                if self._runner is None:
                    surface = self._context
                    begun = ArtifactProgram(
                        surface, self._body, lambda body, held: ArtifactFunction(surface, body, held)
                    )
                    issue_warning(begun.unlimited.made.executable.offload_warnings)
                    self._runner = begun
        return self._runner

    def _arrays(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        names = [p.name for p in self._body.params]
        key = kwargs.pop("key", None) if "key" not in names else None
        return self._program.program_inputs(self._bind_arguments(names, args, kwargs), key, self._held_arrays)

    def _bind_arguments(self, names: list[str], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The arguments in the order of the parameters; fixed ones may be omitted. Errors: DL1207."""
        if len(args) > len(names):
            raise self._argument_error(f"takes {len(names)} argument{'s' * (len(names) != 1)}, not {len(args)}")
        named = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name not in names:
                raise self._argument_error(f"has no parameter `{name}`", suggestion(name, names, ""))
            if name in named:
                raise self._argument_error(f"got `{name}` twice")
            named[name] = value
        named = {p.name: p.layout.value for p in self._body.params if isinstance(p.layout, StaticLayout)} | named
        missing = [f"`{n}`" for n in names if n not in named]
        if missing:
            raise self._argument_error(f"is missing {', '.join(missing)}")
        return [named[n] for n in names]

    def _argument_error(self, what: str, help: str = "") -> DifflangError:
        shown = f"it is {self.__name__}{self.__signature__}"
        helps = (f"{help}\n{shown}" if help else shown,)
        return DifflangError(Diagnostic("DL1207", f"`{self.__name__}` {what}", helps=helps))

    # ---- Derivatives

    def grad(self, wrt: WrtSpec = 0, *more: int | str) -> ArtifactFunction:
        """The gradient in a parameter: by position, by name, or by a path of fields such as `"m.w"`.

        Several parameters give a record with those names. The function's result must be one real number.
        """
        return self._derive(graph_derivatives.gradient, wrt, more)

    def value_and_grad(self, wrt: WrtSpec = 0, *more: int | str) -> ArtifactFunction:
        """The value, and the gradient as by `grad`."""
        return self._derive(partial(graph_derivatives.gradient, operator="value_and_grad"), wrt, more)

    def jvp(self, wrt: WrtSpec = 0, *more: int | str) -> ArtifactFunction:
        """A function of the arguments, then a tangent for each `wrt`: the value, and its tangent."""
        return self._derive(graph_derivatives.jvp, wrt, more)

    def vjp(self, wrt: WrtSpec = 0, *more: int | str) -> ArtifactFunction:
        """A function of the arguments: the value, and the pullback, a function of a cotangent of the value."""
        return self._derive(partial(graph_derivatives.build_linear_map, operator="vjp"), wrt, more)

    def linearize(self, wrt: WrtSpec = 0, *more: int | str) -> ArtifactFunction:
        """A function of the arguments: the value, and the derivative there, a function of a tangent."""
        return self._derive(partial(graph_derivatives.build_linear_map, operator="linearize"), wrt, more)

    def hvp(self, wrt: WrtSpec = 0, *more: int | str) -> ArtifactFunction:
        """A function of the arguments, then a tangent for each `wrt`: the Hessian-vector product."""
        return self._derive(graph_derivatives.hvp, wrt, more)

    def deriv(self, wrt: int | str = 0) -> ArtifactFunction:
        """The derivative of a function of one real number."""
        return self._derive(graph_derivatives.deriv, wrt, ())

    def hessian(self, wrt: int | str = 0) -> ArtifactFunction:
        """All second derivatives as an array, `[..argument, ..argument]`."""
        return self._jacobian(jacobians.hessian, wrt)

    def jacobian(self, wrt: int | str = 0) -> ArtifactFunction:
        """All derivatives of an array as an array, `[..result, ..argument]`, in the cheaper mode."""
        return self._jacobian(jacobians.cheapest_jacobian, wrt)

    def jacfwd(self, wrt: int | str = 0) -> ArtifactFunction:
        """The Jacobian in forward mode."""
        return self._jacobian(partial(jacobians.build_jacobian, columns=True, operator="jacfwd"), wrt)

    def jacrev(self, wrt: int | str = 0) -> ArtifactFunction:
        """The Jacobian in reverse mode."""
        return self._jacobian(partial(jacobians.build_jacobian, columns=False, operator="jacrev"), wrt)

    def _jacobian(
        self, make: Callable[[GraphFunction, Sequence[WrtTarget]], GraphFunction], wrt: int | str
    ) -> ArtifactFunction:
        """All derivatives, which take a direction for each number. Errors: DL0801 for symbolic sizes."""
        if self._body.sizes:
            with classify_errors():
                message = f"the sizes of `{self.__name__}` are symbolic: a Jacobian needs numbers"
                way = f"bind them first: `f.bind({self._body.sizes[0]}=3)`"
                raise DifflangError(Diagnostic("DL0801", message, helps=(way,)))
        return self._derive(make, wrt, ())

    def _derive(
        self,
        make: Callable[[GraphFunction, Sequence[WrtTarget]], GraphFunction],
        wrt: WrtSpec,
        more: tuple[int | str, ...],
    ) -> ArtifactFunction:
        first: list[int | str] = [*wrt] if isinstance(wrt, (list, tuple)) else [wrt]  # type: ignore[list-item]
        with classify_errors(), self._context.run_context.lock, refuse_broken_graph():
            return ArtifactFunction(
                self._context, make(self._body, wrt_targets(self._body, [*first, *more])), self._held_arrays
            )

    # ---- StableHLO

    @property
    def platforms(self) -> tuple[str, ...]:
        """The platforms with StableHLO in the file."""
        return tuple(self._context.contents.exported)

    def exported(self, platform: str) -> Any:
        """The function as a `jax.export.Exported`, as stored in the file for a platform.

        It takes the leaves of the arguments, a key if it is random, and the arrays in the file; it returns the leaves
        of the result and, if a check can fail, the check's number. Errors: DL0601, DL0709.
        """
        with classify_errors():
            contents = self._context.contents
            if platform not in contents.exported:
                way = f"it has {', '.join(contents.exported) or 'none'}"
                raise DifflangError(
                    Diagnostic("DL0601", f"this artifact has no StableHLO for `{platform}`", helps=(way,))
                )
            return load_exported(contents.exported[platform])


def flatten_function(f: ArtifactFunction) -> tuple[tuple[Any, ...], Any]:
    return tuple(f._held_arrays), (f._context, f._body)  # pyright: ignore[reportPrivateUsage]


def unflatten_function(rest: Any, held: Any) -> ArtifactFunction:
    surface, body = rest
    return ArtifactFunction(surface, body, held)


pytrees.register_node(ArtifactFunction, flatten_function, unflatten_function)
