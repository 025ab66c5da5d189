"""GradBench's evals beside their twins in JAX: `taskset -c 1 python benchmarks/gradbench/run.py [PROGRAM ...]`.

The programs are plain first ones. A row is a function at one size: milliseconds of the twin, the ratio of difflang to
it with the range of nine rounds in ten, and the memory beside arguments and results, by XLA's account, of both.
Seconds are those of the processor, taken in turns; values agree to 1e-9 before anything is timed. `--first-calls N`
measures the first call of each function too, in fresh processes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import jax  # noqa: E402
import numpy as np  # noqa: E402

import difflang  # noqa: E402
from gradbench.inputs import INPUTS, Input, draw_input  # noqa: E402
from gradbench.programs import DRAFTS, PHRASINGS, arguments, eval_of, find_function  # noqa: E402
from gradbench.twins import TWINS, Twin  # noqa: E402
from timing import Run, Spread, interleaved, ratio  # noqa: E402

HEADER = ("program", "size", "function", "JAX ms", "ratio [5 %, 95 %]", "MiB", "JAX MiB", "first call")


class Row(NamedTuple):
    """A function at one size. What has no twin has no ratio."""

    name: str
    size: str
    function: str
    twin_seconds: float | None
    seconds: float
    ratio: Spread | None
    memory: float
    twin_memory: float | None
    first_call: float | None

    def cells(self) -> tuple[str, ...]:
        twin = f"{1e3 * self.seconds:.3f} (ours)" if self.twin_seconds is None else f"{1e3 * self.twin_seconds:.3f}"
        memories = ["" if m is None else f"{m:.1f}" for m in (self.memory, self.twin_memory)]
        first = "" if self.first_call is None else f"{self.first_call:.2f}"
        return self.name, self.size, self.function, twin, str(self.ratio or "no twin"), *memories, first


class Program(NamedTuple):
    """A compiled function, how to call it on its arguments, and the MiB that it takes beside these."""

    run: Run
    memory: float


def ours(name: str, function: str, value: Input) -> Program:
    call, args = find_function(name, function), on_device(arguments(name, value))
    return Program(lambda: jax.block_until_ready(call(*args)), mebibytes(call.lower(*args).compile()))


def on_device(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments with their arrays on the device. What is known to the compiler stays: numbers for a `dim`."""
    return jax.tree.map(lambda x: jax.device_put(x) if isinstance(x, np.ndarray) else x, args)


def theirs(twin: Twin, value: Input) -> Program:
    known, args = twin.prepare(value)
    arrays = jax.device_put(args)
    compiled = jax.jit(twin.make(known)).lower(*arrays).compile()
    return Program(lambda: jax.block_until_ready(compiled(*arrays)), mebibytes(compiled))


def mebibytes(compiled: Any) -> float:
    return compiled.memory_analysis().temp_size_in_bytes / 2**20


def has_twin(name: str, function: str) -> bool:
    """JAX has no reverse mode for the loops of unknown length of a saddle point."""
    return not (name == "saddle" and function[0] == "r")


def require_agreement(name: str, function: str, mine: Any, other: Any) -> None:
    """Both outputs are the same to 1e-9 of their largest number: a wrong answer has no time."""
    from gradbench.tool import output

    for a, b in zip(leaves(output(name, function, mine)), leaves(TWINS[name, function].finish(other)), strict=True):
        assert a.shape == b.shape, f"{name} {function}: shape {a.shape}, the twin's is {b.shape}"
        assert np.array_equal(np.isnan(a), np.isnan(b)), f"{name} {function}: NaN where one has none"
        far = np.nanmax(np.abs(a - b), initial=0.0) / max(np.nanmax(np.abs(b), initial=0.0), 1e-300)
        assert far < 1e-9, f"{name} {function}: differs from its twin by {far:.1e}"


def leaves(output: Any) -> list[np.ndarray]:
    """Arrays of an output: one for each list of numbers and each number alone."""
    return [
        np.asarray(x) for x in (output.values() if isinstance(output, dict) else [output]) if not isinstance(x, dict)
    ]


def measure(name: str, size: str, function: str, args: argparse.Namespace) -> Row:
    key = eval_of(name), function
    value = draw_input(key[0], size, args.seed)
    mine = ours(name, function, value)
    if not has_twin(*key):
        mine.run()
        seconds = statistics.median(interleaved({"ours": mine.run}, args.rounds, args.block, time.process_time)["ours"])
        return Row(name, size, function, None, seconds, None, mine.memory, None, None)
    other = theirs(TWINS[key], value)
    require_agreement(*key, mine.run(), other.run())
    seconds = interleaved({"ours": mine.run, "twin": other.run}, args.rounds, args.block, time.process_time)
    medians = {who: statistics.median(found) for who, found in seconds.items()}
    first = first_calls(name, size, function, args) if args.first_calls else None
    spread = ratio(seconds["ours"], seconds["twin"])
    return Row(name, size, function, medians["twin"], medians["ours"], spread, mine.memory, other.memory, first)


