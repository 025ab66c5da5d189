"""Writes the lists of words in every editor's files: `python editor/generate.py`, or `--check` to compare only.

Reserved words, operators and contextual words come from the grammar, dtypes and bounds from the type checker, functions
from the elaborator, the host and the prelude. All else in those files is written by hand, and is kept as it stands.
"""

from __future__ import annotations

import json
import plistlib
import re
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import difflang.driver.checked_program  # noqa: F401  every file of the elaborator registers its functions
from difflang.base import package_data
from difflang.base.source import Source
from difflang.elaborate.calls.builtin_registry import BUILTINS, TRANSFORM_NAMES
from difflang.elaborate.reports.name_errors import CONSTANTS
from difflang.host.builtin_registry import HOST_BUILTINS
from difflang.ir.tensor_types import DTYPES
from difflang.syntax import tree
from difflang.syntax.parse import parse
from difflang.syntax.parser_tables import TerminalSet, load_tables
from difflang.types.type_resolver import GENERIC_BOUNDS

ROOT = Path(__file__).resolve().parents[1]
LITERALS = ("false", "true")
NOT_TYPES_ALONE = ("D", "dim", "history", "key", "str")  # types that are also good names for values
INFIX = ("and", "else", "if", "in", "or", "with")  # these follow an operand, so the word before them is a name
BRACKETS = frozenset("()[]{},.:")

# What follows a contextual word and makes it one: `operand` begins an expression, `clause` may do so on the next line.
# The second word of `extern op` is a part of the same terminal, and has a rule of its own: `op` is a name elsewhere.
FOLLOWED = {
    "DEFAULT_FLOAT": ("float", "dtype"),
    "HOST": ("host", "fn"),
    "_AS": ("as", "name"),
    "_AXES": ("axes", "name"),
    "_BENCH": ("bench", "quote"),
    "_BY": ("by", "operand"),
    "EXTERN": ("extern", "extern"),
    "_LINEAR": ("linear", "bar"),
    "_SAVE": ("save", "name"),
    "_TEST": ("test", "quote"),
    "_WHERE": ("where", "clause"),
}
CONTEXTUAL_SIGNS = {"UPDATE", "_LOLLI"}


@dataclass(frozen=True, slots=True)
class Words:
    """Every list that a highlighter needs, each sorted."""

    keywords: tuple[str, ...]
    contextual: tuple[tuple[str, str], ...]  # the word, and what follows it
    operators: tuple[str, ...]  # longest first
    dtypes: tuple[str, ...]
    types: tuple[str, ...]  # types only where a type stands
    functions: tuple[str, ...]
    transforms: tuple[str, ...]
    constants: tuple[str, ...]


def words() -> Words:
    """The lists of today's language. Errors: ValueError for a contextual terminal that `FOLLOWED` does not list."""
    lexis = load_tables().lexis
    unknown = {name for name, _ in lexis.contextual} ^ (FOLLOWED.keys() | CONTEXTUAL_SIGNS)
    if unknown:
        raise ValueError(f"the contextual terminals of the grammar and of editor/generate.py differ: {sorted(unknown)}")
    every = {name for name in (*BUILTINS, *HOST_BUILTINS, *exported()) if name.isidentifier()}
    dtypes = tuple(DTYPES)
    return Words(
        keywords=tuple(sorted(set(lexis.words) - set(LITERALS))),
        contextual=tuple(FOLLOWED[name] for name in sorted(FOLLOWED)),
        operators=operators(lexis),
        dtypes=tuple(sorted(dtypes)),
        types=tuple(sorted({*NOT_TYPES_ALONE, *GENERIC_BOUNDS})),
        functions=tuple(sorted(every - set(TRANSFORM_NAMES) - set(dtypes))),
        transforms=tuple(sorted(TRANSFORM_NAMES)),
        constants=tuple(sorted({*(name for name in CONSTANTS if len(name) > 1), "newaxis"})),  # `e` is a name to most
    )


def exported() -> set[str]:
    """The functions that the prelude offers to every file."""
    source = Source("prelude.dfl", (package_data.data_folder("stdlib") / "prelude.dfl").read_text(encoding="utf-8"))
    return {item.name for item in parse(source).module.items if isinstance(item, tree.Fn) and item.pub}


