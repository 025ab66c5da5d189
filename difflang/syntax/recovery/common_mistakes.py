"""A table of common syntax mistakes: each row has a malformed snippet, and the message where it stops parsing.

A snippet is parsed once, and the context in which it fails is remembered. A mistake in a program is explained by the
first row whose context agrees in the attributes of `match_on`. `error_recovery` says how parsing continues.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from difflang.base.error_codes import nearest_word
from difflang.base.source import Source
from difflang.syntax.lalr_parser import LalrParser
from difflang.syntax.lexer import Lexer
from difflang.syntax.recovery.error_context import ErrorContext, error_context_of
from difflang.syntax.recovery.mistake import DROP_TOKEN, CommonMistake
from difflang.syntax.tree_builder import TreeBuilder

_LAMBDA = "write a function without a name as `|x| x + 1`"
_BLOCK = "put the block in braces: `if c { ... }`"
_COLON = "put the block in braces, not after `:`"
_LINE_END = r":[ \t]*(?:#.*)?\r?$"
# Patterns for the text of the line before the mistake, and for what it covers.
_MEMORY = r"[^\n]*@memory\([ \t]*"
_UNIT = r"(?:[kKMGTP]i?)?B\b"
_CHECKPOINT = r"[^\n]*@checkpoint(?:\([^()\n]*\))?[ \t]*"
_CHECKPOINT_ARGS = r"[^\n]*@checkpoint\([^)\n]*"
_ATTRIBUTES = ("fast", "fast(1)", "fast(a, b = 1)", "checkpoint")
_ATTRIBUTE_POSITION = "attributes go only before `fn`, `rule`, `for`, `while`, `let` and `var`"
_CHECKPOINT_OR_MEMORY = "to recompute a block, write `checkpoint { ... }`; `@memory` goes before a function"
_CHECKPOINT_HELP = "to recompute a block, write `checkpoint { ... }`, without `@`"
_CHECKPOINT_BLOCK = "`checkpoint` goes before a block"
_SAVE_NAME = "`save` takes the name of a variable"

FLOAT_TYPES = ("bf16", "f16", "f32", "f64", "c64", "c128")
NUMBER_TYPES = ("bool", *(f"{kind}{bits}" for kind in "iu" for bits in (8, 16, 32, 64)), *FLOAT_TYPES)
# The types that C-like languages write before a name, by the types of this language.
LEADING_TYPES = {
    "int": "i32", "long": "i64", "float": "f32", "double": "f64",
    **{name: name for name in ("f16", "bf16", "f32", "f64", "i32", "i64", "bool")},
}  # fmt: skip

COMMON_MISTAKES = (
    # The order matters: the first row that matches explains the mistake, so specific rows stand before general ones.
    # ---- Amounts and strategies
    CommonMistake("DL0116", "@memory(64MiB)\nfn f() { x }", "kind",
            "put a space between an amount of memory and its unit",
            "write `64 MiB`", (("INT",),), r"[0-9][0-9_.]*" + _UNIT, replacement=((r"([0-9_.]+)(\w+)", r"\1 \2"),),
            line_prefix=_MEMORY),
    CommonMistake("DL0116", "@memory(2mib)\nfn f() { x }", "kind", "this is not an amount of memory",
            "write a number, a space, and one of B, KiB, MiB, GiB, kB, MB, GB: `64 MiB`", (("INT",),),
            r"[0-9][0-9_.]*[kKmMgGtTpP](?:i?[bB])?\b", line_prefix=_MEMORY),
    CommonMistake("DL0220", "@memory()\nfn f() { x }", "at", "`@memory` takes a number and a unit",
            "`@memory(256 MiB)`",
            (("INT",),), line_prefix=_MEMORY),
    CommonMistake("DL0220", "@memory(-1 MiB)\nfn f() { x }", "at", "`@memory` takes a positive number and a unit",
            "`@memory(256 MiB)`", (), _UNIT, line_prefix=_MEMORY + r"[^)\n]*"),
    CommonMistake("DL0219", "@checkpoint()\nfn f() { x }", "at", "`@checkpoint` takes a strategy",
            ("for example `@checkpoint(sqrt)`; the strategies are full, sqrt, every, revolve, offload and "
             "auto"),
            line_prefix=r"[^\n]*@checkpoint\([ \t]*"),
    CommonMistake("DL0219", "@checkpoint(full, cap = 1 MiB)\nfn f() { x }", "at",
            "`cap`, `steps` and `slots` must be numbers",
            "an amount of memory goes into `@memory(64 MiB)`", (DROP_TOKEN,), _UNIT, line_prefix=_CHECKPOINT_ARGS),
    CommonMistake("DL0219", "@checkpoint(full, cap = 1MiB)\nfn f() { x }", "kind",
            "`cap`, `steps` and `slots` must be numbers",
            "an amount of memory goes into `@memory(64 MiB)`", (("INT",),), r"[0-9][0-9_.]*[kKmMgGtTpP](?:i?[bB])?\b",
            line_prefix=_CHECKPOINT_ARGS),
    # ---- Attributes where none can stand
    *(CommonMistake("DL0133", f"fn f() {{\n  {start}@checkpoint{how} {{ x }}\n}}", "state at", _CHECKPOINT_HELP,
            line_prefix=_CHECKPOINT)
      for how in ("", "(full)", "(revolve, slots = 2)") for start in ("", "let y = ")),
    CommonMistake("DL0133", "x = (@checkpoint(full) { x })", "at operand", _CHECKPOINT_HELP, "", (("CHECKPOINT",),),
            r"@checkpoint\b(?:\([^()\n]*\))?"),
    *(CommonMistake("DL0133", f"fn f() {{\n  {start}@{name}{what} {{ x }}\n}}", "state at", _ATTRIBUTE_POSITION,
            _CHECKPOINT_OR_MEMORY)
      for name in _ATTRIBUTES
      for start, what in (("", ""), ("let y = ", ""), ("", "\n "), *(("", gap + word) for gap in (" ", "\n ")
                                                                    for word in ("if c", "checkpoint")))
      if name != "checkpoint" or what),
    *(CommonMistake("DL0133", f"@{name}{gap}{what}", "state at", _ATTRIBUTE_POSITION, _CHECKPOINT_OR_MEMORY)
      for name in _ATTRIBUTES for gap in (" ", "\n")
      for what in ("x = 3", "record R { x: f64 }", "enum E { A }", "import a",
                   'test "a" { x }')),
    *(CommonMistake("DL0133", f"let g = @{name} |x| x", "state at", _ATTRIBUTE_POSITION,
              "name the function: `fn g(x) = ...`") for name in _ATTRIBUTES),
    CommonMistake("DL0133", "pub @memory(1 MiB)\nfn f() { x }", "before at", "attributes go before `pub`", "",
            (DROP_TOKEN,)),
    CommonMistake("DL0133", "fn f() -> f64 @memory(1 MiB) { x }", "at opener", "attributes go before `fn`", "",
            (DROP_TOKEN,), r"@\w+(?:\([^()\n]*\))?"),
    # ---- Checkpoint blocks and `save`
    CommonMistake("DL0133", "x = checkpoint(full) { x }", "before at", _CHECKPOINT_BLOCK,
            "a strategy goes before a loop: `@checkpoint(sqrt) for ...`", (DROP_TOKEN,),
            r"\([^()\n]*\)(?=\s*(?:\{|for\b|while\b))"),
    *(CommonMistake("DL0114", f"x = checkpoint {what}", "before at", _CHECKPOINT_BLOCK, "write `checkpoint { f(x) }`")
      for what in ("(f)(x)", "f(x)")),
    *(CommonMistake("DL0101", f"x = checkpoint {{\n  save y{what}\n  x\n}}", "state at", _SAVE_NAME,
              "bind other expressions with `let`, and write a `save` for each",
                    line_prefix=r"[ \t]*save[ \t]+\w+[ \t]*")
      for what in ("[0]", "(x)", ".w", ", x", " + x", " * x", " - x", " / x")),
    *(CommonMistake("DL0101", f"x = checkpoint {{\n  save {what}\n  x\n}}", "before at", _SAVE_NAME,
              "bind other expressions with `let`", line_prefix=r"[ \t]*save[ \t]+") for what in ("3", "3.0")),
    # ---- Characters and literals
    CommonMistake("DL0110", "x = 1;", "at", "a newline ends a statement, not `;`", "remove it, or begin a new line",
            (DROP_TOKEN, ("_NL",), ("COMMA",)), r";",
            replacement=((r";(?=[ \t]*(?:#|\r?$))", ""), (r";[ \t]*(?=[^\s#])", "\n"))),
    CommonMistake("DL0105", 'x = "abc', "at", "this string is never closed",
            "a string must end with `\"` on the line where it begins",
            (("STRING",), ("STRING", "RPAR"), ("STRING", "RPAR", "RPAR"), ("STRING", "RSQB"), ("STRING", "LBRACE")),
            r'"[^\n]*'),
    CommonMistake("DL0115", "x = 'c'", "at operand", "a string needs double quotes",
            "there are no character literals; `'` after a function is its derivative", (("STRING",),), r"'[^'\n]*'?",
            replacement=((r"'([^'\"{}\\\n]*)'", r'"\1"'),)),
    CommonMistake("DL0115", "x = f'c'", "before at", "a string needs double quotes, and has no prefix",
            "write `\"{x}\"`: every string may contain expressions", (), r"\w+'"),
    *(CommonMistake("DL0115", f'x = {prefix}"c"', "before at word", "a string has no prefix",
              "write `\"{x}\"`: every string may contain expressions", (DROP_TOKEN,), previous_word=True,
              replacement="" if prefix in "fF" else None) for prefix in "fFrb"),
    CommonMistake("DL0116", "x = .5", "operand", "a float needs digits on both sides of its point", "write `0.5`",
            (("FLOAT",),), r"\.[0-9]\w*", replacement=((r"\.[0-9]\w*", r"0\g<0>"),)),
    CommonMistake("DL0116", "x = 1.", "operand kind", "a float needs digits on both sides of its point", "write `1.0`",
            (("FLOAT",),), r"[0-9][0-9_]*\.(?!\w)", replacement=((r"([0-9][0-9_]*\.)(?!\.)", r"\g<1>0"),)),
    CommonMistake("DL0116", "x = 2i", "kind", "this is not a number", "an imaginary number ends in `j`, as in `2j`",
            (("FLOAT",),), r"[0-9][0-9_.]*i\b"),
    CommonMistake("DL0116", "x = 3x", "kind", "this is not a number",
            ("write `*` between a number and a name, and a space between an amount of memory and its "
            "unit, `64 MiB`; the only suffix is the `j` of imaginary numbers, and there are no "
            "hexadecimal numbers"),
            (("FLOAT",), ("NAME",)), r"[0-9][\w.]*"),
    CommonMistake("DL0128", "// comment\nx = 1", "at operand", "a comment begins with `#`", "", (DROP_TOKEN,),
            r"//[^\n]*",
            replacement=((r"//", "#"),)),
    CommonMistake("DL0128", "/* comment */\nx = 1", "operand", "a comment begins with `#`", "", (DROP_TOKEN,),
            r"/\*(?s:.)*?(?:\*/|\Z)", replacement=((r"/\*([^\n]*?)[ \t]*\*/(?=[ \t]*\r?$)", r"#\1"),)),
    CommonMistake("DL0107", "x = y ≤ z", "at", "`≤` is written `<=`", "", (("COMPARE",),), replacement="<="),
    CommonMistake("DL0107", "x = y ≥ z", "at", "`≥` is written `>=`", "", (("COMPARE",),), replacement=">="),
    CommonMistake("DL0107", "x = y ≠ z", "at", "`≠` is written `!=`", "", (("COMPARE",),), replacement="!="),
    CommonMistake("DL0107", "x = y × z", "at", "`×` is written `*`", "", (("STAR",),), replacement="*"),
    CommonMistake("DL0107", "x = y · z", "at", "`·` is written `*`, or `dot(x, y)`", "", (("STAR",),)),
    CommonMistake("DL0107", "x = y ÷ z", "at", "`÷` is written `/`", "", (("SLASH",),), replacement="/"),
    CommonMistake("DL0107", "x = y − z", "at", "this minus is not `-`", "it was probably pasted: type `-`",
            (("MINUS",),),
            replacement="-"),
    CommonMistake("DL0107", "x = “a”", "at", "write straight quotes around a string, `\"`", "", (("STRING",),),
            "“[^”\n]*”?",
            replacement=((r'“([^”"\n]*)”', r'"\1"'),)),
    CommonMistake("DL0107", "x =\u00a0y", "at", "this space is not a space", "it was probably pasted: type a space",
            (DROP_TOKEN,), "[\u00a0\u2000-\u200b\u202f\u3000]+", replacement=" "),
    # ---- Operators
    CommonMistake("DL0109", "x = a && b", "at", "`&&` is written `and`", "", (("AND",),), replacement="and"),
    CommonMistake("DL0109", "x = a || b", "at", "`||` is written `or`", "", (("OR",),), replacement="or"),
    CommonMistake("DL0109", "x = !a", "at operand", "`!` is written `not`", "", (("NOT",), DROP_TOKEN), r"!(?!=)",
            replacement=((r"!(?![^\n&|{}]*[<>=])", "not "),)),  # `not` takes in a comparison, `!` does not
    CommonMistake("DL0109", "x = a ** b", "before at", "`**` is written `^`", "", (DROP_TOKEN,), r"\*", replacement="^",
            both=True),
    CommonMistake("DL0109", "x = a === b", "before at", "`===` is written `==`", "", (DROP_TOKEN,), "=",
            replacement="==", both=True),
    CommonMistake("DL0109", "x = a <> b", "before at", "`<>` is written `!=`", "", (DROP_TOKEN,), ">", replacement="!=",
            both=True),
    CommonMistake("DL0109", "x := 3", "at", "`:=` is written `=`",
            "`let x = e` binds a name, `x = e` gives a `var` a new value",
            (("EQUAL",),), replacement="="),
    *(CommonMistake("DL0109", f"{word} x := 3", "opener at", "`:=` is written `=`", "", (("NAME", "EQUAL"),),
            replacement="=", both=True) for word in ("let", "var")),
    CommonMistake("DL0109", "x = 0...3", "before at", "`...` is written `..`", "", (("RANGE",),),
            replacement=".."),
    CommonMistake("DL0109", "for i in 0...3 { }", "before at", "`...` is written `..`", "", (("RANGE",),),
            replacement=".."),
    CommonMistake("DL0109", "x++", "before at", "there is no `++`", "write `x += 1`", (), r"\+",
            replacement=((r"\+\+(?=[ \t]*(?:#|\}|\r?$))", " += 1"),), both=True),
    CommonMistake("DL0109", "x %= 2", "before at", "`%=` is not an update", "write `x = x % 2`"),
    CommonMistake("DL0109", "x ^= 2", "before at", "`^=` is not an update", "write `x = x ^ 2`"),
    CommonMistake("DL0109", "x //= 2", "before at", "`//=` is not an update", "write `x = x // 2`"),
    CommonMistake("DL0109", "x @= y", "before at", "`@=` is not an update", "write `x = x @ y`"),
    CommonMistake("DL0109", "x = c ? a : b", "at", "there is no `?`", "write `if c { a } else { b }`"),
    CommonMistake("DL0109", "x = a if c else b", "at", "the condition of an `if` comes before its values",
            "write `if c { a } else { b }`"),
    CommonMistake("DL0109", "x = a & b", "at", "`&` is not an operator",
            "`and` joins conditions; operations on bits are functions"),
    CommonMistake("DL0109", "x = a in b", "at operand", "`in` is not an operator", "use it in `for x in xs`"),
    CommonMistake("DL0123", "x = a\n+ b", "at first operand", "a line cannot begin with `+`",
            "end the line above with `+`, or put the expression in parentheses"),
    CommonMistake("DL0123", "x = a\n* b", "at first operand", "a line cannot begin with `*`",
            "end the line above with `*`, or put the expression in parentheses"),
    CommonMistake("DL0123", "x = a\n/ b", "at first operand", "a line cannot begin with `/`",
            "end the line above with `/`, or put the expression in parentheses"),
    CommonMistake("DL0123", "x = a\n== b", "at first operand", "a line cannot begin with `==`",
            "end the line above with `==`, or put the expression in parentheses"),
    CommonMistake("DL0113", "x = +y", "at operand", "a value cannot have a `+` sign", "remove it", (DROP_TOKEN,), r"\+",
            replacement=""),
    # ---- `=`
    CommonMistake("DL0129", "x =\ny = 2", "opener at wrapped", "a value is missing after the `=` on the line above", "",
            (DROP_TOKEN,), r"=[^\n]*"),
    CommonMistake("DL0111", "if x = 3 { }", "opener at", "`=` does not compare", "write `==`", (("COMPARE",),),
            replacement="=="),
    CommonMistake("DL0111", "while x = 3 { }", "opener at", "`=` does not compare", "write `==`", (("COMPARE",),),
            replacement="=="),
    CommonMistake("DL0111", "assert x = 3", "opener at", "`=` does not compare", "write `==`", (("COMPARE",),),
            replacement="=="),
    CommonMistake("DL0111", "let x == 3", "opener at", "`==` compares; write `=` to bind a name", "", (("EQUAL",),),
            replacement="="),
    CommonMistake("DL0111", "var x == 3", "opener at", "`==` compares; write `=` to bind a name", "", (("EQUAL",),),
            replacement="="),
    CommonMistake("DL0101", "x = = y", "before at operand", "`=` appears twice", "", (DROP_TOKEN,)),
    CommonMistake("DL0121", "x = y = 2", "opener at", "an assignment has no value",
            "assign to one name per line; `==` compares",
            (("COMPARE",),)),
    CommonMistake("DL0101", "for i = 0..n { }", "opener at", "write a loop as `for i in 0..n { ... }`", "", (("IN",),),
            replacement="in"),
    # ---- Blocks
    CommonMistake("DL0114", "if c:\n  x = 1", "opener at", _COLON, _BLOCK, (), _LINE_END),
    CommonMistake("DL0114", "while c:\n  x = 1", "opener at", _COLON, _BLOCK, (), _LINE_END),
    CommonMistake("DL0114", "for x in xs:\n  y = 1", "opener at", _COLON, _BLOCK, (),
            _LINE_END),
    CommonMistake("DL0114", "if c { x = 1 } else:\n  x = 2", "opener at", _COLON, _BLOCK, (),
            _LINE_END),
    CommonMistake("DL0114", "if c: x = 1", "opener at", _COLON, _BLOCK),
    CommonMistake("DL0114", "while c: x = 1", "opener at", _COLON, _BLOCK),
    CommonMistake("DL0114", "fn f(x: f32):\n  x", "opener at", _COLON,
            "write `fn f(x: f32) { ... }`", (), _LINE_END),
    CommonMistake("DL0114", "if (c) x = 1", "opener before at", "the branches of an `if` need braces", _BLOCK),
    CommonMistake("DL0114", "if (c) return", "opener before at", "the branches of an `if` need braces", _BLOCK),
    CommonMistake("DL0108", "if c then x", "opener at word", "the branches of an `if` need braces", _BLOCK, (),
            r"then"),
    CommonMistake("DL0114", "x = if c { 1 } else 2", "opener", "the branches of an `if` need braces",
            "write `if c { a } else { b }`"),
    # ---- Declarations
    CommonMistake("DL0124", "fn f(x: f32): f32 { x }", "opener at", "the type of the result goes after `->`", "",
            (("ARROW",),), replacement=" -> "),
    CommonMistake("DL0124", "fn f<T>(x: T) -> T { x }", "state at", "type parameters go in brackets",
            "write `fn f[T](x: T)`", replacement=((r"<([\w:, \t]*)>", r"[\1]"),)),
    CommonMistake("DL0124", "record P(x: f64)", "opener at", "the fields of a record go in braces",
            "write `record P { x: f64 }`", replacement=((r"\([ \t]*([^()\n]*?)[ \t]*\)", r" { \1 }"),)),
    *(CommonMistake("DL0124", example, "before at", "the type of a function has no `fn`", "write `(f64) -> f64`",
            (DROP_TOKEN,),
              replacement="") for example in ("fn f(g: fn(f64) -> f64) { g }", "fn f() -> fn(f64) -> f64 { g }")),
    CommonMistake("DL0124", "enum E = A", "opener at", "the variants of an enum go in braces",
            "write `enum E { A, B }`"),
    CommonMistake("DL0124", "x: f32 = 3", "opener before at", "use `let` or `var` to bind a name",
            "write `let x: f32 = ...`", replacement=((r"", "let "), (r"", "var ")), both=True),
    CommonMistake("DL0131", "enum E { }", "state at", "an enum needs at least one variant",
            "an empty record is written "
            "`record R { }`"),
    CommonMistake("DL0131", "match x { }", "state at", "a `match` needs at least one case"),
    CommonMistake("DL0133", "pub x = 3", "before at", "only `fn`, `let`, `record` and `enum` can be public"),
    CommonMistake("DL0133", "pub import ode", "before at", "only `fn`, `let`, `record` and `enum` can be public"),
    CommonMistake("DL0133", "pub var x = 3", "before at", "only `fn`, `let`, `record` and `enum` can be public",
            "use `let` to bind a public value", replacement="let"),
    CommonMistake("DL0101", 'fn f() {\n  test "a" { x }\n}', "word at wrapped",
            "a test must be at the top level of a file",
            "move it out of the braces", (("_NL",),)),
    CommonMistake("DL0101", 'fn f() {\n  bench "a" { x }\n}', "word at wrapped",
            "a benchmark must be at the top level of a file", "move it out of the braces", (("_NL",),)),
    CommonMistake("DL0101", "test a { x }", "word at wrapped", "the name of a test must be a string",
            'write `test "name" { ... }`', replacement=((r"\w+", r'"\g<0>"'),)),
    CommonMistake("DL0101", "bench a { x }", "word at wrapped", "the name of a benchmark must be a string",
            'write `bench "name" { ... }`', replacement=((r"\w+", r'"\g<0>"'),)),
    *(CommonMistake("DL0124", f"fn f({word} x) {{ x }}", "state word at",
            "the type of a parameter goes after its name", f"write `x: {dtype}`", (DROP_TOKEN,), r"\w+",
            replacement=((r"\w+[ \t]+(\w+)", rf"\1: {dtype}"),), both=True) for word, dtype in LEADING_TYPES.items()),
    *(CommonMistake("DL0124", example, "state at", "a field has a name and a type", "write `value: f64`",
            (("COLON", "NAME"),), take, previous_word=True,
            replacement=((r"(\w+(?:\[[^\]\n]*\])?)", r"value: \1"),))
            for example, take in (("enum E { A(f64) }", r"(?=\))"), ("enum E { A(f64, x: f64) }", r"(?=,)"),
                                  ("record P { f64 }", r"(?=\})"), ("record P {\n  f64\n}", r"(?=\s)"),
                                  ("enum E { A(f64[n]) }", r"\[[^\]\n]*\]"))),
    *(CommonMistake("DL0124", f"{word} P<T> {{ {inside} }}", "state at", "type parameters go in brackets",
            f"write `{word} P[T] {{ … }}`", replacement=((r"<([\w:, \t]*)>", r"[\1]"),))
            for word, inside in (("record", "x: T"), ("enum", "A(x: T)"))),
    *(CommonMistake("DL0124", f"let x: {dtype}<m> = 3", "state word at", "a number has no unit in its type",
            "put it in the name, as in `length_m`; sizes go in brackets, `f64[n]`", (DROP_TOKEN,), r"<[^>\n]*>")
            for dtype in NUMBER_TYPES),
    CommonMistake("DL0101", "let x: f64[n @a @b] = 3", "state at", "a size has at most one `@`",
            "write `n @(data, model)` to split it along both axes of the mesh", (DROP_TOKEN,),
            r"@[ \t]*\w+(?:[ \t]*@[ \t]*\w+)*", replacement=((r"(\w+)[ \t]*@[ \t]*(\w+)", r"(\1, \2)"),), both=True),
    CommonMistake("DL0124", "let x: P[m][k][l] = 3", "before at", "the axes of an array go in one bracket",
            "write `P[m][k, l]`", (DROP_TOKEN,), r"\[[^\[\]\n]*\]", replacement=((r"\][ \t]*\[", ", "),), both=True,
            line_prefix=r"[^\n]*\w\[[^\[\]\n]*\][ \t]*\[[^\[\]\n]*\][ \t]*"),
    CommonMistake("DL0124", "let x: P<f64> = 3", "state at", "the arguments of a type go in brackets",
            "write `P[f64]`", (DROP_TOKEN,), r"<[^>\n]*>", replacement=((r"<([\w, \t]*)>", r"[\1]"),)),
    CommonMistake("DL0124", "let x: positive f64 = 3", "state at", "a type has no word before or after its name",
            "state what holds of a value by an assertion: `assert x > 0.0`", (DROP_TOKEN,), r"\w+(?:\[[^\]\n]*\])?",
            only_if_repaired=True),
    CommonMistake("DL0130", "x = 1\nfloat f64", "word at",
            "`float` goes only on the first line of a file, with f64, f32, f16 or bf16", "", (("_NL",),), r"(?=\w)"),
    CommonMistake("DL0101", "import a.b", "opener at", "a module is one name, or a path in quotes",
            'write `import "./a/b.dfl" as b`'),
    CommonMistake("DL0101", "import a, b", "opener at", "write each import on its own line", "", (), ",",
            replacement=((r",[ \t]*", "\nimport "),)),
    # ---- Expressions
    CommonMistake("DL0120", "x = (a,)", "opener before at", "there are no tuples of one item", "remove the comma",
            (("NAME", "RPAR"),), replacement=((r",[ \t]*", ""),), both=True),
    CommonMistake("DL0126", "x = [a for a in b]", "opener at", "a comprehension begins with its `for`",
            "write `[for x in xs => x^2]`"),
    CommonMistake("DL0126", "x = sum(a for a in b)", "opener at", "a comprehension begins with its `for`",
            "write `sum(for x in xs => x^2)`"),
    CommonMistake("DL0126", "x = [for a in b: a]", "opener at", "a comprehension needs `=>` before its body", "",
            (("GIVES",),), only_if_repaired=True, replacement=" => "),
    CommonMistake("DL0126", "x = [for a in b -> a]", "opener at", "a comprehension needs `=>` before its body", "",
            (("GIVES",),), only_if_repaired=True, replacement="=>"),
    CommonMistake("DL0126", "x = [for a in b { a }]", "opener at", "a comprehension needs `=>` before its body",
            "write `[for x in xs => x^2]`", (("GIVES",),), r"(?=\{)", only_if_repaired=True),
    CommonMistake("DL0114", "for x in 0..3: y = 1", "opener at", _COLON, _BLOCK),
    CommonMistake("DL0127", "x = a[1:3]", "opener at", "write a range of indices as `a[1..3]`", "", (("RANGE",),),
            replacement=((r":([^\],:\n]*):", r"..\1 by "), (r":(?![^\],\n]*:)", ".."))),
    CommonMistake("DL0127", "x = a[1::2]", "opener at", "write a range of indices as `a[1.. by 2]`", "",
            (("RANGE", "_BY"),), replacement=".. by "),
    CommonMistake("DL0101", "match x { A -> 1 }", "at", "write a case as `pattern => value`", "", (("GIVES",),),
            only_if_repaired=True, replacement="=>"),
    CommonMistake("DL0101", "match x { A: 1 }", "at", "write a case as `pattern => value`", "", (("GIVES",),),
            only_if_repaired=True, replacement=" => "),
    *(CommonMistake("DL0101", f"x = t.{number}", "before at", "a tuple has no numbered fields",
            "destructure the tuple: `let (a, b) = t`", (("NAME",),)) for number in ("0", "0.1")),
    *(CommonMistake("DL0124", example, "state at", "a field has no default value",
            "write a function that makes one: `fn make(x: f64 = 1.0) -> R = R(x)`", (DROP_TOKEN,),
            r"=(?:\[[^\]\n]*\]|\([^)\n]*\)|[^\n,(){}\[\]#])*(?<!\s)")
            for example in ("record R { x: f64 = 1.0 }", "record R { x: f64[n] = 1.0 }", "record R { x: D(f64) = 1.0 }",
                            "enum E { A(x: f64 = 1.0) }")),
    CommonMistake("DL0101", "match x {\n  A => y = 1\n}", "opener at", "put an assignment in a case in braces",
            "write `A => { x = 1.0 }`", (DROP_TOKEN,), r"=[^\n,}]*"),
    CommonMistake("DL0101", "match x {\n  A => y += 1\n}", "opener at", "put an assignment in a case in braces",
            "write `A => { x += 1.0 }`", (DROP_TOKEN,), r"\+=[^\n,}]*"),
    CommonMistake("DL0132", "x = 1 + |x| x", "at operand", "a lambda inside an expression needs parentheses",
            "write `(|x| x + 1)`", (), r"\|"),
    CommonMistake("DL0108", "x = y -> y", "at", "`->` does not make a function", _LAMBDA,
            replacement=((r"(\w+)[ \t]*->", r"|\1|"),), both=True),
    CommonMistake("DL0108", "x = y => y", "at", "`=>` does not make a function", _LAMBDA,
            replacement=((r"(\w+)[ \t]*=>", r"|\1|"),), both=True),
    CommonMistake("DL0108", "x = \\y", "at", "`\\` does not make a function", _LAMBDA),
    CommonMistake("DL0108", "x = fn(y) { y }", "before at operand", "a `fn` needs a name", _LAMBDA,
            replacement=((r"fn[ \t]*\(([\w, \t]*)\)", r"|\1|"),)),
    CommonMistake("DL0108", "x = fn(y) { y }", "state at", "a `fn` needs a name", _LAMBDA,
            replacement=((r"fn[ \t]*\(([\w, \t]*)\)", r"|\1|"),)),
    CommonMistake("DL0125", "x = P { x = 1 }", "before at", "use parentheses to create a record", "write `P(x = 1.0)`",
            (), r"\{(?=\s*(?:\w+\s*(?:=|:)[^=]|\}))", both=True,
            replacement=((r"(\w+)[ \t]*\{[ \t]*([^{}\n]*?)[ \t]*\}", r"\1(\2)"),)),
    # ---- What may be many things, if nothing above fits
    *(CommonMistake("DL0124", f"{word} x = y: f32", "at", "the type of a name goes after it",
            f"write `{word} x: f32[n] = …`", (DROP_TOKEN,),
            r":[ \t]*[a-zA-Z]\w*(?:\[[^\]\n]*\])?(?=[ \t]*(?:#.*)?\r?$)",
            line_prefix=rf"[ \t]*{word}\b[^:\n]*=[^:\n]*") for word in ("let", "var")),
)  # fmt: skip

# Keywords of other languages, where the next token cannot follow a name.
FOREIGN_KEYWORDS = {
    "def": "use `fn` to declare a function",
    "func": "use `fn` to declare a function",
    "fun": "use `fn` to declare a function",
    "function": "use `fn` to declare a function",
    "elif": "write `elif` as `else if`",
    "elseif": "write `elseif` as `else if`",
    "elsif": "write `elsif` as `else if`",
    "lambda": _LAMBDA,
    "class": "use `record` or `enum` to declare data",
    "struct": "use `record` to declare data",
    "type": "use `record` or `enum` to declare data",
    "const": "use `let` to bind a value",
    "val": "use `let` to bind a value",
    "mut": "`let` binds once; use `var` for a variable that changes",
    "from": "write `import m (a, b)` to import names",
    "use": "use `import` to import a module",
    "print": "write a call with parentheses: `print(x)`",
    "switch": "use `match` to distinguish cases",
    "case": "write a case as `pattern => value`",
    "foreach": "write a loop as `for x in xs { ... }`",
    "loop": "write a loop as `while c { ... }` or `for x in xs { ... }`",
    "until": "write a loop as `while not c { ... }`",
    "do": "write a loop as `while c { ... }`",
    "unless": "write a branch as `if not c { ... }`",
    "raise": "write a failure as `assert c, \"message\"`",
    "throw": "write a failure as `assert c, \"message\"`",
    "try": "failures cannot be caught",
    "end": "`}` ends a block",
    "is": "use `==` to compare values",
    "int": "write `let x: i32 = ...` to bind a value",
    "double": "write `let x: f64 = ...` to bind a value",
    "then": "the branches of an `if` need braces",
    "mod": "write `a % b` for the remainder",
    "xor": "write `a != b` for `xor` of conditions",
}  # fmt: skip


# Replacements that hold wherever the word stands.
KEYWORD_REPLACEMENTS = {
    **dict.fromkeys(("def", "func", "fun", "function"), "fn"),
    **dict.fromkeys(("class", "struct"), "record"),
    **dict.fromkeys(("const", "val"), "let"),
    "use": "import",
    "switch": "match",
    "foreach": "for",
}
DECLARATION_REPLACEMENTS = ((r"(?!int\b|double\b)(\w+)[ \t]+(\w+)", r"let \2: \1"), (r"int[ \t]+(\w+)", r"let \1: i32"),
            (r"double[ \t]+(\w+)", r"let \1: f64"))  # fmt: skip
FOREIGN_KEYWORD_REPLACEMENTS: dict[str, str | tuple[tuple[str, str], ...]] = {
    **KEYWORD_REPLACEMENTS,
    "int": DECLARATION_REPLACEMENTS,
    "double": DECLARATION_REPLACEMENTS,
}


# Keywords that begin a line, and whether the rest of the line could be a line by itself.
LINE_KEYWORDS = {
    **dict.fromkeys(("assert", "axes", "host", "import", "let", "pub", "return", "var", "yield"), True),
    **dict.fromkeys(("bench", "enum", "extern", "for", "match", "record", "rule", "test", "while"), False),
}
AFTER_KEYWORD = ("NAME", "INT", "FLOAT", "STRING", "not", "fn", "let", "record", "enum")
ELSE_IF = ("elif", "elseif", "elsif")


def matching_mistakes(situation: ErrorContext) -> Iterator[CommonMistake]:
    """The known mistakes that may explain a context, likeliest first."""
    if situation.kind == "NAME" and situation.text in ELSE_IF:
        message = f"`{situation.text}` is a word of another language"
        yield CommonMistake(
            "DL0108", "", "", message, FOREIGN_KEYWORDS[situation.text], (("ELSE", "IF"),), replacement="else if"
        )
    if (
        situation.word in FOREIGN_KEYWORDS
        and not (situation.word in LEADING_TYPES and situation.opener == "(")
        and situation.text not in NUMBER_TYPES
        and situation.before == "NAME"
        and not situation.operand
        and situation.at != "_NL"
    ):
        message = f"`{situation.word}` is a word of another language"
        writes = FOREIGN_KEYWORD_REPLACEMENTS.get(situation.word)
        yield CommonMistake(
            "DL0108", "", "", message, FOREIGN_KEYWORDS[situation.word], previous_word=True, replacement=writes
        )
    if situation.word in NUMBER_TYPES and (situation.before, situation.kind) == ("NAME", "NAME") and situation.wrapped:
        way = f"write `let {situation.text}: {situation.word} = ...`"
        yield CommonMistake("DL0124", "", "", "use `let` or `var` to bind a name; its type goes after it", way,
              previous_word=True,
                      replacement=DECLARATION_REPLACEMENTS)  # fmt: skip
    if (word := misspelled_keyword(situation)) == "else":
        yield CommonMistake("DL0101", "", "", f"there is no keyword `{situation.text}`", f"did you mean `{word}`?",
              (("ELSE",),),
                      replacement=word)  # fmt: skip
    elif word:
        mends, take = ((("_NL",),), r"(?=\S)") if LINE_KEYWORDS[word] else ((), "")
        message = f"there is no keyword `{situation.word}`"
        yield CommonMistake(
            "DL0101", "", "", message, f"did you mean `{word}`?", mends, take, previous_word=True, replacement=word
        )
    for mistake, example in _example_contexts():
        if all(getattr(situation, part) == getattr(example, part) for part in mistake.match_on.split()):
            yield mistake


def misspelled_keyword(situation: ErrorContext) -> str | None:
    """The keyword meant by a name that stands where only a keyword can: at the head of a line, or after a block."""
    if situation.kind == "NAME" and situation.before == "}":
        return nearest_word(situation.text, ("else",))
    if situation.before != "NAME" or situation.operand or situation.at not in AFTER_KEYWORD:
        return None
    word = nearest_word(situation.word, LINE_KEYWORDS) if situation.wrapped and len(situation.word) > 2 else None
    return None if word == situation.word else word


@cache
def _example_contexts() -> tuple[tuple[CommonMistake, ErrorContext], ...]:
    """Each mistake with the context of its example."""
    return tuple((mistake, context_of_example(mistake.example)) for mistake in COMMON_MISTAKES)


def context_of_example(example: str) -> ErrorContext:
    """The context of the first mistake in a text.

    Errors: ValueError if there is no mistake.
    """
    found: list[ErrorContext] = []

    def stop(kind: str) -> bool:
        found.append(error_context_of(parser, kind))
        return False

    lexer = Lexer(Source("<example>", example), 0, len(example))
    parser = LalrParser(lexer, [], TreeBuilder(lexer.source, [], lexer.doc_comment, lambda build, span: None))
    parser.run("start", stop)
    if not found:
        raise ValueError(f"nothing is wrong with {example!r}")
    return found[0]
