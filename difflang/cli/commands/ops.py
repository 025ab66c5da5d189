"""`difflang ops`: every op of the registry, or the page of one, whose laws `--check` runs."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from difflang.base.wording import aligned_rows
from difflang.cli.options_and_reports import exit_on_error
from difflang.cli.plugin_modules import plugin_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from difflang.graph.op_registry.op_page import OpPage

WIDTH = 120


@click.command()
@click.argument("names", nargs=-1, metavar="[NAMES...]")
@click.option("--check", is_flag=True, help="Run the laws on these ops; without names, on those of the plugins.")
@click.option("--json", "as_json", is_flag=True, help="Print the pages as data.")
@plugin_option
def ops(names: tuple[str, ...], check: bool, as_json: bool) -> None:
    """List every op of the compiler and of plugins, or show the pages of some: type, rules, laws.

    `difflang ops swish --plugin my_ops --check` runs the laws on an op that `my_ops` declares. Exit code 1 if one is
    broken.
    """
    from difflang.graph.op_registry.op_page import ops as all_ops

    pages = {page.name: page for page in all_ops()}
    if unknown := [name for name in names if name not in pages]:
        raise click.BadParameter(unknown_op_text(unknown[0], list(pages)))
    shown = [pages[name] for name in names] or list(pages.values())
    if check:
        with exit_on_error(usage=("DL1207",)):
            sys.exit(check_ops([p.name for p in shown if names or p.module]))
    if as_json:
        click.echo(json.dumps([page.to_data() for page in shown], indent=2))
    else:
        click.echo("\n\n".join(map(str, shown)) if names else list_text(shown))


def unknown_op_text(name: str, known: Sequence[str]) -> str:
    from difflang.base.error_codes import nearest_word

    near = nearest_word(name, known)
    return f"there is no op '{name}'. " + (f"Did you mean '{near}'?" if near else "`difflang ops` lists them.")


def list_text(pages: Sequence[OpPage]) -> str:
    """One line an op; those of each module under its name."""
    chapters: list[str] = []
    for module in dict.fromkeys(page.module for page in pages):
        rows = aligned_rows([(f"  {p.name}", p.summary) for p in pages if p.module == module], {0, 1})
        head = [f"declared in {module}:"] if module else []
        chapters.append("\n".join([*head, *[row if len(row) <= WIDTH else f"{row[: WIDTH - 1]}…" for row in rows]]))
    return "\n\n".join(chapters)


def check_ops(names: Sequence[str]) -> int:
    """Run the laws on ops and print what they find: the exit code."""
    from difflang.base.errors import OpLawError
    from difflang.graph.op_registry.check_op import check_op

    if not names:
        raise click.UsageError("name the ops to check, or a module that declares some: `--plugin MODULE`")
    code = 0
    for name in names:
        try:
            click.echo(str(check_op(name)))
        except OpLawError as error:
            click.echo(str(error.report))
            code = 1
    return code
