"""`difflang viz`: draws a function's graph."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from difflang.base.source_files import write_or_report
from difflang.cli.diagnostic_formats import json_text
from difflang.cli.options_and_reports import (
    FILE,
    PassName,
    SuggestingChoice,
    argument_types_option,
    check_program_file,
    checking_options,
    exit_on_error,
    parse_pairs,
    program_with_arguments,
)

if TYPE_CHECKING:
    from difflang.tools.viz.visualize import VizResult

FORMATS = ("dot", "mermaid", "svg", "html", "json")
STAGES = ("ir", "derived", "optimized")


@click.command()
@program_with_arguments
@click.option("--wrt", help="Also show the gradient with respect to this parameter: `w`, `m.w` or `w,v`.")
@click.option(
    "--format",
    "form",
    type=SuggestingChoice(FORMATS),
    help="Output format.  [default: from the suffix of `--out`, else svg]",
)
@click.option("--out", type=FILE, help="Output file.  [default: stdout]")
@click.option("--stage", type=SuggestingChoice(STAGES), help="Stage of the compiler to draw.  [default: optimized]")
@click.option(
    "--diff",
    "change",
    type=PassName(),
    metavar="PASS",
    help="Show what this pass changes, the first time that it changes something: see `difflang passes`.",
)
@click.option(
    "--all", "everything", is_flag=True, help="Show every equation; without it, graphs beyond 300 equations are folded."
)
@argument_types_option
@checking_options
def viz(
    program: str, words: tuple[str, ...], wrt: str | None, form: str | None, out: Path | None, stage: str | None,
    change: str | None, everything: bool, argument_types: tuple[str, ...], default_float: str | None,
    folders: tuple[Path, ...],
) -> None:  # fmt: skip
    """Draw the graph of ENTRY: its operations, the types of the values between them, and their source lines.

    `difflang viz model.dfl:loss --wrt w --out loss.html`
    """
    from difflang.tools.viz import visualize as drawing

    if change is not None and stage is not None:
        raise click.UsageError("--diff shows the graph before and after a pass: do not use --stage")
    form = form or format_from_suffix(out)
    with exit_on_error(usage=drawing.USAGE):
        options = drawing.VizOptions(
            stage or "optimized", wrt, parse_pairs(argument_types, "--arg", "TYPE"), words, change, everything
        )
        checked, path, entry = check_program_file(program, default_float, folders)
        found = drawing.visualize(checked, path, entry, options)
        text = render_format(found, form)
        for note in found.notes:
            click.echo(note, err=True)
        if out is None:
            click.echo(text, nl=False)
        else:
            write_or_report(out, text.encode())


def format_from_suffix(out: Path | None) -> str:
    """The format by a file's suffix; svg without a file."""
    if out is None:
        return "svg"
    # Common suffixes that differ from the format's name.
    suffix = {"mmd": "mermaid", "gv": "dot", "htm": "html"}.get(out.suffix[1:].lower(), out.suffix[1:].lower())
    if suffix not in FORMATS:
        raise click.BadParameter(
            f"`{out.suffix}` is not a known format: use --format {'|'.join(FORMATS)}", param_hint="--out"
        )
    return suffix


def render_format(found: VizResult, form: str) -> str:
    """The diagrams in a format."""
    from difflang.tools.viz import dot_and_mermaid
    from difflang.tools.viz.html_page import html_page

    match form:
        case "dot":
            return dot_and_mermaid.dot(found.pictures)
        case "mermaid":
            return dot_and_mermaid.mermaid(found.pictures)
        case "json":
            return json_text(list(map(dot_and_mermaid.picture_as_json, found.pictures))) + "\n"
        case "html":
            source = found.decl.span.source
            return html_page(found.pictures, source, f"{source.name}:{found.decl.name}")
        case _:
            return dot_and_mermaid.svg(found.pictures)
