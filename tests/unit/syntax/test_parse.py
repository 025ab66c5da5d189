"""Trees: what the nodes are, where they stand, and that no depth or length is too much."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from difflang.base.source import Source
from difflang.syntax import tree
from difflang.syntax.parse import parse, parse_expression
from support.programs import programs
from support.trees import nodes, shape
from support.work import work


def module(text: str) -> tree.Module:
    parsed = parse(Source("test", text))
    assert parsed.diagnostics == ()
    return parsed.module


def only(text: str) -> Any:
    (item,) = module(text).items
    return item


def value(text: str) -> Any:
    parsed = parse_expression(Source("test", text))
    assert parsed.diagnostics == ()
    return parsed.value


def test_an_empty_file_is_an_empty_module() -> None:
    for text in ("", "\n\n", "# only a comment", "  \n## doc\n", "\ufeff"):
        assert module(text).items == ()


def test_default_float() -> None:
    assert module("let x = 1").default_float == "f32"
    assert module("# first a comment\n\nfloat f64\n\nlet x = 1").default_float == "f64"
    assert len(module("float f64\nlet x = 1").items) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a - b", ("Binary", "-", ("Name", "a"), ("Name", "b"))),
        ("a or b", ("Binary", "or", ("Name", "a"), ("Name", "b"))),
        ("not a", ("Unary", "not", ("Name", "a"))),
        ("0 <= x < 1", ("Compare", ("Int", 0), (("<=", ("Name", "x")), ("<", ("Int", 1))))),
        ("a.b", ("Member", ("Name", "a"), "b")),
        ("f''", ("Prime", ("Prime", ("Name", "f")))),
        ("()", ("TupleExpr", ())),
        ("(a)", ("Name", "a")),
        ("(a, b,)", ("TupleExpr", (("Name", "a"), ("Name", "b")))),
        ("[]", ("ArrayExpr", ())),
        ("1_000", ("Int", 1000)),
        ("1.5e-3", ("Float", 0.0015, "1.5e-3")),
        ("2.5j", ("Imaginary", 2.5, "2.5j")),
        ("1_0e1j", ("Imaginary", 100.0, "1_0e1j")),
        ("3j", ("Imaginary", 3.0, "3j")),
        ("0..n by 2", ("Range", ("Int", 0), ("Name", "n"), ("Int", 2))),
        ("f(x, k = 1)", ("Call", ("Name", "f"), (("Arg", None, ("Name", "x")), ("Arg", "k", ("Int", 1))))),
        ("p with (x = 2)", ("With", ("Name", "p"), (("Arg", "x", ("Int", 2)),))),
        ("x |> f", ("Pipe", ("Name", "x"), ("Name", "f"))),
        ("|| 1", ("Lambda", (), ("Int", 1), False)),
        ("linear |dx| dx", ("Lambda", (("LambdaParam", ("NamePattern", "dx"), None),), ("Name", "dx"), True)),
        ("a[.., newaxis, ...]",
         ("Index", ("Name", "a"), (("Slice", None, None, None), ("Name", "newaxis"), ("Dots",)))),
        ("a[1..n, 2.., ..3 by k]",
         ("Index", ("Name", "a"), (("Range", ("Int", 1), ("Name", "n"), None), ("Slice", ("Int", 2), None, None),
                                   ("Slice", None, ("Int", 3), ("Name", "k"))))),
        ("[for i, j in xs if c => i]",
         ("ArrayComprehension", ("Comprehension", (("Iterator", ("NamePattern", "i"), None),
          ("Iterator", ("NamePattern", "j"), ("Name", "xs"))), ("Name", "c"), ("Name", "i")))),
        ("if a { b } else if c { d }",
         ("If", ("Name", "a"), ("Block", (("Name", "b"),)), ("If", ("Name", "c"), ("Block", (("Name", "d"),)), None))),
        ("match e { C(r, _) => 1, m.D => 2, -1 => 3, (a, b) => 4 }",
         ("Match", ("Name", "e"), (
             ("Case", ("VariantPattern", ("C",), (("NamePattern", "r"), ("NamePattern", "_"))), ("Int", 1)),
             ("Case", ("VariantPattern", ("m", "D"), ()), ("Int", 2)),
             ("Case", ("LiteralPattern", ("Unary", "-", ("Int", 1))), ("Int", 3)),
             ("Case", ("TupleCasePattern", (("NamePattern", "a"), ("NamePattern", "b"))), ("Int", 4))))),
        ("checkpoint { x }", ("Checkpoint", ("Block", (("Name", "x"),)))),
        ("with_key(k) { x }", ("WithKey", ("Name", "k"), ("Block", (("Name", "x"),)))),
    ],
)  # fmt: skip
def test_expressions(text: str, expected: object) -> None:
    assert shape(value(text)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import ode", ("Import", "ode", False, None, ())),
        ('import "./m.dfl" as m (a, b)', ("Import", "./m.dfl", True, "m", ("a", "b"))),
        ("x max= 3", ("Update", ("Name", "x"), "max", ("Int", 3))),
        ("x -= 3", ("Update", ("Name", "x"), "-", ("Int", 3))),
        ("save x", ("Save", "x")),
        ('test "t" { }', ("Test", "t", ("Block", ()))),
        ("assert c", ("Assert", ("Name", "c"), None)),
        ("enum E[T] { A(x: T), B }",
         ("Enum", "E", (("Generic", "T", None),), (("Variant", "A", (("Field", "x", ("TypeName", ("T",)), None),)),
                                                  ("Variant", "B", ())), False, None)),
        ("extern fn f(x: f32) -> f32",
         ("Fn", "f", (), (("Param", "x", ("TypeName", ("f32",)), None),), ("TypeName", ("f32",)), (),
          ("Foreign", "f", False), False, False, None, ())),
        ("extern op f[T: float](x: T) -> T",
         ("Fn", "f", (("Generic", "T", "float"),), (("Param", "x", ("TypeName", ("T",)), None),), ("TypeName", ("T",)),
          (), ("Foreign", "f", True), False, False, None, ())),
        ("rule f(x) by implicit g", ("Rule", "f", (("Param", "x", None, None),), "implicit", ("Name", "g"), None, ())),
        ("rule f by inverse g", ("Rule", "f", (), "inverse", ("Name", "g"), None, ())),
        ("@checkpoint(every, steps = 8) while c { }",
         ("While", ("Name", "c"), ("Block", ()), (("Attribute", "checkpoint", (
             ("Arg", None, ("Name", "every")), ("Arg", "steps", ("Int", 8)))),))),
    ],
)  # fmt: skip
def test_statements(text: str, expected: object) -> None:
    assert shape(only(text)) == expected


def test_a_function() -> None:
    fn = only(
        "## Doc.\n@memory(256 MiB)\n@deterministic\npub host fn f[T: float](x: T[n, ..s], k: dim = 3) -> D(T) "
        "where n > k { x }"
    )
    assert (fn.name, fn.pub, fn.host, fn.doc) == ("f", True, True, "Doc.")
    assert shape(fn.generics) == (("Generic", "T", "float"),)
    assert shape(fn.params[0].type) == ("TypeApply", ("T",), (("TypeName", ("n",)), ("AnyShape", "s")), ())
    assert shape(fn.params[1]) == ("Param", "k", ("TypeName", ("dim",)), ("Int", 3))
    assert shape(fn.result) == ("TypeCall", ("D",), (("TypeName", ("T",)),))
    assert [attribute.name for attribute in fn.attributes] == ["memory", "deterministic"]
    assert shape(fn.attributes[0].args) == (("Quantity", ("Int", 256), "MiB"),)
    assert fn.attributes[1].span.text == "@deterministic"
    assert len(fn.where) == 1
    assert fn.name_span.text == "f"
    assert fn.span.text.startswith("@memory") and fn.span.text.endswith("{ x }")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(f64, i32) -> f64", ("TypeFn", ("TypeTuple", (("TypeName", ("f64",)), ("TypeName", ("i32",)))),
                               ("TypeName", ("f64",)), False)),
        ("() -> T", ("TypeFn", ("TypeTuple", ()), ("TypeName", ("T",)), False)),
        ("U -o V", ("TypeFn", ("TypeName", ("U",)), ("TypeName", ("V",)), True)),
        ("A -> B -> C", ("TypeFn", ("TypeName", ("A",)), ("TypeFn", ("TypeName", ("B",)), ("TypeName", ("C",)), False),
                         False)),
        ("m.Net[2 * n + 1, k^2]",
         ("TypeApply", ("m", "Net"), (
             ("DimBinary", "+", ("DimBinary", "*", ("TypeInt", 2), ("TypeName", ("n",))), ("TypeInt", 1)),
             ("DimBinary", "^", ("TypeName", ("k",)), ("TypeInt", 2))), ())),
        ("f32[n @data, d, h @(data, model)]",
         ("TypeApply", ("f32",), (("TypeName", ("n",)), ("TypeName", ("d",)), ("TypeName", ("h",))),
          (("MeshAxes", ("data",)), None, ("MeshAxes", ("data", "model"))))),
    ],
)  # fmt: skip
def test_types(text: str, expected: object) -> None:
    assert shape(only(f"let x: {text} = y").type) == expected


def test_docs_belong_to_what_stands_below() -> None:
    items = module(
        "## Not this.\n\n## Two\n##   lines.\nfn f() = 1\n## A record.\npub record R {\n  ## A field.\n  x: f32\n"
        "  y: f32 ## trailing\n  z: f32\n}\nfn g() = 2 ## trailing\nlet h = 3\n"
    ).items
    f, r, g, h = items
    assert isinstance(f, tree.Fn) and isinstance(r, tree.Record) and isinstance(g, tree.Fn) and isinstance(h, tree.Let)
    assert f.doc == "Two\n  lines."
    assert r.doc == "A record."
    assert [field.doc for field in r.fields] == ["A field.", None, None]
    assert (g.doc, h.doc) == (None, None)


def test_strings() -> None:
    source = Source("test", r'f("a {x + 1:.3f} \"{{b}}\" \u{3b1}\n{g([i: 2])}")'.replace("[i: 2]", "y[0]"))
    call = parse_expression(source).value
    assert isinstance(call, tree.Call)
    (arg,) = call.args
    assert isinstance(arg.value, tree.Str)
    first, hole, text, other = arg.value.parts
    assert (first, text) == ("a ", ' "{b}" α\n')
    assert isinstance(hole, tree.Interpolation) and isinstance(other, tree.Interpolation)
    assert (hole.format, hole.span.text, hole.value.span.text) == (".3f", "{x + 1:.3f}", "x + 1")
    assert (other.format, other.value.span.text) == ("", "g(y[0])")


def test_spans() -> None:
    source = Source("test", "let y = (a + b) * f(c)  # end\n")
    item = parse(source).module.items[0]
    assert isinstance(item, tree.Let) and isinstance(item.value, tree.Binary)
    assert item.span.text == "let y = (a + b) * f(c)"
    assert item.value.span.text == "(a + b) * f(c)"
    assert item.value.lhs.span.text == "a + b"
    assert item.value.op_span.text == "*"
    assert item.value.rhs.span.text == "f(c)"


@pytest.mark.parametrize("name", programs())
def test_every_node_lies_in_its_parent_without_space_around(name: str) -> None:
    """Interpolations stand in their string, parts in their whole, and no span begins or ends in white space."""
    for node, parent in nodes(module(programs()[name])):
        if parent is not None:
            assert parent.span.start <= node.span.start <= node.span.end <= parent.span.end
            assert node.span.text == node.span.text.strip() != ""


def test_names_are_compared_in_composed_form() -> None:
    assert value("cafe\u0301").id == value("caf\u00e9").id


def test_line_ends_do_not_matter() -> None:
    text = "fn f(x: f32) -> f32 {\n  let y = x\n    |> sin\n\n  y\n}\n# c\nlet z = 1\n"
    assert shape(module(text)) == shape(module(text.replace("\n", "\r\n")))


def test_comments_are_kept() -> None:
    parsed = parse(Source("test", "# a\nlet x = 1 # b\n  # c\n  |> f\n## d\nlet y = 2"))
    assert [span.text for span in parsed.comments] == ["# a", "# b", "# c", "## d"]
    assert len(parsed.module.items) == 2


@pytest.mark.parametrize(
    "text",
    [
        " + ".join(["x"] * 100_000),
        "(" * 10_000 + "x" + ")" * 10_000,
        "[" * 10_000 + "x" + "]" * 10_000,
        "-" * 10_000 + "x",
        "^".join(["x"] * 10_000),
        "f(" * 10_000 + "x" + ")" * 10_000,
        "x" + "'" * 10_000,
        "|x| " * 10_000 + "x",
        "{ " * 10_000 + "x" + " }" * 10_000,
        "if c { 1 } else " * 5_000 + "{ 2 }",
        "x |> " * 10_000 + "f",
    ],
    ids=lambda text: text[:12],
)
def test_nothing_is_too_deep(text: str) -> None:
    parsed = parse(Source("test", text))
    assert parsed.diagnostics == ()
    assert len(parsed.module.items) == 1
    assert parsed.module.items[0].span.text in (text, "x")  # parentheses belong to no node


@pytest.mark.slow
def test_a_line_costs_the_same_wherever_it_stands() -> None:
    def of(lines: int) -> int:
        text = "let x0 = 1.0\n" + "".join(f"let x{i + 1} = sin(x{i}) * 2.0 + x{i}\n" for i in range(lines))
        return work(lambda: module(text))

    of(10)
    short, long = of(1000), of(4000)
    assert long < 4.1 * short
    assert long < 4000 * 500, "a parser that does much more a line is noticed"


@pytest.mark.slow
def test_parsing_needs_neither_lark_nor_jax() -> None:
    """Once the tables are in the cache, lark is not even imported."""
    code = (
        "import sys; from difflang.base.source import Source; from difflang.syntax.parse import parse; "
        "parse(Source('t', 'let x = 1')); print([m for m in ('lark', 'jax', 'numpy', 'rich') if m in sys.modules])"
    )
    _, second = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in "12"]
    assert second.stdout.strip() == "[]"


@pytest.mark.parametrize("text", ["float f64at f64", "float f65", "float i32"])
def test_a_default_float_is_a_float_type(text: str) -> None:
    parsed = parse(Source("test", f"{text}\nlet x = 1.0\n"))
    assert parsed.diagnostics[0].code == "DL0130"
    assert parsed.module.default_float == "f32"


@pytest.mark.parametrize("text", ["f(x) = 1.0", "print(x) += 1.0", "(a, f(x)) = (1.0, 2.0)"])
def test_what_is_no_place_is_left_out(text: str) -> None:
    parsed = parse(Source("test", text))
    assert [d.code for d in parsed.diagnostics] == ["DL0112"]
    assert parsed.module.items == ()
