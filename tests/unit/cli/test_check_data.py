"""`check --data`: a data file is held against a program by its headers; and `check` of folders."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from difflang.cli import main

PROGRAM = """
record Net[n, k] { w: f32[k, n], b: f32[k] }
fn loss(images: f32[b, n], labels: i32[b], m: Net[n, k]) -> f32 {
  var total = 0.0
  for i in 0..b { total = total + sum(m.w @ images[i] + m.b) }
  total
}
fn ninth(images: f32[b, n]) -> f32[n] where b >= 9 {
  images[8]
}
host fn read() {
  let images: f32[b, 4] = read_npz("host.npz", "images")
  let labels: i32[b] = read_npz("host.npz", "labels")
  print(sum(images), sum(labels))
}
let images: f32[b, 4] = read_npz("train.npz", "images")
let labels: i32[b] = read_npz("train.npz", "labels")
"""
F32, I32, F64 = np.float32, np.int32, np.float64
GOOD = {"images": np.ones((9, 4), F32), "labels": np.ones(9, I32)}
NET = {"m.w": np.ones((5, 4), F32), "m.b": np.ones(5, F32)}


def check(*args: object) -> Result:
    result = CliRunner().invoke(main, ["check", *map(str, args)])
    assert "Traceback" not in result.output
    return result


def fits(file: Path, arrays: dict[str, Any], entry: str = "", name: str = "train.npz") -> Result:
    """The program against an archive of these arrays."""
    data = file.with_name(name)
    np.savez(data, **arrays)
    return check(f"{file}{entry}", "--data", data)


def test_reads_of_the_file_are_held_against_it(file: Path) -> None:
    assert fits(file, GOOD).exit_code == 0
    for arrays, code, said, line in [
        ({**GOOD, "labels": np.ones(8, I32)}, "DL0705", "i32[8] for `labels`, not i32[9]", 17),
        ({**GOOD, "images": np.ones((9, 5), F32)}, "DL0705", "f32[9, 5]", 16),
        ({**GOOD, "images": np.ones((9, 4), F64)}, "DL0704", "f64[9, 4]", 16),
        ({"images": GOOD["images"]}, "DL0706", "labels", 17),
    ]:
        result = fits(file, arrays)
        assert (result.exit_code, code in result.stderr, said in result.stderr) == (1, True, True), result.stderr
        assert f"model.dfl:{line}:" in result.stderr


def test_reads_in_a_host_function_have_sizes_of_their_own(file: Path) -> None:
    """The file's `b` is another one: it is 9 nowhere here."""
    assert fits(file, {"images": np.ones((3, 4), F32), "labels": np.ones(3, I32)}, name="host.npz").exit_code == 0
    result = fits(file, {"images": np.ones((3, 4), F32), "labels": np.ones(4, I32)}, name="host.npz")
    assert result.exit_code == 1 and "model.dfl:13:" in result.stderr


def test_a_function_takes_arrays_by_the_names_of_its_parameters(file: Path) -> None:
    assert fits(file, {**GOOD, **NET}, ":loss").exit_code == 0
    assert fits(file, GOOD, ":loss").exit_code == 0, "what is not in the file is not asked for"
    for arrays, code, said in [
        ({**GOOD, **NET, "labels": np.ones(8, I32)}, "DL0705", "declared i32[b], where b is 9 by `images`"),
        ({**GOOD, **NET, "m.b": np.ones(6, F32)}, "DL0705", "f32[6]"),
        ({**GOOD, "m.w": np.ones((5, 3), F32), "m.b": np.ones(5, F32)}, "DL0705", "f32[5, 3] for `m.w`"),
        ({**GOOD, "m": np.ones(5, F32)}, "DL0704", "f32[5]"),
    ]:
        result = fits(file, arrays, ":loss")
        assert (result.exit_code, code in result.stderr, said in result.stderr) == (1, True, True), result.stderr


def test_what_a_function_computes_is_part_of_the_proof(file: Path) -> None:
    assert fits(file, GOOD, ":ninth").exit_code == 0
    result = fits(file, {"images": np.ones((8, 3), F32)}, ":ninth")
    assert result.exit_code == 1 and "DL0315" in result.stderr


def test_what_a_call_decides_is_as_the_file_has_it(tmp_path: Path) -> None:
    program = tmp_path / "p.dfl"
    program.write_text("fn f[T: float](x: T[n], y: T[n]) -> T = sum(x * y)\n")
    for arrays, code in [
        ({"x": np.ones(3), "y": np.ones(3)}, 0), ({"x": np.ones(3, F32), "y": np.ones(3)}, 1),
        ({"x": np.ones(3), "y": np.ones(4)}, 1), ({"x": np.ones(3)}, 0),
    ]:  # fmt: skip
        assert fits(program, arrays, ":f").exit_code == code


