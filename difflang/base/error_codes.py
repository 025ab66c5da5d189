"""Every diagnostic code with its title. A code never changes its meaning; a removed one stays unused.

The page `docs/errors/DLnnnn.md` of each code explains its causes and the way out.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

CODE_FAMILIES = {
    "01": "syntax",
    "02": "names",
    "03": "types and shapes",
    "04": "differentiation",
    "05": "control flow",
    "06": "devices and sharding",
    "07": "modules, files and data",
    "08": "not yet",
    "09": "failures while running",
    "10": "limits and memory",
    "11": "rules and linearity",
    "12": "Python and artifacts",
}

CODE_TITLES: dict[str, str] = {
    # ---- 01: syntax
    "DL0101": "a token that cannot appear here",
    "DL0102": "not a text file",
    "DL0103": "a bracket that is never closed",
    "DL0104": "a closing bracket without an opening one",
    "DL0105": "a string that is never closed",
    "DL0106": "a reserved word used as a name",
    "DL0107": "an unexpected character",
    "DL0108": "a word of another language",
    "DL0109": "an operator of another language",
    "DL0110": "a semicolon",
    "DL0111": "`=` used as a comparison",
    "DL0112": "an assignment to something that is not assignable",
    "DL0113": "a `+` sign before a value",
    "DL0114": "a block without braces",
    "DL0115": "single quotes around text",
    "DL0116": "a malformed number",
    "DL0117": "an unknown escape in a string",
    "DL0118": "a brace in a string",
    "DL0119": "a number that is too long",
    "DL0120": "a tuple of one item",
    "DL0121": "an assignment inside an expression",
    "DL0122": "two statements on one line",
    "DL0123": "a line that begins with an operator",
    "DL0124": "a parameter or type in the syntax of another language",
    "DL0125": "a record made with braces",
    "DL0126": "a comprehension in the syntax of another language",
    "DL0127": "an index range with a colon",
    "DL0128": "a comment of another language",
    "DL0129": "a missing token",
    "DL0130": "`float` after the first line",
    "DL0131": "a declaration without members",
    "DL0132": "a lambda without parentheses",
    "DL0133": "something that cannot be public or have attributes",
    # ---- 02: names
    "DL0201": "an unknown name",
    "DL0202": "an unknown type",
    "DL0203": "a size that is not bound",
    "DL0204": "sizes that cannot be inferred",
    "DL0205": "a derivative operator without its function",
    "DL0206": "an unknown field",
    "DL0207": "an assignment to something immutable",
    "DL0208": "an assignment to something that is not a variable",
    "DL0209": "an unknown attribute",
    "DL0210": "a name declared twice",
    "DL0211": "a function that uses a top-level variable",
    "DL0212": "a top-level name bound again after a function used it",
    "DL0219": "an invalid checkpoint strategy",
    "DL0220": "an invalid memory limit",
    "DL0221": "a host function inside a block",
    # ---- 03: types and shapes
    "DL0301": "a size for a type, or a type for a size",
    "DL0302": "a generic record without its arguments",
    "DL0303": "an impossible size",
    "DL0304": "a value whose type differs from the declared one",
    "DL0305": "a value that must be known at compile time",
    "DL0310": "incompatible shapes",
    "DL0311": "incompatible element types",
    "DL0312": "joined axes of different sizes",
    "DL0313": "the wrong kind of value",
    "DL0314": "arithmetic on values of different structures",
    "DL0315": "sizes that a `where` clause excludes",
    "DL0316": "a number out of range",
    "DL0317": "items of different types",
    "DL0318": "sizes that are not proved to be equal",
    "DL0319": "arguments that do not match the parameters",
    "DL0320": "a call of something that is not a function",
    "DL0321": "a pattern that does not match the tuple",
    "DL0322": "a host function inside a compiled one",
    "DL0323": "an unused value",
    "DL0324": "a comprehension over different sizes",
    "DL0325": "a comprehension of unknown length",
    "DL0326": "an index out of range",
    "DL0327": "branches of different types",
    "DL0328": "an invalid step",
    "DL0329": "a loop over something that cannot be iterated",
    "DL0330": "a `zip` of different lengths",
    "DL0331": "a filter in an array comprehension",
    "DL0332": "`vmap` over different sizes",
    "DL0333": "more indices than axes",
    "DL0334": "a slice whose length is known only at run time",
    "DL0335": "an axis that does not exist",
    "DL0336": "a reshape to a different number of elements",
    "DL0337": "an extreme of no elements",
    "DL0338": "an invalid window",
    "DL0339": "an invalid format",
    "DL0340": "a recursive function without a declared result",
    "DL0341": "recursion that returns a function",
    "DL0342": "recursion that branches on its own text",
    "DL0343": "a type that cannot be passed to or from Python",
    "DL0350": "a `match` that does not cover every value",
    "DL0351": "a variant that does not exist",
    "DL0352": "an unreachable case",
    "DL0353": "a pattern of a different structure",
    "DL0354": "a record or an enum that contains itself",
    "DL0355": "axes that are not those of an array of records or enums",
    # ---- 04: differentiation
    "DL0401": "a derivative with respect to something without a tangent",
    "DL0402": "a gradient of something that is not a number",
    "DL0403": "a derivative with respect to an unknown parameter",
    "DL0404": "a tangent or cotangent of the wrong type",
    "DL0405": "a prime after a function of more than one number",
    "DL0406": "a wrong derivative",
    "DL0407": "a point where no derivative exists",
    "DL0408": "a complex derivative that does not exist",
    "DL0409": "a derivative that is always zero",
    "DL0410": "a derivative whose order is known only at run time",
    "DL0411": "a Jacobian of an array of enums",
    "DL0412": "an operation without a Taylor series",
    "DL0413": "a derivative of a Python function without a rule",
    "DL0414": "a derivative that is lost in part",
    "DL0415": "a derivative of a mean over draws that lacks a part",
    # ---- 05: control flow
    "DL0501": "`yield`, `break` or `continue` outside a loop",
    "DL0502": "a second `yield`",
    "DL0503": "an assertion that fails at compile time",
    "DL0504": "an endless loop or recursion",
    "DL0505": "a loop condition that assigns",
    "DL0506": "a statement that never runs",
    "DL0507": "a value that grows with every step",
    "DL0508": "a history used as an ordinary value",
    "DL0509": "a `return`, `break` or `continue` in the middle of an expression",
    "DL0510": "`save` outside a `checkpoint` block",
    "DL0511": "a `save` that has no effect",
    "DL0512": "a `save` nested inside its block",
    # ---- 06: devices and sharding
    "DL0601": "a device that does not exist",
    "DL0602": "a device without separate host memory",
    "DL0603": "a size that the axes of a mesh do not divide",
    "DL0604": "an axis of a mesh that splits an array twice",
    "DL0605": "axes that are split differently",
    "DL0606": "an axis that a mesh does not have",
    "DL0607": "a large array that every device gets the whole of",
    "DL0609": "arrays on different devices",
    "DL0610": "an axis of a mesh where no array is split",
    # ---- 07: modules, files and data
    "DL0701": "a file that cannot be read",
    "DL0702": "a file outside the program's folder",
    "DL0703": "a cell or a row that cannot be read",
    "DL0704": "a file with a different element type",
    "DL0705": "a file with a different shape",
    "DL0706": "a file without the named array or column",
    "DL0707": "a reader without a declared type",
    "DL0708": "a file name without a known format",
    "DL0709": "a package or a program that is missing or fails",
    "DL0710": "a file that cannot be written",
    "DL0711": "a value that cannot be stored in a file",
    "DL0720": "a module that does not exist",
    "DL0721": "a module outside the program's folder",
    "DL0722": "modules that import each other",
    "DL0723": "a name that a module does not declare",
    "DL0724": "a name that is private to a module",
    # ---- 08: not yet
    "DL0801": "a feature that is not implemented yet",
    "DL0802": "a derivative that cannot be written as a program",
    # ---- 09: failures while running
    "DL0901": "an assertion failed",
    "DL0902": "an index was out of range",
    "DL0907": "an example with a wrong result",
    "DL0908": "a number that is not finite",
    "DL0909": "a loop with more steps than allowed",
    "DL0910": "a text that is no category",
    # ---- 10: limits and memory
    "DL1001": "too many syntax errors",
    "DL1002": "nested too deep",
    "DL1003": "calls nested too deep",
    "DL1004": "a program that is too large",
    "DL1005": "an array with too many axes",
    "DL1006": "not enough memory",
    "DL1007": "a recursion that goes too deep",
    "DL1008": "a value with too many parts",
    "DL1010": "a program with too many equations",
    "DL1011": "a failure in the back end",
    "DL1012": "a memory limit that cannot be met",
    "DL1013": "reverse mode nested too deep",
    "DL1014": "a memory limit on a linear function",
    # ---- 11: rules and linearity
    "DL1101": "a function that is not linear",
    "DL1102": "a plain function where a linear one is required",
    "DL1103": "a linear function whose parameters have no type",
    "DL1104": "a rule that does not match its function",
    "DL1105": "a rule that depends on itself",
    "DL1106": "an inverse that does not invert",
    "DL1107": "a linear equation whose structure is known only at run time",
    "DL1108": "recursion within a rule",
    "DL1109": "a rule that differs from its function",
    "DL1110": "a rule that cannot be verified",
    # ---- 12: Python and artifacts
    "DL1201": "an argument with the wrong element type",
    "DL1202": "an argument with the wrong shape",
    "DL1203": "a syntax error in the text of a graph",
    "DL1204": "a damaged graph in JSON form",
    "DL1205": "a number that does not fit its type",
    "DL1206": "an argument that is not an array",
    "DL1207": "arguments that do not match a function",
    "DL1208": "a random function without a key",
    "DL1209": "a value that exists only while the file runs",
    "DL1210": "an argument that difflang cannot choose",
    "DL1220": "an invalid program argument",
    "DL1221": "a program that prints, lowered for another platform",
    "DL1222": "a trace with too many steps",
    "DL1230": "a Python function whose type differs from its declaration",
    "DL1231": "an `extern fn` that no Python function is bound to",
    "DL1232": "a Python function that cannot be called",
    "DL1233": "a Python function in a serialized program",
    "DL1240": "a function that cannot be exported",
    "DL1241": "a file that is not an artifact, or is damaged",
    "DL1242": "an artifact in a newer format",
    "DL1250": "an edit that a graph does not allow",
    "DL1251": "a pass on a graph that cannot run or breaks its promise",
    "DL1260": "a placement that does not fit the program or its devices",
    "DL1261": "a process of the dataflow machine that failed",
    "DL1262": "a process of a run on several that failed",
    "DL1270": "an op that cannot be declared",
    "DL1271": "a rule of an op that breaks its declaration",
    "DL1272": "an `extern op` that no module declares",
    "DL1273": "an `extern op` that does not fit the op",
    "DL1274": "an op that breaks a law",
}


def nearest_word(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate that a person most likely meant by `word`; None if none is close."""
    known = list(dict.fromkeys(candidates))
    by_case = {candidate.casefold(): candidate for candidate in reversed(known)}
    if word.casefold() in by_case:
        return by_case[word.casefold()]
    # One typing error in a short word, up to three in a long one.
    most = 1 if len(word) <= 4 else 2 if len(word) <= 8 else 3
    apart = [
        (edit_distance(word, c, most), collapse_repeats(c) != collapse_repeats(word), abs(len(c) - len(word)), i)
        for i, c in enumerate(known)
    ]
    steps, *_, i = min(apart, default=(most + 1, 0))
    close = steps <= most and (len(word) > 2 or 1 < len(word) <= len(known[i]))
    return known[i] if close else None


