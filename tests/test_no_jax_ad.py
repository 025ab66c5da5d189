"""The derivatives are ours: no room of the compiler names JAX's, and calling them raises while the tests run."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import jax
import pytest

from jax_ad_guard import CLASSES, FUNCTIONS, MODULES, NAMES, JaxDifferentiation

PACKAGE = Path(__file__).resolve().parents[1] / "difflang"
FILES = [p for p in sorted(PACKAGE.rglob("*.py")) if p.relative_to(PACKAGE).parts[0] not in ("embed", "bridge")]


def dotted(node: ast.expr, names: dict[str, str]) -> str | None:
    """`a.b.c` with `a` replaced by what it was imported as."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join([names.get(node.id, node.id), *reversed(parts)])


def imported(tree: ast.AST) -> Iterator[tuple[int, str, str]]:
    """Line, local name, and full name of everything imported anywhere in a file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.asname or alias.name.partition(".")[0], alias.name
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield node.lineno, alias.asname or alias.name, f"{node.module}.{alias.name}"


def is_forbidden(name: str) -> bool:
    """Whether a full dotted name is, or lies in, JAX's differentiation or its private half.

    The store of compiled programs is private as well, and differentiates nothing.
    """
    if name.partition(".")[0] != "jax" or name.startswith("jax._src.compilation_cache"):
        return False
    parts = name.split(".")
    inside = any(name == module or name.startswith(module + ".") for module in MODULES)
    return inside or "_src" in parts or any(part in NAMES for part in parts[1:])


def offences(source: str) -> list[str]:
    """Every place of a file that names JAX's differentiation.

    Lowering rules are handed the module as an argument called `jax`, or have it in an attribute called `jax`, so these
    count as the module even where nothing is imported.
    """
    tree = ast.parse(source)
    names: dict[str, str] = {}
    found: list[str] = []
    for line, local, full in imported(tree):
        names[local] = full if local != full.partition(".")[0] else local
        if is_forbidden(full):
            found.append(f"{line}: import {full}")
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            full = dotted(node, names)
            full = full and full[full.index(".jax.") + 1 :] if full and ".jax." in full else full
            if full and is_forbidden(full):
                found.append(f"{node.lineno}: {full}")
        elif isinstance(node, ast.Call) and dotted(node.func, names) in ("getattr", "operator.attrgetter"):
            words = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            about = [dotted(a, names) or "" for a in node.args]
            if any(a.split(".")[-1] == "jax" or a.startswith("jax.") for a in about) and NAMES & set(words):
                found.append(f"{node.lineno}: getattr {words}")
        elif isinstance(node, ast.Call) and dotted(node.func, names) in ("importlib.import_module", "__import__"):
            for a in node.args:
                if isinstance(a, ast.Constant) and isinstance(a.value, str) and is_forbidden(a.value):
                    found.append(f"{node.lineno}: import {a.value}")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(PACKAGE).as_posix())
def test_no_file_names_it(path: Path) -> None:
    assert offences(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source",
    [
        "import jax\ng = jax.grad",
        "import jax as j\ng = j.value_and_grad(f)",
        "from jax import grad",
        "from jax import vjp as pullback",
        "def f():\n    from jax import jvp",
        "import jax._src.api",
        "from jax._src import core",
        "from jax._src.ad_util import Zero",
        "import jax.interpreters.ad",
        "from jax.interpreters import ad",
        "from jax.experimental import jet",
        "from jax.ad_checkpoint import checkpoint_name",
        "import jax\n\n@jax.custom_jvp\ndef f(x): ...",
        "import jax\n\n@jax.custom_vjp\ndef f(x): ...",
        "lower = lambda jax, x: jax.checkpoint(f)(x)",
        "def lower(lowering, x):\n    return lowering.jax.linear_transpose(f, x)",
        "import jax\nf = getattr(jax, 'grad')",
        "import importlib\nm = importlib.import_module('jax.interpreters.ad')",
        "import jax\nf = jax.custom_derivatives.custom_gradient",
        "from jax import lax\ny = lax.custom_linear_solve(a, b, s)",
    ],
)
def test_every_way_to_name_it_is_seen(source: str) -> None:
    assert offences(source)


@pytest.mark.parametrize(
    "source",
    [
        "import jax\nx = jax.lax.sin",
        "from difflang.ad.linearize import linearize",
        "from difflang.ops.control.derivative_operators import jvp, vjp\ny = jvp(f)",
        "def rule(ad, eqn):\n    return ad.linearize(eqn)",
        "op.jvp(dx, y, x)",
        "op.checkpoint",
    ],
)
def test_our_own_names_are_free(source: str) -> None:
    assert offences(source) == []


def in_room(function: Callable[..., Any], room: str) -> Callable[..., Any]:
    """The same function, as if its text stood in another module."""
    assert isinstance(function, FunctionType)
    return FunctionType(function.__code__, {**function.__globals__, "__name__": room}, function.__name__)


def use(name: str) -> Any:
    return getattr(jax, name)(lambda x: x * x)


def use_partial(name: str) -> Any:
    return functools.partial(getattr(jax, name), lambda x: x * x)()


MORE_ARGUMENTS = ("fwd_and_bwd", "jvp", "linear_transpose", "linearize", "vjp")
ONE_ARGUMENT = [n for n in (*FUNCTIONS, *CLASSES) if n not in MORE_ARGUMENTS]


@pytest.mark.parametrize("name", [*FUNCTIONS, *CLASSES])
@pytest.mark.parametrize(
    "room", ["difflang", "difflang.lower.graph_to_jax", "difflang.ops.elementwise.elementary_functions"]
)
@pytest.mark.parametrize("call", [use, use_partial])
def test_the_guard_raises_for_the_package(name: str, room: str, call: Callable[[str], Any]) -> None:
    with pytest.raises(JaxDifferentiation, match=f"{room} called jax.{name}"):
        in_room(call, room)(name)


@pytest.mark.parametrize("name", ONE_ARGUMENT)
@pytest.mark.parametrize("room", [__name__, "difflang.embed.jax_primitive", "difflang.bridge.flax", "difflanguage"])
def test_the_guard_lets_everybody_else_through(name: str, room: str) -> None:
    assert callable(in_room(use, room)(name))


def test_the_guard_sees_lines_of_programs() -> None:
    """Lowered equations run in code objects whose file is the program's; they are ours too."""
    code = use.__code__.replace(co_filename="model.dfl")
    call = FunctionType(code, {**use.__globals__, "__name__": "model"}, "use")
    with pytest.raises(JaxDifferentiation):
        call("grad")


def test_the_oracle_works_under_the_guard() -> None:
    assert jax.grad(lambda x: x * x)(3.0) == 6.0
    assert jax.hessian(lambda x: x**3)(2.0) == 12.0
    assert jax.jvp(lambda x: x * x, (3.0,), (1.0,)) == (9.0, 6.0)
    assert jax.grad(jax.checkpoint(lambda x: x * x))(3.0) == 6.0
    assert jax.grad(jax.nn.relu)(1.0) == 1.0  # made with custom_jvp
