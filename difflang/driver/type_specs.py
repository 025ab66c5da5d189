"""Types written outside a program, such as `f32[3, 4]` or `Mlp[64, 32, 10]`: what arguments will be."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from difflang.base.diagnostics import DifflangError
from difflang.base.error_codes import nearest_word
from difflang.base.source import Source
from difflang.driver.elaborate_call import CallArgument
from difflang.elaborate.calls.signatures import is_dim
from difflang.ir import symbolic_dims
from difflang.ir.symbolic_dims import Poly
from difflang.ir.tensor_types import DTYPES, DType, Tensor
from difflang.syntax import tree
from difflang.syntax.parse import parse
from difflang.syntax.tree_queries import mentioned_names
from difflang.types.annotations import AnnotationResolver, TypeBinding, size_names
from difflang.types.dtype_variables import DTYPE_BOUNDS
from difflang.types.language_types import UNIT, FnType, LangType, TextType, leaf_types, show_type
from difflang.types.module_scope import ModuleScope
from difflang.types.type_errors import DeferCheck, make_error
from difflang.types.unify import Unifier

NUMBER = re.compile(r"\s*-?\d{1,10}\s*", re.ASCII)
MOST = 2**31  # in a program a size is an i32
PLAIN = re.compile(r"\s*(\w+)\s*(?:\[\s*(\d+(?:\s*,\s*\d+)*)\s*\])?\s*", re.ASCII)


def parse_type(text: str, module: ModuleScope) -> LangType:
    """The type that a text spells, with numbers for sizes. Errors: DL1210."""
    found = PLAIN.fullmatch(text)
    if found is not None and found[1] in DTYPES:
        shape = tuple(int(n) for n in found[2].split(",")) if found[2] else ()
        return Tensor(DTYPES[found[1]], shape)
    source = Source("<type>", f"fn f(x: {text}) = 0")
    parsed = parse(source)
    items = parsed.module.items
    if parsed.diagnostics or len(items) != 1 or not isinstance(items[0], tree.Fn) or len(items[0].params) != 1:
        raise invalid_type_error(text)
    written = items[0].params[0].type
    assert written is not None
    try:
        return AnnotationResolver(Unifier(), module.records.get).type(written)
    except DifflangError as error:
        raise invalid_type_error(text, error.diagnostics[0].message) from None


def invalid_type_error(text: str, why: str = "") -> DifflangError:
    message = f"`{text}` is not an argument type" + (f": {why}" if why else "")
    return make_error("DL1210", message, help="write `f32[3, 4]`, or `f32` for a number")


def declared_arguments(
    module: ModuleScope,
    decl: tree.Fn,
    argument_specs: Mapping[str, str],
    bound: Mapping[str, TypeBinding] | None = None,
    option: str = "--arg ",
    *,
    functions: bool = False,
) -> tuple[CallArgument, ...]:
    """The arguments of a function by its declaration: `told` gives types, of parameters and for generic names, and
    numbers for sizes.

    `bound` says what those names in its types stand for that this leaves open, `option` what stands before what is
    told; `functions` that a function may be known by its type.

    Errors: DL1210 for what is told wrongly, or not told and needed; DL1207 for a name that is not there.
    """
    annotations = AnnotationResolver(Unifier(), module.records.get, {}, {g.name: g.bound for g in decl.generics})
    annotations.bound = dict(parse_sizes(decl, argument_specs, annotations))
    types: dict[str, LangType] = {}
    names = [p.name for p in decl.params]
    sizes = {n for p in decl.params if p.type is not None for n in mentioned_names(p.type)}
    for name, text in argument_specs.items():
        if name in annotations.generics:
            check_argument_type(decl, name, parse_type(text, module), annotations)
        elif name not in names and not (name in sizes and name in annotations.bound):
            near = nearest_word(name, [*names, *sizes])
            raise make_error("DL1207", f"`{decl.name}` has no parameter or size `{name}`",
                          help=f"did you mean `{near}`?" if near else f"it has {', '.join(names)}")  # fmt: skip
        elif name not in annotations.bound:
            types[name] = check_argument_type(decl, name, parse_type(text, module), annotations)
    annotations.bound = {**(bound or {}), **annotations.bound}
    arguments: list[CallArgument] = []
    gap = False
    for param in decl.params:
        size = annotations.bound.get(param.name)
        if is_dim(param.type) and isinstance(size, (int, Poly)):
            arguments.append(CallArgument(param.name, UNIT, size, gap))
        elif (type := types.get(param.name) or complete_declared_type(param, annotations, functions)) is not None:
            arguments.append(CallArgument(param.name, type, None, gap))
        elif param.default is not None:
            gap = True
        else:
            raise missing_argument_error(decl, param, annotations, option)
    return tuple(arguments)


def parse_sizes(decl: tree.Fn, told: Mapping[str, str], annotations: AnnotationResolver) -> dict[str, int]:
    """The sizes that are told as numbers. Errors: DL1210 for one that is none; a `dim` may be negative."""
    dims = {p.name for p in decl.params if is_dim(p.type)}
    sizes = {n for p in decl.params if p.type is not None for n in size_names(p.type, annotations)} - dims
    found: dict[str, int] = {}
    for name, text in told.items():
        number = int(text) if NUMBER.fullmatch(text) else None
        if number is not None and (0 if name in sizes else -MOST) <= number < MOST:
            found[name] = number
        elif name in sizes | dims:
            what = "a whole number" if name in dims else "a whole number that is not negative"
            raise make_error(
                "DL1210", f"the size `{name}` must be {what}, but `{text}` was given", help=f"write `{name}=3`"
            )
    return found


def check_argument_type(decl: tree.Fn, name: str, type: LangType, annotations: AnnotationResolver) -> LangType:
    """The type that is told of a parameter, or for a generic name. Errors: DL1210."""
    generic = next((g for g in decl.generics if g.name == name), None)
    if generic is not None:
        written, place = tree.TypeName(generic.span, (name,)), generic.span
    else:
        written = next(p.type for p in decl.params if p.name == name)
        place = written.span if written is not None else decl.name_span
    if written is not None and not annotations.match(written, type):
        message = f"the type given for `{name}` is {show_type(type)}, but its declared type is {place.text}"
        raise make_error("DL1210", message, (place, "here"))
    return type


def complete_declared_type(param: tree.Param, annotations: AnnotationResolver, functions: bool) -> LangType | None:
    """The declared type, if it says everything."""
    if param.type is None or is_dim(param.type):
        return None
    try:
        type = annotations.type(param.type)
    except (DifflangError, DeferCheck):
        return None
    if holds_function(type) and not (functions and isinstance(type, FnType)):
        if param.default is not None:
            return None
        what = "is a function" if isinstance(type, FnType) else "holds a function"
        way = "write a function that calls this one with it, and use that function instead"
        raise make_error(
            "DL1210", f"`{param.name}` {what}, and no argument is given for it", (param.span, ""), help=way
        )
    return None if type == TextType() else type


def holds_function(type: LangType) -> bool:
    """Whether a value of this type is a function of which only the type is known, or has one in it."""
    inner = getattr(type, "fields", None) or getattr(type, "items", None) or getattr(type, "options", ())
    return isinstance(type, FnType) or any(map(holds_function, inner))


def missing_argument_error(
    decl: tree.Fn, param: tree.Param, annotations: AnnotationResolver, option: str
) -> DifflangError:
    """What has to be told of a function, all at once."""
    if is_dim(param.type):
        missing = [param.name]
    else:
        written = [p.type for p in decl.params if p.type is not None and p.default is None and not is_dim(p.type)]
        named = dict.fromkeys(n for w in written for n in size_names(w, annotations))
        missing = [n for n in named if n not in annotations.bound]
    what = f"the size{'s' * (len(missing) > 1)} {', '.join(missing)}" if missing else f"the type of `{param.name}`"
    example = " ".join(f"{option}{n}=3" for n in missing) or f"{option}{param.name}=f32[3]"
    message = f"difflang cannot write down `{decl.name}` without {what}"
    return make_error("DL1210", message, (param.span, ""), help=f"add `{example}`")


def function_size_names(module: ModuleScope, decl: tree.Fn) -> tuple[str, ...]:
    """The names of sizes in what a function takes, in the order in which they appear."""
    return param_size_names(module, [(p.name, p.type) for p in decl.params], {g.name: g.bound for g in decl.generics})


def param_size_names(
    module: ModuleScope, params: Sequence[tuple[str, tree.TypeExpr | None]], generics: Mapping[str, str | None]
) -> tuple[str, ...]:
    """The same of parameters, beside these generic names."""
    annotations = AnnotationResolver(Unifier(), module.records.get, {}, dict(generics))
    found: dict[str, None] = {}
    for name, written in params:
        if is_dim(written):
            found[name] = None
        elif written is not None:
            found |= dict.fromkeys(size_names(written, annotations))
    return tuple(found)


def signature_names(decl: tree.Fn) -> set[str]:
    """The parameters of a function, and the names in their types."""
    return {n for p in decl.params for n in (p.name, *(mentioned_names(p.type) if p.type is not None else ()))}


def symbolic_arguments(
    module: ModuleScope, decl: tree.Fn, argument_specs: Mapping[str, str], *, functions: bool = False
) -> tuple[tuple[CallArgument, ...], tuple[str, ...]]:
    """The arguments of a function, and the sizes that nobody told: those keep their names. Errors: DL1207, DL1210.

    With `functions` those that are functions are known by their types.
    """
    names = tuple([n for n in function_size_names(module, decl) if n not in argument_specs])
    bound: dict[str, TypeBinding] = {n: symbolic_dims.dim_name(n) for n in names}
    bound |= dict.fromkeys(any_shape_names(decl), ())
    bound |= {g.name: default_generic_type(module, g) for g in decl.generics}
    arguments = declared_arguments(module, decl, argument_specs, bound, functions=functions)
    return arguments, tuple([n for n in names if n in symbolic_size_names(arguments)])


def symbolic_size_names(arguments: Sequence[CallArgument]) -> set[str]:
    """The names of sizes in types of arguments."""
    sizes = [d for a in arguments for t in leaf_types(a.type) for d in t.shape]
    return {n for d in [*sizes, *[a.size for a in arguments if a.size is not None]] for n in symbolic_dims.dim_names(d)}


def default_generic_type(module: ModuleScope, generic: tree.Generic) -> DType | Tensor:
    """What a generic name stands for that nobody tells: the default float, as an element or as a whole type."""
    return module.default_float if generic.bound in DTYPE_BOUNDS else Tensor(module.default_float)


def any_shape_names(decl: tree.Fn) -> list[str]:
    """The names that stand for any number of axes in what a function takes: it is derived for single numbers."""
    found: list[str] = []
    todo: list[object] = [p.type for p in decl.params]
    while todo:
        node = todo.pop()
        if isinstance(node, tree.AnyShape):
            found.append(node.name)
        elif isinstance(node, tuple):
            todo += node
        elif isinstance(node, tree.TypeApply):
            todo += node.args
        elif isinstance(node, tree.TypeTuple):
            todo += node.items
        elif isinstance(node, tree.TypeFn):
            todo += (node.param, node.result)
    return found
