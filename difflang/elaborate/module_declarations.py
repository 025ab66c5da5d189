"""Builds the module scope of a file: parses it, enters its declarations, loads the prelude, checks definitions."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache

import difflang.elaborate.registrations  # noqa: F401  # pyright: ignore[reportUnusedImport]  fills the registries
from difflang.base import package_data
from difflang.base.diagnostics import DifflangError
from difflang.base.fixes import did_you_mean
from difflang.base.source import Source, Span
from difflang.elaborate import specialization
from difflang.elaborate.context import Session
from difflang.elaborate.derivatives import custom_rules
from difflang.elaborate.trampoline import run_walk
from difflang.ir.tensor_types import DTYPES
from difflang.syntax import tree
from difflang.syntax.library_trees import parse_library
from difflang.syntax.parse import ParsedModule, parse
from difflang.syntax.tree_queries import pattern_names
from difflang.types.annotations import AnnotationResolver
from difflang.types.module_scope import DeclaredName, ModuleScope
from difflang.types.size_expressions import refuse_unbound_sizes
from difflang.types.type_errors import DeferCheck, make_error
from difflang.types.type_resolver import GENERIC_BOUNDS, declared_bounds
from difflang.types.unify import Unifier


def declare_module(
    source: Source,
    session: Session,
    default_float: str | None = None,
    other: ModuleScope | None = None,
    parsed: ParsedModule | None = None,
) -> tuple[ModuleScope, tree.Module]:
    """Parse a file, unless `parsed` is passed, and enter its declarations. Mistakes are reported to the session.

    `other` is another module of the same program.
    """
    parsed = parsed or parse(source)
    for diagnostic in parsed.diagnostics:
        session.report(DifflangError(diagnostic))
    default = DTYPES[default_float or parsed.module.default_float]
    module = ModuleScope(source, default, prelude=load_prelude())
    if other is not None:
        module.join_program(other)
    for item in parsed.module.items:
        enter_declaration(module, item, session)
    check_block_names(parsed.module.items, session)
    return module, parsed.module


def enter_declaration(module: ModuleScope, item: tree.Item, session: Session) -> None:
    """Enter one declaration. Errors are reported: a name declared twice, an unknown bound."""
    match item:
        case tree.Fn() | tree.Record():
            name, taken = item.name, declaration_span(module, item.name)
            if taken is not None:
                again, first = (item.name_span, "declared again here"), (taken, "first declared here")
                session.report(make_error("DL0210", f"`{name}` is declared twice", again, first))
            if isinstance(item, tree.Fn):
                module.fns[name] = item
            else:
                module.records[name] = item
                module.records.declaring_modules[item] = module
            module.declared[name] = DeclaredName(item.name_span, item.pub)
            check_bounds(item.generics, session)
            if isinstance(item, tree.Fn) and isinstance(item.body, tree.Foreign):
                # Nothing in the body could infer them.
                check_extern_types(item, session)
            parts = item.params if isinstance(item, tree.Fn) else item.fields
            check_distinct([(p.name, p.span) for p in parts], session)
        case tree.Enum():
            enter_enum(module, item, session)
        case tree.Axes():
            check_distinct([*module.axes.items(), *zip(item.names, item.name_spans, strict=True)], session)
            module.axes |= dict(zip(item.names, item.name_spans, strict=True))
        case tree.Rule(name=name):
            if name in module.rules:
                first, again = module.rules[name].name_span, item.name_span
                session.report(
                    make_error(
                        "DL0210", f"`{name}` has two rules", (again, "second rule here"), (first, "first rule here")
                    )
                )
            module.rules.setdefault(name, item)
            check_distinct([(p.name, p.span) for p in item.params], session)
        case tree.Let() | tree.Var():
            public = isinstance(item, tree.Let) and item.pub
            for name in pattern_names(item.pattern):
                module.declared[name] = DeclaredName(item.pattern.span, public)
        case _:
            pass


def enter_enum(module: ModuleScope, item: tree.Enum, session: Session) -> None:
    """Enter an enum and its variants, which are names of the file. Errors are reported: DL0210."""
    places = [(item.name, item.name_span), *[(v.name, variant_name_span(v)) for v in item.variants]]
    taken = {name: at for name, _ in places if (at := declaration_span(module, name)) is not None}
    check_distinct([*taken.items(), *places], session)
    module.records.setdefault(item.name, item)
    module.records.declaring_modules[item] = module
    check_bounds(item.generics, session)
    for index, variant in enumerate(item.variants):
        # The first declaration of a name stays, so later uses are checked against something.
        module.variants.setdefault(variant.name, (item, index))
        check_distinct([(f.name, f.span) for f in variant.fields], session)
    module.declared |= {name: DeclaredName(span, item.pub) for name, span in places}


def declaration_span(module: ModuleScope, name: str) -> Span | None:
    """The span of the function, record, enum or variant of that name, or None."""
    decl = module.fns.get(name) or module.records.get(name)
    if decl is not None:
        return decl.name_span
    enum, index = module.variants.get(name, (None, 0))
    return variant_name_span(enum.variants[index]) if enum is not None else None


def variant_name_span(variant: tree.Variant) -> Span:
    """The span of a variant's name in its declaration."""
    span = variant.span
    return Span(span.source, span.start, span.start + len(variant.name))