def operators(lexis: TerminalSet) -> tuple[str, ...]:
    """The signs of the grammar, and those of its two terminals that stand for several."""
    compare = dict(lexis.patterns)["COMPARE"]
    signs = {sign for sign in lexis.symbols if sign not in BRACKETS}
    signs |= {s for s in ("==", "!=", "<=", ">=", "<", ">") if re.fullmatch(compare, s)}
    update = dict(lexis.contextual)["UPDATE"]
    signs |= {s for s in ("+=", "-=", "*=", "/=") if re.fullmatch(update, s)}
    return tuple(sorted(signs, key=lambda s: (-len(s), s)))


# ---- One way to write a list for each editor


def alternatives(found: Sequence[str]) -> str:
    return "|".join(map(re.escape, found))


def follows(kind: str) -> str:
    """What must follow a contextual word, for Python and for Oniguruma."""
    infix = rf"(?!(?:{alternatives(INFIX)})\b)"
    operand = rf"[ \t]+{infix}[\w(\[|\"]|[ \t]+-\w"
    return {
        "name": rf"(?=[ \t]+{infix}[^\W\d])",
        "operand": rf"(?={operand})",
        "clause": rf"(?={operand}|[ \t]*$)",
        "fn": r"(?=[ \t]+fn\b)",
        "extern": r"(?=[ \t]+(?:fn|op)\b)",
        "bar": r"(?=[ \t]*\|(?!>))",
        "quote": r"(?=[ \t]*\")",
        "dtype": r"(?=[ \t]+(?:bf16|f16|f32|f64)\b)",
    }[kind]


def contextual(found: Words) -> str:
    return "|".join(rf"\b{word}{follows(kind)}" for word, kind in found.contextual)


def python(text: str, found: Words) -> str:
    lists = {
        "KEYWORDS": found.keywords,
        "LITERALS": LITERALS,
        "OPERATORS": found.operators,
        "DTYPES": found.dtypes,
        "TYPES": found.types,
        "FUNCTIONS": found.functions,
        "TRANSFORMS": found.transforms,
        "CONSTANTS": found.constants,
    }
    body = "".join(f'{name} = split_words("""\n{filled(names, "    ")}\n""")\n' for name, names in lists.items())
    patterns = ",\n".join(f'    r"""\\b{word}{follows(kind)}"""' for word, kind in found.contextual)
    return between(text, "#", f"{body}CONTEXTUAL_KEYWORDS = (\n{patterns},\n)\n")


def textmate(text: str, found: Words) -> str:
    matches = {
        "keyword": rf"\b(?:{alternatives(found.keywords)})\b|{contextual(found)}",
        "literal": rf"\b(?:{alternatives(LITERALS)})\b",
        "dtype": rf"\b(?:{alternatives(found.dtypes)})\b|(?<=: |-> )(?:{alternatives(found.types)})\b",
        "function": rf"\b(?:{alternatives(found.functions)})(?=[('])|\b(?:{alternatives(found.transforms)})(?=[(\[])",
        "constant": rf"\b(?:{alternatives(found.constants)})\b",
        "operator": alternatives(found.operators),
    }
    grammar = json.loads(text)
    for name, match in matches.items():
        grammar["repository"][name]["match"] = match
    return json.dumps(grammar, indent=2, ensure_ascii=False) + "\n"


def sublime(text: str, found: Words) -> str:
    """The same grammar, written as Sublime Text and TextMate read it. Of what is there nothing is kept."""
    grammar = textmate((ROOT / TEXTMATE).read_text(encoding="utf-8"), found)
    return plistlib.dumps(json.loads(grammar), sort_keys=False).decode()


