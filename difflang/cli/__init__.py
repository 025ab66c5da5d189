"""The command line: the `difflang` command group, `run`, `emit`, `check-grad`, `memory`, `info`; others in `commands`.

Results go to stdout, everything else to stderr.
"""

from __future__ import annotations

import sys
import traceback
import warnings
from collections.abc import Mapping
from contextlib import nullcontext
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from difflang.base.crash_report import report_crash
from difflang.base.error_codes import nearest_words
from difflang.base.errors import nested_too_deep
from difflang.base.private_cache import CacheWarning, unsafe_folder_text
from difflang.base.process_group import this_member
from difflang.base.process_termination import INTERRUPTED, MAX_TIMEOUT, ProcessStopped, exit_after
from difflang.cli.commands.dataflow import MachineRequest, open_machine, placed_machine
from difflang.cli.commands.processes import ProcessRequest, joined
from difflang.cli.commands.run import RunRequest, profile_run, run_program
from difflang.cli.diagnostic_formats import json_text
from difflang.cli.options_and_reports import (
    ENGINES,
    FILE,
    FULL_TRACEBACK_KEY,
    MAX_DEVICES,
    PassName,
    ProgramCommand,
    Seconds,
    SuggestingChoice,
    WholeNumber,
    argument_types_option,
    check_program_file,
    checking_options,
    command_words,
    common_options,
    device_option,
    exit_on_error,
    float_option,
    load_source,
    machine_options,
    memory_budget_option,
    mesh_option,
    name_stdin,
    no_cache,
    parse_amount,
    parse_pairs,
    pretend_mesh,
    print_diagnostics,
    program_with_arguments,
    program_words,
    search_path,
    seed_option,
)
from difflang.cli.plugin_modules import plugin_option

MAX_STEPS = 2**31 - 2  # the step counter is an i32
STAGES = ("ast", "typed", "ir", "derived", "optimized", "planned", "dataflow", "jaxpr", "stablehlo", "json")


# Commands in files of their own, each with its module, which is imported only when the command is used.
COMMAND_MODULES = {
    "bench": "tests_and_benchmarks", "check": "check", "compare": "compare", "completions": "new_and_completions",
    "cost": "cost", "derive": "derive_and_trace", "doc": "doc", "doctor": "about_difflang", "explain": "about_difflang",
    "export": "export_and_stubs", "fmt": "fmt", "graph": "graphs_and_passes", "kernel": "servers", "lsp": "servers",
    "new": "new_and_completions", "ops": "ops", "partition": "partition", "passes": "graphs_and_passes",
    "repl": "repl", "stubs": "export_and_stubs",
    "test": "tests_and_benchmarks", "trace": "derive_and_trace", "viz": "viz", "worker": "dataflow",
}  # fmt: skip


