"""What there is to say of an op: its page, for people and as data. `ops` lists every op of the registry."""

from __future__ import annotations

import re
import textwrap
from inspect import Parameter, signature
from typing import Any, get_args

from msgspec import Struct
from msgspec.structs import asdict

from difflang.graph.op_registry.declare_op import DECLARED
from difflang.graph.op_registry.op_laws import LAWS
from difflang.ir.op import OPS, DerivativeOperator, EquationRules, Inactive, Inactivity, Op

WHY_INACTIVE: dict[Inactivity, str] = {
    "steps": "none: its results move in steps, or are no floats",
    "stop": "none, as the program asks",
    "comparison": "none: its results say how numbers compare",
    "draw": "none: its results are random",
    "drawn": "none: its first operand was drawn",
}
assert set(WHY_INACTIVE) == set(get_args(Inactivity))


class OpPage(Struct, frozen=True):
    """An op: what it takes and gives, what it does, which rules it has, and which laws are tested on it."""

    name: str
    module: str  # that declares it; empty for an op of the package
    type: str
    operands: tuple[str, ...]
    attributes: tuple[str, ...]
    element_types: tuple[str, ...]  # of the first operand; none where the type rule decides
    doc: str
    derivative: str
    batching: str
    traits: tuple[str, ...]
    effect: str
    laws: tuple[str, ...]

    @property
    def summary(self) -> str:
        """The first sentence of its text."""
        return re.split(r"(?<!\.)\.(?: |$)", self.doc, maxsplit=1)[0]

    @property
    def declaration(self) -> str:
        """The line by which a program uses it; empty where its type is no signature."""
        return f"extern op {self.name}{self.type}" if "->" in self.type else ""

    def to_data(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        rows = [
            ("type", self.type),
            ("attributes", ", ".join(self.attributes)),
            ("element types", ", ".join(self.element_types)),
            ("derivative", self.derivative),
            ("batching", self.batching),
            ("traits", ", ".join(self.traits)),
            ("effect", self.effect),
            ("laws", ", ".join(self.laws)),
            ("declared in", self.module),
            ("in programs", self.declaration),
        ]
        width = max(len(label) for label, _ in rows)
        lines = [wrapped(text, f"  {label:<{width}}  ", width + 4) for label, text in rows if text]
        return "\n".join([self.name, "", wrapped(self.doc, "  ", 2), "", *lines])


def wrapped(text: str, first: str, indent: int) -> str:
    return textwrap.fill(
        text, 110, initial_indent=first, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )


def ops() -> tuple[OpPage, ...]:
    """The page of every op: those of the package, then those of users, in the order of their declaration."""
    return tuple(map(op_page, sorted(OPS.values(), key=lambda op: bool(op.module))))


def op_page(op: Op) -> OpPage:
    """The page of an op."""
    declared = DECLARED.get(op.name)
    operands, attributes = parameter_names(op)
    written = declared.signature.text if declared is not None and declared.signature is not None else ""
    return OpPage(
        op.name,
        op.module,
        written or f"({', '.join(operands)})",
        operands,
        attributes,
        tuple(map(str, op.accepts)),
        " ".join(op.doc.split()),
        derivative_text(op, operands),
        batching_text(op),
        op.traits,
        op.effect,
        law_names(op),
    )


def parameter_names(op: Op) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The operands and the attributes that the type rule names; elementwise rules name `x, *others`."""
    parameters = [p for p in signature(op.type).parameters.values() if p.name not in ("same", "regions", "solver")]
    operands = [f"*{p.name}" if p.kind is Parameter.VAR_POSITIONAL else p.name for p in parameters
                if p.kind not in (Parameter.KEYWORD_ONLY, Parameter.VAR_KEYWORD)]  # fmt: skip
    if "elementwise" in op.traits and "*others" in operands:
        operands = list("xyz")[: len([*signature(op.lower).parameters]) - 1]
    return tuple(operands), tuple([p.name for p in parameters if p.kind is Parameter.KEYWORD_ONLY])


def derivative_text(op: Op, operands: tuple[str, ...]) -> str:
    match op.derivative:
        case Inactive(why=why):
            return WHY_INACTIVE[why]
        case DerivativeOperator():
            return "it is a derivative itself, and expanded"
        case EquationRules():
            return "by rules of its own, of regions or of the program"
        case rules:
            parts = [f"jvp in {rule_names(rules.jvp, operands)}"] if rules.jvp is not None else []
            if rules.transpose is not None:
                kind = "linear in each of" if rules.multilinear else "linear in"
                parts.append(f"{kind} {rule_names(rules.transpose, operands)}, with a transpose")
            return "; ".join(parts)


def rule_names(rules: Any, operands: tuple[str, ...]) -> str:
    """The operands that have a rule, by name; the last rule serves all further operands."""
    if len(rules) > len(operands):
        return "all operands"
    return ", ".join([n.lstrip("*") for n, rule in zip(operands, rules, strict=False) if rule is not None])


def batching_text(op: Op) -> str:
    if op.elementwise:
        return "on the whole batch, as an elementwise op"
    return "on the whole batch, by its rule" if op.batch_rule is not None else "instance by instance"


def law_names(op: Op) -> tuple[str, ...]:
    if op.samples is None:
        return ()
    derivatives = ("rules", "jvp", "transpose", "second order", "compiled derivatives")
    skipped = {*(derivatives if op.inactive else ()), *(() if op.elementwise else ("elementwise",))}
    return tuple([name for name, _, _ in LAWS if name not in skipped])
