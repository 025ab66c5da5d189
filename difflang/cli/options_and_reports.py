"""Options, source loading, error reports and exit codes shared by the commands."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from difflang.base.byte_sizes import parse_bytes, suggest_byte_sizes
from difflang.base.diagnostics import Diagnostic, DifflangError, render
from difflang.base.error_codes import nearest_word, nearest_words
from difflang.base.source import Source
from difflang.base.source_files import decode_source, read_source
from difflang.base.xla_setup import enable_compile_cache
from difflang.cli.plugin_modules import plugin_option

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from difflang.driver.checked_program import CheckedProgram
    from difflang.tools.verify_fixes import Recheck


WORDS_KEY = "difflang.words"


class ProgramCommand(click.Command):
    """A command for a program with arguments of its own: an unknown option may be meant as one of those."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = ctx.meta[WORDS_KEY] = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            near = nearest_words(error.option_name, [o for p in self.params for o in (*p.opts, *p.secondary_opts)])
            hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
            usage = program_argument_usage(ctx, given, error.option_name)
            way = f"Write arguments of the program after `--`: `{usage}`."
            takes_sizes = any(p.name == "argument_types" for p in self.params)
            size = " Set a size with `--arg n=3`." if takes_sizes and not near else ""
            raise click.UsageError(f"{error.message}{hint}{size} {way}", ctx) from None


def command_words() -> list[str]:
    """The words of the current command for a program, as they were given."""
    return click.get_current_context().meta[WORDS_KEY]


def program_argument_usage(ctx: click.Context, words: Sequence[str], option: str) -> str:
    """The command line, with an option moved to the program's arguments."""
    file = next((word for word in words if word.endswith(".dfl") or ".dfl:" in word), "FILE")
    at = next((i for i, word in enumerate(words) if word.partition("=")[0] == option), len(words))
    own = [words[at], *[word for word in words[at + 1 : at + 2] if not word.startswith("-") and word != file]]
    return f"{ctx.command_path} {file} -- {' '.join(own)}"


class SuggestingChoice(click.Choice[str]):
    """A choice of words that suggests the nearest one for an unknown word."""

    name = "word"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return super().convert(value, param, ctx)
        except click.UsageError as error:
            near = nearest_word(str(value), map(str, self.choices))
            if near is None:
                raise
            self.fail(f"{error.message} Did you mean '{near}'?", param, ctx)


class PassName(click.types.StringParamType):
    """The name of a pass of the compiler, which is imported when the name is needed."""

    name = "pass"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        names = self.names()
        if value in names:
            return value
        near = nearest_word(str(value), names)
        way = f"Did you mean '{near}'?" if near else f"The passes are {', '.join(names)}."
        self.fail(f"there is no pass '{value}' here. {way}", param, ctx)

    def names(self) -> list[str]:
        from difflang.lower.lowering_pipeline import PIPELINES

        return list(dict.fromkeys(step.of.name for pipeline in PIPELINES for step in pipeline.steps))

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem  # as late as click imports it

        return [CompletionItem(name) for name in self.names() if name.startswith(incomplete)]


class WholeNumber(click.IntRange):
    name = "whole number"