def first_calls(name: str, size: str, function: str, args: argparse.Namespace) -> float:
    """The first call of ours over that of the twin: medians of fresh processes, in turns."""
    seconds: dict[str, list[float]] = {"ours": [], "twin": []}
    for turn in range(args.first_calls + 1):
        for who, found in seconds.items():
            taken = elsewhere([name, "--first-call-of", who, function, size, "--seed", str(args.seed)])
            found += [taken] if turn else []  # the first turn writes bytecode
    return statistics.median(seconds["ours"]) / statistics.median(seconds["twin"])


def elsewhere(options: list[str]) -> float:
    """Processor seconds that a fresh process without caches prints."""
    with tempfile.TemporaryDirectory() as folder:
        env = os.environ | {"XDG_CACHE_HOME": folder}
        command = [sys.executable, str(HERE / "run.py"), *options]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)
    return float(done.stdout)


def first_call_here(name: str, who: str, function: str, size: str, seed: int) -> float:
    """Processor seconds from source to the first result, imports and the first use of the device not counted."""
    key = eval_of(name), function
    value = draw_input(key[0], size, seed)
    jax.block_until_ready(jax.jit(lambda x: x + 1)(1.0))
    if who == "ours":
        difflang.loads("fn warm(x: f32) -> f32 = x", name="warm")  # the parser's tables are made once for all programs
        start = time.process_time()
        jax.block_until_ready(find_function(name, function)(*arguments(name, value)))
    else:
        twin = TWINS[key]
        known, args = twin.prepare(value)
        start = time.process_time()
        jax.block_until_ready(jax.jit(twin.make(known))(*args))
    return time.process_time() - start


def rows(args: argparse.Namespace) -> Iterator[Row]:
    for name in args.programs or (PHRASINGS if args.phrasings else DRAFTS):
        for size in args.sizes or INPUTS[eval_of(name)]:
            for function in [f for n, f in TWINS if n == eval_of(name)]:
                yield measure(name, size, function, args)


def summary(found: list[Row]) -> str:
    """Ratios of each program and of all, where each counts once: the geometric means over functions, and over sizes.

    At a size, the seconds of all functions are added: those of a value and its derivative, mostly. The last column is
    of the largest size alone.
    """
    by_program: dict[str, list[Row]] = {}
    for row in found:
        if row.ratio is not None:
            by_program.setdefault(row.name, []).append(row)
    columns = [
        {name: statistics.geometric_mean(ratios(of_one)) for name, of_one in by_program.items()},
        {name: statistics.geometric_mean(ratios_of_sums(of_one)) for name, of_one in by_program.items()},
        {name: ratios_of_sums(of_one)[-1] for name, of_one in by_program.items()},
    ]
    lines = [(name, *[column[name] for column in columns]) for name in by_program]
    lines.append(("all", *[statistics.geometric_mean(column.values()) for column in columns]))
    head = f"{'':16}{'functions':>12}{'derivative + value':>20}{'at the largest':>16}"
    return "\n".join([head, *[f"{name:16}{a:12.3f}{b:20.3f}{c:16.3f}" for name, a, b, c in lines]])


def ratios(found: list[Row]) -> list[float]:
    return [row.ratio.median for row in found if row.ratio is not None]


def ratios_of_sums(found: list[Row]) -> list[float]:
    """For each size, the seconds of all functions over those of the twins."""
    sizes: dict[str, list[Row]] = {}
    for row in found:
        sizes.setdefault(row.size, []).append(row)
    return [sum(r.seconds for r in each) / sum(r.twin_seconds or 0.0 for r in each) for each in sizes.values()]


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=", ".join((*DRAFTS, *PHRASINGS)))
    parser.add_argument("--phrasings", action="store_true", help="if none is named: not the drafts but other words")
    parser.add_argument(
        "--sizes", nargs="+", help="of one program, such as 2500 or '1000, 8, 10'; all if none is named"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--block", type=float, default=0.02, help="seconds of one measurement")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first-calls", type=int, default=0, help="fresh processes for each; 0 leaves them out")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--first-call-of", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if unknown := [name for name in args.programs if name not in (*DRAFTS, *PHRASINGS)]:
        parser.error(f"no program {', '.join(unknown)}; there are {', '.join((*DRAFTS, *PHRASINGS))}")
    for name in args.programs or (DRAFTS if args.sizes else ()):
        if unknown := [size for size in args.sizes or () if size not in INPUTS[eval_of(name)]]:
            parser.error(f"no size {'; '.join(unknown)} of {name}; there are {'; '.join(INPUTS[eval_of(name)])}")
    if args.rounds < 1:
        parser.error("at least one round is measured")
    if args.json and not args.json.parent.is_dir():
        parser.error(f"there is no folder {args.json.parent}")
    return args


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    args = options()
    if args.first_call_of:
        print(first_call_here(args.programs[0], *args.first_call_of, args.seed))
        return
    found: list[Row] = []
    print("  ".join(HEADER))
    for row in rows(args):
        found.append(row)
        print("  ".join(row.cells()), flush=True)
    print(summary(found))
    if args.json:
        args.json.write_text(json.dumps([row._asdict() | {"ratio": str(row.ratio)} for row in found], indent=1) + "\n")


if __name__ == "__main__":
    main()
