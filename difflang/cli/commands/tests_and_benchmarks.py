"""`difflang test` and `difflang bench`: run tests and benchmarks, with results on stdout."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.base.error_codes import nearest_word
from difflang.cli.commands.fmt import program_files
from difflang.cli.diagnostic_formats import Finding, diagnostic_finding, format_findings, output_format
from difflang.cli.options_and_reports import (
    ENGINES,
    WholeNumber,
    common_options,
    device_option,
    float_option,
    mesh_option,
    no_cache,
    print_diagnostics,
    search_path,
)

if TYPE_CHECKING:
    from difflang.tools.testing.bench import Benchmarks, BenchResult, Timing
    from difflang.tools.testing.suite import Outcome, Suite, SuiteCase, SuiteOptions

EXIT_NOTHING_RUN = 5  # the same exit code as pytest's
MIN_CASES_PER_PROCESS = 20  # below this a further process does not pay off
SEEDS = WholeNumber(0, 2**64 - 1)
PATHS = click.argument("paths", nargs=-1, metavar="[PATH]...")
ENGINE = click.option("--engine", type=ENGINES, default="xla", help="How to run functions; `interpret` uses NumPy.")
SEED = click.option("--seed", type=SEEDS, default=0, help="Seed of the random numbers, for each test anew.")
ALLOW = click.option("--allow", multiple=True, type=click.Path(path_type=Path), help="Allow reading in another folder.")
LIST = click.option("--list", "only_list", is_flag=True, help="List the names, and run nothing.")
FILTER = click.option(
    "-k", "--filter", "words", multiple=True, metavar="WORD", help="Run only those with WORD in the name."
)


def run_options(
    engine: Any,
    device: str | None,
    seed: int,
    default_float: str | None,
    allow: Sequence[Path],
    folders: Sequence[Path],
    mesh: Mapping[str, int] | None = None,
) -> SuiteOptions:
    from difflang.execution.engine import Engine
    from difflang.tools.testing.suite import SuiteOptions

    return SuiteOptions(
        Engine(engine, device, mesh=tuple((mesh or {}).items())), seed, default_float, tuple(allow), tuple(folders)
    )


@click.command()
@PATHS
@FILTER
@LIST
@click.option(
    "-j", "--jobs", type=WholeNumber(1), help="Number of processes.  [default: chosen by the number of tests and CPUs]"
)
@click.option("-x", "--fail-fast", is_flag=True, help="Stop after the first failure.")
@click.option("-q", "--quiet", is_flag=True, help="Show only the failures and the last line.")
@click.option("--json", "as_json", is_flag=True, help="Print each result as data: `--output-format json`.")
@output_format
@click.option("--junit", type=click.Path(dir_okay=False, path_type=Path), help="Also write JUnit XML to this file.")
@ENGINE
@device_option
@mesh_option()
@SEED
@float_option
@ALLOW
@no_cache
@search_path
@common_options
def test(
    paths: tuple[str, ...], words: tuple[str, ...], only_list: bool, jobs: int | None, fail_fast: bool, quiet: bool,
    as_json: bool, form: str, junit: Path | None, engine: str, device: str | None, mesh: Mapping[str, int], seed: int,
    default_float: str | None, allow: tuple[Path, ...], folders: tuple[Path, ...],
) -> None:  # fmt: skip
    """Run the `test` blocks, doc-comment examples and rules of files, or of all `*.dfl` files in folders.

    Exit codes: 0 all passed, 1 something failed, 2 wrong usage, 5 there was nothing to run.
    """
    from difflang.tools.testing.suite import open_suite

    if junit is not None and not os.access(junit.absolute().parent, os.W_OK | os.X_OK):
        raise click.BadParameter(f"cannot write to the folder '{junit.parent}'", param_hint="--junit")
    options = run_options(engine, device, seed, default_float, allow, folders, mesh)
    # Including the time to check the files.
    began = time.perf_counter()
    suites = [open_suite(file, options) for file in dict.fromkeys(program_files(paths or (".",)))]
    numbers = [[n for n, case in enumerate(s.cases) if is_selected(case, words)] for s in suites]
    if not any(numbers):
        exit_nothing_to_run(
            paths, words, [case.name for s in suites for case in s.cases], "no tests, examples or rules"
        )
    if only_list:
        for suite, chosen in zip(suites, numbers, strict=True):
            for n in chosen:
                click.echo(f"{suite.cases[n].position}  {suite.cases[n].title}")
        return
    warnings = [d for suite in suites for d in suite.checked.diagnostics if d.severity == "warning"]
    if as_json or form in ("human", "json"):
        print_diagnostics(warnings)
    total = sum(map(len, numbers))
    if as_json or form == "json":
        shown = JsonOutcomeReporter(total, quiet)
    else:
        shown = OutcomeReporter(total, quiet) if form == "human" else FormattedOutcomeReporter(total, form, warnings)
    with closing(run_cases(suites, numbers, options, jobs)) as running:
        for outcome in running:
            shown.add_outcome(outcome)
            if fail_fast and outcome.result == "failed":
                break
    shown.finish(time.perf_counter() - began)
    if junit is not None:
        from difflang.tools.testing.junit import write_junit

        write_junit(junit, shown.outcomes)
    # An internal error outweighs failed tests.
    sys.exit(70 if any(o.crashed for o in shown.outcomes) else int(any(o.result == "failed" for o in shown.outcomes)))


def is_selected(case: SuiteCase, words: Sequence[str]) -> bool:
    """Whether a case is selected by name. A file with errors always is, since its cases are unknown."""
    return not words or case.kind == "check" or any(w.casefold() in case.title.casefold() for w in words)


def exit_nothing_to_run(paths: Sequence[str], words: Sequence[str], names: Sequence[str], what: str) -> None:
    """Report that nothing was found, and exit."""
    where = ", ".join(paths) or "this folder"
    if words and names:
        near = nearest_word(words[0], names)
        hint = f" Did you mean '{near}'?" if near else ""
        click.echo(f"no name in {where} contains '{words[0]}'.{hint}", err=True)
    else:
        click.echo(f"there is nothing to run in {where}: {what}", err=True)
    sys.exit(EXIT_NOTHING_RUN)


def run_cases(
    suites: Sequence[Suite], numbers: Sequence[Sequence[int]], options: SuiteOptions, jobs: int | None
) -> Generator[Outcome, None, None]:
    """The outcomes of the cases, run here or in several processes."""
    count = sum(map(len, numbers))
    jobs = min(jobs or min(available_cpus(), count // MIN_CASES_PER_PROCESS), count)
    if jobs > 1:
        from difflang.tools.testing.worker_pool import WorkerTask, run_in_parallel

        tasks = [WorkerTask(s.cases[n], n) for s, c in zip(suites, numbers, strict=True) for n in c]
        yield from run_in_parallel(tasks, options, jobs)
        return
    for suite, chosen in zip(suites, numbers, strict=True):
        for n in chosen:
            yield suite.run(n)


def available_cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


RESULT_STYLES = {"passed": ("ok", "green"), "failed": ("FAILED", "red"), "skipped": ("skipped", "yellow")}


class OutcomeReporter:
    """Prints outcomes: a line for each, then the reports of failed ones, then the counts."""

    def __init__(self, total: int, quiet: bool) -> None:
        self.total, self.quiet = total, quiet
        self.outcomes: list[Outcome] = []
        self.color = sys.stdout.isatty() and "NO_COLOR" not in os.environ

    def styled(self, text: str, color: str) -> str:
        return click.style(text, fg=color, bold=True) if self.color else text

    def add_outcome(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        self.show_progress("")
        if not self.quiet or outcome.result == "failed":
            word, color = RESULT_STYLES[outcome.result]
            case = outcome.case
            line = (
                f"{self.styled(f'{word:<8}', color)} {case.position}  {case.title}  ({format_seconds(outcome.seconds)})"
            )
            click.echo(line + (f": {outcome.report}" if outcome.result == "skipped" else ""))
        if len(self.outcomes) < self.total:
            self.show_progress(f"{len(self.outcomes)} of {self.total}")

    def show_progress(self, text: str) -> None:
        """Show the progress on one terminal line, which the next output overwrites."""
        if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
            sys.stdout.flush()
            click.echo(f"\r\x1b[K{text}", nl=False, err=True)

    def finish(self, took: float) -> None:
        self.show_progress("")
        self.outcomes.sort(key=lambda o: (o.case.file, o.case.line))
        for outcome in self.outcomes:
            if outcome.result == "failed":
                click.echo(f"\n{self.styled(f'{outcome.case.position}  {outcome.case.title}', 'red')}")
                click.echo(outcome.report)
                if outcome.output:
                    click.echo(f"it printed:\n{outcome.output}")
        counts = [(r, sum(o.result == r for o in self.outcomes)) for r in ("failed", "passed", "skipped")]
        parts = [self.styled(f"{n} {r}", RESULT_STYLES[r][1]) for r, n in counts if n]
        left = self.total - len(self.outcomes)
        parts += [f"{left} not run"] if left else []
        click.echo(f"{', '.join(parts)} in {format_seconds(took)}")


class JsonOutcomeReporter(OutcomeReporter):
    """Outcomes as data, all at the end."""

    def add_outcome(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)

    def finish(self, took: float) -> None:
        self.outcomes.sort(key=lambda o: (o.case.file, o.case.line))
        tests, left = [o.to_json() for o in self.outcomes], self.total - len(self.outcomes)
        click.echo(json.dumps({"format": 1, "seconds": took, "not_run": left, "tests": tests}, indent=2))


class FormattedOutcomeReporter(JsonOutcomeReporter):
    """Prints failures and warnings in a format for other programs, all at the end."""

    def __init__(self, total: int, form: str, warnings: Sequence[Diagnostic]) -> None:
        super().__init__(total, quiet=True)
        self.form, self.warnings = form, warnings

    def finish(self, took: float) -> None:
        self.outcomes.sort(key=lambda o: (o.case.file, o.case.line))
        found = [
            *map(diagnostic_finding, self.warnings),
            *[outcome_finding(o) for o in self.outcomes if o.result == "failed"],
        ]
        if text := format_findings(found, self.form):
            click.echo(text)


def outcome_finding(outcome: Outcome) -> Finding:
    """A failed test as a finding, at the line where it begins."""
    case = outcome.case
    said = re.sub(r"^error\[DL\d+\]: ", "", outcome.report.partition("\n")[0])
    place = (case.line, 1)
    return Finding("error", (*outcome.codes, "failed")[0], f"{case.title}: {said}", case.file, place, place)


def format_seconds(took: float) -> str:
    """A time with three digits and its unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if took >= 0.9995 * scale:
            return f"{took / scale:.3g} {unit}" if took < 999.5 * scale else f"{took / scale:.0f} {unit}"
    return f"{took / 1e-9:.3g} ns"


