"""`difflang viz`: draws a function's graph."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from difflang.base.source_files import write_or_report
from difflang.cli.commands.dataflow import placed_machine
from difflang.cli.diagnostic_formats import json_text
from difflang.cli.options_and_reports import (
    FILE,
    PassName,
    SuggestingChoice,
    argument_types_option,
    check_program_file,
    checking_options,
    exit_on_error,
    machine_options,
    parse_pairs,
    program_with_arguments,
)

if TYPE_CHECKING:
    from difflang.tools.viz.visualize import VizResult

FORMATS = ("dot", "mermaid", "svg", "html", "json")
STAGES = ("ir", "derived", "optimized", "dataflow")


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
@machine_options
@checking_options
def viz(
    program: str, words: tuple[str, ...], wrt: str | None, form: str | None, out: Path | None, stage: str | None,
    change: str | None, everything: bool, argument_types: tuple[str, ...], devices: int | None, place: str | None,
    default_float: str | None, folders: tuple[Path, ...],
) -> None:  # fmt: skip
    """Draw the graph of ENTRY: its operations, the types of the values between them, and their source lines.

    `difflang viz model.dfl:loss --wrt w --out loss.html`
    """
    from difflang.tools.viz import visualize as drawing

    if change is not None and stage is not None:
        raise click.UsageError("--diff shows the graph before and after a pass: do not use --stage")
    if (devices is not None or place is not None) and stage != "dataflow":
        raise click.UsageError("--devices and --place work only with --stage dataflow")
    form = form or format_from_suffix(out)
    if stage == "dataflow" and form == "html":
        raise click.UsageError("--stage dataflow is drawn as svg, dot, mermaid or json")
    with exit_on_error(usage=drawing.USAGE):
        specs, machine = parse_pairs(argument_types, "--arg", "TYPE"), placed_machine(devices, place)
        options = drawing.VizOptions(stage or "optimized", wrt, specs, words, change, everything, machine)
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
    from difflang.tools.viz.dataflow_picture import draw_program
    from difflang.tools.viz.html_page import html_page

    if found.program is not None:
        return draw_program(found.program, form, found.decl.name)
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
