"""`difflang derive`: source-to-source differentiation, which gives a derivative as a program of the language.

The derivative is requested by a line of source, elaborated with symbolic sizes, differentiated and simplified.
`unparse` turns the graph into statements, and `render_derivative` adds records and a signature. The result is checked
before it is returned.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from difflang.base.diagnostics import Diagnostic, DifflangError, Label
from difflang.base.source import Source
from difflang.driver.checked_program import CheckedProgram
from difflang.driver.elaborate_call import CallArgument, ElaboratedCall, elaborate_call
from difflang.driver.run_program import load_values
from difflang.driver.type_specs import symbolic_arguments, symbolic_size_names
from difflang.elaborate.context import Session
from difflang.execution.engine import Engine
from difflang.ir.graph import Graph
from difflang.ir.op import TypeMismatch
from difflang.ir.symbolic_dims import UnknownSize
from difflang.ir.tensor_types import Tensor
from difflang.syntax import tree
from difflang.syntax.parse import parse
from difflang.tools.derive.opaque_parameters import bind_function_params, refuse_sums, variant_choices
from difflang.tools.derive.render_derivative import DerivativeText, render_program
from difflang.tools.derive.simplify_for_reading import let_names, simplify_graph, value_and_pullback
from difflang.tools.emit import parse_wrt, refuse_host_function, single_function
from difflang.types.function_code import FnCode, Wrt
from difflang.types.language_types import (
    KEY,
    ClosureType,
    KeyType,
    LangType,
    RecordType,
    VariantType,
    leaf_types,
    tangent_type,
)
from difflang.types.type_errors import DeferCheck, make_error
from difflang.unparse.fragments import CannotUnparse, CannotUnparseNestedHistory
from difflang.unparse.symbolic_formula import graph_formulas, latex_name, to_latex

Mode = Literal["grad", "jvp", "vjp", "hvp"]
MODES: tuple[Mode, ...] = ("grad", "jvp", "vjp", "hvp")
# Errors that symbolic sizes cause in a program that checks: with numbers for sizes they may disappear.
OPEN_SIZE_CODES = {"DL0303", "DL0304", "DL0305", "DL0310", "DL0315", "DL0332", "DL0334", "DL0336", "DL1002", "DL1003"}
MAX_ORDER = 4  # each order about triples the text
USAGE_CODES = ("DL0201", "DL0322", "DL0401", "DL0403", "DL1207", "DL1210", "DL1220")


class DeriveOptions(Struct, frozen=True):
    """Which derivative: its parameters, mode and order; types of arguments; arguments of the program."""

    wrt: str | None = None
    mode: Mode = "grad"
    order: int = 1
    argument_specs: Mapping[str, str] = field(default_factory=dict[str, str])
    words: tuple[str, ...] = ()


Warn = Callable[[Diagnostic], object]


def ignore_warning(warning: Diagnostic) -> None:
    """Ignore a warning."""


def derive(
    checked: CheckedProgram, path: Path | None, entry: str | None, options: DeriveOptions, warn: Warn = ignore_warning
) -> str:
    """The derivative of a function of a file, as a program. `warn` gets warnings about accidental zeros.

    Errors: DL0802 for what has no source form; as `emit` for mistakes in the request.
    """
    load_values(checked, path, Engine("interpret"), options.words)
    return derive_function(checked, single_function(checked, entry, "derive"), options, warn)


def derive_formulas(
    checked: CheckedProgram, path: Path | None, entry: str | None, options: DeriveOptions, *, latex: bool = False
) -> str:
    """The derivative of a function of scalars as formulas, one a line. Errors: as `derive`."""
    load_values(checked, path, Engine("interpret"), options.words)
    decl = single_function(checked, entry, "derive")
    request = DerivativeRequest(checked, decl, options)
    with report_unsupported(request):
        for argument in request.symbolic_arguments():
            refuse_sums(decl, argument.type)
        graph = simplify_graph(request.derivative_graph().graph, {})
        texts = graph_formulas(graph, {p: p.hint for p in graph.params})[: len(request.result_names)]
        texts = [to_latex(t) if latex else t for t in texts]
    heads = [partial_text(decl, w, latex=latex) for w in request.result_names]
    return "".join(f"{head} = {text}\n" for head, text in zip(heads, texts, strict=False))


def partial_text(decl: tree.Fn, result_name: str, *, latex: bool) -> str:
    """The left side of a formula: `d_x`, or a fraction of differentials."""
    if not latex or not result_name.startswith("d_"):
        return result_name or decl.name
    return rf"\frac{{\partial {latex_name(decl.name)}}}{{\partial {latex_name(result_name[2:])}}}"


def derive_function(checked: CheckedProgram, decl: tree.Fn, options: DeriveOptions, warn: Warn = ignore_warning) -> str:
    """The derivative of a function, given the values of its file. Errors: as `derive`."""
    refuse_host_function(decl, "it has no derivative")
    request = DerivativeRequest(checked, decl, options)
    with report_unsupported(request):
        choices = variant_choices(decl, request.symbolic_arguments())
        cases = [replace(request, variants=chosen) for chosen in choices]
        return render_program([render_derivative(case, warn if len(cases) == 1 else ignore_warning) for case in cases])


def render_derivative(request: DerivativeRequest, warn: Warn) -> DerivativeText:
    """The statements of a derivative for known variants of enums. Errors: CannotUnparse, or as `derive`."""
    entry = request.derivative_graph()
    if entry.warnings:
        # Warnings of the wrapper's elaboration refer to generated text.
        for warning in relocate_to_user(DifflangError(*entry.warnings), request.decl).diagnostics:
            warn(warning)
    # Reuse the program's variable names.
    names = let_names(request.checked, entry.graph)

    def rendered(*, unexpanded: bool = False) -> DerivativeText:
        graph = simplify_graph(
            request.unexpanded_graph(entry) if unexpanded else entry.graph, names, recompute=unexpanded
        )
        about = request.checked, request.decl, request.name, request.arguments, entry, graph
        return DerivativeText(*about, request.result_names, request.what).render_body()

    try:
        return rendered()
    except CannotUnparseNestedHistory:
        # A loop of unknown length inside another: recompute its steps instead of storing a history of histories.
        return rendered(unexpanded=True)


def may_depend_on_sizes(error: Exception) -> bool:
    """Whether symbolic sizes may have caused an error."""
    return not isinstance(error, DifflangError) or {d.code for d in error.diagnostics} <= OPEN_SIZE_CODES


@contextmanager
def report_unsupported(request: DerivativeRequest) -> Generator[None, None, None]:
    """Report what has no source form, or depends on symbolic sizes, as a diagnostic. Errors: DL0802."""
    try:
        yield
    except (DeferCheck, TypeMismatch, UnknownSize, DifflangError) as error:
        if not request.open_sizes or not may_depend_on_sizes(error):
            raise (relocate_to_user(error, request.decl) if isinstance(error, DifflangError) else error) from None
        what = str(error) if isinstance(error, UnknownSize) else ""
        raise size_dependent_error(request.decl, request.open_sizes, what) from None
    except CannotUnparse as error:
        raise unsupported_error(request.decl, error) from None


# ---- The request as a wrapper function


class DerivativeRequest(Struct, eq=False):
    """A requested derivative, expressed as the source of a wrapper function that calls the operator."""

    checked: CheckedProgram
    decl: tree.Fn
    options: DeriveOptions
    arguments: tuple[CallArgument, ...] = ()
    open_sizes: tuple[str, ...] = ()
    result_names: tuple[str, ...] = ()  # names for the parts of the result
    wrt_text: str = ""  # the parameters that it differentiates, for a message
    wrt_paths: tuple[str, ...] = ()  # the same as paths
    key: str = ""  # the name of its random key
    # The variant assumed for each parameter that is an enum.
    variants: Mapping[str, VariantType] = field(default_factory=dict[str, VariantType])

    def derivative_graph(self, session: Session | None = None) -> ElaboratedCall:
        """The graph of the derivative; if it is random, its key is the last argument. Errors: DL1210, DL0403, DL04."""
        self.arguments, self.key = self.symbolic_arguments(), ""
        text = self.wrapper_source()
        entry = self.elaborate_wrapper(text, self.arguments, session)
        if entry.random and self.variants:
            message = (
                f"`{self.decl.name}` draws random numbers, which differ if the variant of `{min(self.variants)}` "
                "is known"
            )
            way = "derive a function of the contents of its variants"
            raise make_error("DL0802", message, (self.decl.name_span, ""), help=way)
        if entry.random:
            self.key = self.unused("k")
            self.arguments += (CallArgument(self.key, KEY),)
            entry = self.elaborate_wrapper(text, self.arguments, session)
        return entry

    def elaborate_wrapper(
        self, text: str, arguments: Sequence[CallArgument], session: Session | None = None
    ) -> ElaboratedCall:
        """The graph of a wrapper function with this source, which draws from the key if there is one."""
        # A random wrapper draws from an explicit key, which becomes a parameter of the result.
        if self.key:
            head, body = text.split(") = ", 1)
            text = f"{head}, {self.key}) = with_key({self.key}) {{ {body} }}"
        module, parsed = self.checked.module, parse(Source("<derivative>", text))
        (wrapper,) = parsed.module.items
        assert isinstance(wrapper, tree.Fn)
        function = ClosureType(FnCode(wrapper, module), ())
        return elaborate_call(session or Session(), module, self.name, function, arguments)

    @property
    def name(self) -> str:
        """The name of the derivative."""
        mode, order = self.options.mode, self.options.order
        head = {"grad": "d" if order == 1 else f"d{order}"}.get(mode, mode)
        return f"{head}_{self.decl.name}"

    @property
    def what(self) -> str:
        """A description of the derivative."""
        order = self.options.order
        kinds = {
            "grad": "The gradient" if order == 1 else f"The derivative of order {order}",
            "jvp": "The value and the derivative along a tangent",
            "vjp": "The value and the pullback of a cotangent",
            "hvp": "The product of the Hessian and a tangent",
        }
        draws = f", with draws from the key `{self.key}`" if self.key else ""
        return f"{kinds[self.options.mode]} of `{self.decl.name}` with respect to {self.wrt_text}{draws}"

    def symbolic_arguments(self) -> tuple[CallArgument, ...]:
        """The arguments, with symbolic sizes where none are given."""
        decl = self.decl
        arguments, self.open_sizes = symbolic_arguments(
            self.checked.module, decl, self.options.argument_specs, functions=True
        )
        arguments = [replace(a, type=self.variants.get(a.name, a.type)) for a in arguments]
        return bind_function_params(decl, arguments)

    def wrapper_source(self) -> str:
        """The wrapper: `fn derivative(x, y) = grad[x](f)(x, y)`. Errors: DL0802 as `refuse_shadowed`."""
        decl, options = self.decl, self.options
        names = [a.name for a in self.arguments]
        self.refuse_shadowed(names)
        others = {a.name for a in self.arguments if isinstance(a.type, (ClosureType, KeyType))}
        numbers = [n for n in names if n not in others]
        wrt = [w.strip() for w in options.wrt.split(",")] if options.wrt else numbers[:1]
        if strange := others.intersection(wrt):
            message = f"cannot differentiate with respect to `{min(strange)}`: it contains no numbers that are known"
            raise make_error(
                "DL0401", message, (decl.name_span, ""), help=f"it takes {', '.join(numbers) or 'no numbers'}"
            )
        if not wrt:
            raise make_error(
                "DL0401", f"`{decl.name}` has no parameter to differentiate with respect to", (decl.name_span, "")
            )
        places = [parse_wrt(decl, w, self.checked.module) for w in wrt]
        paths = [wrt_path(decl, p) for p in places]
        self.wrt_paths = tuple(paths)
        given, which, params = ", ".join(names), ", ".join(paths), self.params_text(self.arguments)
        self.result_names = tuple([f"d_{p.replace('.', '_')}" for p in paths])
        self.wrt_text = ", ".join([f"`{p}`" for p in paths])
        if options.order > 1:
            self.refuse_order(paths)
        f, head = decl.name, self.wrapper_name
        match options.mode:
            case "grad":
                for _ in range(options.order):
                    f = f"grad[{which}]({f})"
                return f"fn {head}({params}) = {f}({given})"
            case "jvp" | "hvp":
                tangents = self.add_tangents(paths, [self.type_at(p) for p in paths])
                return f"fn {head}({params}, {tangents}) = {options.mode}[{which}]({f})({given}, {tangents})"
            case "vjp":
                return self.pullback_source(params, given, paths)

    def params_text(self, arguments: Sequence[CallArgument]) -> str:
        return ", ".join(f"{a.name}: dim" if a.size is not None else a.name for a in arguments)

    @property
    def wrapper_name(self) -> str:
        """A name for the wrapper that the file does not use."""
        head, module = "derivative", self.checked.module
        while head in module.declared or head in module.host or head in module.imported:
            head += "_"
        return head

    def hidden(self, words: Sequence[str], params: Sequence[str]) -> str:
        """The first operator name that the file or a parameter redefines; empty if there is none."""
        module = self.checked.module
        # A parameter or declaration with an operator's name hides the operator.
        known = {*params, *module.declared, *module.fns, *module.host, *module.imported}
        return next((w for w in words if w in known), "")

    def refuse_shadowed(self, params: Sequence[str]) -> None:
        """Errors: DL0802 if the wrapper cannot call the function, or the operator."""
        decl, mode = self.decl, self.options.mode
        word = decl.name if decl.name in params else self.hidden([mode, "grad"] if mode == "vjp" else [mode], params)
        if word:
            message = f"`{word}` means something else here, but the derivative of `{decl.name}` uses this name"
            raise make_error("DL0802", message, (decl.name_span, ""), help=f"rename the other `{word}`")

    def refuse_order(self, paths: Sequence[str]) -> None:
        """Errors: DL0802 for a higher derivative in something other than one scalar, DL1207 for an order that is too
        high.
        """
        if self.options.mode != "grad" or not 1 <= self.options.order <= MAX_ORDER:
            raise make_error("DL1207", f"`--order` must be 1 to {MAX_ORDER}, with `--mode grad`",
                          help="derive the derived program again")  # fmt: skip
        if len(paths) > 1 or leaf_types(self.type_at(paths[0])) != [self.type_at(paths[0])] or self.is_array(paths[0]):
            message = (
                f"a higher derivative with respect to `{', '.join(paths)}` is not a gradient: it is not one number"
            )
            way = "use `--mode hvp` for its product with a direction"
            raise make_error("DL0802", message, (self.decl.name_span, ""), help=way)

    def is_array(self, path: str) -> bool:
        return any(t.shape for t in leaf_types(self.type_at(path)))

    def type_at(self, path: str) -> LangType:
        """The type of a parameter, or of a field in it."""
        first, *fields = path.split(".")
        type = next(a.type for a in self.arguments if a.name == first)
        for name in fields:
            assert isinstance(type, RecordType)
            type = type.fields[type.names.index(name)]
        return type

    def add_tangents(self, names: Sequence[str], types: Sequence[LangType]) -> str:
        """Add arguments: a tangent of each of these types."""
        texts: list[str] = []
        for name, type in zip(names, types, strict=True):
            refuse_sums(self.decl, type)
            texts.append(self.unused(f"d_{name.replace('.', '_')}"))
            self.arguments += (CallArgument(texts[-1], tangent_type(type)),)
        self.result_names = ("", *[f"d_{self.decl.name}"])
        return ", ".join(texts)

    def unused(self, name: str) -> str:
        """A name similar to this one that no other argument has."""
        while name in {a.name for a in self.arguments} | symbolic_size_names(self.arguments) | {self.decl.name}:
            name += "_"
        return name

    def pullback_source(self, params: str, given: str, paths: Sequence[str]) -> str:
        """The source of a wrapper that returns the value and the cotangents of the arguments for a cotangent of the
        value.

        For a real result it is written as a gradient, which keeps the names of the program's values.
        """
        f, module, head = self.decl.name, self.checked.module, self.wrapper_name
        function = ClosureType(FnCode(self.decl, module), ())
        entry = elaborate_call(Session(), module, f, function, self.arguments)
        plain = entry.type
        result_names, which = self.result_names, ", ".join(paths)
        names = [a.name for a in self.arguments]
        (ct,) = self.add_tangents([f], [plain]).split(", ")
        self.result_names = ("", *result_names)
        # The gradient form calls the function twice, and a random function would draw twice.
        once = entry.random or bool(self.hidden(["sum"], names))
        if isinstance(plain, Tensor) and plain.dtype.is_float and not once:
            open_ = ", ".join(dict.fromkeys(p.partition(".")[0] for p in paths))
            inner = f"grad[{which}](|{open_}| sum({f}({given}) * {ct}))({open_})"
            return f"fn {head}({params}, {ct}) = ({f}({given}), {inner})"
        call = f"vjp[{which}]({f})({given})"
        return f"fn {head}({params}, {ct}) = {{\n  let (value, pull) = {call}\n  (value, pull({ct}))\n}}"

    def unexpanded_graph(self, entry: ElaboratedCall) -> Graph:
        """The graph of the derivative with its pullback not yet expanded."""
        if self.options.mode != "vjp":
            return entry.graph
        key = self.arguments[len(self.arguments) - bool(self.key) :]
        *arguments, ct = self.arguments[: len(self.arguments) - len(key)]
        given = ", ".join(a.name for a in arguments)
        text = f"fn {self.wrapper_name}({self.params_text(arguments)}) = {self.decl.name}({given})"
        return value_and_pullback(self.elaborate_wrapper(text, [*arguments, *key]), arguments, ct, self.wrt_paths)


def wrt_path(decl: tree.Fn, place: Wrt) -> str:
    """A parameter, or a field of one, by name."""
    first, *fields = place
    return ".".join([decl.params[first].name if isinstance(first, int) else first, *map(str, fields)])


# Generated texts, which no report may show.
SYNTHETIC_SOURCES = ("<derivative>", "<call>")


def relocate_to_user(error: DifflangError, decl: tree.Fn) -> DifflangError:
    """The error without labels in generated texts; at the function if no label is left."""
    found: list[Diagnostic] = []
    for each in error.diagnostics:
        labels = tuple([at for at in each.labels if at.span.source.name not in SYNTHETIC_SOURCES])
        found.append(replace(each, labels=labels or (Label(decl.name_span, ""),)))
    return DifflangError(*found)


def size_dependent_error(decl: tree.Fn, names: Sequence[str], what: str = "") -> DifflangError:
    """The error for a derivative that depends on sizes."""
    message = f"the derivative of `{decl.name}` is a different program for different values of {what or 'its sizes'}"
    specs = " ".join(f"--arg {n}=3" for n in names) or "--arg x=f32[3]"
    return make_error(
        "DL0802", message, (decl.name_span, ""), help=f"set them: `{specs}` writes the derivative for these"
    )


def unsupported_error(decl: tree.Fn, error: CannotUnparse) -> DifflangError:
    """The error for a derivative without a source form, at the user's line."""
    inside = error.span.source is decl.span.source
    labels = [Label(error.span, "")] if error.span else []
    if not inside or not labels:
        labels.append(Label(decl.name_span, "in the derivative of this function"))
    way = error.help or f"`grad({decl.name})` can still compute it"
    return DifflangError(
        Diagnostic("DL0802", f"a derivative that cannot be written: {error.reason}", tuple(labels), (way,))
    )
