"""Where a derivative is lost: the steps that lose it as labels, and a warning where it is zero for every argument."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from difflang.analysis.zero_derivatives import Step, losses, merge, reached
from difflang.base.diagnostics import Diagnostic, Label
from difflang.base.source import Span
from difflang.elaborate.calls.arguments import Args
from difflang.elaborate.context import Context
from difflang.elaborate.derivatives.wrt import Place, parameter_names
from difflang.elaborate.reports.op_messages import spelled
from difflang.elaborate.terms import Closure, Record, Term, leaf_hints, leaves, type_of
from difflang.ir.graph import Eqn, Graph
from difflang.ir.tensor_types import Tensor
from difflang.types.dtype_variables import pruned
from difflang.types.function_code import AscribedCode, BuiltinCode, DerivativeCode, FnCode, LambdaCode
from difflang.types.language_types import leaf_types

if TYPE_CHECKING:
    from difflang.elaborate.derivatives.grad_jvp_vjp import Traced

MOST = 3  # how many lost ways are shown

# ---- Steps as labels


def labels_of(
    cx: Context, steps: Sequence[Step], asked: Span, why: Callable[[Eqn], str], name: str = ""
) -> list[Label]:
    """The steps that lose a derivative, with the calls that lead there; of a single one, its way from `name` too."""
    found: dict[Span, str] = {}
    for step in steps[:MOST]:
        way = [eqn for eqn in step.way if ours(cx, eqn.span)]
        if not way:
            continue
        place = way[-1].span
        found[place] = why(step.way[-1])
        before = [eqn for eqn in way[:-1] if apart(eqn.span, place) and eqn.span != asked]
        for eqn in [eqn for eqn in before if eqn.regions][-MOST:]:
            found.setdefault(eqn.span, "through this call")
        for eqn in [eqn for eqn in before if not eqn.regions][-MOST:] if name and len(steps) == 1 else ():
            if all(apart(eqn.span, other) for other in found):
                found[eqn.span] = lost_by(eqn) if eqn.op.inactive else f"made of `{name}`"
    return [Label(span, text) for span, text in found.items()]


def ours(cx: Context, span: Span) -> bool:
    """Whether a place is one of the program, not of the standard library."""
    prelude = cx.module.prelude
    return bool(span.text) and prelude is not None and span.source is not prelude.source


def apart(a: Span, b: Span) -> bool:
    return a.source is not b.source or a.end <= b.start or b.end <= a.start


def lost_by(eqn: Eqn) -> str:
    """How a step loses a derivative."""
    if eqn.op.ends:
        return "the derivative ends here"
    types = [r.type for r in eqn.results if isinstance(r.type, Tensor)]
    if any(pruned(t.dtype).differentiable for t in types):
        return f"`{spelled(eqn.op.name)}` has derivative 0"
    if any(pruned(t.dtype).is_integer for t in types):
        return "an integer has no derivative"
    return "true or false has no derivative"


# ---- The warning


class Part(Struct, frozen=True):
    """A part of the arguments that the result is to be differentiated in: its points in the graph, a mask."""

    name: str
    points: int
    whole: bool  # all that one name asked for


def watch(cx: Context, f: Term, traced: Traced, args: Args, wrt: Sequence[Place]) -> None:
    """Warn where the derivative is zero for every argument: DL0409. The first derivative only; see `ad.lost`.

    Nothing is said of a function of the language by itself, such as `floor'`; where a condition known beforehand left
    something out, as a size of 0 may; where a `stop` stands on every way; of what a rule needs and nobody wrote; where
    a definition leaves it open; and where all of it is in the standard library.
    """
    if traced.chosen or cx.root.implied or not ours(cx, args.span) or by_its_name(f):
        return
    moving = [i for i, v in enumerate(leaves(traced.result)) if v.type.tangent is not None]
    masks, alive = reached(traced.graph), 0
    for i in moving:
        alive |= masks[i]
    if all(alive >> i & 1 for i in range(len(traced.points))) or unclear(cx, traced.graph):
        return
    found: dict[Step, int] = {}
    for i, lost in enumerate(losses(traced.graph, (1 << len(traced.points)) - 1)):
        if i in moving:
            merge(found, lost)
    dead = [p for p in parts_of(f, args, wrt) if zero_by_mistake(p, alive, found)]
    if dead and not within_library((said := warning(cx, f, args.span, dead, found)).labels):
        cx.session.warn(said.users_first())


def within_library(labels: Sequence[Label]) -> bool:
    return all(label.span.of_library for label in labels)


def by_its_name(f: Term) -> bool:
    """Whether a function of the language is differentiated itself."""
    while isinstance(f, Closure) and isinstance(f.code, (DerivativeCode, AscribedCode)):
        (f,) = f.captures
    return isinstance(f, Closure) and (
        isinstance(f.code, BuiltinCode) or (isinstance(f.code, FnCode) and f.code.module.prelude is None)
    )


def unclear(cx: Context, graph: Graph) -> bool:
    """Whether a graph has calls that were not looked into, or linear maps, whose residuals do not tell what moves."""
    maps = set(cx.session.maps.values())
    seen, todo = {graph}, [graph]
    while todo:
        current = todo.pop()
        if current in maps or (cx.root.definition and not complete(current)):
            return True
        inner = [region for eqn in current.eqns for region in eqn.regions if region not in seen]
        seen.update(inner)
        todo += inner
    return False


def complete(graph: Graph) -> bool:
    """Whether every value is defined."""
    known = set(graph.params)
    for eqn in graph.eqns:
        if not known.issuperset(eqn.operands):
            return False
        known.update(eqn.results)
    return known.issuperset(graph.results)


def parts_of(f: Term, args: Args, wrt: Sequence[Place]) -> list[Part]:
    """What the derivative is asked in, as a whole and number by number."""
    found: list[Part] = []
    names, at = parameter_names(f), 0
    for position, path in wrt:
        first = names[position] if position < len(names) and names[position] else f"argument {position}"
        name, term = ".".join((first, *path)), args.items[position][0]
        for field in path:
            assert isinstance(term, Record)
            term = term.field(field)
        type = type_of(term)
        hints = [
            hint
            for hint, leaf in zip(leaf_hints(type, name), leaf_types(type), strict=True)
            if pruned(leaf.dtype).differentiable
        ]
        found.append(Part(name, ((1 << len(hints)) - 1) << at, whole=True))
        if len(hints) > 1:
            found += [Part(hint, 1 << at + i, whole=False) for i, hint in enumerate(hints)]
        at += len(hints)
    return found


def zero_by_mistake(part: Part, alive: int, found: dict[Step, int]) -> bool:
    """Whether a part is lost, and not on purpose; a record may hold what nothing uses."""
    if part.points & alive or not part.points:
        return False
    steps = [step for step, of in found.items() if of & part.points]
    return any(not s.way[-1].op.ends for s in steps) or (part.whole and not steps)


def warning(cx: Context, f: Term, span: Span, dead: list[Part], found: dict[Step, int]) -> Diagnostic:
    dead = [p for p in dead if p.whole] or dead
    points = 0
    for part in dead:
        points |= part.points
    steps = [step for step, of in found.items() if of & points and not step.way[-1].op.ends]
    names = " and ".join(f"`{p.name}`" for p in dead)
    its = "their derivatives are" if len(dead) > 1 else "its derivative is"
    if not steps:
        message, labels = f"the result does not depend on {names}: {its} 0", declared(cx, f, dead)
    else:
        message, labels = f"the derivative in {names} is 0: it is lost on every way to the result", []
    more = f"; {len(steps) - MOST} more ways are lost" if len(steps) > MOST else ""
    asked = Label(span, f"asked for here{more}")
    ways = labels_of(cx, steps, span, lost_by, dead[0].name)
    first = (*labels, asked) if within_library([asked]) and not within_library(labels) else (asked, *labels)
    return Diagnostic("DL0409", message, (*first, *ways), ways_out(f, dead, steps), "warning")


def declared(cx: Context, f: Term, dead: list[Part]) -> list[Label]:
    """Where the parameters stand that nothing reads on the way to the result."""
    while isinstance(f, Closure) and isinstance(f.code, (DerivativeCode, AscribedCode)):
        (f,) = f.captures
    if not isinstance(f, Closure) or not isinstance(f.code, (FnCode, LambdaCode)):
        return []
    firsts = {part.name.partition(".")[0] for part in dead}
    spans = [p.span for n, p in zip(parameter_names(f), f.code.decl.params, strict=True) if n in firsts]
    return [Label(span, "no way leads from here to the result") for span in spans if ours(cx, span)]


def ways_out(f: Term, dead: list[Part], steps: list[Step]) -> tuple[str, ...]:
    """What to write instead, and how to say that 0 is meant."""
    name = dead[0].name if dead[0].name.replace(".", "").isidentifier() else "x"
    if not steps:
        names = [n for n in parameter_names(f) if n and n != name]
        other = (f"others are named in brackets, as in `grad[{names[0]}]`",) if names else ()
        return (*other, f"where 0 is meant, say so: add `0 * stop({name})`")
    eqn = steps[0].way[-1]
    meant = f"where 0 is meant, say so with `stop({name})` on the way"
    return (instead(eqn), meant)


def instead(eqn: Eqn) -> str:
    """A step with a derivative in the place of one without."""
    match eqn.results[0].type:
        case Tensor(dtype=dtype) if pruned(dtype).is_integer and eqn.op.name.startswith("arg"):
            return "stay with floats on the way; `softmax` weighs where `argmax` chooses"
        case Tensor(dtype=dtype) if pruned(dtype).is_integer:
            return "stay with floats on the way; `x + stop(floor(x) - x)` is whole, and has the derivative of x"
        case Tensor(dtype=dtype) if pruned(dtype).differentiable:
            return f"`y + stop({eqn.op.name}(y) - y)` has its value, and the derivative of y"
        case _:
            return "a smooth step has one: `sigmoid((a - b) / width)` for `a > b`, `tanh(x / width)` for `sign(x)`"
