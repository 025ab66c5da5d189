"""Writes a scalar graph as symbolic formulas: one expression per result, in the language or as LaTeX.

Every value is written where it is read. The derivative of `log` is `1 / x`, without the guard of its rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from difflang.base.source import Source
from difflang.ir.graph import Eqn, Graph, Value
from difflang.syntax import tree
from difflang.syntax.parse import parse
from difflang.unparse.collect_terms import SumOfProducts, apply_op, atom_formula, constant_formula
from difflang.unparse.fragments import ATOM, POSTFIX, PRODUCT, SUM, CannotUnparse, Fragment
from difflang.unparse.unparser import UNPARSE_RULES, NamePool, Unparser, tensor_type

MAX_FORMULA = 4000  # characters: a longer formula is easier to read as a program
FLAGS_HELP = "leave out `--symbolic` and `--latex`"


def graph_formulas(graph: Graph, names: Mapping[Value, str]) -> list[str]:
    """The results of a graph as expressions of its params. Errors: CannotUnparse for arrays, loops and branches."""
    writer = Unparser(NamePool(set()), lambda _: "", {}, single_expression=True)
    found: dict[Value, SumOfProducts] = {p: atom_formula(names[p]) for p in graph.params}
    for eqn in graph.eqns:
        if eqn.regions:
            raise CannotUnparse("a loop or a branch has no formula", eqn.span, FLAGS_HELP)
        if any(tensor_type(v).shape for v in (*eqn.operands, *eqn.results)):
            raise CannotUnparse("an array has no formula here", eqn.span, FLAGS_HELP)
        for result in eqn.results:
            found[result] = made = eqn_formula(writer, eqn, [found[v] for v in eqn.operands])
            if len(made.text) > MAX_FORMULA:
                raise CannotUnparse("the formula is too long to read", eqn.span, FLAGS_HELP)
    return [found[r].text for r in graph.results]


def eqn_formula(writer: Unparser, eqn: Eqn, parts: Sequence[SumOfProducts]) -> SumOfProducts:
    """The formula of an equation: normalized arithmetic, or a call with formulas as arguments."""
    type = tensor_type(eqn.results[0])
    if not (type.dtype.is_float or type.dtype.is_integer):
        raise CannotUnparse("a value that is not a real number has no formula here", eqn.span, FLAGS_HELP)
    if eqn.op.name == "const" and isinstance(eqn.attrs["value"], (int, float)):
        return constant_formula(float(eqn.attrs["value"]))
    one = constant_formula(1.0)
    # Ops that only derivatives contain, by their formulas in terms of ordinary functions.
    if eqn.op.name == "sech2":
        return atom_formula(f"cosh({parts[0].text})").power(Fraction(-2)) or one
    if eqn.op.name == "one_minus_square":
        return one.plus(parts[0].power(Fraction(2)) or one, -1.0)
    if (ordered := apply_op(eqn.op.name, parts, eqn.attrs.get("n", 0))) is not None:
        return ordered
    rule = UNPARSE_RULES.get(eqn.op.name)
    if rule is None or len(eqn.results) != 1 or eqn.op.name in ("dense", "iota", "print"):
        raise CannotUnparse(f"`{eqn.op.name}` cannot be part of a formula", eqn.span, FLAGS_HELP)
    for value, part in zip(eqn.operands, parts, strict=True):
        writer.env[value] = Fragment(part.text, part.precedence, (), type.dtype)
    (words,) = rule(writer, eqn)
    assert isinstance(words, Fragment)
    return atom_formula(words.at(POSTFIX))


# ---- LaTeX

LATEX_FUNCTIONS = {
    **{n: rf"\{n}" for n in ["sin", "cos", "tan", "sinh", "cosh", "tanh", "exp", "log", "max", "min"]},
    "asin": r"\arcsin", "acos": r"\arccos", "atan": r"\arctan", "gamma": r"\Gamma", "digamma": r"\psi",
}  # fmt: skip
GREEK = """alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau phi chi psi omega
""".split()  # noqa: SIM905 - words are read more easily so


def to_latex(expression: str) -> str:
    """An expression of the language as LaTeX. Errors: CannotUnparse for what has no usual notation."""
    # An explicit stack, as formulas may nest deeper than Python recurses.
    parsed = parse(Source("<formula>", expression))
    (item,) = parsed.module.items
    done: list[tuple[str, int]] = []
    todo: list[tuple[tree.Node, bool]] = [(item, False)]
    while todo:
        node, seen = todo.pop()
        parts = child_expressions(node)
        if seen:
            given = [done.pop() for _ in parts][::-1]
            done.append(latex_of_node(node, given))
        else:
            todo.append((node, True))
            todo += [(p, False) for p in reversed(parts)]
    return done[0][0]


def child_expressions(node: tree.Node) -> list[tree.Node]:
    match node:
        case tree.Binary(lhs=lhs, rhs=rhs):
            return [lhs, rhs]
        case tree.Unary(operand=operand):
            return [operand]
        case tree.Call(args=args):
            return [a.value for a in args]
        case tree.TupleExpr(items=items):
            return list(items)
        case _:
            return []


def latex_of_node(node: tree.Node, parts: list[tuple[str, int]]) -> tuple[str, int]:
    """The LaTeX of a node from that of its parts, and its precedence."""
    match node:
        case tree.Name(id=word):
            return latex_name(word), ATOM
        case tree.Int(value=value):
            return str(value), ATOM
        case tree.Float(text=text):
            return latex_number(text), ATOM
        case tree.Unary(op="-"):
            return f"-{parenthesize(parts[0], PRODUCT)}", SUM
        case tree.Binary(op=op):
            return latex_binary(op, *parts)
        case tree.TupleExpr() if len(parts) == 1:
            return parts[0]
        case tree.Call(fn=tree.Name(id=word)):
            return latex_call(word, [p for p, _ in parts]), POSTFIX
        case _:
            raise CannotUnparse("this has no usual notation as a formula")


def latex_binary(op: str, left: tuple[str, int], right: tuple[str, int]) -> tuple[str, int]:
    match op:
        case "+":
            return f"{left[0]} + {right[0]}", SUM
        case "-":
            return f"{left[0]} - {parenthesize(right, PRODUCT)}", SUM
        case "*":
            a, b = parenthesize(left, PRODUCT), parenthesize(right, PRODUCT)
            between = r" \cdot " if b[0].isdigit() or b.startswith("-") else r" \, "
            return f"{a}{between}{b}", PRODUCT
        case "/":
            return rf"\frac{{{left[0]}}}{{{right[0]}}}", POSTFIX
        case "^":
            return f"{parenthesize(left, ATOM)}^{{{right[0]}}}", POSTFIX
        case _:
            raise CannotUnparse(f"`{op}` has no usual notation as a formula")


def parenthesize(part: tuple[str, int], level: int) -> str:
    return part[0] if part[1] >= level else rf"\left({part[0]}\right)"


def latex_call(word: str, parts: list[str]) -> str:
    if word == "sqrt":
        return rf"\sqrt{{{parts[0]}}}"
    if word == "abs":
        return rf"\left|{parts[0]}\right|"
    function = LATEX_FUNCTIONS.get(word, rf"\operatorname{{{word}}}".replace("_", r"\_"))
    return rf"{function}\left({', '.join(parts)}\right)"


def latex_name(word: str) -> str:
    """A name in LaTeX, with its digits and what follows `_` as an index."""
    head, _, rest = word.partition("_")
    stem = head.rstrip("0123456789")
    index = ", ".join(p for p in (head[len(stem) :], rest.replace("_", r"\_")) if p)
    base = rf"\{stem}" if stem in GREEK else stem if len(stem) == 1 else rf"\mathrm{{{stem}}}"
    return f"{base}_{{{index}}}" if index else base


def latex_number(text: str) -> str:
    mantissa, sign, exponent = text.partition("e")
    return rf"{mantissa} \cdot 10^{{{int(exponent)}}}" if sign else mantissa.removesuffix(".0")
