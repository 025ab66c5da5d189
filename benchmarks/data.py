"""Data that need not fit in memory: `python benchmarks/data.py [--gib 5] [--rows 10000000] [--folder DIR]`.

Each row is one task on a file, by a program of difflang and by NumPy or pandas, each in a process of its own: seconds
without imports, and the most memory that the process took. The files are made first, and deleted afterwards; by default
they are small. NumPy maps the file; what it has touched counts as its memory. Without pyarrow or pandas their rows are
left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from multiprocessing import Process
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
WIDTH = 32  # numbers in a row of the npy file

READ = """
let t = clock()
let x: f32[n, d] = read_npy("rows.npy")
let first = x[0, 0]
print(clock() - t)
"""
MEAN = """
let x: f32[n, d] = open_npy("rows.npy")
let t = clock()
var total: f64[d] = zeros(d)
for rows in batches(x, 65536) { total += sum(f64(rows), axis = 0) }
print(clock() - t)
"""
EPOCH = """
fn loss(w: f32[d], x: f32[m, d]) -> f32 = mean((x @ w - 1.0)^2)
let x: f32[n, d] = open_npy("rows.npy")
var w: f32[d] = zeros(d)
let t = clock()
for rows in batches(x, 4096, shuffle = SHUFFLE) { w = w - 0.1 * grad(loss)(w, rows) }
print(clock() - t)
"""
FIT = """
float f64
record Row { site: str, kind: str, age: f64, dose: f64, y: f64 }
fn features(t: Row[n], kind: i32[n]) -> f64[n, 5] = [
  for i in 0..n => [1.0, t.age[i], t.dose[i], f64(kind[i] == 1), f64(kind[i] == 2)]
]
fn squares(x: f64[n, k], y: f64[n]) -> (f64[k, k], f64[k]) = (transpose(x) @ x, transpose(x) @ y)
fn sums(r: f64[n], site: i32[n], k: dim) -> f64[k, 2] {
  var s: f64[k, 2] = zeros(k, 2)
  for i in 0..n { s[site[i]] += [r[i], 1.0] }
  s
}
let t: Row[n] = open_parquet("rows.parquet")
let kinds = ["control", "treated", "unknown"]
let sites = for i in 0..200 { yield "site {i}" }
let begun = clock()
var (a, b) = (zeros(5, 5), zeros(5))
for rows in batches(t, 200000) {
  let (a1, b1) = squares(features(rows, codes(rows.kind, kinds)), rows.y)
  (a, b) = (a + a1, b + b1)
}
let w = solve(a, b)
var s: f64[200, 2] = zeros(200, 2)
for rows in batches(t, 200000) {
  let x = features(rows, codes(rows.kind, kinds))
  s += sums(rows.y - x @ w, codes(rows.site, sites), 200)
}
let effects = s[.., 0] / s[.., 1]
print(clock() - begun)
"""
NUMPY_READ = 'x = np.load("rows.npy"); x[0, 0]'
NUMPY_MEAN = 'np.load("rows.npy", mmap_mode="r").mean(0)'
NUMPY_EPOCH = """
x, w = np.load("rows.npy", mmap_mode="r"), np.zeros(32, np.float32)
for i in range(0, len(x), 4096):
    b = x[i : i + 4096]
    w -= 0.1 * (2 / len(b)) * (b.T @ (b @ w - 1))
