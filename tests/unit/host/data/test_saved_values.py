"""Values in files: what is written is what is read, and what does not fit is named. A failed write changes nothing."""

# ruff: noqa: E501 - a row of a table, or a program, is a line

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Source
from difflang.driver.checked_program import check_program
from difflang.driver.run_program import run_program
from difflang.execution.engine import Engine
from difflang.host.data.file_access import FileAccess
from difflang.host.data.numpy_files import ArrayInFile
from difflang.host.values import HostValue
from difflang.ir.tensor_types import DTYPES, Tensor, numpy_dtype
from difflang.syntax import tree
from difflang.types.annotations import AnnotationResolver
from difflang.types.language_types import LangType, RecordType, TextType, TupleType, VariantType, leaf_types
from difflang.types.unify import Unifier

FORMATS = ["npz", "json", "safetensors"]


def ran(folder: Path, program: str) -> list[str]:
    lines: list[str] = []
    checked = check_program(Source("test.dfl", program))
    run_program(checked, Engine("interpret"), FileAccess(folder), 0, lines.append)
    return lines


def said(folder: Path, program: str) -> tuple[str, str]:
    """The code and the report of what is wrong."""
    with pytest.raises(DifflangError) as raised:
        ran(folder, program)
    return raised.value.diagnostics[0].code, raised.value.render()


def installed(format: str) -> None:
    if format == "safetensors":
        pytest.importorskip("safetensors")


MODEL = """record Layer[i, o] { w: f32[i, o], b: f32[o], name: str }
record Model[d] { layers: (Layer[d, 3], Layer[3, 1]), step: i32, half: bf16[2], z: c128, on: bool, big: i64[2], k: key }
let m = Model(
  layers = (
    Layer(w = normal(4, 3), b = zeros(3), name = "α\\n"),
    Layer(w = normal(3, 1), b = [0.1], name = "")),
  step = 3, half = bf16([1.5, 0.1]), z = c128(1.0 + 2.0j), on = true,
  big = [i64(9007199254740993), i64(-3)], k = key(7))
"""


@pytest.mark.parametrize("format", FORMATS)
def test_a_model_comes_back(format: str, tmp_path: Path) -> None:
    """Its sizes are told by the file where the program leaves them open."""
    installed(format)
    program = f'{MODEL}save("m.{format}", m)\nlet n: Model[d] = load("m.{format}")\nprint(m)\nprint(n)\nprint(d)\n'
    first, second, size = ran(tmp_path, program)
    assert first == second and size == "4"


LAYERS = """record Layer[c] { w: f32[c, c], b: f32 }
record Net[c, k] { layers: Layer[c][k], out: f32[c] }
fn total(m: Net[c, k]) -> f32 = sum(for l in m.layers => l.b * sum(l.w)) + sum(m.out)
let m = Net(layers = [for i in 0..3 => Layer(w = f32(i) * ones(2, 2), b = 0.5)], out = [1.0, 2.0])
"""


@pytest.mark.parametrize("format", FORMATS)
def test_arrays_of_records_come_back(format: str, tmp_path: Path) -> None:
    installed(format)
    lines = ran(
        tmp_path,
        f'{LAYERS}save("m.{format}", m)\nlet n: Net[c, k] = load("m.{format}")\nsave("l.{format}", m.layers)\n'
        f'let l: Layer[2][k] = load("l.{format}")\nprint(m)\nprint(n)\nprint(total(n), l[k - 1].w[0], k, c)\n',
    )
    assert lines[0] == lines[1] and lines[2] == "9.0 [2.0, 2.0] 3 2"


def test_arrays_of_other_records_are_refused(tmp_path: Path) -> None:
    source = f'{LAYERS}save("l.npz", m.layers)\n'
    assert said(tmp_path, f'{source}let l: Layer[2][4] = load("l.npz")\n')[0] == "DL0705"
    assert said(tmp_path, f'{source}let l: Layer[3] = load("l.npz")\n')[0] == "DL0705"
    resumed = 'host fn resumed(n: dim) -> Layer[2][n] = load("l.npz")\nlet l = resumed({})\n'
    assert said(tmp_path, source + resumed.format("4"))[0] == "DL0705"
    assert ran(tmp_path, source + resumed.format("3")) == ran(tmp_path, source)
    laws = 'enum Law { Spring(k: f32), Free }\nsave("l.npz", [Spring(1.0), Free])\n'
    assert said(tmp_path, laws)[0] == "DL0711"


