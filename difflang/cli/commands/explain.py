"""`difflang explain`: the page of a code, or the list of all."""

from __future__ import annotations

import click

from difflang.base.error_codes import CODE_FAMILIES, CODE_TITLES, nearest_word
from difflang.base.package_data import error_page


@click.command()
@click.argument("code", required=False)
def explain(code: str | None) -> None:
    """What CODE of a report means: its cause, a wrong example and a right one. Without a code, all are listed."""
    click.echo(list_codes() if code is None else code_page(code))


def list_codes() -> str:
    """Every code with its title, by chapter."""
    chapters: list[str] = []
    for number, family in CODE_FAMILIES.items():
        codes = [f"  {code}  {title}" for code, title in CODE_TITLES.items() if code[2:4] == number]
        chapters.append("\n".join([f"DL{number}  {family}", *codes]))
    return "\n\n".join(chapters)


def code_page(code: str) -> str:
    """The page of a code, however it is spelled: DL0310, dl0310, 310. Errors: UsageError for one that is not there."""
    wanted = code.upper() if code.upper().startswith("DL") else f"DL{code:0>4}"
    if wanted not in CODE_TITLES:
        near = nearest_word(wanted, CODE_TITLES)
        way = f"Did you mean '{near}'?" if near else "`difflang explain` lists them."
        raise click.UsageError(f"there is no code '{code}'. {way}")
    return error_page(wanted).rstrip()
