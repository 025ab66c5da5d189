"""Texts with numbers of the run in them: what they say, where they go, and numbers as they are printed."""

# ruff: noqa: E501 - a row of a table is a line

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from difflang.base.diagnostics import DifflangError
from difflang.execution.engine import Engine
from difflang.ir.interpreter import evaluate
from difflang.ir.json_codec import graph_from_json, graph_to_json
from difflang.ir.text_parser import graph_from_text
from difflang.ir.text_printer import graph_to_text
from difflang.lower.graph_to_jax import Lowering
from difflang.ops import value_formatting
from difflang.ops.control.print_effect import join_64bit, split_64bit
from support.language import INTERPRETER, codes, ran

ENGINES = pytest.mark.parametrize("engine", [INTERPRETER, Engine()], ids=["interpreted", "compiled"])


TEXTS = {
    "digits of every type": (
        "fn f(a: f64, b: f32, c: c128, d: i64, e: u8, g: bf16, h: bool) {\n print(a, b, c, d, e, g, h)\n}\n"
        "f(1.0 / 3.0, 0.1, complex(f64(1) / 3, -0.5), 9007199254740993, 7, 1.5, true)",
        ["0.3333333333333333 0.1 0.3333333333333333-0.5j 9007199254740993 7 1.5 true"],
    ),
    "arrays": (
        "fn f(x: f64[n, m], z: c128[k], b: bool[k], j: i64[0]) { print(x, z, b, j) }\n"
        "f([[0.1, 2.0], [3.0, f64(1) / 7]], [1j, complex(f64(1) / 3, 0.0)], [true, false], i64(iota(0)))",
        ["[[0.1, 2.0],\n [3.0, 0.14285714285714285]] [0.0+1.0j, 0.3333333333333333+0.0j] [true, false] []"],
    ),
    "long arrays": ("fn f(n: dim) { print(iota(n)) }\nf(1000)", ["[0, 1, 2, ..., 997, 998, 999]"]),
    "formats": (
        'fn f(x: f32, n: i32, b: bool, z: c64, v: f32[2]) {\n let name = "<{n}>"\n print("{x:8.3f}|{n:04d}|{b:>6}|{z:.1f}|{v:.2f}|{name:>6}|{name:_<5}|{{{n}}}")\n}\n'
        "f(3.14159, 42, true, 1.0 + 2.0j, [1.0, 2.0])",
        ["   3.142|0042|  true|1.0+2.0j|[1.00, 2.00]|  <42>|<42>_|{42}"],
    ),
    "what is known beforehand": (
        'fn f(x: f32[n], k: dim, name: str) {\n print("{n} {k + 1} {name} {true} {0.1:.2f} {pi:.3f}")\n}\nf([1.0, 2.0], 3, "me")',
        ["2 4 me true 0.10 3.142"],
    ),
    "quotes, braces and other letters": ('fn f(x: i32) { print("a \\"b\\" {{}} é→\\n{x}\\t.") }\nf(1)', ['a "b" {} é→\n1\t.']),
    "records, tuples and enums": (
        "enum E { A(x: f32, t: str), B }\nrecord R { e: E, k: (i32, bool), name: str }\n"
        'fn f(c: bool, x: f32) {\n let e = if c { A(x, "t") } else { B }\n let r = R(e = e, k = (3, c), name = "r{x}")\n'
        " print(r, r.name, (e, ()), |y| x * y)\n}\nf(true, 1.5)\nf(false, 2.5)",
        ['R(e = A(x = 1.5, t = "t"), k = (3, true), name = "r1.5") r1.5 (A(x = 1.5, t = "t"), ()) function |y| ...',
         'R(e = B, k = (3, false), name = "r2.5") r2.5 (B, ()) function |y| ...'],
    ),
    "arrays of enums": (
        "enum E { A(x: f32), B(n: i32, m: i32), C }\nlet es = [A(1.0), C, B(2, 3)]\nprint(es)\nfn f(i: i32) { print(es, es[i], [es, es][i]) }\nf(1)",
        ["[A(x = 1.0), C, B(n = 2, m = 3)]", "[A(x = 1.0), C, B(n = 2, m = 3)] C [A(x = 1.0), C, B(n = 2, m = 3)]"],
    ),
    "a change": ("record R { x: f32, n: i32 }\nfn f(r: R) { print(grad(|r| r.x^2)(r)) }\nf(R(x = 3.0, n = 1))", ["D(R)(x = 6.0)"]),
    "given on": (
        'fn shout(s: str) -> str = "{s}!"\nfn f(x: f32) -> (str, f32) {\n let s = "x = {x}"\n print(shout(s))\n (shout(shout(s)), x)\n}\nprint(f(2.0))\n'
        'let (s, x) = f(3.0)\nprint(s, s == "x = 3.0!!")\nprint(shout(s))',
        ["x = 2.0!", '("x = 2.0!!", 2.0)', "x = 3.0!", "x = 3.0!! true", "x = 3.0!!!"],
    ),
    "carried and chosen, if only its numbers differ": (
        'fn f(x: f32, n: i32) {\n var s = "at {x}"\n for i in 0..n {\n  if i == 1 { s = "at {x + 1.0}" }\n  print(s)\n }\n print(if n > 2 { s } else { "at {x}" })\n}\nf(1.0, 3)',
        ["at 1.0", "at 2.0", "at 2.0", "at 2.0"],
    ),
    "a variable of the host": (
        'fn label(x: f32) -> str = "x = {x}"\nvar s = label(0.0)\nfor i in 1..3 {\n s = label(f32(i))\n print(s)\n}\nrecord R { x: f32, s: str }\n'
        "fn r(x: f32) -> R = R(x = x, s = label(x))\nlet a = r(5.0)\nprint(a, a.s, label(a.x))",
        ["x = 1.0", "x = 2.0", 'R(x = 5.0, s = "x = 5.0") x = 5.0 x = 5.0'],
    ),
    "captured": ('fn f(x: f32) {\n let s = "got {x}"\n let say = |y| print(s, y)\n say(1)\n say(2)\n}\nf(3.0)', ["got 3.0 1", "got 3.0 2"]),
    "given back by recursion": (
        'fn f(n: i32) -> str = if n == 0 { "end at {n}" } else { f(n - 1) }\nprint(f(3))', ["end at 0"],
    ),
    "nothing": ("fn f(x: f32) -> f32 {\n print()\n x }\nprint(f(1.0))", ["", "1.0"]),
}  # fmt: skip


