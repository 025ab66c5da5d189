"""`difflang graph` says how large a function's graph is, `difflang passes` which passes there are."""

from __future__ import annotations

import json
import textwrap
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from difflang.base.diagnostics import DifflangError
from difflang.base.error_codes import nearest_word
from difflang.cli.diagnostic_formats import json_text
from difflang.cli.options_and_reports import (
    ProgramCommand,
    SuggestingChoice,
    argument_types_option,
    check_program_file,
    checking_options,
    exit_on_error,
    parse_pairs,
    program_with_arguments,
)
from difflang.cli.plugin_modules import place_of, plugin_option

if TYPE_CHECKING:
    from difflang.driver.elaborate_call import ElaboratedCall
    from difflang.elaborate.context import Session
    from difflang.graph.computational_graph import Graph
    from difflang.graph.graph_passes import GraphPass
    from difflang.ir.graph import Graph as IrGraph
    from difflang.passes.pipelines import Pass, Pipeline, Step
    from difflang.tools.emit import GraphOfCallRewrite

GRAPH_STAGES = ("ir", "derived", "optimized")
WIDTH = 120


@click.command(cls=ProgramCommand)
@program_with_arguments
@click.option("--wrt", help="Report on the gradient with respect to this parameter: `w`, `m.w` or `w,v`.")
@click.option(
    "--stage",
    type=SuggestingChoice(GRAPH_STAGES),
    default="optimized",
    help="Stage of the compiler.  [default: optimized]",
)
@argument_types_option
@click.option("--json", "as_json", is_flag=True, help="Print the report as data.")
@checking_options
def graph(
    program: str, words: tuple[str, ...], wrt: str | None, stage: str, argument_types: tuple[str, ...], as_json: bool,
    default_float: str | None, folders: tuple[Path, ...],
) -> None:  # fmt: skip
    """Show how large the graph of ENTRY is: inputs and outputs, equations by op, and those of reverse mode alone.

    `difflang graph model.dfl:loss --wrt w`
    """
    from difflang.tools import graph_report

    with exit_on_error(usage=graph_report.USAGE):
        pairs = parse_pairs(argument_types, "--arg", "TYPE")
        checked, path, entry = check_program_file(program, default_float, folders)
        found = graph_report.report_function(checked, path, entry, graph_report.GraphOptions(pairs, wrt, stage, words))
        click.echo(json_text(found.to_json()) if as_json else str(found))


# ---- Passes


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@plugin_option
def passes(as_json: bool) -> None:
    """List the compiler's pipelines: their passes in order, what each does, needs and gives; then those of plugins.

    `difflang emit --after PASS` shows a graph after one, `difflang viz --diff PASS` what one changes, and
    `difflang emit --passes PASS,PASS` runs some alone.
    """
    from difflang.graph.graph_passes import PASSES
    from difflang.lower.lowering_pipeline import PIPELINES

    data, texts = [pipeline_data(p) for p in PIPELINES], [pipeline_text(p) for p in PIPELINES]
    if own := [found for found in PASSES.values() if not found.of_compiler]:
        title, help = "plugins", "declared by modules of Python"
        data.append({"name": title, "help": help, "steps": [pass_data(p) for p in own]})
        texts.append(listing(f"{title}: {help}", [(p.name, described(p.help, p.needs, p.gives)) for p in own]))
    click.echo(json.dumps(data) if as_json else "\n\n".join(texts))


def pipeline_data(pipeline: Pipeline) -> dict[str, object]:
    steps = [pass_data(step.of, step.why, if_changed=step.if_changed) for step in pipeline.steps]
    return {"name": pipeline.name, "help": pipeline.help, "steps": steps}


def pass_data(found: Pass | GraphPass, why: str = "", *, if_changed: bool = False) -> dict[str, object]:
    return {
        "pass": found.name, "help": found.help, "needs": found.needs, "gives": found.gives, "why": why,
        "if_changed": if_changed,
    }  # fmt: skip


def pipeline_text(pipeline: Pipeline) -> str:
    """A pipeline with one line or more a step."""
    return listing(f"{pipeline.name}: {pipeline.help}", [(step.of.name, explanation(step)) for step in pipeline.steps])


def listing(title: str, rows: Sequence[tuple[str, str]]) -> str:
    """A title, and under it names with what each does."""
    width = max([len(name) for name, _ in rows], default=0) + 4
    lines = [title]
    for name, text in rows:
        head = f"  {name}".ljust(width)
        lines += textwrap.wrap(text, WIDTH, initial_indent=head, subsequent_indent=" " * width, break_on_hyphens=False)
    return "\n".join(lines)


def explanation(step: Step) -> str:
    parts = [described(step.of.help, step.of.needs, step.of.gives)]
    parts += [f"here: {step.why}"] if step.why else []
    parts += ["only if the step before changed the graph"] if step.if_changed else []
    return "; ".join(parts)


def described(help: str, needs: Sequence[str], gives: Sequence[str]) -> str:
    parts = [help or "without a description"]
    parts += [f"needs: {', '.join(needs)}"] if needs else []
    parts += [f"gives: {', '.join(gives)}"] if gives else []
    return "; ".join(parts)


def rewrite_by_passes(text: str) -> GraphOfCallRewrite:
    """What applies the passes in a text, `cse,dce`, to the graph of a call. Errors: BadParameter for an unknown one."""
    from difflang.ad.expand_derivatives import custom_rules
    from difflang.graph.computational_graph import Graph
    from difflang.graph.graph_passes import PASSES
    from difflang.graph.run_graph import RunContext

    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in PASSES:
            near = nearest_word(name, PASSES)
            way = f"Did you mean '{near}'?" if near else "`difflang passes` lists them."
            raise click.BadParameter(f"there is no pass '{name}'. {way}", param_hint="--passes")

    def rewritten(graph: IrGraph, call: ElaboratedCall, session: Session) -> IrGraph:
        dropped = () if graph is call.graph else custom_rules(call.graph)
        context = RunContext(session, threading.RLock(), (), call.random, call.limit, dropped)
        found = Graph(graph, context, can_fail=call.fails)
        for name in names:
            found = apply_named(found, PASSES[name])
        return found.ir

    return rewritten


def apply_named(graph: Graph, wanted: GraphPass) -> Graph:
    """The graph after a pass. Errors: those of `apply`; DL1251 for any other error that a pass of a plugin raises."""
    from difflang.graph.graph_errors import graph_error

    try:
        return graph.apply(wanted.name)
    except DifflangError:
        raise
    except Exception as error:
        if wanted.of_compiler:
            raise
        place = place_of(error, getattr(getattr(wanted.run, "__code__", None), "co_filename", ""))
        at = f" ({place})" if place else ""
        message = f"the pass `{wanted.name}` raised {type(error).__name__}: {error}{at}"
        raise graph_error("DL1251", message) from error
