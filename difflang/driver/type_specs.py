"""Type specifications from outside a program, such as `f32[3, 4]` or `Mlp[64, 32, 10]`, for a call's arguments."""

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
from difflang.types.annotations import AnnotationResolver, size_names
from difflang.types.dtype_variables import DTYPE_BOUNDS
from difflang.types.language_types import UNIT, FnType, LangType, TextType, leaf_types, show_type
from difflang.types.module_scope import ModuleScope
from difflang.types.type_errors import DeferCheck, make_error
from difflang.types.type_resolver import TypeBinding
from difflang.types.unify import Unifier

NUMBER = re.compile(r"\s*-?\d{1,10}\s*", re.ASCII)
MOST = 2**31  # sizes are i32 in a program
# Plain array types skip the parser: they are by far the most common.
PLAIN = re.compile(r"\s*(\w+)\s*(?:\[\s*(\d+(?:\s*,\s*\d+)*)\s*\])?\s*", re.ASCII)


def parse_type(text: str, module: ModuleScope) -> LangType:
    """Parse a type with numbers for sizes. Errors: DL1210."""
    found = PLAIN.fullmatch(text)
    if found is not None and found[1] in DTYPES:
        shape = tuple(int(n) for n in found[2].split(",")) if found[2] else ()
        return Tensor(DTYPES[found[1]], shape)
    # The grammar has no start rule for types: parse a parameter of that type.
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


def is_text(decl: tree.Fn, name: str) -> bool:
    """Whether a parameter of a function is a text."""
    types = [p.type for p in decl.params if p.name == name]
    return len(types) == 1 and isinstance(types[0], tree.TypeName) and types[0].path == ("str",)


def declared_arguments(
    module: ModuleScope,
    decl: tree.Fn,
    argument_specs: Mapping[str, str],
    bound: Mapping[str, TypeBinding] | None = None,
    option: str = "--arg ",
    *,
    functions: bool = False,
) -> tuple[CallArgument, ...]:
    """The arguments of a function by its declaration. `argument_specs` gives types by parameter or generic name,
    numbers by size name, and texts.

    `bound` binds names in its types that the specs leave open. `option` is the prefix of a spec in messages. With
    `functions` a function argument may be known by its type only.

    Errors: DL1210 for a wrong or missing spec; DL1207 for an unknown name.
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
            open_sizes = [n for n in function_size_names(module, decl) if n not in names]
            parts = [noun_list("parameter", names), noun_list("size", open_sizes)]
            listed = " and ".join(part for part in parts if part) or "none"
            raise make_error("DL1207", f"`{decl.name}` has no parameter or size `{name}`",
                          help=f"did you mean `{near}`?" if near else f"it has {listed}")  # fmt: skip
        elif is_text(decl, name):
            types[name] = TextType(text)
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
        # An omitted argument: later ones must be passed by name.
        elif param.default is not None:
            gap = True
        else:
            raise missing_argument_error(decl, param, annotations, option)
    return tuple(arguments)


def parse_sizes(decl: tree.Fn, specs: Mapping[str, str], annotations: AnnotationResolver) -> dict[str, int]:
    """The sizes given as numbers. Errors: DL1210 for an invalid one; a `dim` may be negative."""
    dims = {p.name for p in decl.params if is_dim(p.type)}
    sizes = {n for p in decl.params if p.type is not None for n in size_names(p.type, annotations)} - dims
    found: dict[str, int] = {}
    for name, text in specs.items():
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
    """Match the type given for a parameter or a generic name with its declaration. Errors: DL1210."""
    generic = next((g for g in decl.generics if g.name == name), None)
    if generic is not None:
        written, place = tree.TypeName(generic.span, (name,)), generic.span
    else:
        written = next(p.type for p in decl.params if p.name == name)
        place = written.span if written is not None else decl.name_span
    known = dict(annotations.bound)
    if written is not None and not annotations.match(written, type):
        sizes = " and ".join([f"{n} = {known[n]}" for n in size_names(written, annotations) if n in known])
        declared = place.text + (f", where {sizes}" if sizes else "")
        message = f"the type given for `{name}` is {show_type(type)}, but its declared type is {declared}"
        raise make_error("DL1210", message, (place, "here"))
    return type


def complete_declared_type(param: tree.Param, annotations: AnnotationResolver, functions: bool) -> LangType | None:
    """The declared type if it is complete, else None."""
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
    """Whether a value of this type is, or contains, a function known only by its type."""
    inner = getattr(type, "fields", None) or getattr(type, "items", None) or getattr(type, "options", ())
    return isinstance(type, FnType) or any(map(holds_function, inner))


def missing_argument_error(
    decl: tree.Fn, param: tree.Param, annotations: AnnotationResolver, option: str
) -> DifflangError:
    """One error that names everything missing for a function."""
    if is_dim(param.type):
        missing = [param.name]
    else:
        written = [p.type for p in decl.params if p.type is not None and p.default is None and not is_dim(p.type)]
        named = dict.fromkeys(n for w in written for n in size_names(w, annotations))
        missing = [n for n in named if n not in annotations.bound]
    text = is_text(decl, param.name)
    what = noun_list("size", missing) or f"the {'text' if text else 'type'} of parameter `{param.name}`"
    example = " ".join(f"{option}{n}=3" for n in missing) or f"{option}{param.name}={'TEXT' if text else 'f32[3]'}"
    message = f"{what} of `{decl.name}` {'are' if len(missing) > 1 else 'is'} not given"
    return make_error("DL1210", message, (param.span, ""), help=f"add `{example}`")


def noun_list(noun: str, names: Sequence[str]) -> str:
    """`the sizes n, m`; empty if there are none."""
    return f"the {noun}{'s' * (len(names) > 1)} {', '.join(names)}" if names else ""


def function_size_names(module: ModuleScope, decl: tree.Fn) -> tuple[str, ...]:
    """The size names in a function's parameters, in order of appearance."""
    return param_size_names(module, [(p.name, p.type) for p in decl.params], {g.name: g.bound for g in decl.generics})