# ---- Benchmarks


@click.command()
@PATHS
@FILTER
@LIST
@click.option(
    "--time", "budget", type=click.FloatRange(0.0), default=1.0, help="Approximate seconds for each benchmark."
)
@click.option("--json", "as_json", is_flag=True, help="Print the times as data, in seconds.")
@click.option(
    "--compare", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Compare with an earlier --json."
)
@ENGINE
@device_option
@SEED
@float_option
@ALLOW
@search_path
@common_options
def bench(
    paths: tuple[str, ...], words: tuple[str, ...], only_list: bool, budget: float, as_json: bool, compare: Path | None,
    engine: str, device: str | None, seed: int, default_float: str | None, allow: tuple[Path, ...],
    folders: tuple[Path, ...],
) -> None:  # fmt: skip
    """Time the `bench` blocks of files, or of all `*.dfl` files in folders: the first run, and later ones.

    Exit codes: 0 all ran, 1 a file or a benchmark failed, 2 wrong usage, 5 there was nothing to run.
    """

    earlier = read_baseline(compare) if compare is not None else {}
    options = run_options(engine, device, seed, default_float, allow, folders)
    files = load_benchmarks(list(dict.fromkeys(program_files(paths or (".",)))), options)
    all_of = [(file, n, item) for file in files if file for n, (_, item) in enumerate(file.bench_items)]
    chosen = [one for one in all_of if not words or any(w.casefold() in one[2].name.casefold() for w in words)]
    if not chosen and all(files):
        exit_nothing_to_run(paths, words, [item.name for _, _, item in all_of], "no `bench` blocks")
    if only_list:
        for file, _, item in chosen:
            click.echo(f"{file.file}:{item.span.position[0]}  bench {item.name_span.text}")
        return
    width = max([len(item.name_span.text) for _, _, item in chosen], default=0)
    found: list[BenchResult] = []
    failed = not all(files)
    for file, n, item in chosen:
        try:
            found.append(file.measure(n, budget))
        except DifflangError as error:
            click.echo(f"{file.file}:{item.span.position[0]}  bench {item.name_span.text} failed", err=True)
            print_diagnostics(error.diagnostics)
            failed = True
            continue
        if not as_json:
            head = [f"{'':<{width}}  {HEADER}"] if len(found) == 1 else []
            click.echo("\n".join([*head, f"{item.name_span.text:<{width}}  {benchmark_row(found[-1], earlier)}"]))
    if as_json:
        click.echo(json.dumps({"format": 1, "benchmarks": [m.to_json() for m in found]}, indent=2))
    sys.exit(int(failed))