def test_files_that_stay_where_they_are_are_held_against_it_too(tmp_path: Path) -> None:
    arrow: Any = pytest.importorskip("pyarrow")
    parquet: Any = pytest.importorskip("pyarrow.parquet")
    program, table, array = (tmp_path / name for name in ("p.dfl", "t.parquet", "x.npy"))
    parquet.write_table(arrow.table({"name": ["a", "b"], "x": [1.0, 2.0]}), table)
    np.save(array, np.ones((2, 3), F32))
    for fields, size, said in [
        ("name: str, x: f64", 3, ""), ("name: f64, x: f64", 3, "contains string for `name`"),
        ("y: f64", 3, "has no column `y`"), ("x: f64", 4, "f32[2, 3], not f32[n, 4]"),
    ]:  # fmt: skip
        program.write_text(
            f'record R {{ {fields} }}\nlet t: R[n] = open_parquet("t.parquet")\n'
            f'let x: f32[n, {size}] = open_npy("x.npy")\nprint(n, t, x)\n'
        )
        result = check(program, "--data", table, "--data", array)
        assert result.exit_code == bool(said) and said in result.stderr, result.stderr


def test_without_a_read_or_an_entry_every_function_is_tried(file: Path) -> None:
    assert fits(file, {"images": np.ones((8, 3), F32)}, name="other.npz").exit_code == 1
    result = fits(file, {"pictures": np.ones(3)}, name="other.npz")
    assert result.exit_code == 1 and "DL1207" in result.stderr and "pictures" in result.stderr


# ---- Files


def sparse_npy(path: Path, shape: tuple[int, ...]) -> None:
    """A header, and as many zeros as it tells of, of which none is on the disk."""
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
        file.truncate(file.tell() + 4 * int(np.prod(shape)))


def sparse_npz(path: Path, name: str, shape: tuple[int, ...]) -> None:
    """An archive of one such array, written out by hand: Python would write the zeros. Source: PKWARE, APPNOTE."""
    inner = path.with_suffix(".npy")
    sparse_npy(inner, shape)
    size, header = inner.stat().st_size, inner.open("rb").read(128)
    inner.unlink()
    called, sizes = f"{name}.npy".encode(), struct.pack("<HHQQ", 1, 16, size, size)
    fixed = struct.pack("<HHHHHIIIHH", 45, 0, 0, 0, 33, 0, 0xFFFFFFFF, 0xFFFFFFFF, len(called), len(sizes))
    with path.open("wb") as file:
        file.write(b"PK\3\4" + fixed + called + sizes + header)
        file.seek(size - len(header), 1)
        start = file.tell()
        file.write(b"PK\1\2" + struct.pack("<H", 45) + fixed + struct.pack("<HHHII", 0, 0, 0, 0, 0) + called + sizes)
        length = file.tell() - start
        file.write(b"PK\6\6" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, 1, 1, length, start))
        file.write(b"PK\6\7" + struct.pack("<IQI", 0, start + length, 1))
        file.write(b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 1, 1, length, 0xFFFFFFFF, 0))


