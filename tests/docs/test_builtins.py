"""`stdlib/builtins.md` describes what every file knows: all of it, with the signatures that the checker takes.

`just accept` rewrites what stands below the examples; read the diff.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from difflang.base.diagnostics import DifflangError
from difflang.base.package_data import builtins_file
from difflang.base.source import Source
from difflang.driver.checked_program import check_program
from difflang.elaborate.calls.builtin_registry import BUILTINS, PARAMETERS, TRANSFORM_NAMES
from difflang.elaborate.reports.name_errors import CONSTANTS
from difflang.host.builtin_registry import HOST_BUILTINS
from difflang.host.builtins import BuiltinCall
from difflang.ir.tensor_types import DTYPES
from difflang.syntax.builtin_page import SignatureText, builtin_entries, builtin_page, signature_texts
from difflang.syntax.doc_pages import DocEntry, examples_as_text
from difflang.syntax.parser_tables import load_tables
from support.builtin_examples import accepted, shown

if os.environ.get("DIFFLANG_ACCEPT"):
    with TemporaryDirectory() as folder:
        page = builtins_file()
        page.write_text(accepted(page.read_text(encoding="utf-8"), Path(folder)), encoding="utf-8")
ENTRIES = builtin_entries()
WORDS = set(load_tables().lexis.words)
FUNCTIONS = sorted(set(BUILTINS) - {"print"})


@pytest.mark.parametrize("entry", builtin_page().entries, ids=lambda e: e.name)
def test_each_example_prints_what_it_says(entry: DocEntry, tmp_path: Path) -> None:
    if "read_parquet" in entry.names:
        pytest.importorskip("pyarrow")
    text = examples_as_text(entry)
    assert text and shown(text, tmp_path) == text


def test_every_name_has_an_entry_and_every_entry_a_name() -> None:
    names = [name for entry in builtin_page().entries for name in entry.names]
    known = {*BUILTINS, *TRANSFORM_NAMES, *HOST_BUILTINS, *CONSTANTS, *DTYPES, *WORDS}
    assert set(names) == known and len(names) == len(set(names))


def test_every_name_stands_in_an_example_and_has_a_summary() -> None:
    for entry in builtin_page().entries:
        examples = "\n".join(e.code for e in entry.examples)
        missing = [n for n in entry.names if not re.search(rf"\b{n}\b|'" if n == "deriv" else rf"\b{n}\b", examples)]
        assert not missing or set(entry.names) <= set(DTYPES), missing
        assert entry.summary


def test_every_function_says_what_its_derivative_is() -> None:
    for name in {*FUNCTIONS, *TRANSFORM_NAMES}:
        assert "Derivative" in dict(ENTRIES[name].facts), name


WRONG = [
    tuple(re.split(r"[ :]", line, maxsplit=2))
    for line in (Path(__file__).parent / "builtin_errors.txt").read_text().splitlines()
]


@pytest.mark.parametrize(("name", "code", "program"), WRONG, ids=[f"{name}-{i}" for i, (name, *_) in enumerate(WRONG)])
def test_each_error_is_given(name: str, code: str, program: str, tmp_path: Path) -> None:
    with pytest.raises(DifflangError) as caught:
        shown(f'> write_npy("three.npy", [1, 2, 3])\n>{program}', tmp_path)
    assert caught.value.diagnostics[0].code == code


def test_every_error_that_an_entry_names_has_a_program() -> None:
    facts = [(e.name, dict(e.facts).get("Errors", "")) for e in builtin_page().entries]
    named = {(name, code) for name, said in facts for code in re.findall(r"DL\d{4}", said)}
    assert named == {(name, code) for name, code, _ in WRONG}


# ---- Signatures are those that the checker takes


def specification(signature: SignatureText) -> str:
    """The parameters as `PARAMETERS` writes them."""
    return " ".join(p.name + "?" * p.is_optional for p in signature.parameters)


@pytest.mark.parametrize("name", sorted(PARAMETERS))
def test_the_parameters_of_a_function_are_those_that_are_declared(name: str) -> None:
    shown = {specification(s) for s in signature_texts(ENTRIES[name])}
    required = {" ".join(w for w in text.split() if not w.endswith("?")) for text in shown if "?" in text}
    assert shown - required == set(PARAMETERS[name].split(" | "))


def codes(source: str) -> list[str]:
    return [d.code for d in check_program(Source("probe.dfl", source)).errors]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_other_parameter_is_taken(name: str) -> None:
    """What is not declared is refused: no name is ignored."""
    values = ["ones(2)" for word in PARAMETERS[name].split(" | ")[-1].split() if not word.endswith("?")]
    assert codes(f"fn f() -> i32 {{\n let y = {name}({', '.join([*values, 'nonsense = 1'])})\n 1\n}}\n") == ["DL0319"]


@pytest.mark.parametrize("name", TRANSFORM_NAMES)
def test_an_operator_takes_a_function(name: str) -> None:
    (signature,) = signature_texts(ENTRIES[name])
    options = "".join(f", {p.name} = 1" for p in signature.parameters[1:])
    assert [p.name for p in signature.parameters] == ["f", *(["order"] if options else [])]
    assert codes(f"let d = {name}(|x: f32| x^2{options})\n") == []
    assert codes(f"let d = {name}(|x: f32| x^2{options}, nonsense = 1)\n")
    assert not options or codes(f"let d = {name}(|x: f32| x^2)\n") == ["DL0319"]


@pytest.mark.parametrize("name", sorted(set(HOST_BUILTINS) - {"print", "progress"}))
def test_a_host_function_takes_these_arguments(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[tuple[int, int, set[str]]] = []

    def record(self: BuiltinCall, least: int, most: int, options: tuple[str, ...] = ()) -> None:
        found.append((least, most, set(options)))
        raise self.usage_error()

    monkeypatch.setattr(BuiltinCall, "check_arity", record)
    assert codes(f"{name}()\n") == ["DL0319"]
    ((_, _, options),) = found
    forms = [[p for p in s.parameters if not p.name.startswith("..")] for s in signature_texts(ENTRIES[name])]
    placed = [[p for p in form if p.name not in options] for form in forms]
    least = min(sum(not p.is_optional for p in form) for form in placed)
    named = {p.name for form in forms for p in form} & options
    assert (least, max(map(len, placed)), named) == found[0]


# ---- Element types are those that the checker takes

KINDS = {
    "bool": {"bool"}, "signed": {"i32"}, "int": {"i32", "u8"}, "float": {"f32"}, "complex": {"c64"},
    "ord": {"i32", "u8", "f32"}, "num": {"i32", "u8", "f32", "c64"}, "any": {"bool", "i32", "u8", "f32", "c64"},
}  # fmt: skip
SIZES = {"..s": "4", "..a": "4", "..v": "4", "..p": "2", "..b": "", "kl": "1", "kh": "1", "kv": "1", "kd": "1"}
VALUES = {"lower": "true", "shape": "4", "dims": "1", "dim": "1", "int": "1"}


def argument(name: str, type: str, letter: str, dtype: str) -> tuple[str, str] | None:
    """A parameter of a probe and its use, for a parameter of this type; None where no type is probed."""
    if name == "..sizes":
        return "", "4"
    if name in VALUES or type in VALUES:
        return "", VALUES.get(name) or VALUES[type]
    found = re.fullmatch(rf"({letter}|bool|int)(?:\[(.*)\])?", type)
    if found is None:
        return None
    sizes = [SIZES.get(size, "4") for size in found[2].split(", ")] if found[2] else []
    element = {letter: dtype, "int": "i32"}.get(found[1], found[1])
    word = "a_" + name.strip(".")
    shape = ", ".join(filter(None, sizes))
    return f"{word}: {element}" + (f"[{shape}]" if shape else ""), word


def probes() -> list[tuple[str, str, str, str]]:
    """For each function whose signature has a bound, a program that calls it with each element type."""
    found: list[tuple[str, str, str, str]] = []
    for name in [*FUNCTIONS, "f64", "c128"]:
        for signature in signature_texts(ENTRIES[name]):
            bound = re.match(r"fn \w+\[(\w): ([\w| ]+)\]", signature.text)
            if bound is None or not set(bound[2].split(" | ")) <= set(KINDS):
                continue
            needed = [p for p in signature.parameters if not p.is_optional or p.name == "lower"]
            for dtype in sorted(KINDS["any"]):
                given = [argument(p.name, p.text.partition(": ")[2], bound[1], dtype) for p in needed]
                known = [g for g in given if g is not None]
                if len(known) == len(given) and any(f": {dtype}" in param for param, _ in known):
                    params, use = ", ".join(p for p, _ in known if p), ", ".join(word for _, word in known)
                    source = f"fn f({params}) -> i32 {{\n  let y = {name}({use})\n  1\n}}\n"
                    found.append((name, source, dtype, bound[2]))
    return found


PROBES = probes()
PROBE_IDS = [f"{name}-{dtype}-{i}" for i, (name, _, dtype, _) in enumerate(PROBES)]


@pytest.mark.parametrize(("name", "source", "dtype", "bound"), PROBES, ids=PROBE_IDS)
def test_the_element_types_are_those_of_the_bound(name: str, source: str, dtype: str, bound: str) -> None:
    taken = set().union(*(KINDS[word] for word in bound.split(" | ")))
    assert bool(codes(source)) == (dtype not in taken), (source, codes(source))


def test_most_functions_are_probed() -> None:
    assert len({name for name, *_ in PROBES}) >= 110
