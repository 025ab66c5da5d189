"""`difflang passes`: the compiler's passes in their order, with what each does and why it stands where it does."""

from __future__ import annotations

import json
import textwrap
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from difflang.passes.pipelines import Pipeline, Step

WIDTH = 120


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def passes(as_json: bool) -> None:
    """List the compiler's pipelines: their passes in order, what each does, needs and gives.

    `difflang emit --after PASS` shows a graph after one, `difflang viz --diff PASS` what one changes.
    """
    from difflang.lower.lowering_pipeline import PIPELINES

    click.echo(json.dumps([pipeline_data(p) for p in PIPELINES]) if as_json else "\n\n".join(map(text, PIPELINES)))


def pipeline_data(pipeline: Pipeline) -> dict[str, object]:
    return {
        "name": pipeline.name,
        "help": pipeline.help,
        "steps": [
            {
                "pass": step.of.name,
                "help": step.of.help,
                "needs": step.of.needs,
                "gives": step.of.gives,
                "why": step.why,
                "if_changed": step.if_changed,
            }
            for step in pipeline.steps
        ],
    }


def text(pipeline: Pipeline) -> str:
    """A pipeline with one line or more a step."""
    width = max(len(step.of.name) for step in pipeline.steps) + 4
    lines = [f"{pipeline.name}: {pipeline.help}"]
    for step in pipeline.steps:
        lines += textwrap.wrap(
            explanation(step),
            WIDTH,
            initial_indent=f"  {step.of.name}".ljust(width),
            subsequent_indent=" " * width,
            break_on_hyphens=False,
        )
    return "\n".join(lines)


def explanation(step: Step) -> str:
    parts = [step.of.help]
    parts += [f"needs: {', '.join(step.of.needs)}"] if step.of.needs else []
    parts += [f"gives: {', '.join(step.of.gives)}"] if step.of.gives else []
    parts += [f"here: {step.why}"] if step.why else []
    parts += ["only if the step before changed the graph"] if step.if_changed else []
    return "; ".join(parts)