def param_size_names(
    module: ModuleScope, params: Sequence[tuple[str, tree.TypeExpr | None]], generics: Mapping[str, str | None]
) -> tuple[str, ...]:
    """The size names in parameters, given the generic names in scope."""
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
    """The arguments of a function, and the sizes without a spec, which stay symbolic. Errors: DL1207, DL1210.

    With `functions` function arguments are known by their types.
    """
    names = tuple([n for n in function_size_names(module, decl) if n not in argument_specs])
    bound: dict[str, TypeBinding] = {n: symbolic_dims.dim_name(n) for n in names}
    # Derivatives are written for scalars where any shape is allowed.
    bound |= dict.fromkeys(any_shape_names(decl), ())
    bound |= {g.name: default_generic_type(module, g) for g in decl.generics}
    arguments = declared_arguments(module, decl, argument_specs, bound, functions=functions)
    return arguments, tuple([n for n in names if n in symbolic_size_names(arguments)])


def symbolic_size_names(arguments: Sequence[CallArgument]) -> set[str]:
    """The size names in the types of arguments."""
    sizes = [d for a in arguments for t in leaf_types(a.type) for d in t.shape]
    return {n for d in [*sizes, *[a.size for a in arguments if a.size is not None]] for n in symbolic_dims.dim_names(d)}


def default_generic_type(module: ModuleScope, generic: tree.Generic) -> DType | Tensor:
    """The binding of a generic name without a spec: the default float, as an element type or as a whole type."""
    return module.default_float if generic.bound in DTYPE_BOUNDS else Tensor(module.default_float)


def any_shape_names(decl: tree.Fn) -> list[str]:
    """The names in a function's parameters that stand for any number of axes: it is derived for scalars."""
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
