"""Common mistakes with attributes, `checkpoint { ... }` and `save`, as example snippets: see `common_mistakes`."""

from __future__ import annotations

from difflang.syntax.recovery.mistake import DROP_TOKEN, CommonMistake

# Patterns for the text of the line before the mistake, and for what it covers.
_MEMORY = r"[^\n]*@memory\([ \t]*"
_UNIT = r"(?:[kKMGTP]i?)?B\b"
_CHECKPOINT = r"[^\n]*@checkpoint(?:\([^()\n]*\))?[ \t]*"
_CHECKPOINT_ARGS = r"[^\n]*@checkpoint\([^)\n]*"
_ATTRIBUTES = ("fast", "fast(1)", "fast(a, b = 1)", "checkpoint")
_ATTRIBUTE_POSITION = "attributes go only before `fn`, `rule`, `for` and `while`"
_CHECKPOINT_OR_MEMORY = "to recompute a block, write `checkpoint { ... }`; `@memory` goes before a function"
_CHECKPOINT_HELP = "to recompute a block, write `checkpoint { ... }`, without `@`"
_CHECKPOINT_BLOCK = "`checkpoint` goes before a block"
_SAVE_NAME = "`save` takes the name of a variable"

ATTRIBUTE_MISTAKES = (
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
      for what in ("let x = 3", "var x = 3", "x = 3", "record R { x: f64 }", "enum E { A }", "import a",
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
)  # fmt: skip