"""
PANDAS_FIT = """
t = pd.read_parquet("rows.parquet")
kind = pd.Categorical(t.kind, categories=["control", "treated", "unknown"]).codes
x = np.stack([np.ones(len(t)), t.age, t.dose, kind == 1, kind == 2], 1)
w = np.linalg.solve(x.T @ x, x.T @ t.y.to_numpy())
effects = (t.y - x @ w).groupby(t.site).mean()
"""
TASKS = (
    ("read a whole npy", READ, "", NUMPY_READ),
    ("mean of the rows", MEAN, "", NUMPY_MEAN),
    ("an epoch, in order", EPOCH.replace("SHUFFLE", "false"), "", NUMPY_EPOCH),
    ("an epoch, shuffled", EPOCH.replace("SHUFFLE", "true"), "", ""),
    ("a table to a model", FIT, "pyarrow", PANDAS_FIT),
)


def write_rows(folder: Path, bytes: int) -> None:
    rows = max(bytes // (4 * WIDTH), 1)
    random = np.random.default_rng(0)
    with (folder / "rows.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (rows, WIDTH)})
        for start in range(0, rows, 1 << 18):
            random.standard_normal((min(1 << 18, rows - start), WIDTH), np.float32).tofile(file)


def write_table(folder: Path, rows: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    random = np.random.default_rng(0)
    site, kind = random.integers(0, 200, rows), random.integers(0, 3, rows)
    age, dose = random.normal(0, 10, rows), random.random(rows)
    y = 0.3 * age - 2 * dose + np.array([0, 1.5, 0.5])[kind] + random.normal(0, 1, 200)[site]
    texts = {"site": ([f"site {i}" for i in range(200)], site), "kind": (["control", "treated", "unknown"], kind)}
    columns = {
        n: pa.DictionaryArray.from_arrays(pa.array(c, pa.int32()), t).cast("string") for n, (t, c) in texts.items()
    }
    pq.write_table(pa.table(columns | {"age": age, "dose": dose, "y": y}), folder / "rows.parquet")


def write_files(folder: Path, bytes: int, rows: int) -> None:
    write_rows(folder, bytes)
    if find_spec("pyarrow"):
        write_table(folder, rows)


def measured(folder: Path, code: str) -> tuple[float, float]:
    """The seconds that a process prints, and its peak of memory in GiB."""
    last = "import resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    env = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}", "JAX_PLATFORMS": "cpu"}
    run = [sys.executable, "-c", f"{code}\n{last}"]
    found = subprocess.run(run, cwd=folder, env=env, capture_output=True, text=True, check=True).stdout.split()
    return float(found[-2]), int(found[-1]) / (1 << 20)


def of_program(program: str, folder: Path) -> tuple[float, float]:
    (folder / "task.dfl").write_text(program)
    return measured(folder, 'from difflang.cli import main; main(["run", "task.dfl"], standalone_mode=False)')


def of_python(code: str, folder: Path) -> tuple[float, float]:
    imports = "import time\nimport numpy as np\n" + ("import pandas as pd\n" if "pd." in code else "")
    return measured(folder, f"{imports}begun = time.perf_counter()\n{code}\nprint(time.perf_counter() - begun)")


def least(runs: list[Callable[[Path], tuple[float, float]]], folder: Path) -> list[tuple[float, float]]:
    """The least seconds and peaks of three rounds, in which the runs take turns: the file is then in the page cache."""
    rounds = [[run(folder) for run in runs] for _ in range(3)]
    return [(min(s for s, _ in found), min(p for _, p in found)) for found in zip(*rounds, strict=True)]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--gib", type=float, default=0.02, help="the size of the npy file")
    options.add_argument("--rows", type=int, default=20_000, help="of the Parquet table")
    options.add_argument("--folder", help="where the files are made")
    options.add_argument("--json", help="write the figures to this file too")
    given = options.parse_args()
    found: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        # In a process of its own: those that this one starts begin with its peak of memory.
        making = Process(target=write_files, args=(folder, int(given.gib * (1 << 30)), given.rows))
        making.start()
        making.join()
        print(f"{'':20}{'difflang':>20}{'NumPy, pandas':>20}")
        for task, program, needs, twin in TASKS:
            if needs and not find_spec(needs):
                continue
            runs = [partial(of_program, program)]
            if twin and ("pd." not in twin or find_spec("pandas")):
                runs.append(partial(of_python, twin))
            found[task] = least(runs, folder)
            row = [f"{seconds:9.2f} s {peak:5.2f} GiB" for seconds, peak in found[task]]
            print(f"{task:20}{''.join(row)}", flush=True)
    if given.json:
        Path(given.json).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