def check_bounds(generics: tuple[tree.Generic, ...], session: Session) -> None:
    """Check that the bounds of generic names exist. Errors are reported: DL0202."""
    for generic in generics:
        if generic.bound is not None and generic.bound not in GENERIC_BOUNDS:
            way, fixes = did_you_mean(generic.bound, GENERIC_BOUNDS, generic.span)
            way, label = way or f"the bounds are {', '.join(GENERIC_BOUNDS)}", (generic.span, "")
            session.report(make_error("DL0202", f"there is no bound `{generic.bound}`", label, help=way, fixes=fixes))


def check_extern_types(decl: tree.Fn, session: Session) -> None:
    """Check that all parameters of an `extern fn` have a type. Errors are reported: DL0343."""
    for param in decl.params:
        if param.type is None:
            message = f"`{decl.name}` is a function of Python: declare the types of its parameters"
            way = f"write its type: `{param.name}: f32[n]`"
            session.report(make_error("DL0343", message, (param.span, "this has no type"), help=way))


def check_distinct(names: list[tuple[str, Span]], session: Session) -> None:
    """Check that the parameters or fields of one list have different names. Errors are reported: DL0210."""
    first: dict[str, Span] = {}
    for name, span in names:
        place = Span(span.source, span.start, span.start + len(name))
        if name in first and name != "_":
            labels = ((place, "declared again here"), (first[name], "first declared here"))
            session.report(make_error("DL0210", f"`{name}` appears twice", *labels))
        first.setdefault(name, place)


def check_block_names(items: tuple[tree.Item, ...], session: Session) -> None:
    """Check that tests have different names, and benchmarks too. Errors are reported: DL0210."""
    first: dict[tuple[type, str], Span] = {}
    for item in items:
        if isinstance(item, (tree.Test, tree.Bench)):
            key, what = (type(item), item.name), "tests" if isinstance(item, tree.Test) else "benchmarks"
            if key in first:
                labels = ((item.name_span, "declared again here"), (first[key], "first declared here"))
                session.report(make_error("DL0210", f"two {what} are named {item.name_span.text}", *labels))
            first.setdefault(key, item.name_span)


@lru_cache(maxsize=1)
def load_prelude() -> ModuleScope:
    """The functions and rules of `stdlib/prelude.dfl`, which every file sees."""
    path = package_data.data_folder("stdlib") / "prelude.dfl"
    source, parsed = parse_library(path, "stdlib/prelude.dfl")
    module = ModuleScope(source)
    for item in parsed.module.items:
        if isinstance(item, tree.Fn):
            module.fns[item.name] = item
        elif isinstance(item, tree.Rule):
            module.rules[item.name] = item
    return module


def check_definition(module: ModuleScope, decl: tree.Fn, session: Session) -> None:
    """Check a function definition, with the top-level names above it."""
    # Host functions are checked with the statements of the file.
    if not decl.host:
        run_walk(specialization.check_definition(session, module, decl))


def check_declaration(module: ModuleScope, decl: tree.Record | tree.Enum, session: Session) -> None:
    """Check the field types of a record or an enum, with its generics as opaque names."""
    own = declared_bounds(decl)
    annotations = AnnotationResolver(Unifier(), module.records.get, {}, own, rigid=True)

    def undeclared(span: Span, name: str) -> DifflangError:
        way = f"declare the size with the type: `{decl.name}[{', '.join([*own, name])}]`"
        return make_error("DL0203", f"the size `{name}` is not declared", (span, ""), help=way)

    try:
        with suppress(DeferCheck):  # a generic type
            annotations.declaration_type(decl, {})
        for field in decl.fields if isinstance(decl, tree.Record) else [f for v in decl.variants for f in v.fields]:
            refuse_unbound_sizes(field.type, {*own, *module.records}, undeclared)
    except DifflangError as error:
        session.report(error)


def check_rule(module: ModuleScope, rule: tree.Rule, session: Session) -> None:
    """Check a rule definition."""
    run_walk(custom_rules.check_rule(session, module, rule))
