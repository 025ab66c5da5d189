"""difflang against the best JAX twin, in one process: `python benchmarks/run.py [CASE ...] [--json FILE]`.

`--table gradients` measures larger programs instead of kernels, their gradient and their front end. For each case:
steady state of the value and of the gradient, the front end (source to lowered gradient, against JAX's trace and
lowering), and the first call of a gradient in a fresh process. Every number is a ratio, difflang over the best twin,
measured round by round; beside it stands the twin against a copy of itself, which is what the machine can tell apart.
`same program` says that XLA made the same code of both: no pass of ours could make it faster.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests")]

import jax  # noqa: E402
import numpy as np  # noqa: E402

import budget  # noqa: E402
import counted  # noqa: E402
import memory  # noqa: E402
from calls import CALLS  # noqa: E402
from cases import CASES, Case, Twin  # noqa: E402
from gradients import GRADIENTS  # noqa: E402
from notation import CHECKS, NOTATION  # noqa: E402
from timing import Run, Spread, best, interleaved, ratio  # noqa: E402

AGAIN = "the best twin again"
OURS = "difflang"
BYTECODE = tempfile.TemporaryDirectory()  # of every process started here
TARGETS = {"value": 1.05, "gradient": 1.05, "front end": 1.0, "first call": 1.0}
CALL_TARGET = 2.0  # what a call may cost, against a jitted function that computes next to nothing


@dataclass(frozen=True, slots=True)
class Table:
    """Cases, what of them is measured, and whether in JAX's 64-bit setting, which holds for the whole process."""

    cases: dict[str, Callable[[], Case]]
    what: tuple[str, ...]
    x64: bool
    rounds: int = 40
    block: float = 0.005  # seconds of one measurement


TABLES = {
    "kernels": Table(CASES, ("value", "gradient", "front end", "first call"), x64=False),
    "gradients": Table(GRADIENTS, ("gradient", "front end"), x64=True),
    "notation": Table(NOTATION, ("value", "gradient"), x64=True),
    "checks": Table(CHECKS, ("value", "gradient"), x64=False),
    "calls": Table(CALLS, ("value", "gradient"), x64=False, rounds=400, block=0.0005),
}


@dataclass(frozen=True, slots=True)
class Result:
    """One comparison. `ratio` is None where only twins were measured."""

    case: str
    what: str
    twin: str
    twin_seconds: float
    noise: Spread
    ratio: Spread | None
    seconds: float | None
    target: float
    same_program: bool = False  # XLA made the same program of both, so that what differs is the call

    @classmethod
    def pooled(cls, runs: Sequence[Mapping[str, Any]]) -> Result:
        """The same comparison in several processes: medians of theirs."""
        noise, ratios = ([r[of]["median"] for r in runs if r[of]] for of in ("noise", "ratio"))
        twin, ours = median([r["twin_seconds"] for r in runs]), [r["seconds"] for r in runs if r["seconds"]]
        case, what, best, target = (runs[0][of] for of in ("case", "what", "twin", "target"))
        same, spread = all(r["same_program"] for r in runs), Spread.of(ratios) if ratios else None
        return cls(case, what, best, twin, Spread.of(noise), spread, median(ours) if ours else None, target, same)

    @property
    def verdict(self) -> str:
        if self.ratio is None:
            return ""
        if self.ratio.median <= self.target:
            return "met"
        if self.ratio.median <= self.noise.surely_to:
            return "within noise"
        return "same program" if self.same_program else "MISSED"

    def row(self) -> tuple[str, ...]:
        ours = "-" if self.seconds is None else microseconds(self.seconds)
        ratio = "-" if self.ratio is None else str(self.ratio)
        return (
            *(self.case, self.what, self.twin, microseconds(self.twin_seconds), ours),
            *(ratio, str(self.noise), f"{self.target:g}", self.verdict),
        )


HEADER = ("case", "what", "best twin", "twin µs", "difflang µs", "ratio [5 %, 95 %]", "twin / itself", "target", "")