class Seconds(click.FloatRange):
    """A time above 0."""

    def __init__(self, most: float | None = None) -> None:
        super().__init__(0, most, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = super().convert(value, param, ctx)
        if found != found:  # nan is in every range, for `click`
            self.fail("nan is not a number of seconds.", param, ctx)
        return found


ENGINES = SuggestingChoice(["xla", "interpret"])
FLOATS = SuggestingChoice(["f16", "bf16", "f32", "f64"])
FULL_TRACEBACK_KEY = "difflang.full_traceback"
FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
program_argument = click.argument("program", metavar="FILE[:ENTRY]")
program_words = click.argument("words", nargs=-1, metavar="[-- ARGUMENTS OF THE PROGRAM]")
argument_types_option = click.option(
    "--arg",
    "argument_types",
    multiple=True,
    metavar="NAME=TYPE",
    help="Type of an argument, `x=f32[3, 4]`, or value of a size, `n=3`.",
)
engine_option = click.option(
    "--engine",
    type=ENGINES,
    default="xla",
    help="How to run functions; `interpret` uses NumPy, which is slow and exact.",
)
device_option = click.option("--device", help="Device to run functions on: cpu, gpu, tpu, or one of several: gpu:1.")
seed_option = click.option("--seed", type=WholeNumber(0, 2**64 - 1), default=0, help="Seed of the random numbers.")
float_option = click.option("--float", "default_float", type=FLOATS, help="Default type of float literals.")
search_path = click.option("--path", "folders", multiple=True, type=FOLDER, help="Search imports in another folder.")


Command = TypeVar("Command", bound=Callable[..., Any])
MAX_DEVICES = 512  # that this machine pretends to have


def parse_mesh(ctx: click.Context, param: click.Parameter, text: str | None) -> dict[str, int]:
    """Parse the axes of a mesh, `data=4,model=2`; none for None. Errors: BadParameter."""
    found: dict[str, int] = {}
    for part in [] if text is None else text.split(","):
        name, _, size = [word.strip() for word in part.partition("=")]
        if not name.isidentifier() or not size.isdecimal() or int(size) < 1 or name in found:
            raise click.BadParameter(f"{part.strip()!r} is not NAME=SIZE, once each", ctx, param)
        found[name] = int(size)
    return found


def pretend_mesh(mesh: Mapping[str, int]) -> None:
    """Have JAX pretend that it has the devices of a mesh, to compile for them. Errors: UsageError for too many."""
    from difflang.runtime import collectives

    count = math.prod(mesh.values())
    refuse_too_many(count)
    collectives.pretend_devices(count)


def refuse_too_many(devices: int) -> None:
    """Errors: UsageError for more devices than this machine's processor can be split into."""
    if devices > MAX_DEVICES:
        raise click.UsageError(f"at most {MAX_DEVICES} devices can be tried here, not {devices:,}")


def mesh_option(*, required: bool = False) -> Callable[[Command], Command]:
    """The option with the axes of a mesh and their sizes."""
    return click.option(
        "--mesh",
        required=required,
        metavar="NAME=SIZE,…",
        callback=parse_mesh,
        help="Mesh of devices, by the sizes of its axes: `data=4,model=2`.",
    )


def require_paths(ctx: click.Context, _: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    if not value:
        raise click.UsageError(f"Name a program or a folder of programs: `{ctx.command_path} .`", ctx)
    return value


program_paths = click.argument("files", nargs=-1, metavar="FILES...", callback=require_paths)


def remember_traceback(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    ctx.meta[FULL_TRACEBACK_KEY] = value


full_traceback = click.option(
    "--full-traceback",
    is_flag=True,
    expose_value=False,
    callback=remember_traceback,
    help="Show Python's stack frames too.",
)


def common_options(command: Command) -> Command:
    """The options of a command that works on programs."""
    return plugin_option(full_traceback(command))


def program_with_arguments(command: Command) -> Command:
    """The arguments of a command for one function of a program."""
    return program_argument(program_words(command))


def machine_options(command: Command) -> Command:
    """The options of a command that lowers to the dataflow machine."""
    devices = click.option(
        "--devices", type=WholeNumber(1, 1000), help="Number of devices of the dataflow machine.  [default: 1]"
    )
    place = click.option(
        "--place", metavar="auto|FILE", help="Which device computes what: `line 3 = 1`, `op sin = 2`, `rest = 0`."
    )
    return devices(place(command))


def checking_options(command: Command) -> Command:
    """The options of a command that checks a program."""
    return float_option(search_path(common_options(command)))


def configure_compile_cache(ctx: click.Context, _: click.Parameter, afresh: bool) -> None:
    if not afresh:
        enable_compile_cache()


no_cache = click.option(
    "--no-cache", is_flag=True, expose_value=False, callback=configure_compile_cache, help="Compile everything again."
)


def parse_amount(ctx: click.Context, param: click.Parameter, value: str | None) -> int:
    """Parse `64MiB` to bytes; 0 for None."""
    found = 0 if value is None else parse_bytes(value)
    if found is None:
        raise click.BadParameter(
            f"{value!r} is not an amount of memory; write {suggest_byte_sizes(value or '')}", ctx, param
        )
    return found


memory_budget_option = click.option(
    "--memory-budget",
    "budget",
    metavar="AMOUNT",
    callback=parse_amount,
    help="Memory limit of each derivative, `64MiB`.",
)


def print_diagnostics(diagnostics: tuple[Diagnostic, ...] | list[Diagnostic]) -> None:
    """Print diagnostics on stderr."""
    if diagnostics:
        color = sys.stderr.isatty() and "NO_COLOR" not in os.environ
        click.echo(render(diagnostics, color), err=True)


def load_source(file: str) -> tuple[Source, Path | None]:
    """The text of a file, or of standard input for `-`."""
    if file in ("-", STDIN):
        return decode_source(sys.stdin.buffer.read(), "<stdin>"), None
    return read_source(Path(file), file), Path(file)


# A function of the program on standard input is named `-:f`, which click would read as an option.
STDIN = "<stdin>"


def name_stdin(words: Sequence[str]) -> list[str]:
    """The words of a command line with standard input named so that no word before `--` is taken for an option."""
    end = words.index("--") if "--" in words else len(words)
    return [STDIN + w[1:] if i < end and w.startswith("-:") else w for i, w in enumerate(words)]


def split_entry(text: str) -> tuple[str, str | None]:
    """Split `FILE:entry` in two. If a file has the whole name, it is that file; `C:\\x.dfl` has no entry."""
    file, colon, entry = text.rpartition(":")
    if not colon or not entry.isidentifier() or os.path.exists(text):
        return text, None
    # A drive letter of Windows.
    if len(file) == 1 and file != "-" and not os.path.exists(file):
        return text, None
    return file, entry


def check_program_file(
    program: str, default_float: str | None, folders: tuple[Path, ...], mesh: Mapping[str, int] | None = None
) -> tuple[CheckedProgram, Path | None, str | None]:
    """Read and check `FILE:ENTRY`: the program, its path, the entry. Exits with 1 if the program has errors."""
    from difflang.driver.checked_program import check_program
    from difflang.tools.verify_rules import verify_rules

    file, entry = split_entry(program)
    source, path = load_source(file)

    def check(text: Source) -> CheckedProgram:
        return check_program(text, default_float, path, folders, mesh=mesh or {})

    checked = check(source)
    verify_rules(checked, path)
    exit_if_errors(checked, source, lambda text: check(text).diagnostics)
    return checked, path, entry


def exit_if_errors(checked: CheckedProgram, source: Source, recheck: Recheck) -> None:
    """Print the diagnostics. If there are errors, verify and print the fixes, and exit with 1."""
    if not checked.errors:
        print_diagnostics(checked.diagnostics)
        return
    from difflang.tools.verify_fixes import verify_fixes

    found = verify_fixes(source, checked.diagnostics, recheck)
    print_diagnostics(found)
    print_fixable_count(found)
    sys.exit(1)


def print_fixable_count(found: Sequence[Diagnostic]) -> None:
    """Print how many of these verified diagnostics `check --fix` can fix."""
    from difflang.tools.verify_fixes import certain_fixes

    if count := len(certain_fixes(found)):
        click.echo(f"\n`difflang check --fix` can fix {count}", err=True)


def parse_pairs(arguments: tuple[str, ...], option: str, what: str) -> dict[str, str]:
    """Split each `NAME=...` in two."""
    pairs = [t.partition("=") for t in arguments]
    if wrong := [
        t for t, (name, _, value) in zip(arguments, pairs, strict=True) if not name.isidentifier() or not value
    ]:
        raise click.BadParameter(f"{wrong[0]!r} is not NAME={what}", param_hint=option)
    return {name: value for name, _, value in pairs}


def parse_values(arguments: Sequence[str], option: str) -> dict[str, str]:
    """The values of arguments by name, `x=2.5` or `p.w=[1.0, 2.0]`. Errors: BadParameter; a name given twice too."""
    found: dict[str, str] = {}
    for text in arguments:
        name, _, value = text.partition("=")
        if not name or not value:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint=option)
        if name in found:
            raise click.BadParameter(f"{name!r} is given twice", param_hint=option)
        found[name] = value
    return found


class exit_on_error:
    """A context manager that prints a program's error and exits with its code."""

    def __init__(self, usage: tuple[str, ...] = ()) -> None:
        # Codes of mistakes in the command rather than in the program.
        self.usage = usage

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if not isinstance(error, DifflangError):
            return False
        print_diagnostics(error.diagnostics)
        codes = [d.code for d in error.diagnostics]
        # Exit codes: 3 for a failed run, 2 for wrong usage, 1 for an error in the program.
        if all(code.startswith("DL09") for code in codes):
            sys.exit(3)
        sys.exit(2 if all(code in self.usage for code in codes) else 1)