@ENGINES
@pytest.mark.parametrize("case", TEXTS, ids=lambda name: name.replace(" ", "_"))
def test_what_a_text_says(case: str, engine: Engine) -> None:
    source, lines = TEXTS[case]
    assert ran(source, engine)[1] == lines


@pytest.mark.parametrize("dtype", ["f64", "i64", "u64", "c128", "f32", "c64", "bf16", "bool", "i8"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 2)])
def test_all_bits_arrive(dtype: str, shape: tuple[int, ...]) -> None:
    """JAX halves what a callback is given unless it goes as words; also without 64 bits switched on."""
    import jax

    names = {"f": "float", "i": "int", "u": "uint", "c": "complex"}
    kind = dtype if dtype == "bool" else ml_dtypes.bfloat16 if dtype == "bf16" else names[dtype[0]] + dtype[1:]
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2, (*shape, np.dtype(kind).itemsize * 8), dtype=np.uint8)
    x = np.packbits(bits, axis=-1).view(kind).reshape(shape) if dtype != "bool" else bits[..., 0].astype(bool)
    seen: list[np.ndarray] = []

    def told(words: object) -> None:
        seen.append(join_64bit(np.asarray(words), np.dtype(kind)))

    def program(x: object) -> None:
        jax.experimental.io_callback(told, None, split_64bit(jax, x), ordered=True)

    with jax.enable_x64(True):
        jax.jit(program)(x)
        jax.effects_barrier()
    (found,) = seen
    assert found.dtype == x.dtype and found.shape == x.shape and found.tobytes() == x.tobytes()