def vim(text: str, found: Words) -> str:
    infix = f"%(%({'|'.join(INFIX)})>)@!"
    operand = rf'[ \t]+{infix}[[:alnum:]_(\[|"]|[ \t]+-\k'
    after = {
        "name": rf"[ \t]+{infix}\k",
        "operand": operand,
        "clause": rf"{operand}|[ \t]*$",
        "fn": r"[ \t]+fn>",
        "extern": r"[ \t]+%(fn|op)>",
        "bar": r"[ \t]*\|\>@!",
        "quote": r'[ \t]*"',
        "dtype": r"[ \t]+%(bf16|f16|f32|f64)>",
    }
    lines = [f"syn match difflangKeyword ~\\v<{word}>%({after[kind]})@=~" for word, kind in found.contextual]
    lists = {"difflangKeyword": found.keywords, "difflangBoolean": LITERALS, "difflangType": found.dtypes}
    lists["difflangConstant"] = found.constants
    keyed = [f"syn keyword {group} {line}" for group, names in lists.items() for line in wrapped(names, 100)]
    signs = "|".join(re.sub(r"([^\w])", r"\\\1", sign) for sign in found.operators)
    matched = [
        rf"syn match difflangOperator ~\v%({signs})~",
        rf"syn match difflangType ~\v%(: |-\> )@3<=%({'|'.join(found.types)})>~",
        *(rf"syn match difflangFunction ~\v<%({'|'.join(n.split())})>['(]@=~" for n in wrapped(found.functions, 400)),
        rf"syn match difflangFunction ~\v<%({'|'.join(found.transforms)})>[(\[]@=~",
    ]
    return between(text, '"', "\n".join([*matched[:1], *keyed, *matched[1:], *lines]) + "\n")


def emacs(text: str, found: Words) -> str:
    operand = r'[ \t]+\(?:[[:alnum:]_([|"]\|-[[:alnum:]_]\)'
    after = {
        "name": r"[ \t]+[[:alpha:]_]",
        "operand": operand,
        "clause": rf"{operand}\|[ \t]*$",
        "fn": r"[ \t]+fn\_>",
        "extern": r"[ \t]+\(?:fn\|op\)\_>",
        "bar": r"[ \t]*|\(?:[^>]\|$\)",
        "quote": r'[ \t]*"',
        "dtype": r"[ \t]+\(?:bf16\|f16\|f32\|f64\)\_>",
    }
    lists = {
        "keywords": found.keywords,
        "literals": LITERALS,
        "operators": found.operators,
        "dtypes": found.dtypes,
        "types": found.types,
        "functions": found.functions,
        "transforms": found.transforms,
        "constants": found.constants,
        "infix": INFIX,
    }
    parts: list[str] = []
    for name, names in lists.items():
        quoted = "\n".join(wrapped([json.dumps(n) for n in names], 100, "    "))
        parts.append(f"(defconst difflang--{name}\n  '({quoted.strip()}))\n")
    pairs = "\n    ".join(f"({json.dumps(word)} . {json.dumps(after[kind])})" for word, kind in found.contextual)
    parts.append(f'(defconst difflang--contextual\n  \'({pairs})\n  "Words that are keywords where the text fits.")\n')
    return between(text, ";;", "\n".join(parts))


def wrapped(names: Sequence[str], width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(
        " ".join(names), width, break_long_words=False, break_on_hyphens=False,
        initial_indent=indent, subsequent_indent=indent,
    )  # fmt: skip


def filled(names: Sequence[str], indent: str) -> str:
    return "\n".join(wrapped(names, 110, indent))


def between(text: str, comment: str, body: str) -> str:
    """`text` with what stands between its two marks replaced. Errors: ValueError if it has not exactly two."""
    begin, end = f"{comment} Generated by editor/generate.py:\n", f"{comment} End of what is generated.\n"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"a file without the lines {begin!r} and {end!r}")
    head, rest = text.split(begin)
    return head + begin + body + end + rest.split(end)[1]


TEXTMATE = "editor/vscode/syntaxes/difflang.tmLanguage.json"
FILES: dict[str, Callable[[str, Words], str]] = {
    "difflang/pygments/keyword_lists.py": python,
    TEXTMATE: textmate,
    "editor/sublime/difflang.tmLanguage": sublime,
    "editor/vim/syntax/difflang.vim": vim,
    "editor/emacs/difflang-mode.el": emacs,
}


def stale() -> dict[Path, str]:
    """The files whose lists are not those of the language, with the text that they should have."""
    found = words()
    made = {ROOT / name: render((ROOT / name).read_text(encoding="utf-8"), found) for name, render in FILES.items()}
    return {path: text for path, text in made.items() if text != path.read_text(encoding="utf-8")}


def main() -> int:
    """Exit code 1 if `--check` finds a file to be written."""
    found = stale()
    for path, text in found.items():
        if "--check" not in sys.argv:
            path.write_text(text, encoding="utf-8")
        sys.stderr.write(f"{path.relative_to(ROOT)}\n")
    return int(bool(found) and "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
