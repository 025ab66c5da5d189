"""The REPL and its notebook form. Importing this package registers the commands of a session, `:t x` and the like."""

from difflang.cli.repl import meta_commands

__all__ = ["meta_commands"]
