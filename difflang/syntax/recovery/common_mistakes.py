"""Mistakes that people make, by example: a malformed snippet, and what to say where it stops making sense.

A snippet is parsed once, and the situation in which it fails is remembered. A mistake in a program is explained by the
first row whose situation is like it in what `by` names. How parsing goes on is for `recover`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from difflang.base.error_codes import nearest
from difflang.base.source import Source
from difflang.syntax.recovery.attribute_mistakes import OF_ATTRIBUTES
from difflang.syntax.recovery.error_context import Situation, look
from difflang.syntax.recovery.mistake import DROP, Mistake

_LAMBDA = "a function without a name is written `|x| x + 1`"
_BLOCK = "a block stands in braces: `if c { ... }`"
_COLON = "a block stands in braces, not after `:`"
_LINE_END = r":[ \t]*(?:#.*)?\r?$"

MISTAKES = (
    *OF_ATTRIBUTES,
    # ---- Characters and literals
    Mistake("DL0110", "x = 1;", "at", "a newline ends a statement, not `;`", "leave it out, or begin a new line",
            (DROP, ("_NL",), ("COMMA",)), r";",
            writes=((r";(?=[ \t]*(?:#|\r?$))", ""), (r";[ \t]*(?=[^\s#])", "\n"))),
    Mistake("DL0105", 'x = "abc', "at", "this string is never closed",
            'a string ends with `"` on the line it begins on',
            (("STRING",), ("STRING", "RPAR"), ("STRING", "RPAR", "RPAR"), ("STRING", "RSQB"), ("STRING", "LBRACE")),
            r'"[^\n]*'),
    Mistake("DL0115", "x = 'c'", "at operand", "a string stands in double quotes",
            "there are no character literals; `'` after a function is its derivative", (("STRING",),), r"'[^'\n]*'?",
            writes=((r"'([^'\"{}\\\n]*)'", r'"\1"'),)),
    Mistake("DL0115", "x = f'c'", "before at", "a string stands in double quotes, without a prefix",
            'write `"{x}"`: every string may hold expressions', (), r"\w+'"),
    *(Mistake("DL0115", f'x = {prefix}"c"', "before at word", "a string has no prefix",
              'write `"{x}"`: every string may hold expressions', (DROP,), word=True,
              writes="" if prefix in "fF" else None) for prefix in "fFrb"),
    Mistake("DL0116", "x = .5", "operand", "a float has digits on both sides of its point", "write `0.5`",
            (("FLOAT",),), r"\.[0-9]\w*", writes=((r"\.[0-9]\w*", r"0\g<0>"),)),
    Mistake("DL0116", "x = 1.", "operand kind", "a float has digits on both sides of its point", "write `1.0`",
            (("FLOAT",),), r"[0-9][0-9_]*\.(?!\w)", writes=((r"([0-9][0-9_]*\.)(?!\.)", r"\g<1>0"),)),
    Mistake("DL0116", "x = 2i", "kind", "this is not a number", "an imaginary number ends in `j`, as in `2j`",
            (("FLOAT",),), r"[0-9][0-9_.]*i\b"),
    Mistake("DL0116", "x = 3x", "kind", "this is not a number", "between a number and a name stands `*`, between an "
            "amount of memory and its unit a space, `64 MiB`; there is no suffix but the `j` of imaginary numbers, and "
            "no hexadecimal number",
            (("FLOAT",), ("NAME",)), r"[0-9][\w.]*"),
    Mistake("DL0128", "// comment\nx = 1", "at operand", "a comment begins with `#`", "", (DROP,), r"//[^\n]*",
            writes=((r"//", "#"),)),
    Mistake("DL0128", "/* comment */\nx = 1", "operand", "a comment begins with `#`", "", (DROP,),
            r"/\*(?s:.)*?(?:\*/|\Z)", writes=((r"/\*([^\n]*?)[ \t]*\*/(?=[ \t]*\r?$)", r"#\1"),)),
    Mistake("DL0107", "x = y ≤ z", "at", "`≤` is written `<=`", "", (("COMPARE",),), writes="<="),
    Mistake("DL0107", "x = y ≥ z", "at", "`≥` is written `>=`", "", (("COMPARE",),), writes=">="),
    Mistake("DL0107", "x = y ≠ z", "at", "`≠` is written `!=`", "", (("COMPARE",),), writes="!="),
    Mistake("DL0107", "x = y × z", "at", "`×` is written `*`", "", (("STAR",),), writes="*"),
    Mistake("DL0107", "x = y · z", "at", "`·` is written `*`, or `dot(x, y)`", "", (("STAR",),)),
    Mistake("DL0107", "x = y ÷ z", "at", "`÷` is written `/`", "", (("SLASH",),), writes="/"),
    Mistake("DL0107", "x = y − z", "at", "this minus is not `-`", "it was probably pasted: type `-`", (("MINUS",),),
            writes="-"),
    Mistake("DL0107", "x = “a”", "at", 'a string stands in straight quotes, `"`', "", (("STRING",),), "“[^”\n]*”?",
            writes=((r'“([^”"\n]*)”', r'"\1"'),)),
    Mistake("DL0107", "x =\u00a0y", "at", "this space is not a space", "it was probably pasted: type a space",
            (DROP,), "[\u00a0\u2000-\u200b\u202f\u3000]+", writes=" "),
    # ---- Operators
    Mistake("DL0109", "x = a && b", "at", "`&&` is written `and`", "", (("AND",),), writes="and"),
    Mistake("DL0109", "x = a || b", "at", "`||` is written `or`", "", (("OR",),), writes="or"),
    Mistake("DL0109", "x = !a", "at operand", "`!` is written `not`", "", (("NOT",), DROP), r"!(?!=)",
            writes=((r"!(?![^\n&|{}]*[<>=])", "not "),)),  # `not` takes in a comparison, `!` does not
    Mistake("DL0109", "x = a ** b", "before at", "`**` is written `^`", "", (DROP,), r"\*", writes="^", both=True),
    Mistake("DL0109", "x = a === b", "before at", "`===` is written `==`", "", (DROP,), "=", writes="==", both=True),
    Mistake("DL0109", "x = a <> b", "before at", "`<>` is written `!=`", "", (DROP,), ">", writes="!=", both=True),
    Mistake("DL0109", "x := 3", "at", "`:=` is written `=`",
            "`let x = e` binds a name, `x = e` gives a `var` a new value",
            (("EQUAL",),), writes="="),
    Mistake("DL0109", "x++", "before at", "there is no `++`", "write `x += 1`", (), r"\+",
            writes=((r"\+\+(?=[ \t]*(?:#|\}|\r?$))", " += 1"),), both=True),
    Mistake("DL0109", "x %= 2", "before at", "`%=` is not an update", "write `x = x % 2`"),
    Mistake("DL0109", "x ^= 2", "before at", "`^=` is not an update", "write `x = x ^ 2`"),
    Mistake("DL0109", "x //= 2", "before at", "`//=` is not an update", "write `x = x // 2`"),
    Mistake("DL0109", "x @= y", "before at", "`@=` is not an update", "write `x = x @ y`"),
    Mistake("DL0109", "x = c ? a : b", "at", "there is no `?`", "write `if c { a } else { b }`"),
    Mistake("DL0109", "x = a if c else b", "at", "a condition stands before its values",
            "write `if c { a } else { b }`"),
    Mistake("DL0109", "x = a & b", "at", "`&` is not an operator",
            "`and` joins conditions; operations on bits are functions"),
    Mistake("DL0109", "x = a in b", "at operand", "`in` is not an operator", "it stands in `for x in xs`"),
    Mistake("DL0123", "x = a\n+ b", "at first operand", "a line cannot begin with `+`",
            "end the line above with `+`, or put the expression in parentheses"),
    Mistake("DL0123", "x = a\n* b", "at first operand", "a line cannot begin with `*`",
            "end the line above with `*`, or put the expression in parentheses"),
    Mistake("DL0123", "x = a\n/ b", "at first operand", "a line cannot begin with `/`",
            "end the line above with `/`, or put the expression in parentheses"),
    Mistake("DL0123", "x = a\n== b", "at first operand", "a line cannot begin with `==`",
            "end the line above with `==`, or put the expression in parentheses"),
    Mistake("DL0113", "x = +y", "at operand", "a value has no sign `+`", "leave it out", (DROP,), r"\+", writes=""),
    # ---- `=`
    Mistake("DL0129", "x =\ny = 2", "opener at wrapped", "a value is missing after the `=` on the line above", "",
            (DROP,), r"=[^\n]*"),
    Mistake("DL0111", "if x = 3 { }", "opener at", "`=` does not compare", "write `==`", (("COMPARE",),), writes="=="),
    Mistake("DL0111", "while x = 3 { }", "opener at", "`=` does not compare", "write `==`", (("COMPARE",),),
            writes="=="),
    Mistake("DL0111", "assert x = 3", "opener at", "`=` does not compare", "write `==`", (("COMPARE",),), writes="=="),
    Mistake("DL0111", "let x == 3", "opener at", "`==` compares; a name is bound with `=`", "", (("EQUAL",),),
            writes="="),
    Mistake("DL0111", "var x == 3", "opener at", "`==` compares; a name is bound with `=`", "", (("EQUAL",),),
            writes="="),
    Mistake("DL0101", "x = = y", "before at operand", "`=` stands twice", "", (DROP,)),
    Mistake("DL0121", "x = y = 2", "opener at", "an assignment has no value",
            "assign to one name a line; `==` compares",
            (("COMPARE",),)),
    Mistake("DL0101", "for i = 0..n { }", "opener at", "a loop is written `for i in 0..n { ... }`", "", (("IN",),),
            writes="in"),
    # ---- Blocks
    Mistake("DL0114", "if c:\n  x = 1", "opener at", _COLON, _BLOCK, (), _LINE_END),
    Mistake("DL0114", "while c:\n  x = 1", "opener at", _COLON, _BLOCK, (), _LINE_END),
    Mistake("DL0114", "for x in xs:\n  y = 1", "opener at", _COLON, _BLOCK, (),
            _LINE_END),
    Mistake("DL0114", "if c { x = 1 } else:\n  x = 2", "opener at", _COLON, _BLOCK, (),
            _LINE_END),
    Mistake("DL0114", "if c: x = 1", "opener at", _COLON, _BLOCK),
    Mistake("DL0114", "while c: x = 1", "opener at", _COLON, _BLOCK),
    Mistake("DL0114", "fn f(x: f32):\n  x", "opener at", _COLON,
            "write `fn f(x: f32) { ... }`", (), _LINE_END),
    Mistake("DL0114", "if (c) x = 1", "opener before at", "the branches of an `if` stand in braces", _BLOCK),
    Mistake("DL0114", "if (c) return", "opener before at", "the branches of an `if` stand in braces", _BLOCK),
    Mistake("DL0108", "if c then x", "opener at word", "the branches of an `if` stand in braces", _BLOCK, (), r"then"),
    Mistake("DL0114", "x = if c { 1 } else 2", "opener", "the branches of an `if` stand in braces",
            "write `if c { a } else { b }`"),
    # ---- Declarations
    Mistake("DL0124", "fn f(x: f32): f32 { x }", "opener at", "the result's type stands after `->`", "",
            (("ARROW",),), writes=" -> "),
    Mistake("DL0124", "fn f<T>(x: T) -> T { x }", "opener at", "type parameters stand in brackets",
            "write `fn f[T](x: T)`", writes=((r"<([\w:, \t]*)>", r"[\1]"),)),
    Mistake("DL0124", "record P(x: f64)", "opener at", "the fields of a record stand in braces",
            "write `record P { x: f64 }`", writes=((r"\([ \t]*([^()\n]*?)[ \t]*\)", r" { \1 }"),)),
    *(Mistake("DL0124", example, "before at", "the type of a function has no `fn`", "write `(f64) -> f64`", (DROP,),
              writes="") for example in ("fn f(g: fn(f64) -> f64) { g }", "fn f() -> fn(f64) -> f64 { g }")),
    Mistake("DL0124", "enum E = A", "opener at", "the variants of an enum stand in braces", "write `enum E { A, B }`"),
    Mistake("DL0124", "x: f32 = 3", "opener before at", "a name is bound with `let` or `var`",
            "write `let x: f32 = ...`", writes=((r"", "let "), (r"", "var ")), both=True),
    Mistake("DL0131", "enum E { }", "state at", "an enum has at least one variant", "an empty record is written "
            "`record R { }`"),
    Mistake("DL0131", "match x { }", "state at", "a match has at least one case"),
    Mistake("DL0133", "pub x = 3", "before at", "only `fn`, `let`, `record` and `enum` can be public"),
    Mistake("DL0133", "pub import ode", "before at", "only `fn`, `let`, `record` and `enum` can be public"),
    Mistake("DL0133", "pub var x = 3", "before at", "only `fn`, `let`, `record` and `enum` can be public",
            "a public value is bound with `let`", writes="let"),
    Mistake("DL0101", 'fn f() {\n  test "a" { x }\n}', "word at wrapped", "a test stands at the top level of a file",
            "move it out of the braces", (("_NL",),)),
    Mistake("DL0101", 'fn f() {\n  bench "a" { x }\n}', "word at wrapped",
            "a benchmark stands at the top level of a file", "move it out of the braces", (("_NL",),)),
    Mistake("DL0101", "test a { x }", "word at wrapped", "the name of a test is a string",
            'write `test "name" { ... }`', writes=((r"\w+", r'"\g<0>"'),)),
    Mistake("DL0101", "bench a { x }", "word at wrapped", "the name of a benchmark is a string",
            'write `bench "name" { ... }`', writes=((r"\w+", r'"\g<0>"'),)),
    Mistake("DL0130", "x = 1\nfloat f64", "word at",
            "`float` stands on a file's first line only, with f64, f32, f16 or bf16", "", (("_NL",),), r"(?=\w)"),
    Mistake("DL0101", "import a.b", "opener at", "a module is one name, or a path in quotes",
            'write `import "./a/b.dfl" as b`'),
    Mistake("DL0101", "import a, b", "opener at", "each import stands on its own line", "", (), ",",
            writes=((r",[ \t]*", "\nimport "),)),
    # ---- Expressions
    Mistake("DL0120", "x = (a,)", "opener before at", "there are no tuples of one", "leave the comma out",
            (("NAME", "RPAR"),), writes=((r",[ \t]*", ""),), both=True),
    Mistake("DL0126", "x = [a for a in b]", "opener at", "a comprehension begins with its `for`",
            "write `[for x in xs => x^2]`"),
    Mistake("DL0126", "x = sum(a for a in b)", "opener at", "a comprehension begins with its `for`",
            "write `sum(for x in xs => x^2)`"),
    Mistake("DL0126", "x = [for a in b: a]", "opener at", "a comprehension has `=>` before its body", "",
            (("GIVES",),), only_if_mended=True, writes=" => "),
    Mistake("DL0126", "x = [for a in b -> a]", "opener at", "a comprehension has `=>` before its body", "",
            (("GIVES",),), only_if_mended=True, writes="=>"),
    Mistake("DL0126", "x = [for a in b { a }]", "opener at", "a comprehension has `=>` before its body",
            "write `[for x in xs => x^2]`", (("GIVES",),), r"(?=\{)", only_if_mended=True),
    Mistake("DL0114", "for x in 0..3: y = 1", "opener at", _COLON, _BLOCK),
    Mistake("DL0127", "x = a[1:3]", "opener at", "a range of indices is written `a[1..3]`", "", (("RANGE",),),
            writes=((r":([^\],:\n]*):", r"..\1 by "), (r":(?![^\],\n]*:)", ".."))),
    Mistake("DL0127", "x = a[1::2]", "opener at", "a range of indices is written `a[1.. by 2]`", "",
            (("RANGE", "_BY"),), writes=".. by "),
    Mistake("DL0101", "match x { A -> 1 }", "at", "a case is written `pattern => value`", "", (("GIVES",),),
            only_if_mended=True, writes="=>"),
    Mistake("DL0101", "match x { A: 1 }", "at", "a case is written `pattern => value`", "", (("GIVES",),),
            only_if_mended=True, writes=" => "),
    Mistake("DL0101", "match x {\n  A => y = 1\n}", "opener at", "what a case does stands in braces",
            "write `A => { x = 1.0 }`", (DROP,), r"=[^\n,}]*"),
    Mistake("DL0101", "match x {\n  A => y += 1\n}", "opener at", "what a case does stands in braces",
            "write `A => { x += 1.0 }`", (DROP,), r"\+=[^\n,}]*"),
    Mistake("DL0132", "x = 1 + |x| x", "at operand", "a lambda inside an expression stands in parentheses",
            "write `(|x| x + 1)`", (), r"\|"),
    Mistake("DL0108", "x = y -> y", "at", "`->` makes no function", _LAMBDA,
            writes=((r"(\w+)[ \t]*->", r"|\1|"),), both=True),
    Mistake("DL0108", "x = y => y", "at", "`=>` makes no function", _LAMBDA,
            writes=((r"(\w+)[ \t]*=>", r"|\1|"),), both=True),
    Mistake("DL0108", "x = \\y", "at", "`\\` makes no function", _LAMBDA),
    Mistake("DL0108", "x = fn(y) { y }", "before at operand", "a `fn` has a name", _LAMBDA,
            writes=((r"fn[ \t]*\(([\w, \t]*)\)", r"|\1|"),)),
    Mistake("DL0108", "x = fn(y) { y }", "state at", "a `fn` has a name", _LAMBDA,
            writes=((r"fn[ \t]*\(([\w, \t]*)\)", r"|\1|"),)),
    Mistake("DL0125", "x = P { x = 1 }", "before at", "a record is made with parentheses", "write `P(x = 1.0)`",
            (), r"\{(?=\s*(?:\w+\s*(?:=|:)[^=]|\}))", both=True,
            writes=((r"(\w+)[ \t]*\{[ \t]*([^{}\n]*?)[ \t]*\}", r"\1(\2)"),)),
)  # fmt: skip

# Words of other languages, where something follows that cannot.
WORDS = {
    "def": "a function begins with `fn`",
    "func": "a function begins with `fn`",
    "fun": "a function begins with `fn`",
    "function": "a function begins with `fn`",
    "elif": "`elif` is written `else if`",
    "elseif": "`elseif` is written `else if`",
    "elsif": "`elsif` is written `else if`",
    "lambda": _LAMBDA,
    "class": "data is declared with `record` or `enum`",
    "struct": "data is declared with `record`",
    "type": "data is declared with `record` or `enum`",
    "const": "a value is bound with `let`",
    "val": "a value is bound with `let`",
    "mut": "`let` binds once; what gets new values is bound with `var`",
    "from": "names are imported with `import m (a, b)`",
    "use": "a module is imported with `import`",
    "print": "a call has parentheses: `print(x)`",
    "switch": "cases are told apart with `match`",
    "case": "a case is written `pattern => value`",
    "foreach": "a loop is written `for x in xs { ... }`",
    "loop": "a loop is written `while c { ... }` or `for x in xs { ... }`",
    "until": "a loop is written `while not c { ... }`",
    "do": "a loop is written `while c { ... }`",
    "unless": "a branch is written `if not c { ... }`",
    "raise": "a failure is written `assert c, \"message\"`",
    "throw": "a failure is written `assert c, \"message\"`",
    "try": "failures are not caught",
    "end": "a block ends with `}`",
    "is": "values are compared with `==`",
    "int": "a value is bound with `let x: i32 = ...`",
    "double": "a value is bound with `let x: f64 = ...`",
    "then": "the branches of an `if` stand in braces",
    "mod": "the remainder is written `a % b`",
    "xor": "`xor` of conditions is written `a != b`",
}  # fmt: skip


# What is written in place of some of them, wherever they stand.
INSTEAD = {
    **dict.fromkeys(("def", "func", "fun", "function"), "fn"),
    **dict.fromkeys(("class", "struct"), "record"),
    **dict.fromkeys(("const", "val"), "let"),
    "use": "import",
    "switch": "match",
    "foreach": "for",
}
DECLARED = ((r"(?!int\b|double\b)(\w+)[ \t]+(\w+)", r"let \2: \1"), (r"int[ \t]+(\w+)", r"let \1: i32"),
            (r"double[ \t]+(\w+)", r"let \1: f64"))  # fmt: skip
WRITTEN: dict[str, str | tuple[tuple[str, str], ...]] = {**INSTEAD, "int": DECLARED, "double": DECLARED}


# Words that begin a line, and whether what follows, up to its end, may be a line by itself.
HEADS = {
    **dict.fromkeys(("assert", "host", "import", "let", "pub", "return", "var", "yield"), True),
    **dict.fromkeys(("bench", "enum", "extern", "for", "match", "record", "rule", "test", "while"), False),
}
FLOATING = ("bf16", "f16", "f32", "f64", "c64", "c128")
TYPES = ("bool", *(f"{kind}{bits}" for kind in "iu" for bits in (8, 16, 32, 64)), *FLOATING)
AFTER_WORDS = ("NAME", "INT", "FLOAT", "STRING", "not", "fn", "let", "record", "enum")
ELSE_IF = ("elif", "elseif", "elsif")


def like(situation: Situation) -> Iterator[Mistake]:
    """The known mistakes that may explain a situation, likeliest first."""
    if situation.kind == "NAME" and situation.text in ELSE_IF:
        message = f"`{situation.text}` is a word of another language"
        yield Mistake("DL0108", "", "", message, WORDS[situation.text], (("ELSE", "IF"),), writes="else if")
    if situation.word in WORDS and situation.before == "NAME" and not situation.operand and situation.at != "_NL":
        message = f"`{situation.word}` is a word of another language"
        writes = WRITTEN.get(situation.word)
        yield Mistake("DL0108", "", "", message, WORDS[situation.word], word=True, writes=writes)
    if situation.word in TYPES and (situation.before, situation.kind) == ("NAME", "NAME") and situation.wrapped:
        way = f"write `let {situation.text}: {situation.word} = ...`"
        yield Mistake("DL0124", "", "", "a name is bound with `let` or `var`, its type after it", way, word=True,
                      writes=DECLARED)  # fmt: skip
    if (word := meant(situation)) == "else":
        yield Mistake("DL0101", "", "", f"there is no word `{situation.text}`", f"did you mean `{word}`?", (("ELSE",),),
                      writes=word)  # fmt: skip
    elif word:
        mends, take = ((("_NL",),), r"(?=\S)") if HEADS[word] else ((), "")
        message = f"there is no word `{situation.word}`"
        yield Mistake("DL0101", "", "", message, f"did you mean `{word}`?", mends, take, word=True, writes=word)
    for mistake, example in _situations():
        if all(getattr(situation, part) == getattr(example, part) for part in mistake.by.split()):
            yield mistake


def meant(situation: Situation) -> str | None:
    """The word that was misspelt, where a name stands as only a word can: at the head of a line, or after a block."""
    if situation.kind == "NAME" and situation.before == "}":
        return nearest(situation.text, ("else",))
    if situation.before != "NAME" or situation.operand or situation.at not in AFTER_WORDS:
        return None
    word = nearest(situation.word, HEADS) if situation.wrapped and len(situation.word) > 2 else None
    return None if word == situation.word else word


@cache
def _situations() -> tuple[tuple[Mistake, Situation], ...]:
    """Each mistake with the situation of its example."""
    return tuple((mistake, situation_of(mistake.example)) for mistake in MISTAKES)


def situation_of(example: str) -> Situation:
    """Where the first mistake of a text is, and what is around it.

    Errors: ValueError if there is no mistake.
    """
    from difflang.syntax.parse import Parser  # late: parsing explains its mistakes with this module

    found: list[Situation] = []

    def stop(kind: str) -> bool:
        found.append(look(parser, kind))
        return False

    parser = Parser(Source("<example>", example), 0, len(example), [])
    parser.run("start", stop)
    if not found:
        raise ValueError(f"nothing is wrong with {example!r}")
    return found[0]
