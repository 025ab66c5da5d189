"""Reports of names in other modules: missing, private, or assigned to; also of unknown and immutable variables."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from difflang.base.diagnostics import DifflangError
from difflang.base.fixes import did_you_mean, insertion_fix, replacement_fix
from difflang.base.package_data import stdlib_modules, stdlib_modules_of_name
from difflang.base.source import Span
from difflang.syntax.import_fixes import add_module_import
from difflang.types.module_scope import ModuleScope, RecordTable
from difflang.types.suggested_fixes import let_to_var_fix
from difflang.types.type_errors import DeferCheck, make_error

# What other libraries, or earlier versions of this one, call a name of the library.
OTHER_NAMES = {
    **dict.fromkeys(("logpdf", "log_pdf", "log_prob", "logpmf"), "log_density"),
    **dict.fromkeys(("pdf", "pmf", "prob"), "density"),
    **dict.fromkeys(("ppf", "icdf"), "quantile_of"),
    **dict.fromkeys(("rvs", "sample"), "draw"),
    "logcdf": "log_cdf",
    "logsf": "log_sf",
    "betaln": "log_beta",
    "companion": "polycompanion",
    "cov": "covariance",
    "dawsn": "dawson",
    "ellipe": "elliptic_e",
    "ellipk": "elliptic_k",
    "exp1": "exp_integral",
    "hanning": "hann",
    "huber": "huber_loss",
    "lambertw": "lambert_w",
    "log_ndtr": "log_normal_cdf",
    "zeta": "hurwitz_zeta",
}


def access_error(
    module: ModuleScope, name: str, span: Span, *, whole: Span | None = None, is_builtin: bool = False
) -> DifflangError | None:
    """Why a name of another module cannot be used; None if it can.

    `whole` is the span of the qualified name. `is_builtin` tells whether the bare name is one of the language.
    """
    found = module.declared.get(name)
    if found is None and is_builtin:
        fixes = (replacement_fix(whole, name),) if whole is not None else ()
        way = f"`{name}` belongs to the language and needs no module"
        return make_error("DL0723", missing_name_message(module, name), (span, ""), help=way, fixes=fixes)
    if found is None:
        return missing_name_error(module, name, span)
    if found.public:
        return None
    if name in module.imported or name in module.modules:
        way = "import it from the module that declares it"
        message = f"`{name}` is imported by `{module.name}`, not declared there"
        return make_error("DL0724", message, (span, ""), (found.span, "imported here"), help=way)
    labels = ((span, ""), (found.span, "declared here, without `pub`"))
    way = "write `pub` before its declaration"
    return make_error("DL0724", f"`{name}` is private to `{module.name}`", *labels, help=way)


def missing_name_error(module: ModuleScope, name: str, span: Span) -> DifflangError:
    public, words = sorted(module.public_names), split_words(name)
    homes = [home for home in stdlib_modules_of_name().get(name, ()) if home != module.name]
    other = OTHER_NAMES.get(name, "")
    if other in public:
        way, fixes = f"did you mean `{other}`?", ()  # no fix: its parameters may be others
    else:
        way, fixes = did_you_mean(name, public, span)
    if homes and not fixes:
        way = f"it is in `{homes[0]}`: `import {homes[0]} ({name})`"
    # Names that share a word with the missing one come first.
    akin = sorted((p for p in public if words & split_words(p)), key=lambda p: len(words ^ split_words(p))) or public
    some = ", ".join(akin[:12]) + (", …" if len(public) > min(12, len(akin)) else "")
    way = way or (f"it has {some}" if public else "it has no `pub` declarations")
    return make_error("DL0723", missing_name_message(module, name), (span, ""), help=way, fixes=fixes)


def split_words(name: str) -> set[str]:
    return set(name.casefold().split("_"))


def missing_name_message(module: ModuleScope, name: str) -> str:
    return f"the module `{module.name}` has no `{name}`"


def missing_type_error(records: RecordTable | None, name: str, span: Span) -> DifflangError | None:
    """The report of a missing type `model.Net`. Errors: DeferCheck where the import has failed."""
    qualifier, point, rest = name.rpartition(".")
    module = records.module if records is not None else None
    if not point or module is None:
        return None
    if qualifier in module.invalid_names:
        raise DeferCheck
    other = module.modules.get(qualifier)
    if other is None:
        way, fixes = did_you_mean(qualifier, module.modules, span)
        way = way or 'import it: `import "./file.dfl" as name`'
        if qualifier in stdlib_modules():
            way, fixes = f"import it: `import {qualifier}`", (add_module_import(span.source, qualifier),)
        return make_error("DL0201", f"there is no module `{qualifier}` here", (span, ""), help=way, fixes=fixes)
    place = Span(span.source, span.end - len(rest), span.end)
    way = "a value has this name, but a type must be a record"
    return access_error(other, rest, place) or make_error("DL0202", f"`{name}` is not a type", (place, ""), help=way)


def unknown_variable_error(
    module: ModuleScope, name: str, span: Span, known: Collection[str], *, top_level: bool
) -> DifflangError:
    """The report of an assignment to an unknown variable; the visible ones are `known`.

    `top_level` tells whether the assignment stands directly in a file or function, where a declaration would last.
    """
    if name in module.modules or name in module.imported:
        way = "bind a variable of your own: `var x = …`"
        return make_error("DL0208", f"`{name}` is imported and cannot change", (span, ""), help=way)
    way, fixes = did_you_mean(name, known, span)
    if len(re.findall(rf"\b{re.escape(name)}\b", span.source.text)) > 1:
        # A name used elsewhere is probably no typo: only its declaration is missing.
        fixes = ()
    if not way and top_level and re.match(r"[ \t]*=(?!=)", span.source.text[span.end : span.end + 99]):
        fixes = tuple(insertion_fix(span, f"{word} ", f"declare it: `{word} {name} = …`") for word in ("let", "var"))
    way = way or f"declare it with `let {name} = …`, or with `var {name} = …` if it changes"
    return make_error("DL0201", f"there is no variable `{name}` here", (span, ""), help=way, fixes=fixes)


def immutable_name_error(name: str, labels: Sequence[tuple[Span, str]], hidden: Span | None) -> DifflangError:
    """The report of an assignment to a `let`; the labels are the assignment and the binding.

    `hidden` is the variable of that name that the binding hides: it is probably the one that was meant.
    """
    if hidden is not None:
        labels = (*labels, (hidden, "this variable is hidden there"))
        way = f"this `{name}` hides the variable of line {hidden.position[0]}: give one of them another name"
        return make_error("DL0208", f"`{name}` is not a variable here", *labels, help=way)
    fixes = let_to_var_fix(labels[1][0]) if len(labels) > 1 else ()
    message = f"`{name}` is not a variable" if len(labels) > 1 else f"`{name}` is a parameter and cannot be assigned"
    # A parameter, the item of a loop or a part of a pattern cannot be declared as a variable.
    way = f"declare it with `var {name} = …`" if fixes else f"begin with `var {name} = {name}`"
    return make_error("DL0208", message, *labels, help=way, fixes=fixes)
