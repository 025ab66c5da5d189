"""`difflang lsp` and `difflang kernel`: the language server and the Jupyter kernel, and how front ends start them."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

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
        from importlib import metadata  # late: it imports the standard library's `email`

        click.echo(f"the language server of difflang {metadata.version('difflang')} can start")
    else:
        bound_memory(limit)
        server.start_io()


# ---- The Jupyter kernel


KERNEL_NAME = "difflang"


@click.group(invoke_without_command=True)
@click.option("-f", "--connection-file", type=click.Path(dir_okay=False), help="Connection file from Jupyter.")
@click.pass_context
def kernel(ctx: click.Context, connection_file: str | None) -> None:
    """Run a kernel for Jupyter. `difflang kernel install` registers it, so that Jupyter starts it by itself.

    Needs the extra `kernel`.
    """
    # A clear message instead of an import error in the middle of a front end's start.
    if find_spec("ipykernel") is None:
        click.echo("the kernel needs ipykernel, which is not installed: `pip install 'difflang[kernel]'`", err=True)
        sys.exit(2)
    if ctx.invoked_subcommand is not None:
        return
    if connection_file is None:
        raise click.UsageError(
            "Jupyter starts the kernel with -f FILE; run `difflang kernel install` to register it", ctx
        )
    if not os.path.isfile(connection_file):
        raise click.BadParameter(f"there is no file '{connection_file}'", ctx, param_hint="-f")
    from difflang.cli.jupyter_kernel import run_kernel

    run_kernel(connection_file)


@kernel.command()
@click.option(
    "--prefix", type=click.Path(file_okay=False), help="Install below this folder.  [default: the prefix of Python]"
)
@click.option("--user", is_flag=True, help="Install for the current user only.")
def install(prefix: str | None, user: bool) -> None:
    """Register the kernel with Jupyter: for this Python, unless --user or --prefix says otherwise."""
    import json
    import tempfile

    from jupyter_client.kernelspec import KernelSpecManager

    if prefix is not None and user:
        raise click.UsageError("--user and --prefix exclude each other")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "kernel.json").write_text(json.dumps(kernel_spec(), indent=1) + "\n", encoding="utf-8")
        try:
            place = KernelSpecManager().install_kernel_spec(
                folder, KERNEL_NAME, user=user, prefix=None if user else prefix or sys.prefix
            )
        except OSError as error:
            raise click.UsageError(f"cannot install the kernel: {error.strerror or error}; try --user") from None
    click.echo(place)


def kernel_spec() -> dict[str, object]:
    """How Jupyter starts the kernel: with the current Python."""
    argv = [sys.executable, "-m", "difflang", "kernel", "-f", "{connection_file}"]
    return {"argv": argv, "display_name": "difflang", "language": "difflang", "interrupt_mode": "signal"}