def test_a_template_is_read_back() -> None:
    """From the text of a graph and from JSON, quotes and all."""
    source = (
        "graph @f(%w: bool[], %t: i32[], %x: f32[], %y: f64[2]) {\n"
        '  print %w, %t, %x, %y {site = 0, text = ("a \\"b\\"\\n\\u00e9 ", ("among", (0, 2), (("C(", ("number", ".2f"), ")"), ("E",))), '
        '" ", ("text", ("<", ("number", ""), ">"), ">14"))}\n  yield\n}\n'
    )
    graph = graph_from_text(source)
    assert graph_to_text(graph_from_text(graph_to_text(graph))) == graph_to_text(graph)
    assert graph_to_text(graph_from_json(graph_to_json(graph))) == graph_to_text(graph)
    for read in (graph, graph_from_json(graph_to_json(graph))):
        said: list[tuple[int, str]] = []
        for when, tag in ((True, 0), (False, 0), (True, 2)):
            arrays = np.bool_(when), np.int32(tag), np.float32(1.0), np.array([0.5, 1.0])
            evaluate(read, *arrays, text_sink=lambda site, text, said=said: said.append((site, text)))
        assert said == [(0, 'a "b"\né C(1.00)   <[0.5, 1.0]>'), (0, 'a "b"\né E   <[0.5, 1.0]>')]


def test_a_text_takes_as_many_values_as_it_has_places() -> None:
    source = 'graph @f(%w: bool[], %x: f32[]) {\n  print %w, %x {site = 0, text = ("a",)}\n  yield\n}\n'
    with pytest.raises(DifflangError, match="takes 0 values, not 1"):
        graph_from_text(source)
    assert (
        value_formatting.count_arrays(
            ("a", ("number", ""), ("skip", 3), ("among", (0, 1), (("b",), (("number", ""),))))
        )
        == 6
    )


def test_arrays_of_tags_are_written_item_by_item() -> None:
    template = (("among", (0, 3), (("C(", ("number", ""), ")"), ("E",))),)
    tags, radii = np.array([[0, 3], [3, 0]]), np.array([[1.0, 0.0], [0.0, 2.0]])
    assert value_formatting.render_template(template, [tags, radii]) == "[[C(1.0), E], [E, C(2.0)]]"
    assert value_formatting.render_template(template, [tags[:0], radii[:0]]) == "[]"


def test_what_is_declared_is_as_good_as_known_while_a_definition_is_checked() -> None:
    """Mistakes after a text that only a use will tell are found where they stand."""
    assert codes('fn f(s: str, x: f32) -> f32 {\n print("{s} {x}", s)\n x + nowhere\n}') == [("DL0201", 3)]


def test_lowering_alone_says_nothing() -> None:
    import jax

    source = 'graph @f(%w: bool[], %x: f32[]) {\n  print %w, %x {site = 0, text = (("number", ""),)}\n  yield %x\n}\n'
    graph = graph_from_text(source)
    (found,) = jax.jit(lambda *xs: Lowering(jax).graph(graph, *xs))(np.bool_(True), np.float32(1.0))
    assert float(found) == 1.0


def test_a_list_without_items_is_of_any_element_type() -> None:
    source = "let a: i32[0] = []\nlet b: bool[0] = []\nlet c: c64[0] = []\nfn f(x: i32[n]) -> i32 = sum(x)\n"
    said = "print(a, b, c, [], sum([]), concat([], [1, 2]), concat([], [true]), [] + 1.0, f([]), any([]))\n"
    assert ran(source + said)[1] == ["[] [] [] [] 0.0 [1, 2] [true] [] 0 false"]
    assert ran("print(concat([16777217], []), concat([], [16777217]), concat([1.5], []))\n")[1] == [
        "[16777217] [16777217] [1.5]"
    ]


def test_a_whole_bf16_is_printed_as_a_float() -> None:
    assert ran("print(bf16(3.0), bf16(-2.0), [bf16(3.0), bf16(0.5)], f16(3.0))\n")[1] == ["3.0 -2.0 [3.0, 0.5] 3.0"]
