"""`difflang lsp`: starts the language server, and prints editor configurations."""

from __future__ import annotations

import sys
from importlib import metadata

import click

from difflang.cli.options_and_reports import SuggestingChoice, parse_amount

NEOVIM = """\
vim.lsp.config("difflang", {
  cmd = { "difflang", "lsp" },
  filetypes = { "difflang" },
  root_markers = { "pyproject.toml", ".git" },
})
vim.lsp.enable("difflang")
"""
VIM = """\
" Vim has no client of its own: this is for the plugin vim-lsp.
autocmd User lsp_setup call lsp#register_server({
      \\ 'name': 'difflang',
      \\ 'cmd': {info -> ['difflang', 'lsp']},
      \\ 'allowlist': ['difflang'],
      \\ })
"""
EMACS = """\
(with-eval-after-load 'eglot
  (add-to-list 'eglot-server-programs '(difflang-mode . ("difflang" "lsp"))))
"""
HELIX = """\
[language-server.difflang]
command = "difflang"
args = ["lsp"]

[[language]]
name = "difflang"
scope = "source.difflang"
file-types = ["dfl"]
comment-token = "#"
indent = { tab-width = 2, unit = "  " }
language-servers = ["difflang"]
"""
SUBLIME = """\
{
  "clients": {
    "difflang": {
      "enabled": true,
      "command": ["difflang", "lsp"],
      "selector": "source.difflang"
    }
  }
}
"""
VSCODE = """\
{
  "difflang.languageServer": true,
  "difflang.command": ["difflang"]
}
"""
EDITORS = {"vscode": VSCODE, "neovim": NEOVIM, "vim": VIM, "emacs": EMACS, "helix": HELIX, "sublime": SUBLIME}


@click.command()
@click.option(
    "--print-config", "editor", type=SuggestingChoice(list(EDITORS)), help="Print the configuration for an editor."
)
@click.option("--check", "only_check", is_flag=True, help="Check whether the server can start, without starting it.")
@click.option(
    "--memory-limit",
    "limit",
    metavar="AMOUNT",
    default="2GiB",
    show_default=True,
    callback=parse_amount,
    help="Memory that the documents may take, on Linux.",
)
@click.option("--stdio", is_flag=True, help="Use standard input and output. This is the default.")
def lsp(editor: str | None, only_check: bool, limit: int, stdio: bool) -> None:
    """Serve editors: diagnostics while typing, types, definitions, completion. It runs no program.

    Editors start it themselves; `--print-config EDITOR` prints their configuration. Needs the extra `lsp`.
    """
    if editor is not None:
        click.echo(EDITORS[editor], nl=False)
        return
    try:
        from difflang.lsp.memory_bound import bound_memory
        from difflang.lsp.request_handlers import server
    except ModuleNotFoundError as error:
        # A missing module of our own is an internal error.
        if (error.name or "").partition(".")[0] not in ("pygls", "lsprotocol"):
            raise
        click.echo("the language server needs pygls, which is not installed: `pip install 'difflang[lsp]'`", err=True)
        sys.exit(2)
    if only_check:
        click.echo(f"the language server of difflang {metadata.version('difflang')} can start")
    else:
        bound_memory(limit)
        server.start_io()