ENUMS = """enum Kind[n] { On(w: f32[n]), Off }
enum Shape { Circle(r: f32), Box(w: f32, tag: (i32, str)), Empty, Both(a: Kind[3], b: Kind[2]) }
record P[n] { shape: Shape, k: f32, kind: Kind[n] }
fn chosen(i: i32, x: f32) -> Shape = if i == 0 { Circle(x) } else { Empty }
"""


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    "shape", ["Circle(0.1)", "chosen(0, 0.1)", "chosen(1, 0.1)", 'Box(2.0, (3, "α"))', "Both(On([1.0, 2.0, 3.0]), Off)"]
)
def test_enums_come_back(format: str, shape: str, tmp_path: Path) -> None:
    """By the names of their variants: alone, in a record, under a name."""
    installed(format)
    lines = ran(
        tmp_path,
        f'{ENUMS}let p = P({shape}, 2.0, On([5.0, 6.0]))\nsave("p.{format}", p)\nsave("s.{format}", p.shape)\n'
        f'let q: P[d] = load("p.{format}")\nlet s: Shape = load("s.{format}")\nprint(p)\nprint(q)\nprint(p.shape)\nprint(s)\nprint(d)\n'
        "fn size(p: P[n]) -> i32 = n\nprint(size(q))\n",
    )
    assert lines[0] == lines[1] and lines[2] == lines[3] and lines[4:] == ["2", "2"]


def test_enums_under_names_and_as_documents(tmp_path: Path) -> None:
    several = f'{ENUMS}write_npz("a.npz", x = Circle(1.0), y = P(Empty, 1.0, Off))\n'
    read = 'let x: Shape = load("a.npz", "x")\nlet y: P[4] = load("a.npz", "y")\nprint(x, y)\n'
    assert ran(tmp_path, several + read) == ["Circle(r = 1.0) P(shape = Empty, k = 1.0, kind = Off)"]
    ran(tmp_path, f'{ENUMS}save("p.json", P(Box(2.0, (3, "b")), 1.0, Off))\n')
    document = json.loads((tmp_path / "p.json").read_text(encoding="utf-8"))
    assert document == {"shape": {"Box": {"w": 2.0, "tag": [3, "b"]}}, "k": 1.0, "kind": "Off"}


ENUM_DOCUMENTS = {
    '{"Circel": {"r": 1}}': ("DL0704", "the variant `Circel`, not a variant of Shape: Circle, Box, Empty, Both"),
    '"Circle"': ("DL0706", "has no `Circle.r`"),
    '{"Circle": {"r": 1, "s": 2}}': ("DL0706", "has `Circle.s`"),
    '{"Circle": 1}': ("DL0704", "`Circle` is 1, not an object"),
    '{"Circle": {"r": 1}, "Empty": {}}': ("DL0704", "an object whose key is the name of a variant"),
    '{"Both": {"a": {"On": {"w": [1, 2]}}, "b": "Off"}}': ("DL0705", "f32[2] for `Both.a.On.w`, not f32[3]"),
    "3": ("DL0704", "it is 3"),
}


