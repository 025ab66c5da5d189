"""`difflang new`: creates a project. `difflang completions`: prints shell completion scripts."""

from __future__ import annotations

from pathlib import Path

import click
from click.shell_completion import get_completion_class

from difflang.cli.options_and_reports import SuggestingChoice

PROGRAM_TEMPLATE = """\
# A line through points, by gradient descent.

record Line { slope: f32, start: f32 }

fn at(line: Line, x: f32[n]) -> f32[n] = line.slope * x + line.start

## The mean squared distance of a line from points.
## > loss(Line(slope = 2.0, start = 1.0), [0.0, 1.0], [1.0, 5.0])
## 2.0
fn loss(line: Line, x: f32[n], y: f32[n]) -> f32 = mean((at(line, x) - y)^2)

fn fit(x: f32[n], y: f32[n], steps: i32, rate: f32) -> Line {
  var line = Line(slope = 0.0, start = 0.0)
  for _ in 0..steps {
    line += -rate * grad[line](loss)(line, x, y)
  }
  line
}

let x = [0.0, 1.0, 2.0, 3.0]
let y = [1.1, 2.9, 5.2, 6.8]
let line = fit(x, y, 500, 0.1)
print("slope {line.slope:.2f}, start {line.start:.2f}, loss {loss(line, x, y):.4f}")

test "points on a line are met" {
  let found = fit([0.0, 1.0, 2.0], [1.0, 3.0, 5.0], 500, 0.1)
  assert abs(found.slope - 2.0) < 1e-3
  assert abs(found.start - 1.0) < 1e-3
}
"""

README_COMMANDS = {
    "run {name}.dfl": "run it",
    "test": "run its tests and examples",
    "fmt .": "format it",
    "repl {name}.dfl": "experiment with it",
}


def project_readme(name: str) -> str:
    """The README of a project: its commands with aligned comments."""
    steps = {f"difflang {step.format(name=name)}": what for step, what in README_COMMANDS.items()}
    width = max(map(len, steps))
    return f"# {name}\n\n" + "".join(f"    {step:{width}}  # {what}\n" for step, what in steps.items())


@click.command()
@click.argument("name")
def new(name: str) -> None:
    """Create a project NAME: a folder with a program, its tests, and a README.

    It is created below the current folder; existing files are not touched.
    """
    folder = Path(name)
    title = folder.name
    if title in ("", ".."):
        raise click.UsageError(f"the folder '{name}' already exists: name a new one, `difflang new my-model`")
    if not title.replace("-", "_").isidentifier():
        raise click.BadParameter(f"'{title}' is not a valid name: use letters, digits, `_` and `-`", param_hint="NAME")
    program = title.replace("-", "_")
    try:
        folder.mkdir(parents=True)
        (folder / f"{program}.dfl").write_text(PROGRAM_TEMPLATE, encoding="utf-8")
        (folder / "README.md").write_text(project_readme(program), encoding="utf-8")
    except FileExistsError:
        raise click.UsageError(f"'{name}' already exists") from None
    except OSError as error:
        raise click.UsageError(f"cannot make '{name}': {(error.strerror or 'it failed').lower()}") from None
    click.echo(str(folder / f"{program}.dfl"))
    click.echo(f"next: difflang run {folder / program}.dfl", err=True)


@click.command()
@click.argument("shell", type=SuggestingChoice(["bash", "zsh", "fish"]))
def completions(shell: str) -> None:
    """Print the script that lets SHELL complete commands and options.

    For bash: `eval "$(difflang completions bash)"` in ~/.bashrc.
    """
    root = click.get_current_context().find_root()
    kind = get_completion_class(shell)
    assert kind is not None, "shells that click supports"
    completer = kind(root.command, {}, "difflang", "_DIFFLANG_COMPLETE")
    click.echo(completer.source_template % completer.source_vars())
