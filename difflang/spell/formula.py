"""A graph of numbers as formulas: every value written where it is read, `log` having the slope `1 / x`.

A formula is an expression of the language. As LaTeX it is what a book prints.
"""

from __future__ import annotations

from collections.abc import Mapping

from difflang.base.diagnostics import cell_width
from difflang.base.source import Source
from difflang.ir.graph import Eqn, Graph, Value
from difflang.spell.body import Names, Speller, array
from difflang.spell.table import SPELLINGS
from difflang.spell.words import ATOM, MINUS, POSTFIX, PRODUCT, SUM, Unspelled, Words, name, number
from difflang.syntax import tree
from difflang.syntax.parse import parse

LONGEST = 4000  # characters: beyond, a program says it better


def formulas(graph: Graph, names: Mapping[Value, str]) -> list[str]:
    """What a graph gives, as expressions of its params. Errors: Unspelled for what is no formula of numbers."""
    speller = Speller(Names(set()), lambda _: "", {}, formula=True)
    for param in graph.params:
        speller.env[param] = name(names[param], array(param))
    for eqn in graph.eqns:
        if eqn.regions:
            raise Unspelled("a loop or a branch is no formula", eqn.span, "leave out `--symbolic` and `--latex`")
        if any(array(v).shape for v in (*eqn.operands, *eqn.results)):
            raise Unspelled("an array has no formula here", eqn.span, "leave out `--symbolic` and `--latex`")
        for result, words in zip(eqn.results, written(speller, eqn), strict=True):
            if cell_width(words.text) > LONGEST:
                raise Unspelled("the formula is too long to be read", eqn.span, "leave out `--symbolic` and `--latex`")
            speller.env[result] = words
    return [speller.words(r).text for r in graph.results]


def written(speller: Speller, eqn: Eqn) -> list[Words]:
    """An equation as one expression, numbers as people write them."""
    if eqn.op.name == "const":
        found = number(eqn.attrs["value"], array(eqn.results[0]))
        whole = found.text.removesuffix(".0")
        return [Words(whole, found.level, (), found.dtype, says=True)]
    operands = [speller.words(v) for v in eqn.operands]
    if eqn.op.name == "positive_reciprocal":
        return [Words(f"1 / {operands[0].at(MINUS)}", PRODUCT, (), operands[0].dtype)]
    if eqn.op.name == "sech2":
        return [Words(f"1 / cosh({operands[0].text}) ^ 2", PRODUCT, (), operands[0].dtype)]
    if eqn.op.name == "rsqrt":
        return [Words(f"1 / sqrt({operands[0].text})", PRODUCT, (), operands[0].dtype)]
    if eqn.op.name == "one_minus_square":
        return [Words(f"1 - {operands[0].at(POSTFIX)} ^ 2", SUM, (), operands[0].dtype)]
    rule = SPELLINGS.get(eqn.op.name)
    if rule is None or eqn.op.name in ("dense", "iota"):
        raise Unspelled(f"`{eqn.op.name}` is no part of a formula", eqn.span)
    return [w for w in rule(speller, eqn) if isinstance(w, Words)]


# ---- LaTeX

FUNCTIONS = {
    **{n: rf"\{n}" for n in ["sin", "cos", "tan", "sinh", "cosh", "tanh", "exp", "log", "max", "min"]},
    "asin": r"\arcsin", "acos": r"\arccos", "atan": r"\arctan", "gamma": r"\Gamma", "digamma": r"\psi",
}  # fmt: skip
GREEK = """alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau phi chi psi omega
""".split()  # noqa: SIM905 - words are read more easily so


def latex(expression: str) -> str:
    """An expression of the language as LaTeX. Errors: Unspelled for what has no usual notation."""
    parsed = parse(Source("<formula>", expression))
    (item,) = parsed.module.items
    done: list[tuple[str, int]] = []
    todo: list[tuple[tree.Node, bool]] = [(item, False)]
    while todo:
        node, seen = todo.pop()
        parts = operands_of(node)
        if seen:
            given = [done.pop() for _ in parts][::-1]
            done.append(put_together(node, given))
        else:
            todo.append((node, True))
            todo += [(p, False) for p in reversed(parts)]
    return done[0][0]


def operands_of(node: tree.Node) -> list[tree.Node]:
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


def put_together(node: tree.Node, parts: list[tuple[str, int]]) -> tuple[str, int]:
    """A node from its parts in LaTeX, and how tightly it binds."""
    match node:
        case tree.Name(id=word):
            return name_in_latex(word), ATOM
        case tree.Int(value=value):
            return str(value), ATOM
        case tree.Float(text=text):
            return number_in_latex(text), ATOM
        case tree.Unary(op="-"):
            return f"-{grouped(parts[0], PRODUCT)}", SUM
        case tree.Binary(op=op):
            return binary(op, *parts)
        case tree.TupleExpr() if len(parts) == 1:
            return parts[0]
        case tree.Call(fn=tree.Name(id=word)):
            return call(word, [p for p, _ in parts]), POSTFIX
        case _:
            raise Unspelled("this has no usual notation as a formula")


def binary(op: str, left: tuple[str, int], right: tuple[str, int]) -> tuple[str, int]:
    match op:
        case "+":
            return f"{left[0]} + {right[0]}", SUM
        case "-":
            return f"{left[0]} - {grouped(right, PRODUCT)}", SUM
        case "*":
            a, b = grouped(left, PRODUCT), grouped(right, PRODUCT)
            between = r" \cdot " if b[0].isdigit() or b.startswith("-") else r" \, "
            return f"{a}{between}{b}", PRODUCT
        case "/":
            return rf"\frac{{{left[0]}}}{{{right[0]}}}", POSTFIX
        case "^":
            return f"{grouped(left, ATOM)}^{{{right[0]}}}", POSTFIX
        case _:
            raise Unspelled(f"`{op}` has no usual notation as a formula")


def grouped(part: tuple[str, int], level: int) -> str:
    return part[0] if part[1] >= level else rf"\left({part[0]}\right)"


def call(word: str, parts: list[str]) -> str:
    if word == "sqrt":
        return rf"\sqrt{{{parts[0]}}}"
    if word == "abs":
        return rf"\left|{parts[0]}\right|"
    function = FUNCTIONS.get(word, rf"\operatorname{{{word}}}".replace("_", r"\_"))
    return rf"{function}\left({', '.join(parts)}\right)"


def name_in_latex(word: str) -> str:
    """A name, its digits and what follows `_` as an index, `d_x` as the derivative."""
    head, _, rest = word.partition("_")
    stem = head.rstrip("0123456789")
    index = ", ".join(p for p in (head[len(stem) :], rest.replace("_", r"\_")) if p)
    base = rf"\{stem}" if stem in GREEK else stem if len(stem) == 1 else rf"\mathrm{{{stem}}}"
    return f"{base}_{{{index}}}" if index else base


def number_in_latex(text: str) -> str:
    mantissa, sign, exponent = text.partition("e")
    return rf"{mantissa} \cdot 10^{{{int(exponent)}}}" if sign else mantissa.removesuffix(".0")