HEADER = f"{'first':>9} {'median':>9} {'spread':>8} {'fastest':>9} {'runs':>7}"


def benchmark_row(measured: BenchResult, baseline: Mapping[tuple[str, str], Timing]) -> str:
    """The times of a benchmark, with a comparison to the baseline."""
    from difflang.tools.testing.bench import slowdown

    t = measured.timing
    text = f"{format_seconds(t.first):>9} {format_seconds(t.median):>9} {f'± {t.spread:.1%}':>8}"
    text += f" {format_seconds(t.fastest):>9} {t.samples * t.loops:>7}"
    before = baseline.get((Path(measured.file).name, measured.name))
    if before is None:
        return text + "  new" * bool(baseline)
    times = slowdown(t, before)
    change = "no change" if times is None else f"{times:.2f} times as long"
    return f"{text}  {change}, before {format_seconds(before.median)}"


def load_benchmarks(files: Sequence[str], options: SuiteOptions) -> list[Benchmarks | None]:
    """The benchmarks of each file; None, and a report, for a file with errors."""
    from difflang.tools.testing.bench import Benchmarks

    found: list[Benchmarks | None] = []
    for file in files:
        try:
            found.append(Benchmarks(file, options))
        except DifflangError as error:
            print_diagnostics(error.diagnostics)
            found.append(None)
    return found


def read_baseline(path: Path) -> dict[tuple[str, str], Timing]:
    """The times in a file written by `--json`, by the names of file and benchmark."""
    from difflang.tools.testing.bench import Timing

    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        names = Timing.__struct_fields__
        return {(Path(m["file"]).name, m["name"]): Timing(*[m[n] for n in names]) for m in data["benchmarks"]}
    except (ValueError, KeyError, TypeError):
        raise click.BadParameter(
            f"'{path}' was not written by `difflang bench --json`", param_hint="--compare"
        ) from None
