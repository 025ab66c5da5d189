"""Mistakes with attributes, `checkpoint { ... }` and `save`, by example: see `mistakes`."""

from __future__ import annotations

from difflang.syntax.recovery.mistake import DROP, Mistake

_MEMORY = r"[^\n]*@memory\([ \t]*"
_UNIT = r"(?:[kKMGTP]i?)?B\b"
_CHECKPOINT = r"[^\n]*@checkpoint(?:\([^()\n]*\))?[ \t]*"
_CALLED = r"[^\n]*@checkpoint\([^)\n]*"
_ATTRIBUTES = ("fast", "fast(1)", "fast(a, b = 1)", "checkpoint")
_BEFORE = "attributes stand before `fn`, `for` and `while` only"
_STANDS = "a block is computed again in `checkpoint { ... }`, and `@memory` stands before a function"
_AGAIN = "a block is computed again in `checkpoint { ... }`, without `@`"
_BLOCK = "`checkpoint` stands before a block"
_NAME = "`save` takes the name of a variable"

OF_ATTRIBUTES = (
    # ---- Amounts and strategies
    Mistake("DL0116", "@memory(64MiB)\nfn f() { x }", "kind", "between an amount of memory and its unit stands a space",
            "write `64 MiB`", (("INT",),), r"[0-9][0-9_.]*" + _UNIT, writes=((r"([0-9_.]+)(\w+)", r"\1 \2"),),
            after=_MEMORY),
    Mistake("DL0116", "@memory(2mib)\nfn f() { x }", "kind", "this is not an amount of memory",
            "a number, a space, and one of B, KiB, MiB, GiB, kB, MB, GB: `64 MiB`", (("INT",),),
            r"[0-9][0-9_.]*[kKmMgGtTpP](?:i?[bB])?\b", after=_MEMORY),
    Mistake("DL0220", "@memory()\nfn f() { x }", "at", "`@memory` takes a number and a unit", "`@memory(256 MiB)`",
            (("INT",),), after=_MEMORY),
    Mistake("DL0220", "@memory(-1 MiB)\nfn f() { x }", "at", "`@memory` takes a number, from 1 B on, and a unit",
            "`@memory(256 MiB)`", (), _UNIT, after=_MEMORY + r"[^)\n]*"),
    Mistake("DL0219", "@checkpoint()\nfn f() { x }", "at", "`@checkpoint` takes a strategy",
            "such as `@checkpoint(sqrt)`; there are full, sqrt, every, revolve, offload and auto",
            after=r"[^\n]*@checkpoint\([ \t]*"),
    Mistake("DL0219", "@checkpoint(full, cap = 1 MiB)\nfn f() { x }", "at", "`cap`, `steps` and `slots` are numbers",
            "an amount of memory stands in `@memory(64 MiB)`", (DROP,), _UNIT, after=_CALLED),
    Mistake("DL0219", "@checkpoint(full, cap = 1MiB)\nfn f() { x }", "kind", "`cap`, `steps` and `slots` are numbers",
            "an amount of memory stands in `@memory(64 MiB)`", (("INT",),), r"[0-9][0-9_.]*[kKmMgGtTpP](?:i?[bB])?\b",
            after=_CALLED),
    # ---- Before what has none
    *(Mistake("DL0133", f"fn f() {{\n  {start}@checkpoint{how} {{ x }}\n}}", "state at", _AGAIN, after=_CHECKPOINT)
      for how in ("", "(full)", "(revolve, slots = 2)") for start in ("", "let y = ")),
    Mistake("DL0133", "x = (@checkpoint(full) { x })", "at operand", _AGAIN, "", (("CHECKPOINT",),),
            r"@checkpoint\b(?:\([^()\n]*\))?"),
    *(Mistake("DL0133", f"fn f() {{\n  {start}@{name}{what} {{ x }}\n}}", "state at", _BEFORE, _STANDS)
      for name in _ATTRIBUTES
      for start, what in (("", ""), ("let y = ", ""), ("", "\n "), *(("", gap + word) for gap in (" ", "\n ")
                                                                    for word in ("if c", "checkpoint")))
      if name != "checkpoint" or what),
    *(Mistake("DL0133", f"@{name}{gap}{what}", "state at", _BEFORE, _STANDS)
      for name in _ATTRIBUTES for gap in (" ", "\n")
      for what in ("let x = 3", "var x = 3", "x = 3", "record R { x: f64 }", "enum E { A }", "import a", "rule f { x }",
                   'test "a" { x }')),
    *(Mistake("DL0133", f"let g = @{name} |x| x", "state at", _BEFORE,
              "give the function a name: `fn g(x) = ...`") for name in _ATTRIBUTES),
    Mistake("DL0133", "pub @memory(1 MiB)\nfn f() { x }", "before at", "attributes stand before `pub`", "", (DROP,)),
    Mistake("DL0133", "fn f() -> f64 @memory(1 MiB) { x }", "at opener", "attributes stand before `fn`", "",
            (DROP,), r"@\w+(?:\([^()\n]*\))?"),
    # ---- Blocks that are computed again
    Mistake("DL0133", "x = checkpoint(full) { x }", "before at", _BLOCK,
            "a strategy stands before a loop: `@checkpoint(sqrt) for ...`", (DROP,),
            r"\([^()\n]*\)(?=\s*(?:\{|for\b|while\b))"),
    *(Mistake("DL0114", f"x = checkpoint {what}", "before at", _BLOCK, "write `checkpoint { f(x) }`")
      for what in ("(f)(x)", "f(x)")),
    *(Mistake("DL0101", f"x = checkpoint {{\n  save y{what}\n  x\n}}", "state at", _NAME,
              "bind what has none with `let`, and write a `save` for each", after=r"[ \t]*save[ \t]+\w+[ \t]*")
      for what in ("[0]", "(x)", ".w", ", x", " + x", " * x", " - x", " / x")),
    *(Mistake("DL0101", f"x = checkpoint {{\n  save {what}\n  x\n}}", "before at", _NAME,
              "bind what has none with `let`", after=r"[ \t]*save[ \t]+") for what in ("3", "3.0")),
)  # fmt: skip
