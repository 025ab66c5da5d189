"""`difflang explain`: the page of an error code, or a list of all codes."""

from __future__ import annotations

import click

from difflang.base.error_codes import CODE_FAMILIES, CODE_TITLES, nearest_word
from difflang.base.package_data import error_page


@click.command()
@click.argument("code", required=False)
def explain(code: str | None) -> None:
    """Explain an error CODE: its cause, a wrong example and a right one. Without a code, list all."""
    click.echo(list_codes() if code is None else code_page(code))


def list_codes() -> str:
    """Every code with its title, by family."""
    chapters: list[str] = []
    for number, family in CODE_FAMILIES.items():
        codes = [f"  {code}  {title}" for code, title in CODE_TITLES.items() if code[2:4] == number]
        chapters.append("\n".join([f"DL{number}  {family}", *codes]))
    return "\n\n".join(chapters)


def code_page(code: str) -> str:
    """The page of a code in any spelling: DL0310, dl0310, 310. Errors: UsageError for an unknown code."""
    full = code.upper() if code.upper().startswith("DL") else f"DL{code:0>4}"
    if full not in CODE_TITLES:
        near = nearest_word(full, CODE_TITLES)
        way = f"Did you mean '{near}'?" if near and near[:4] == full[:4] else "`difflang explain` lists them."
        raise click.UsageError(f"there is no code '{code}'. {way}")
    return error_page(full).rstrip()