@pytest.mark.parametrize("text", ENUM_DOCUMENTS)
def test_documents_of_no_variant(text: str, tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(text, encoding="utf-8")
    code, report = said(tmp_path, ENUMS + 'let s: Shape = load("s.json")\n')
    assert code == ENUM_DOCUMENTS[text][0] and ENUM_DOCUMENTS[text][1] in report, report


def test_a_size_that_the_variant_in_a_file_does_not_tell(tmp_path: Path) -> None:
    ran(tmp_path, f'{ENUMS}save("k.npz", P(Empty, 1.0, Off))\n')
    assert said(tmp_path, f'{ENUMS}let p: P[d] = load("k.npz")\n')[0] == "DL0204"
    assert ran(tmp_path, f'{ENUMS}let p: P[3] = load("k.npz")\nfn size(p: P[n]) -> i32 = n\nprint(size(p))\n') == ["3"]


def test_files_hold_no_functions(tmp_path: Path) -> None:
    layer = "record L { act: (f32) -> f32, w: f32 }\n"
    for program, code in (('save("l.npz", L(tanh, 1.0))', "DL0711"), ('let l: L = load("l.npz")', "DL0704")):
        found, report = said(tmp_path, layer + program + "\n")
        assert found == code and "`act` is a function" in report and "create the function again" in report
    found, report = said(tmp_path, f'{ENUMS}save("a.npz", [Circle(1.0), Empty])\n')
    assert found == "DL0711" and "array of enums" in report


# ---- Random records


def arrays(dtype: str, shape: tuple[int, ...]) -> st.SearchStrategy[np.ndarray]:
    count = int(np.prod(shape))
    bits = numpy_dtype(DTYPES[dtype]).itemsize * 8 * (1 if dtype != "bool" else 0)
    if dtype == "bool":
        return st.lists(st.booleans(), min_size=count, max_size=count).map(lambda x: np.array(x, bool).reshape(shape))
    words = st.binary(min_size=count * bits // 8, max_size=count * bits // 8)
    return words.map(lambda b: plain_nans(np.frombuffer(b, numpy_dtype(DTYPES[dtype])).reshape(shape)))


def plain_nans(x: np.ndarray) -> np.ndarray:
    """JSON knows one NaN."""
    if x.dtype.kind == "c":
        return plain_nans(x.view(x.real.dtype)).view(x.dtype) if x.shape else plain_nans(x.reshape(1)).reshape(())
    return np.where(np.isnan(x), np.array(np.nan, x.dtype), x) if x.dtype.kind not in "iub" else x


@st.composite
def values(draw: st.DrawFn, depth: int = 2) -> tuple[LangType, list[Any]]:
    kind = draw(st.sampled_from(["array", "array", "text", "tuple", "record", "enum"] if depth else ["array", "text"]))
    if kind == "text":
        return TextType(draw(st.text(max_size=8).filter(lambda t: "\x00" not in t and t.isprintable()))), []
    if kind == "array":
        dtype = draw(st.sampled_from(sorted(DTYPES)))
        shape = tuple(draw(st.lists(st.integers(0, 3), max_size=2)))
        return Tensor(DTYPES[dtype], shape), [draw(arrays(dtype, shape))]
    parts = draw(st.lists(values(depth - 1), min_size=2, max_size=3))
    types, leaves = tuple(t for t, _ in parts), [x for _, xs in parts for x in xs]
    if kind == "tuple":
        return TupleType(types), leaves
    names = tuple(f"f{i}" for i in range(len(parts)))
    if kind == "enum":
        return VariantType(enum(Source("r.dfl", "R"), names, types), 1, names, types), leaves
    decl = record(Source("r.dfl", "R"), names, types)
    return RecordType(decl, names, types), leaves


def record(source: Any, names: tuple[str, ...], types: tuple[LangType, ...]) -> tree.Record:
    from difflang.base.source import Span

    at = Span(source, 0, 1)
    fields = tuple(tree.Field(at, n, written(at, t), None) for n, t in zip(names, types, strict=True))
    return tree.Record(at, f"R{abs(hash(names + types))}", at, (), fields)


def enum(source: Any, names: tuple[str, ...], types: tuple[LangType, ...]) -> tree.Enum:
    """An enum with these fields in the second of its variants."""
    fields = record(source, names, types)
    at = fields.span
    return tree.Enum(at, f"E{fields.name}", at, (), (tree.Variant(at, "A", ()), tree.Variant(at, "B", fields.fields)))


def written(at: Any, type: LangType) -> tree.TypeExpr:
    match type:
        case Tensor(shape=()):
            return tree.TypeName(at, (type.dtype.name,))
        case Tensor():
            return tree.TypeApply(at, (type.dtype.name,), tuple(tree.TypeInt(at, n) for n in type.shape))
        case TupleType(items=items):
            return tree.TypeTuple(at, tuple(written(at, t) for t in items))
        case RecordType(decl=decl) | VariantType(decl=decl):
            return tree.TypeName(at, (decl.name,))
        case _:
            return tree.TypeName(at, ("str",))


def through(format: str, folder: Path, value: HostValue) -> HostValue:
    """A value written to a file and read with its own type, texts unsaid."""
    from difflang.base.source import Span
    from difflang.host.data import json_values
    from difflang.host.data.array_files import FORMAT_READERS, FORMAT_WRITERS, UNNAMED
    from difflang.host.data.state_dict import StateDictLoader, leaf_paths, to_state_dict
    from difflang.types.join_types import erase_texts

    at = Span(Source("t.dfl", "x"), 0, 1)
    path, held, wanted = folder / f"a.{format}", to_state_dict(value), erase_texts(value.type)
    path.write_bytes(
        json_values.json_text(value.type, held).encode() if format == "json" else FORMAT_WRITERS[format](held, at)
    )
    holds = dict(
        json_values.read_json(path.read_bytes(), wanted) if format == "json" else FORMAT_READERS[format](path, at)
    )
    if "" in [p for p, _ in leaf_paths(value.type)] and UNNAMED in holds:
        holds = {"" if p == UNNAMED else p: x for p, x in holds.items()}
    decls = {d.name: d for d in declared(value.type)}
    return StateDictLoader("a", holds, at, at).value(wanted, AnnotationResolver(Unifier(), decls.get).records)


def declared(type: LangType) -> list[tree.Record | tree.Enum]:
    match type:
        case RecordType(decl=decl, fields=parts) | VariantType(decl=decl, fields=parts):
            return [decl, *[d for t in parts for d in declared(t)]]
        case TupleType(items=parts):
            return [d for t in parts for d in declared(t)]
        case _:
            return []


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(drawn=values())
@pytest.mark.nightly_cases("npz")
def test_every_value_comes_back_bit_for_bit(format: str, drawn: tuple[LangType, list[Any]], tmp_path: Path) -> None:
    installed(format)
    type, leaves = drawn
    found = through(format, tmp_path, HostValue(type, tuple(leaves)))
    assert found.type == type
    read = [leaf.read() if isinstance(leaf, ArrayInFile) else leaf for leaf in found.leaves or ()]
    for leaf, was, t in zip(read, leaves, leaf_types(type), strict=True):
        assert leaf.dtype == numpy_dtype(t.dtype) and leaf.shape == was.shape
        assert np.ascontiguousarray(leaf).tobytes() == np.ascontiguousarray(was).tobytes()


# ---- What does not fit

SAVED = "record P { w: f32[3], n: i32, s: str }\n"
MISFITS = {
    "another size": ("record P { w: f32[4], n: i32, s: str }", "DL0705", ["f32[3] for `w`", "not f32[4]"]),
    "another rank": ("record P { w: f32[3, 1], n: i32, s: str }", "DL0705", ["f32[3] for `w`", "not f32[3, 1]"]),
    "another element type": ("record P { w: f64[3], n: i32, s: str }", "DL0704", ["f32[3] for `w`", "not f64[3]"]),
    "a field that is not there": ("record P { w: f32[3], n: i32, s: str, t: f32 }", "DL0706", ["`t`", "it has "]),
    "a field too many": ("record P { w: f32[3], s: str }", "DL0706", ["`n`", "the declared type does not"]),
    "a text for a number": ("record P { w: f32[3], n: i32, s: i32 }", "DL0704", ["a text for `s`", "not i32"]),
    "sizes that disagree": ("record P[k] { w: f32[k], n: i32, s: str }\nlet q: f32[k] = [1.0]", "DL0705", ["not f32[1]"]),
}  # fmt: skip


@pytest.mark.parametrize("format", ["npz", "safetensors"])
@pytest.mark.parametrize("name", MISFITS)
def test_what_does_not_fit_is_named(format: str, name: str, tmp_path: Path) -> None:
    installed(format)
    ran(tmp_path, SAVED + f'save("p.{format}", P(w = ones(3), n = 1, s = "x"))\n')
    records, code, words = MISFITS[name]
    applied = "P[k]" if "P[k]" in records else "P"
    found, text = said(tmp_path, records + f'\nlet p: {applied} = load("p.{format}")\n')
    assert found == code
    assert all(word in text for word in words), text


JSON = {
    '{"w": [1, 2, 3], "n": 1.5, "s": "x"}': ("DL0704", "`n` is 1.5, not i32"),
    '{"w": [1, 2], "n": 1, "s": "x"}': ("DL0705", "f32[2] for `w`"),
    '{"w": [1, [2], 3], "n": 1, "s": "x"}': ("DL0704", "`w` is a list of 1, not f32"),
    '{"w": [1, 2, "3"], "n": 1, "s": "x"}': ("DL0704", "a text"),
    '{"w": 1, "n": 1, "s": "x"}': ("DL0704", "`w` is 1, not f32[3]"),
    '{"w": [1, 2, 3], "n": 99999999999, "s": "x"}': ("DL0704", "not i32"),
    '{"w": [1, 2, 3], "n": true, "s": "x"}': ("DL0704", "`n` is true, not i32"),
    '{"w": [1, 2, 3], "n": 1, "s": null}': ("DL0704", "`s` is null, not str"),
    '{"w": [1, 2, 3], "n": 1}': ("DL0706", "has no `s`"),
    '{"w": [1, 2, 3], "n": 1, "n": 2, "s": "x"}': ("DL0701", "twice"),
    '{"w": [1, 2, 3], "n": 1, "s": "\\ud800"}': ("DL0704", "half of a surrogate pair"),
    "[1, 2": ("DL0701", "cannot read"),
    "[" * 100_000: ("DL0701", "cannot read"),
    "": ("DL0701", "cannot read"),
    '{"n": 1' + "0" * 5000 + "}": ("DL0701", "cannot read"),
}


@pytest.mark.parametrize("text", JSON, ids=range(len(JSON)))
def test_documents_that_do_not_fit(text: str, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(text, encoding="utf-8")
    code, report = said(tmp_path, SAVED + 'let p: P = load("p.json")\n')
    assert code == JSON[text][0] and JSON[text][1] in report, report
    assert "\x1b" not in report


@pytest.mark.parametrize("format", ["npy", "npz", "safetensors", "json", "csv"])
def test_damaged_files_are_reported(format: str, tmp_path: Path) -> None:
    """Any byte changed or cut off: a value of the declared type, or a report."""
    installed(format)
    program = f'let x: f32[n] = load("a.{format}")\n'
    ran(tmp_path, f'save("a.{format}", [1.0, 2.5, 3.0])\n')
    whole = (tmp_path / f"a.{format}").read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(120):
        data = bytearray(whole)
        for _ in range(int(rng.integers(1, 4))):
            data[int(rng.integers(len(data)))] = int(rng.integers(256))
        cut = int(rng.integers(len(data) + 1)) if rng.random() < 0.3 else len(data)
        (tmp_path / f"a.{format}").write_bytes(bytes(data[:cut]))
        try:
            ran(tmp_path, program)
        except DifflangError as error:
            assert {d.code for d in error.diagnostics} <= {"DL0701", "DL0703", "DL0704", "DL0705", "DL0706"}
            assert "\x1b" not in error.render()


def test_pickles_are_not_read(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "a.npz", value=np.array([print], dtype=object), allow_pickle=True)
    for name in ("a.npy", "a.npz"):
        assert said(tmp_path, f'let x: f32[n] = load("{name}")\n')[0] == "DL0701"


def test_what_numpy_did_not_write_is_not_called_pickled(tmp_path: Path) -> None:
    for name in ("a.npy", "a.npz"):
        (tmp_path / name).write_bytes(b"\x80\x01 something else")
        with pytest.raises(DifflangError, match="it is not a NumPy array"):
            ran(tmp_path, f'let x: f32[n] = load("{name}")\n')


# ---- Writing


@pytest.mark.parametrize("step", ["write", "replace", "fsync"])
@pytest.mark.parametrize("existed", [True, False])
def test_a_failed_write_keeps_the_old_file(step: str, existed: bool, tmp_path: Path) -> None:
    file = tmp_path / "a.npz"
    if existed:
        ran(tmp_path, 'save("a.npz", [1.0])\n')
    before = file.read_bytes() if existed else None

    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(*{"fsync": (os, "fsync"), "replace": (Path, "replace"), "write": (os, "fsync")}[step], fails)
        code, report = said(tmp_path, 'save("a.npz", [2.0])\n')
    assert code == "DL0710" and "no space left" in report
    assert (file.read_bytes() if existed else None) == before
    assert [p.name for p in tmp_path.iterdir()] == (["a.npz"] if existed else [])


def test_a_killed_write_keeps_the_old_file(tmp_path: Path) -> None:
    """Whatever else ends a program: nothing stands under the file's name but a whole file."""
    ran(tmp_path, 'save("a.npz", [1.0])\n')
    before = (tmp_path / "a.npz").read_bytes()

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", killed)
        with pytest.raises(KeyboardInterrupt):
            ran(tmp_path, 'save("a.npz", [2.0])\n')
    assert (tmp_path / "a.npz").read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize("step", ["fsync", "open", "replace"])
def test_a_process_that_is_killed_leaves_a_whole_file(step: str, tmp_path: Path) -> None:
    (tmp_path / "a.dfl").write_text('save("a.npz", [2.0])\n', encoding="utf-8")
    ran(tmp_path, 'save("a.npz", [1.0])\n')
    before = (tmp_path / "a.npz").read_bytes()
    code = f"""import os, pathlib, signal, sys
die = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)
step = {step!r}
if step == "fsync":
    os.fsync = die
else:
    setattr(pathlib.Path, step, die)
from difflang.driver.checked_program import check_program
from difflang.driver.run_program import file_access, run_program
from difflang.execution.engine import Engine
from difflang.base.source import Source
run_program(check_program(Source("a", 'save("a.npz", [2.0])\\n')), Engine("interpret"), file_access(pathlib.Path(sys.argv[1]) / "a"), 0, print)
"""
    result = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert result.returncode == -9
    assert (tmp_path / "a.npz").read_bytes() == before


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ('save("a.dfl", [1.0])', "DL0708"),
        ('save("a", [1.0])', "DL0708"),
        ('write_csv("a.npz", [1.0])', "DL0708"),
        ('save("../a.npz", [1.0])', "DL0702"),
        ('save("/tmp/a.npz", [1.0])', "DL0702"),
        ('save("no/a.npz", [1.0])', "DL0710"),
        ('save("folder.npz", [1.0])', "DL0710"),
        ('save("a.csv", [1j])', "DL0711"),
        ('write_npy("a.npy", (1.0, 2.0))', "DL0711"),
        ('save("a.npz", |x| x)', "DL0711"),
        ('save("a.npz", 0..3)', "DL0711"),
        ('save("a.npz")', "DL0319"),
        ('save(1.0, "a.npz")', "DL0319"),
        ('write_npz("a.npz", [1.0], x = [1.0])', "DL0319"),
        ('write_csv("a.csv", [[1.0, 2.0]], header = "a")', "DL0319"),
        ('write_csv("a.csv", [1.0], head = "a")', "DL0319"),
    ],
)
def test_what_is_not_written(call: str, code: str, tmp_path: Path) -> None:
    (tmp_path / "folder.npz").mkdir()
    assert said(tmp_path, call + "\n")[0] == code
    assert [p.name for p in tmp_path.iterdir()] == ["folder.npz"]


def test_a_text_that_numpy_would_cut(tmp_path: Path) -> None:
    assert said(tmp_path, 'save("a.npz", "a\\0")\n')[0] == "DL0711"
    assert ran(tmp_path, 'save("a.json", "a\\0")\nlet s: str = load("a.json")\nprint(s == "a\\0")\n') == ["true"]


def test_a_link_leads_nowhere_outside(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir(), outside.mkdir()
    (inside / "link").symlink_to(outside)
    assert said(inside, 'save("link/a.npz", [1.0])\n')[0] == "DL0702"


def test_empty_tables(tmp_path: Path) -> None:
    """A row of names tells how many columns there are."""
    program = """write_csv("a.csv", zeros(0, 2), header = ("x", "y"))
let a: f32[n, 2] = read_csv("a.csv")
write_csv("b.csv", zeros(0))
let b: f32[m] = read_csv("b.csv")
print(n, m, a, b)
"""
    assert ran(tmp_path, program) == ["0 0 [] []"]


def test_tables(tmp_path: Path) -> None:
    program = """write_csv("a.csv", [[1.5, nan], [-0.0, inf]], header = ("x", "y, z"))
let a: f32[n, 2] = read_csv("a.csv")
write_csv("b.csv", [i64(9007199254740993), i64(-2)])
let b: i64[m] = read_csv("b.csv")
write_csv("c.csv", [true, false])
let c: bool[k] = read_csv("c.csv")
print(a, b, c)
"""
    assert ran(tmp_path, program) == ["[[1.5, nan],\n [-0.0, inf]] [9007199254740993, -2] [true, false]"]
    assert (tmp_path / "a.csv").read_text() == 'x,"y, z"\n1.5,nan\n-0.0,inf\n'


def test_a_type_that_a_function_declares(tmp_path: Path) -> None:
    """For its result or its parameter; the sizes in it are those of each file."""
    program = """write_csv("t.csv", [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
write_csv("u.csv", [[1.0, 2.0]])
host fn data(path: str) -> f32[n, 2] { read_csv(path) }
host fn total(x: f64[m, 2]) -> f64 { f64(m) * sum(x) }
let x = data("t.csv")
print(x[0], sum(data("t.csv")) + sum(data("u.csv")), total(read_csv("t.csv")), total(read_csv("u.csv")))
host fn pick(k: i32) -> f32[n, 2] {
  if k == 0 { return read_csv("u.csv") }
  data("t.csv") * 2.0
}
print(pick(0), sum(pick(1)))
"""
    assert ran(tmp_path, program) == ["[1.0, 2.0] 24.0 63.0 3.0", "[[1.0, 2.0]] 42.0"]
    assert said(tmp_path, 'let x = read_csv("t.csv") + 1.0\n')[0] == "DL0707"


def test_several_values_under_their_names(tmp_path: Path) -> None:
    program = """record P { x: f32[2], s: str }
write_npz("a.npz", x = [1.0, 2.0], p = P(x = [3.0, 4.0], s = "t"))
let x: f32[n] = read_npz("a.npz", "x")
let p: P = load("a.npz", "p")
let s: str = load("a.npz", "p.s")
print(x, p, s)
"""
    assert ran(tmp_path, program) == ['[1.0, 2.0] P(x = [3.0, 4.0], s = "t") t']


def test_the_readme_of_a_document(tmp_path: Path) -> None:
    """A document is read by others: plain JSON, the shortest numbers."""
    ran(
        tmp_path, 'record P { x: f32[2], z: c64, s: str }\nsave("a.json", P(x = [0.1, nan], z = 1.0 + 2.0j, s = "a"))\n'
    )
    assert json.loads((tmp_path / "a.json").read_text()) == {"x": [0.1, "NaN"], "z": [1.0, 2.0], "s": "a"}


@pytest.mark.parametrize(("package", "call"), [
    ("matplotlib", 'plot([1.0], file = "a.svg")'),
    ("safetensors", 'save("a.safetensors", [1.0])'),
    ("safetensors", 'let x: f32[n] = load("a.safetensors")'),
])  # fmt: skip
def test_a_package_that_is_not_there_is_missed_before_anything_runs(package: str, call: str, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("difflang.host.optional_packages.find_spec", lambda name: None)
        code, report = said(tmp_path, f'save("began.npz", [1.0])\n{call}\n')
    assert code == "DL0709" and f"difflang[{'plot' if package == 'matplotlib' else package}]" in report
    assert not list(tmp_path.iterdir())


def test_a_name_without_a_format_that_only_the_run_has(tmp_path: Path) -> None:
    program = 'let file: str = arg("plot", default = "a.gif")\nif file != "" { plot([1.0], file = file) }\n'
    code, report = said(tmp_path, program)
    assert code == "DL0708" and ".png, .svg" in report and not list(tmp_path.iterdir())


def test_a_package_that_only_a_branch_needs_is_missed_where_it_is_reached(tmp_path: Path) -> None:
    program = 'let file: str = arg("plot", default = "")\nif file != "" { plot([1.0], file = file) }\nprint("done")\n'
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("difflang.host.optional_packages.find_spec", lambda name: None)
        assert ran(tmp_path, program) == ["done"]
        reached = program.replace('!= ""', '== ""').replace("= file)", '= "a.svg")')
        patch.setitem(sys.modules, "matplotlib", None)
        code, report = said(tmp_path, reached)
    assert code == "DL0709" and "difflang[plot]" in report and not list(tmp_path.iterdir())


def test_a_tangent_of_records_finds_its_sizes(tmp_path: Path) -> None:
    """The state of an optimizer holds a tangent, whose fields are tangents too."""
    program = (
        "import nn\nimport optim (Moments, moments)\n"
        "record Net[k, c] { w: f32[k, c], head: nn.Dense[f32, c, 2] }\n"
        "record State[k, c] { net: Net[k, c], opt: Moments[D(Net[k, c])] }\n"
        "let net = Net(ones(3, 4), nn.init_dense(4, 2))\n"
        'save("s.npz", State(net, moments(net)))\n'
        'let s: State[k, c] = load("s.npz")\n'
        'host fn again(k: dim) -> State[k, 4] = load("s.npz")\n'
        "print(k, c, s.opt.mean.head.b, again(3).opt.count)\n"
    )
    assert ran(tmp_path, program) == ["3 4 [0.0, 0.0] 0"]