def means(results: list[Result]) -> str:
    """The geometric mean of the ratios, of each thing that was measured."""
    ratios: dict[str, list[float]] = {}
    for r in results:
        if r.ratio is not None:
            ratios.setdefault(r.what, []).append(r.ratio.median)
    return "\n".join(
        f"geometric mean of {len(of)} ratios, {what}: {statistics.geometric_mean(of):.3f}"
        for what, of in ratios.items()
    )


def microseconds(seconds: float) -> str:
    return f"{1e6 * seconds:,.1f}"


def table(rows: list[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def median(values: list[float]) -> float:
    return Spread.of(values).median


def loaded(case: Case, name: str = "bench") -> Any:
    """The case's function in difflang. Imported here, so that twins can be measured alone."""
    import difflang

    return getattr(difflang.loads(case.source, name=name), case.entry)


def is_ours(twin: Any) -> bool:
    """Whether a twin is a function of difflang's too."""
    return hasattr(twin, "interpret")


def waiting(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Run:
    """A call until its results are there. One array is waited for by itself: what walks through many takes longer."""

    def run() -> Any:
        results = function(*arguments)
        return results.block_until_ready() if isinstance(results, jax.Array) else jax.block_until_ready(results)

    return run


def agree(case: Case, ours: Any, theirs: Any) -> None:
    """Both computed the same thing: a wrong answer has no time."""
    mine, other = jax.tree.leaves(ours), jax.tree.leaves(theirs)
    assert len(mine) == len(other), f"{case.name}: {len(mine)} results, the twin has {len(other)}"
    for a, b in zip(mine, other, strict=True):
        assert isinstance(a, jax.Array), f"{case.name}: a result is no JAX array, so nothing waits for it: {a!r}"
        scale = np.maximum(np.abs(b), 1e-3 * np.max(np.abs(b), initial=1e-30))
        worst = np.max(np.abs(a - b) / scale, initial=0.0)
        assert worst < 1e-2, f"{case.name}: differs from its twin by {worst:.1e}"


def compared(
    case: Case, what: str, runs: dict[str, Run], again: Callable[[str], Run], args: argparse.Namespace
) -> Result:
    """Find the best twin in a short heat, then measure it, its copy and difflang together."""
    ours = runs.pop(OURS, None)
    first = best(interleaved(runs, max(5, args.rounds // 4), args.block))
    final = {first: runs[first], AGAIN: again(first)} | ({OURS: ours} if ours else {})
    interleaved(final, max(5, args.rounds // 4), args.block)  # all are as warm as the first: steady state is asked for
    seconds = interleaved(final, args.rounds, args.block)
    target = CALL_TARGET if case.name == "scalar" and what in ("value", "gradient") else case.target or TARGETS[what]
    return Result(
        case.name,
        what,
        first,
        median(seconds[first]),
        ratio(seconds[AGAIN], seconds[first]),
        ratio(seconds[OURS], seconds[first]) if ours else None,
        median(seconds[OURS]) if ours else None,
        target,
    )


def normalized(hlo: str) -> str:
    """A compiled program without names, positions, and the precision asked of products, which a CPU does not read."""
    code = "\n".join(line for line in hlo.splitlines() if "%" in line)
    code = re.sub(r", (metadata=\{[^}]*\}|operand_precision=\{[^}]*\}|frontend_attributes=\{.*?\})", "", code)
    names: dict[str, str] = {}
    return re.sub(
        r"%[\w.-]+|[\w.-]+(?=: \w+\[|: \()", lambda m: names.setdefault(m[0].lstrip("%"), f"%{len(names)}"), code
    )


def steady(case: Case, what: str, args: argparse.Namespace) -> Result:
    """The compiled function, called again and again on arrays that are on the device."""
    arrays = jax.device_put(case.arguments) if case.on_device else case.arguments
    through: Callable[[Twin], Twin] = (lambda f: f) if what == "value" else case.differentiated

    def jitted(name: str) -> Run:
        twin = case.twins[name]
        if is_ours(twin):
            run = waiting(twin if what == "value" else twin.grad(case.wrt), arrays)
        else:  # a new lambda, so that the copy is traced and compiled by itself
            run = waiting(jax.jit(through(lambda *xs: twin(*xs))), arrays)
        run()
        return run

    runs = {name: jitted(name) for name in case.twins}
    if not args.twins_only:
        f = loaded(case) if what == "value" or not case.loss else loaded(replace(case, entry=case.loss))
        ours = f if what == "value" else f.grad(case.wrt)
        agree(case, ours(*arrays), next(iter(runs.values()))())
        runs[OURS] = waiting(ours, arrays)
        program = normalized(ours.lower(*arrays).compile().as_text())
    result = compared(case, what, runs, jitted, args)
    if args.twins_only or is_ours(case.twins[result.twin]):
        return result
    twin = jax.jit(through(case.twins[result.twin])).lower(*arrays).compile().as_text()
    return replace(result, same_program=normalized(twin) == program)


def front_end(case: Case, args: argparse.Namespace) -> Result:
    """From source to lowered gradient, each time from nothing; for JAX from the Python function."""
    arrays = jax.device_put(case.arguments)
    count = iter(range(1 << 30))

    def lowered(name: str) -> Run:
        twin = case.twins["plain" if name == "remat" else name]
        # A new function each time, inside `checkpoint` too: JAX remembers what it has traced by the function.
        if name == "remat":
            return lambda: jax.jit(jax.grad(jax.checkpoint(lambda *xs: twin(*xs)))).lower(*arrays)
        return lambda: jax.jit(jax.grad(lambda *xs: twin(*xs))).lower(*arrays)

    runs = {name: lowered(name) for name in case.twins}
    if not args.twins_only:
        runs[OURS] = lambda: loaded(case, name=f"bench{next(count)}").grad(case.wrt).lower(*arrays)
    return compared(case, "front end", runs, lowered, args)


def first_call_here(case: Case, way: str) -> float:
    """Seconds to the first gradient in this process, imports and the first use of the device not counted."""
    arrays = jax.device_put(case.arguments)
    jax.block_until_ready(jax.jit(lambda x: x + 1)(1.0))
    if way == OURS:
        import difflang

        # The parser's tables are made once for all programs.
        difflang.loads("fn warm(x: f32) -> f32 = x", name="warm")
    start = time.perf_counter()
    gradient = loaded(case).grad(case.wrt) if way == OURS else jax.jit(jax.grad(case.twins[way]))
    jax.block_until_ready(gradient(*arrays))
    return time.perf_counter() - start


def first_call_elsewhere(case: Case, way: str) -> float:
    """The same in a process and a cache folder of its own. Bytecode is there, as it is of what is installed."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(HERE / "run.py"), case.name, "--first-call-of", way]
        env = os.environ | {"XDG_CACHE_HOME": folder, "PYTHONPYCACHEPREFIX": BYTECODE.name}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        done = subprocess.run(command, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise RuntimeError(f"the first call of {case.name} ({way}) failed:\n{done.stderr}")
    return float(done.stdout)


def first_call(case: Case, args: argparse.Namespace) -> Result:
    """The twin that is ready first, difflang, and the twin again, in turns."""
    heat = {way: [first_call_elsewhere(case, way)] for way in case.twins}
    twin = best(heat)
    ways = {twin: twin, AGAIN: twin} | ({} if args.twins_only else {OURS: OURS})
    first_call_elsewhere(case, list(ways.values())[-1])  # writes our bytecode
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(args.first_calls):
        for name, way in ways.items():
            seconds[name].append(first_call_elsewhere(case, way))
    ours = seconds.get(OURS)
    return Result(
        case.name,
        "first call",
        twin,
        median(seconds[twin]),
        ratio(seconds[AGAIN], seconds[twin]),
        ratio(ours, seconds[twin]) if ours else None,
        median(ours) if ours else None,
        TARGETS["first call"],
    )


def machine() -> dict[str, Any]:
    versions = {name: importlib.metadata.version(name) for name in ("jax", "jaxlib", "numpy")}
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "python": platform.python_version(),
        "device": str(jax.devices()[0]),
        "cores": cores,
        "load": load(),
        **versions,
    }


def load() -> str:
    """How many programs wanted a core, in the last one, five and fifteen minutes."""
    return ", ".join(f"{x:.1f}" for x in os.getloadavg()) if hasattr(os, "getloadavg") else "unknown"


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="all of the table if none is named")
    parser.add_argument("--table", choices=(*TABLES, "memory", "counted", "budget"), default="kernels")
    parser.add_argument("--rounds", type=int, help="how often each is measured")
    parser.add_argument("--block", type=float, help="seconds of one measurement")
    parser.add_argument("--first-calls", type=int, default=5, help="fresh processes for each way; 0 leaves it out")
    parser.add_argument("--processes", type=int, default=1, help="in so many each case is measured; medians of theirs")
    parser.add_argument("--twins-only", action="store_true", help="the twins among themselves")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--first-call-of", help=argparse.SUPPRESS)
    args = parser.parse_args()
    usual = TABLES.get(args.table, TABLES["kernels"])
    args.rounds, args.block = args.rounds or usual.rounds, args.block or usual.block
    memories = (*memory.ROWS, "adaptive", "schedule")
    others = {"memory": memories, "counted": tuple(counted.COUNTED), "budget": tuple(budget.PROGRAMS)}
    known = others[args.table] if args.table in others else TABLES[args.table].cases
    if unknown := [name for name in args.cases if name not in known]:
        parser.error(f"no case {', '.join(unknown)}; there are {', '.join(known)}")
    return args


def wanted(case: Case, what: str, args: argparse.Namespace) -> bool:
    return (what != "first call" or args.first_calls > 0) and (what != "gradient" or bool(case.wrt))


def measured(case: Case, what: str, args: argparse.Namespace) -> Result:
    match what:
        case "front end":
            return front_end(case, args)
        case "first call":
            return first_call(case, args)
        case _:
            return steady(case, what, args)


def in_processes(name: str, args: argparse.Namespace) -> list[Result]:
    """A case in several processes, of which one may be luckier than another with where its memory lies."""
    found: list[list[dict[str, Any]]] = []
    for _ in range(args.processes):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, str(HERE / "run.py"), name, "--table", args.table, "--json", f"{folder}/found"]
            command += [f"--rounds={args.rounds}", f"--block={args.block}", f"--first-calls={args.first_calls}"]
            subprocess.run(command + ["--twins-only"] * args.twins_only, capture_output=True)
            found.append(json.loads(Path(folder, "found").read_text())["results"])
    return [Result.pooled(runs) for runs in zip(*found, strict=True)]


def main() -> int:
    args = options()
    if args.table == "memory":
        print(memory.table(args.cases, min(args.rounds, 3)))
        return 0
    if args.table == "counted":
        jax.config.update("jax_enable_x64", True)
        print(counted.table(args.cases, min(args.rounds, 21)))
        return 0
    if args.table == "budget":
        print(budget.table(args.cases, min(args.rounds, 5)))
        return 0
    chosen = TABLES[args.table]
    jax.config.update("jax_enable_x64", chosen.x64)
    if args.first_call_of:
        print(first_call_here(chosen.cases[args.cases[0]](), args.first_call_of))
        return 0
    results: list[Result] = []
    for name in args.cases or chosen.cases:
        print(f"{name} ...", file=sys.stderr, flush=True)
        if args.processes > 1:
            results += in_processes(name, args)
            continue
        case = chosen.cases[name]()
        results += [measured(case, what, args) for what in chosen.what if wanted(case, what, args)]
    print(table([HEADER, *(r.row() for r in results)]))
    print(means(results))
    print(f"load of the machine: {load()}")
    if args.json:
        records = [asdict(r) | {"verdict": r.verdict} for r in results]
        args.json.write_text(json.dumps({"machine": machine(), "results": records}, indent=1) + "\n")
    return 1 if any(r.verdict == "MISSED" for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())