def cost_of_checking(program: Path, data: Path) -> tuple[float, int]:
    """Seconds of the processor and kilobytes that `check --data` takes, in a process with a limit on its memory.

    `ru_maxrss` would begin with what the process had that started it.
    """
    code = (
        "import sys, resource, time; from difflang.cli import main\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2**32, 2**32))\n"
        "start = time.process_time()\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit as e: code = e.code\n"
        "status = open('/proc/self/status').read() if sys.platform == 'linux' else 'VmHWM: 0'\n"
        "print(code, time.process_time() - start, status.partition('VmHWM:')[2].split()[0])\n"
        "assert 'jax' not in sys.modules\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, "check", str(program), "--data", str(data)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    exit_code, seconds, kilobytes = ran.stdout.split()
    assert exit_code in ("0", "None"), ran.stderr
    return float(seconds), int(kilobytes)


@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_four_gigabytes_take_no_time_and_no_memory(suffix: str, tmp_path: Path) -> None:
    """Not more than a few bytes do, whatever the start of Python takes."""
    read = {"npy": 'read_npy("big.npy")', "npz": 'read_npz("big.npz", "x")'}[suffix]
    found: list[tuple[float, int]] = []
    for rows in (1, 1024):
        program, data = tmp_path / str(rows) / "big.dfl", tmp_path / str(rows) / f"big.{suffix}"
        shape = (rows, rows, 1025)  # 4.3e9 bytes
        program.parent.mkdir()
        program.write_text(f"let x: f32[n, m, 1025] = {read}\n")
        if suffix == "npy":
            sparse_npy(data, shape)
        else:
            sparse_npz(data, "x", shape)
        found.append(cost_of_checking(program, data))
    assert data.stat().st_size > 2**32 and data.stat().st_blocks * 512 < 10**6
    (least, _), (seconds, kilobytes) = found
    assert seconds < least + 0.5 and kilobytes < 300_000


def test_hostile_and_damaged_files_are_refused(tmp_path: Path) -> None:
    program = tmp_path / "p.dfl"
    program.write_text("fn f(x: f32[n]) -> f32 = sum(x)\n")
    np.save(tmp_path / "objects.npy", np.array([{}], object), allow_pickle=True)
    np.savez(tmp_path / "objects.npz", x=np.array([{}], object))
    sparse_npy(tmp_path / "cut.npy", (1000,))
    with (tmp_path / "cut.npy").open("r+b") as file:
        file.truncate(300)
    (tmp_path / "huge.npy").write_bytes(b"\x93NUMPY\x02\x00\xff\xff\xff\x7f")
    (tmp_path / "words.npz").write_bytes(b"PK\3\4 this is no archive")
    (tmp_path / "none.npy").write_bytes(b"")
    (tmp_path / "long.safetensors").write_bytes(struct.pack("<Q", 2**60) + b"{}")
    header = json.dumps({"x": {"dtype": "F32", "shape": [9], "data_offsets": [0, 36]}}).encode()
    (tmp_path / "cut.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(12))
    tensor = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    for name, told in {
        "notes": {"__metadata__": ["a"], "x": tensor},
        "type": {"x": tensor | {"dtype": ["F32"]}},
        "offsets": {"x": tensor | {"data_offsets": ["0", "4"]}},
        "complex": {"__metadata__": {"complex:x": ""}, "x": tensor},
    }.items():
        header = json.dumps(told).encode()
        (tmp_path / f"{name}.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
    (tmp_path / "deep.safetensors").write_bytes(struct.pack("<Q", 100_000) + b"[" * 100_000)
    np.savez(tmp_path / "locked.npz", x=np.zeros(3, F32))
    locked = bytearray((tmp_path / "locked.npz").read_bytes())
    locked[6] |= 1  # the bit of encryption, at the member and in the list at the end
    locked[locked.index(b"PK\1\2") + 8] |= 1
    (tmp_path / "locked.npz").write_bytes(locked)
    (tmp_path / "t.csv").write_text("1,2\n")
    start = time.monotonic()
    for name, said in [
        ("objects.npy", "Python objects"), ("objects.npz", "Python objects"), ("cut.npy", "truncated"),
        ("huge.npy", ""), ("words.npz", "zip"), ("none.npy", "not a NumPy array"),
        ("long.safetensors", "longer than the file"),
        ("cut.safetensors", "truncated"), ("t.csv", ".npy"), ("missing.npz", "no such file"),
        ("notes.safetensors", "not a table of texts"), ("type.safetensors", "the language does not support"),
        ("offsets.safetensors", "does not describe"), ("complex.safetensors", "not stored as pairs of f64"),
        ("deep.safetensors", "recursion"), ("locked.npz", "encrypted"),
    ]:  # fmt: skip
        result = check(f"{program}:f", "--data", tmp_path / name)
        assert result.exit_code == 1 and "error[DL0701]" in result.stderr and said in result.stderr, (
            name,
            result.stderr,
        )
    assert time.monotonic() - start < 10, "nothing hangs"


def test_safetensors(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    program, data = tmp_path / "p.dfl", tmp_path / "x.safetensors"
    program.write_text("fn f(x: f32[n, 3]) -> f32 = sum(x)\n")
    save_file({"x": np.ones((2, 3), F32)}, data)
    assert check(f"{program}:f", "--data", data).exit_code == 0
    save_file({"x": np.ones((2, 4), F32)}, data)
    assert "DL0705" in check(f"{program}:f", "--data", data).stderr


def test_reports_in_other_forms(file: Path) -> None:
    data = file.with_name("train.npz")
    np.savez(data, **{**GOOD, "labels": np.ones(8, I32)})
    result = CliRunner().invoke(main, ["check", str(file), "--data", str(data), "--output-format", "json"])
    assert "DL0705" in result.stdout


# ---- Folders


def test_folders_are_checked_whole(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / ".hidden").mkdir()
    for name in ("a.dfl", "inner/b.dfl", ".hidden/c.dfl"):
        (tmp_path / name).write_text("let x = y\n")
    result = check(tmp_path)
    assert result.exit_code == 1 and result.stderr.count("error[DL0201]") == 2
    (tmp_path / "empty").mkdir()
    nothing = check(tmp_path / "empty")
    assert nothing.exit_code == 1 and "DL0701" in nothing.stderr and ".dfl" in nothing.stderr
