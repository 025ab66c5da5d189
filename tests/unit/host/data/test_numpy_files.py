"""Arrays are read from NumPy's files only where type and shape are the declared ones."""

from __future__ import annotations

import io
import os
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from difflang.base.diagnostics import DifflangError
from difflang.base.source import NO_SPAN, Source
from difflang.bridge.files import load, save
from difflang.driver.checked_program import check_program
from difflang.driver.run_program import run_program
from difflang.execution.engine import Engine
from difflang.host.data import numpy_files
from difflang.host.data.file_access import FileAccess
from difflang.host.data.numpy_files import NpzArchive, read_npy
from difflang.host.data.safetensors_files import read_safetensors

BOMB = 512 << 20  # bytes; a few hundred kilobytes in the file


def header(descr: str, shape: str, version: bytes = b"\1\0", pad: int = 0) -> bytes:
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}}}".encode() + b" " * pad + b"\n"
    return b"\x93NUMPY" + version + len(text).to_bytes(2 if version == b"\1\0" else 4, "little") + text


def bomb(path: Path, start: bytes, size: int = BOMB) -> None:
    compressed = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1)
    with compressed as archive, archive.open("x.npy", "w") as file:
        file.write(start)
        for _ in range(size >> 20):
            file.write(bytes(1 << 20))


def read_peak(folder: Path, program: str) -> tuple[str, int]:
    """The report, and the most memory that reading took."""
    checked = check_program(Source("t.dfl", program))
    tracemalloc.start()
    try:
        with pytest.raises(DifflangError) as raised:
            run_program(checked, Engine("interpret"), FileAccess(folder), 0, lambda _: None)
        return raised.value.render(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture(scope="module")
def bombs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bombs")
    bomb(folder / "array.npz", header("<f8", f"({BOMB // 8},)"))
    bomb(folder / "text.npz", header(f"<U{BOMB // 4}", "()"))
    bomb(folder / "header.npz", b"\x93NUMPY\2\0" + BOMB.to_bytes(4, "little"))
    (folder / "announced.npy").write_bytes(header("<f8", f"({1 << 40},)") + bytes(100))
    return folder


@pytest.mark.parametrize(
    ("file", "type", "said"),
    [
        ("array.npz", "f64[3]", "DL0705"),
        ("array.npz", "f32[n]", "DL0704"),
        ("array.npz", "str", "DL0704"),
        ("text.npz", "f64[3]", "DL0704"),
        ("header.npz", "f64[3]", "header of"),
        ("announced.npy", "f64[n]", "truncated"),
    ],
)
def test_a_bomb_is_refused_by_its_header(bombs: Path, file: str, type: str, said: str) -> None:
    report, peak = read_peak(bombs, f'let x: {type} = load("{file}")')
    assert said in report
    assert peak < 4 << 20


def test_a_bomb_is_refused_from_python(bombs: Path) -> None:
    for like in ({"x": np.zeros(3)}, {"x": "text"}, {"x": 1.0}):
        tracemalloc.start()
        try:
            with pytest.raises(DifflangError, match="expected"):
                load(bombs / "array.npz", like)
            assert tracemalloc.get_traced_memory()[1] < 4 << 20
        finally:
            tracemalloc.stop()


def test_what_the_machine_cannot_hold_is_refused(bombs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numpy_files, "machine_memory", lambda: BOMB - 1)
    report, peak = read_peak(bombs, 'let x: f64[n] = load("array.npz")')
    assert "`x` takes 512 MiB, more than this machine has" in report
    assert peak < 4 << 20


@pytest.mark.parametrize("code", [0x110000, 0xFFFFFFFF])
@pytest.mark.parametrize("count", [1, 1 << 19])
def test_a_code_point_that_does_not_exist_is_refused(code: int, count: int, tmp_path: Path) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("x.npy", header(f"<U{count}", "()") + code.to_bytes(4, "little") * count)
    (tmp_path / "a.npz").write_bytes(file.getvalue())
    report, _ = read_peak(tmp_path, 'let x: str = load("a.npz", "x")')
    assert "DL0701" in report and "code point that does not exist" in report


def test_long_texts_and_foreign_byte_orders_still_come_back(tmp_path: Path) -> None:
    text = "αβ" * 400_000
    np.savez(tmp_path / "a.npz", t=np.array(text), x=np.array([1.5, 2.5], ">f8"), f=np.ones((2, 3), order="F"))
    found = load(tmp_path / "a.npz", {"t": "", "x": np.zeros(2), "f": np.zeros((2, 3))})
    assert found["t"] == text
    assert found["x"].tolist() == [1.5, 2.5] and found["x"].dtype == np.dtype("f8")
    assert found["f"].tolist() == [[1.0] * 3] * 2


def read_whole(path: Path) -> Any:
    return read_npy(path, NO_SPAN)[""].read()


@pytest.mark.parametrize(
    "array",
    [
        np.arange(24.0).reshape(2, 3, 4),
        np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        np.arange(6, dtype=">i4"),
        np.zeros((0, 5), np.float32),
        np.asarray(2.5),
        np.asarray([True, False]),
    ],
    ids=["rows", "columns", "foreign", "empty", "scalar", "bool"],
)
def test_an_array_comes_back_where_xla_takes_it_as_it_is(array: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", array)
    found = read_whole(tmp_path / "a.npy")
    np.testing.assert_array_equal(found, array)
    assert found.dtype == array.dtype.newbyteorder("=") and found.shape == array.shape
    assert array.dtype.byteorder == ">" or not array.size or found.ctypes.data % 64 == 0


def test_reading_takes_no_second_copy(tmp_path: Path) -> None:
    array = np.ones((1000, 1000))
    np.save(tmp_path / "a.npy", array)
    tracemalloc.start()
    read_whole(tmp_path / "a.npy")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.05 * array.nbytes


def test_a_file_that_shrinks_before_its_data_is_read_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.ones(1000))
    found = read_npy(path, NO_SPAN)[""]
    os.truncate(path, 1000)
    with pytest.raises(ValueError, match="truncated: 7,128 bytes are missing"):
        found.read()


@pytest.mark.parametrize("how", ["C", "F", ">"])
def test_a_part_is_read_from_where_it_is(tmp_path: Path, how: str) -> None:
    array = np.arange(120.0).reshape(6, 5, 4)
    stored = np.asfortranarray(array) if how == "F" else array.astype(">f8") if how == ">" else array
    np.save(tmp_path / "x.npy", stored)
    np.savez_compressed(tmp_path / "x.npz", x=stored)
    files = [read_npy(tmp_path / "x.npy", NO_SPAN)[""], NpzArchive(tmp_path / "x.npz", NO_SPAN)["x"]]
    if how == "C":
        save(tmp_path / "x.safetensors", {"x": array, "after": np.ones(3)})
        files.append(read_safetensors(tmp_path / "x.safetensors", NO_SPAN)["x"])
    for found in files:
        for index in (np.s_[2:4, :, :], np.s_[:, 1:3, :], np.s_[0:1, :, 2:4], np.s_[0:0, :, :], np.s_[:, :, 3:4]):
            part = found.read_part(index)
            assert part.dtype == np.float64 and part.dtype.isnative
            np.testing.assert_array_equal(part, array[index])


def test_only_the_rows_of_a_part_are_read(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((4096, 512)))
    found = read_npy(tmp_path / "x.npy", NO_SPAN)[""]
    tracemalloc.start()
    assert found.read_part(np.s_[128:256, :]).sum() == 128 * 512
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20  # of 16 MiB