def suggestion(word: str, candidates: Iterable[str], otherwise: str | None = None) -> str:
    """A help that names the nearest candidate. If none is close, `otherwise`; without it, the candidates."""
    known = list(candidates)
    if near := nearest_word(word, known):
        return f"did you mean `{near}`?"
    return f"it has {', '.join(known) or 'none'}" if otherwise is None else otherwise


def collapse_repeats(word: str) -> str:
    """The word without repeated letters, as from a key held too long."""
    return "".join(letter for letter, _ in groupby(word))


def nearest_words(word: str, candidates: Iterable[str]) -> list[str]:
    """All candidates that are as close as the nearest, in their order."""
    known = list(dict.fromkeys(candidates))
    first = nearest_word(word, known)
    if first is None:
        return []
    least = edit_distance(word, first, len(word))
    return [c for c in known if edit_distance(word, c, least) <= least]


def edit_distance(a: str, b: str, most: int) -> int:
    """The edit distance of two words, with swaps of neighbours as one edit; `most + 1` if it is larger than `most`.

    Source: Damerau 1964; the restricted form, in which no part is edited twice.
    """
    from rapidfuzz.distance import OSA  # its import takes longer than most commands need it

    return most + 1 if len(a) == len(b) == 1 else OSA.distance(a, b, score_cutoff=most)
