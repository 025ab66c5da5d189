"""The option `--plugin`: modules of Python that are imported before a command works. They declare ops and passes."""

from __future__ import annotations

import os
import sys
import traceback
from importlib import import_module

import click

from difflang.base.diagnostics import DifflangError, render


def import_plugins(ctx: click.Context, param: click.Parameter, names: tuple[str, ...]) -> None:
    """Import modules of Python as `python -m` finds them. Errors: BadParameter for one that cannot be imported."""
    if names and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    for name in names:
        if name.endswith(".py") or not all(part.isidentifier() for part in name.split(".")):
            message = f"{name!r} is no name of a module: write it as after `import`, without a folder and `.py`"
            raise click.BadParameter(message, ctx, param)
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                missing = f"`{name}` needs the module `{error.name}`" if error.name else f"`{name}` raised {error!r}"
                raise click.BadParameter(missing, ctx, param) from None
            raise click.BadParameter(f"no module `{name}` is here or installed", ctx, param) from None
        except DifflangError as error:
            click.echo(f"{render(error.diagnostics)}\n  = raised at {place_of(error) or name}", err=True)
            sys.exit(1)
        except (Exception, SystemExit) as error:
            what = f"{type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else error}"
            place = place_of(error)
            raise click.BadParameter(f"`{name}` raised {what}{f' ({place})' if place else ''}", ctx, param) from error


def place_of(error: BaseException, file: str = "") -> str:
    """The line that raised an error: the innermost of a file, else of the modules that were being imported, if any."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = reversed(traceback.extract_tb(error.__traceback__))
    at = next((f for f in frames if (f.filename == file if file else f.name == "<module>")), None)
    return "" if at is None else f"{at.filename}:{at.lineno}"


plugin_option = click.option(
    "--plugin",
    multiple=True,
    metavar="MODULE",
    expose_value=False,
    is_eager=True,
    callback=import_plugins,
    help="First import a module of Python, which declares ops or passes.",
)