class CommandGroup(click.Group):
    """Imports a command on first use, suggests the nearest one, and turns an internal error into exit code 70."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *COMMAND_MODULES})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMAND_MODULES and cmd_name not in self.commands:
            module = import_module(f"difflang.cli.commands.{COMMAND_MODULES[cmd_name]}")
            self.add_command(getattr(module, cmd_name))
        return super().get_command(ctx, cmd_name)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, name_stdin(args))

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = nearest_words(args[0], self.list_commands(ctx)) if args else []
            hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
            raise click.UsageError(error.message + hint, ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except (KeyboardInterrupt, ProcessStopped) as error:
            # The message and the code are the same wherever the interrupt arrives.
            stopped = error if isinstance(error, ProcessStopped) else INTERRUPTED
            click.echo(stopped.message, err=True)
            sys.exit(stopped.code)
        except Exception as error:  # noqa: BLE001 - at the entry point no one should see a bare traceback
            if ctx.meta.get(FULL_TRACEBACK_KEY):
                traceback.print_exception(error)
            if isinstance(error, RecursionError):
                print_diagnostics([nested_too_deep()])
                sys.exit(1)
            click.echo(report_crash(error), err=True)
            sys.exit(70)


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="difflang", prog_name="difflang")
def main() -> None:
    """A small language for differentiable programs, compiled to XLA.

    `difflang new NAME` starts a project, `difflang repl` a session; `difflang explain CODE` explains an error.
    """
    warnings.simplefilter("ignore", CacheWarning)
    if warning := unsafe_folder_text():
        click.echo(f"warning: {warning}", err=True)


@main.command(cls=ProgramCommand)
@program_with_arguments
@click.option(
    "--arg", "files", multiple=True, metavar="NAME=@FILE[:ARRAY]", help="Load an argument of ENTRY from a file."
)
@click.option(
    "--set", "values", multiple=True, metavar="NAME=VALUE", help="Set an argument of ENTRY or of the program."
)
@click.option(
    "--engine",
    type=SuggestingChoice(["xla", "interpret", "dataflow"]),
    default="xla",
    help="How to run functions; `interpret` uses NumPy, slow and exact, `dataflow` tokens on devices of its own.",
)
@machine_options
@click.option(
    "--parallel-iterations",
    type=WholeNumber(1),
    metavar="N",
    help="Iterations of a loop that are under way at once on the dataflow machine.  [default: 32]",
)
@click.option(
    "--swap-above",
    metavar="AMOUNT",
    callback=parse_amount,
    help="Memory of each device of the dataflow machine for what loops keep; more goes to files.",
)
@click.option(
    "--processes",
    type=WholeNumber(1, MAX_DEVICES),
    metavar="N",
    help="Run in N processes here, each with a part of the mesh, or with one device of the dataflow machine.",
)
@click.option("--coordinator", metavar="HOST:PORT", help="Address of process 0 of a run on several machines.")
@click.option("--process", metavar="I/N", help="Which process of that run this is: `0/2`, `1/2`.")
@click.option(
    "--start-timeout",
    type=Seconds(MAX_TIMEOUT),
    metavar="SECONDS",
    default=60.0,
    show_default=True,
    help="How long the processes of a run may take to come.",
)
@click.option("--hosts", metavar="HOST:PORT,…", help="Workers for the devices from 1, started by `difflang worker`.")
@click.option("--timeline", type=FILE, help="Write all runs of the dataflow machine as a trace for Chrome.")
@device_option
@mesh_option()
@seed_option
@float_option
@memory_budget_option
@click.option(
    "--allow", multiple=True, type=click.Path(path_type=Path), help="Allow reading and writing in another folder."
)
@click.option(
    "--check-nans",
    is_flag=True,
    help="Report a NaN or infinity in a result as an error, at the operation that produced it.",
)
@click.option(
    "--max-steps",
    type=WholeNumber(1, MAX_STEPS),
    metavar="N",
    help="Report a loop with more steps than this as an error.",
)
@click.option("--profile", is_flag=True, help="Afterwards, show how much time each line took.")
@click.option("--profile-out", type=FILE, help="Write the profile as JSON.")
@click.option(
    "--timeout",
    type=Seconds(MAX_TIMEOUT),
    metavar="SECONDS",
    help="Stop the program after this time, with exit code 124.",
)
@no_cache
@search_path
@common_options
def run(
    program: str, words: tuple[str, ...], files: tuple[str, ...], values: tuple[str, ...], engine: Any,
    devices: int | None, place: str | None, parallel_iterations: int | None, swap_above: int,
    processes: int | None, coordinator: str | None, process: str | None, start_timeout: float,
    hosts: str | None, timeline: Path | None, device: str | None, mesh: Mapping[str, int],
    seed: int, default_float: str | None, budget: int, allow: tuple[Path, ...], check_nans: bool,
    max_steps: int | None, profile: bool, profile_out: Path | None, timeout: float | None, folders: tuple[Path, ...],
) -> None:  # fmt: skip
    """Check FILE as a whole, then run its statements (`-` reads standard input), or call ENTRY and print the result.

    `difflang run model.dfl:loss --arg x=@train.npz:images --set rate=0.1` reads npy, npz, csv, safetensors and json.
    What follows `--` are the program's own arguments; `-- --help` lists them.
    """
    from difflang.execution.engine import Engine

    if budget and engine != "xla":
        raise click.UsageError(f"--memory-budget works only on compiled programs: --engine {engine} keeps everything")
    about = MachineRequest(devices, place, parallel_iterations, swap_above or None, None, hosts, timeline)
    if engine != "dataflow" and about != MachineRequest():
        raise click.UsageError(
            "--devices, --place, --parallel-iterations, --swap-above, --hosts and --timeline belong to "
            "--engine dataflow"
        )
    shared = ProcessRequest(processes, coordinator, process, start_timeout)
    if engine == "dataflow":
        about, shared = replace(about, processes=processes), replace(shared, processes=None)
    if engine == "dataflow" and device is not None:
        raise click.UsageError(
            f"--device {device} works only on compiled programs: --engine dataflow has devices of its own, --devices N"
        )
    if mesh and (device or profile or profile_out):
        raise click.UsageError("--mesh runs on all of its devices: not with --device, --profile or --profile-out")
    if shared.given and engine != "xla":
        raise click.UsageError(f"several processes share a mesh of compiled programs: not with --engine {engine}")
    member = this_member()
    # The limit covers checking and compilation too, not only the run.
    if timeout is not None and member is None:
        exit_after(timeout)
    usage = ("DL0201", "DL0601", "DL1207", "DL1210", "DL1220")
    if shared.given and member is None:
        from difflang.cli.supervisor import supervise

        with exit_on_error(usage):
            supervise(shared, prod(mesh.values()) if mesh else 0, command_words(), program)
    with joined(member) as group, exit_on_error(usage):
        given = parse_pairs(files, "--arg", "@FILE"), parse_pairs(values, "--set", "VALUE")
        with (
            profile_run(profile and engine != "dataflow", profile_out) as clock,
            open_machine(about, profile=profile) if engine == "dataflow" else nullcontext() as machine,
        ):
            options = Engine(
                engine, device, budget, check_nans=check_nans, profile=clock, machine=machine, mesh=tuple(mesh.items()),
                group=group,
            )  # fmt: skip
            run_program(
                RunRequest(program, words, *given), options, default_float, folders, allow, seed, max_steps or 0
            )


@main.command(cls=ProgramCommand)
@program_with_arguments
@click.option("--stage", type=SuggestingChoice(STAGES), help="Stage of the compiler to print.")
@click.option(
    "--after",
    type=PassName(),
    metavar="PASS",
    help="Print the graph after the last run of this pass, in place of a stage: see `difflang passes`.",
)
@click.option(
    "--passes",
    metavar="PASS,PASS",
    help="Print the graph at the stage, or else `ir`, after these passes in this order.",
)
@argument_types_option
@click.option("--wrt", help="Show the gradient with respect to this parameter: `w`, `m.w` or `w,v`.")
@click.option("--platform", type=SuggestingChoice(["cpu", "cuda", "rocm", "tpu"]), help="Platform of the StableHLO.")
@mesh_option()
@machine_options
@memory_budget_option
@float_option
@plugin_option
@search_path
def emit(
    program: str, words: tuple[str, ...], stage: str | None, after: str | None, passes: str | None,
    argument_types: tuple[str, ...], wrt: str | None, platform: str | None, mesh: Mapping[str, int],
    devices: int | None, place: str | None, budget: int, default_float: str | None, folders: tuple[Path, ...],
) -> None:  # fmt: skip
    """Print a program, or one function of it, at a stage of the compiler between source text and XLA."""
    from difflang.cli.commands.graphs_and_passes import GRAPH_STAGES, rewrite_by_passes
    from difflang.tools import emit as emitting

    if after is not None and (stage is not None or passes is not None):
        raise click.UsageError("--after PASS runs a whole pipeline: either --stage STAGE or --after PASS")
    if stage is None and after is None and passes is None:
        raise click.UsageError("say what to print: either --stage STAGE or --after PASS, or --passes PASS,PASS")
    if passes is not None and stage not in (None, *GRAPH_STAGES):
        raise click.UsageError(f"--passes works only with --stage {', '.join(GRAPH_STAGES)}")
    pairs = parse_pairs(argument_types, "--arg", "TYPE")
    if platform is not None and stage != "stablehlo":
        raise click.UsageError("--platform works only with --stage stablehlo")
    if budget and stage != "planned":
        raise click.UsageError("--memory-budget works only with --stage planned")
    if (devices is not None or place is not None) and stage != "dataflow":
        raise click.UsageError("--devices and --place work only with --stage dataflow")
    if mesh and (after is not None or stage not in ("optimized", "stablehlo")):
        raise click.UsageError("--mesh works only with --stage optimized and --stage stablehlo")
    with exit_on_error(usage=("DL1220",)):
        machine = placed_machine(devices, place)
        rewrite = None if passes is None else rewrite_by_passes(passes)
        checked, path, entry = check_program_file(program, default_float, folders, mesh)
        wanted = stage or ("" if rewrite is None else "ir")
        request = emitting.EmitRequest(
            wanted, entry, pairs, wrt, platform, words, budget, after, machine, rewrite, mesh
        )
        text, left = emitting.emit(checked, path, request)
        click.echo(text, nl=False)
        print_diagnostics(left)


@main.command("check-grad", cls=ProgramCommand)
@program_with_arguments
@click.option(
    "--dim",
    "sizes",
    multiple=True,
    metavar="NAME=SIZE",
    help="Value of a size, `n=3`; without it, difflang chooses one.",
)
@click.option("--arg", "types", multiple=True, metavar="NAME=TYPE", help="Type of an argument, `x=f32[3, 4]`.")
@click.option("--wrt", help="Check only the derivative with respect to this parameter: `w` or `m.w`.")
@click.option(
    "--order", type=WholeNumber(), default=1, help="Highest order to check, up to 3; 2 adds second derivatives."
)
@click.option("--directions", type=WholeNumber(), default=3, help="Number of directions.")
@click.option("--seed", type=WholeNumber(), default=0, help="Seed of the random draws.")
@click.option("--engine", type=ENGINES, default="xla", help="How to run functions; `interpret` compiles nothing.")
@mesh_option()
@float_option
@click.option("--json", "as_json", is_flag=True, help="Print the reports as data.")
@no_cache
@search_path
@common_options
def check_grad(
    program: str, words: tuple[str, ...], sizes: tuple[str, ...], types: tuple[str, ...], wrt: str | None, order: int,
    directions: int, seed: int, engine: str, mesh: Mapping[str, int], default_float: str | None, as_json: bool,
    folders: tuple[Path, ...],
) -> None:  # fmt: skip
    """Check the gradient of ENTRY, or of all functions in FILE, at random arguments: compiled, interpreted, by
    differences.
    """
    from difflang.tools import check_grad as gradcheck

    specs = {**parse_pairs(sizes, "--dim", "SIZE"), **parse_pairs(types, "--arg", "TYPE")}
    with exit_on_error(usage=gradcheck.USAGE_CODES):
        options = gradcheck.CheckGradOptions(order, directions, seed, wrt, engine == "xla", specs, words, mesh)
        checked, path, entry = check_program_file(program, default_float, folders, mesh)
        found, left = gradcheck.check_grad_of_all(checked, path, entry, options)
        text = json_text([r.to_json() for r in found]) if as_json else "\n\n".join(map(str, found))
        click.echo(text)
        print_diagnostics([*left, *[d for r in found for d in r.diagnostics()]])
        if not all(r.right for r in found):
            sys.exit(1)


@main.command(cls=ProgramCommand)
@program_with_arguments
@click.option("--wrt", help="Report on the gradient with respect to this parameter: `w`, `m.w` or `w,v`.")
@argument_types_option
@memory_budget_option
@click.option(
    "--compile", "compiled", is_flag=True, help="Compile the function too, and report the memory that XLA uses."
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as data.")
@click.option(
    "--save", type=click.Path(path_type=Path, dir_okay=False), help="Draw the memory over time to out.svg or out.png."
)
@mesh_option()
@checking_options
def memory(
    program: str, words: tuple[str, ...], wrt: str | None, argument_types: tuple[str, ...], budget: int, compiled: bool,
    as_json: bool, save: Path | None, mesh: Mapping[str, int], default_float: str | None, folders: tuple[Path, ...],
) -> None:  # fmt: skip
    """Show the memory that ENTRY needs on the CPU, line by line, before planning and as planned under a limit.

    With `--mesh`, the memory and the limit of each device, which has its part of what types split.
    """
    from difflang.tools import memory_report

    if mesh and compiled:
        pretend_mesh(mesh)
    with exit_on_error(usage=memory_report.USAGE):
        specs = parse_pairs(argument_types, "--arg", "TYPE")
        options = memory_report.MemoryOptions(specs, wrt, budget, compiled, words, mesh)
        checked, path, entry = check_program_file(program, default_float, folders, mesh)
        found = memory_report.report_memory(checked, path, entry, options)
        click.echo(json_text(found.to_json()) if as_json else str(found))
        if save is not None:
            memory_report.save_plot(found, save)


@main.command(cls=ProgramCommand)
@click.argument("file")
@program_words
@click.option("--dim", "sizes", multiple=True, metavar="NAME=SIZE", help="Typical value of a size, `n=1000`.")
@click.option("--json", "as_json", is_flag=True, help="Print the same as data.")
@checking_options
def info(
    file: str, words: tuple[str, ...], sizes: tuple[str, ...], as_json: bool, default_float: str | None,
    folders: tuple[Path, ...],
) -> None:  # fmt: skip
    """List the functions of FILE: arguments, sizes, differentiable parameters, and the memory of a gradient."""
    from difflang.driver.checked_program import check_program
    from difflang.tools import function_info

    values = parse_pairs(sizes, "--dim", "SIZE")
    if wrong := [n for n, size in values.items() if not size.isdecimal() or len(size) > 9]:
        raise click.BadParameter(f"`{wrong[0]}` is not a size: write `{wrong[0]}=1000`", param_hint="--dim")
    with exit_on_error(usage=("DL1207", "DL1220")):
        source, path = load_source(file)
        checked = check_program(source, default_float, path, folders)
        print_diagnostics(checked.diagnostics)
        if checked.errors:
            sys.exit(1)
        found = function_info.describe_functions(checked, path, {n: int(size) for n, size in values.items()}, words)
        data = {"file": file, "entries": [entry.to_json() for entry in found]}
        click.echo(json_text(data) if as_json else "\n\n".join(map(str, found)))
