"""What is no artifact, or is one no more: an ArtifactError for each way of damage, and nothing else."""

from __future__ import annotations

import hashlib
import json
import random
import struct
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import difflang
import difflang.runtime
from difflang.tools.export import artifact_file
from difflang.tools.export.artifact_contents import VERSION, from_bytes, json_bytes, to_bytes

GOLDEN = sorted((Path(__file__).parents[2] / "golden" / "artifacts").glob("*.dflx"))
NEWER = VERSION + 1
SOURCE = """
record Net[d] { w: f32[d], b: f32, name: str }
enum Kind { Plain(k: f32), Twice(k: f32) }
let table = [0.5, 1.5, 2.5]
fn f(m: Net[3], kind: Kind, i: i32) -> (f32, str) {
  var y = 0.0
  for j in 0..3 { y = y + m.w[j] * f32(table[i]) }
  let z = match kind { Plain(k) => k * y, Twice(k) => 2 * k * y }
  (z + m.b, "at {i}: {z:.2f}")
}
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file with something of each kind in it."""
    m: Any = difflang.loads(SOURCE, name="damaged")
    path = tmp_path_factory.mktemp("whole") / "f.dflx"
    m.f.export(path, m.Net("f32[3]", "f32", "a"), m.Twice("f32"), "i32", platforms=("cpu",))
    return path.read_bytes()


def test_what_was_written_is_written_again_the_same(whole: bytes) -> None:
    assert to_bytes(from_bytes(whole)) == whole


def test_any_tool_opens_it(whole: bytes) -> None:
    with zipfile.ZipFile(BytesIO(whole)) as archive:
        assert archive.testzip() is None
        assert set(archive.namelist()) == {
            *("manifest.json", "graph.json", "sources.json", "constants/0", "stablehlo/cpu"),
        }
        assert archive.read("constants/0") == np.array([0.5, 1.5, 2.5], np.float32).tobytes()


def code_of(data: bytes) -> str:
    """Which refusal it meets; none if it is read."""
    try:
        from_bytes(data)
    except difflang.DifflangError as error:
        return error.diagnostics[0].code
    return ""


def mutated(data: bytes, draw: random.Random) -> bytes:
    """The bytes with one kind of damage."""
    at, to = sorted(draw.randrange(len(data) + 1) for _ in range(2))
    way = draw.randrange(8)
    if way == 0:
        return data[:at]
    if way == 1:
        return data[:at] + draw.randbytes(draw.randrange(1, 20)) + data[at:]
    if way == 2:
        return data[:at] + data[to:]
    if way == 3:
        return data[:to] + data[at:]
    if way == 4:
        return data[:at] + bytes(to - at) + data[to:]
    place = draw.randrange(len(data))
    if way == 5:
        return data[:place] + bytes([data[place] ^ 1 << draw.randrange(8)]) + data[place + 1 :]
    if way == 6:  # in what says where things are
        place = len(data) - 1 - draw.randrange(min(len(data), 400))
    return data[:place] + draw.randbytes(1) + data[place + 1 :]


def test_no_damaged_byte_goes_unseen(whole: bytes, mutations: int = 400) -> None:
    draw = random.Random(0)
    for _ in range(mutations):
        changed = mutated(whole, draw)
        assert code_of(changed) == ("" if changed == whole else "DL1241")


@pytest.mark.slow
def test_no_damaged_byte_of_ten_thousand_goes_unseen(whole: bytes) -> None:
    test_no_damaged_byte_goes_unseen(whole, 10_000)


# ---- Well packed, and wrong inside


def repacked(data: bytes, change: Callable[[dict[str, bytes]], None]) -> bytes:
    """The file with members changed and all sums right."""
    members = artifact_file.unpack(data)
    change(members)
    about = json.loads(members["manifest.json"])
    sums = {n: hashlib.sha256(d).hexdigest() for n, d in members.items() if n != "manifest.json"}
    if isinstance(about, dict):
        members["manifest.json"] = json_bytes({**about, "members": sums}, indent=1)
    return artifact_file.pack(members)


VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 7, 2**40, 10**30, 1.5, "", "x", "f32[2]", "f32[n]", "f64[]", "key", [], {}, [0], [[]]),
    *({"a": 1}, "history[f32[]]", "f32[3]", "i32[]", "record", "fixed", "..", "\ud800"),
)


def damage_json(data: Any, draw: random.Random) -> Any:
    """JSON with one thing in it replaced, removed, doubled or put elsewhere."""
    if isinstance(data, (list, dict)) and data and draw.random() < 0.9:
        items: list[Any] = list(data.items()) if isinstance(data, dict) else list(enumerate(data))
        key, value = draw.choice(items)
        copy: Any = dict(data) if isinstance(data, dict) else list(data)
        if draw.random() < 0.85:
            copy[key] = damage_json(value, draw)
        elif draw.random() < 0.5:
            del copy[key]
        elif isinstance(copy, list):
            copy.insert(key, draw.choice(items)[1])
        else:
            copy[draw.choice(items)[0]] = value
        return copy
    return draw.choice(VALUES)


def damaged_inside(whole: bytes, draw: random.Random) -> bytes:
    def change(members: dict[str, bytes]) -> None:
        name = draw.choice(["manifest.json", "graph.json", "sources.json", "constants/0"])
        if name == "constants/0":
            members[name] = members[name][: draw.randrange(12)]
        else:
            members[name] = json_bytes(damage_json(json.loads(members[name]), draw))

    return repacked(whole, change)


def test_what_is_well_packed_and_wrong_inside(whole: bytes, mutations: int = 300) -> None:
    """It is refused; or something else was meant, such as another number, and then it is read."""
    draw = random.Random(1)
    codes = [code_of(damaged_inside(whole, draw)) for _ in range(mutations)]
    assert set(codes) <= {"", "DL1241", "DL1242"}
    assert codes.count("DL1241") > mutations // 2


@pytest.mark.parametrize("names", [("m", "m", "i"), ("f32[2]", "kind", "i"), ("", "kind", "i")])
def test_parameters_have_names_of_their_own(whole: bytes, names: tuple[str, ...]) -> None:
    """They are shown as those of a Python function, which takes no others."""

    def change(members: dict[str, bytes]) -> None:
        about = json.loads(members["manifest.json"])
        about["params"] = [{**p, "name": name} for p, name in zip(about["params"], names, strict=True)]
        members["manifest.json"] = json_bytes(about)

    assert code_of(repacked(whole, change)) == "DL1241"


@pytest.mark.slow
@pytest.mark.nightly
def test_ten_thousand_that_are_well_packed_and_wrong_inside(whole: bytes) -> None:
    test_what_is_well_packed_and_wrong_inside(whole, 10_000)


def member(name: str, data: bytes | None) -> Callable[[dict[str, bytes]], None]:
    return lambda members: members.pop(name) if data is None else members.__setitem__(name, data)  # type: ignore[func-returns-value]


def deep(members: dict[str, bytes]) -> None:
    about = json.loads(members["manifest.json"])
    layout: Any = ["array", "f32[]"]
    for _ in range(400):
        layout = ["tuple", [layout]]
    about["result"] = layout
    members["manifest.json"] = json_bytes(about)


WRONG = {
    "no graph": member("graph.json", None),
    "no sources": member("sources.json", None),
    "no constant": member("constants/0", None),
    "a constant that is too short": member("constants/0", b"abc"),
    "a member more": member("more", b""),
    "a graph that is no JSON": member("graph.json", b"\xff"),
    "a graph nested without end": member("graph.json", b"[" * 100_000),
    "a result nested without end": deep,
}


@pytest.mark.parametrize("what", WRONG)
def test_members_that_are_wrong(what: str, whole: bytes) -> None:
    assert code_of(repacked(whole, WRONG[what])) == "DL1241"


# ---- Well formed, and without sense


CRAFTED: dict[str, dict[str, Any]] = {
    "a number that does not fit": {"op": "const", "value": 10**30},
    "a text for a number": {"op": "const", "value": "x"},
    "a list for a number": {"op": "const", "value": []},
    "a number with an attribute of another op": {"op": "const", "axis": 1},
    "a product with an attribute": {"op": "mul", "axis": 0},
}


@pytest.mark.parametrize("what", CRAFTED)
def test_a_graph_without_sense_is_refused_when_it_runs(what: str, whole: bytes, tmp_path: Path) -> None:
    wanted = dict(CRAFTED[what])
    name = wanted.pop("op")

    def change(members: dict[str, bytes]) -> None:
        graphs = json.loads(members["graph.json"])
        for graph in graphs["graphs"]:
            for eqn in graph[2]:
                if eqn[0] == name:
                    eqn[3] |= wanted
        members["graph.json"] = json_bytes(graphs)

    (tmp_path / "f.dflx").write_bytes(repacked(whole, change))
    m: Any = difflang.loads(SOURCE, name="crafted")
    args = m.Net(w=np.ones(3, np.float32), b=np.float32(1), name="a"), m.Twice(k=np.float32(2)), np.int32(1)
    for run in ("interpret", "__call__"):
        with pytest.raises(difflang.ArtifactError, match=r"cannot be run|damaged"):
            getattr(difflang.runtime.load(tmp_path / "f.dflx"), run)(*args)
    with pytest.raises(difflang.ArtifactError):
        difflang.runtime.load(tmp_path / "f.dflx").vjp("m.w")(*args)


def compressed(whole: bytes) -> bytes:
    """The same members in another archive, one of them a bomb."""
    file = BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in artifact_file.unpack(whole).items():
            archive.writestr(name, data)
        archive.writestr("bomb", bytes(10**6))
    return file.getvalue()


OTHER = {
    "nothing": b"",
    "a text": b"fn f(x: f32) -> f32 = x",
    "a pickle": b"\x80\x04\x95\x0f\x00\x00\x00\x00\x00\x00\x00\x8c\x08builtins.",
    "an empty archive": b"PK\5\6" + bytes(18),
    "too many members": artifact_file.pack({str(i): b"" for i in range(artifact_file.MAX_MEMBERS + 1)}),
    "an archive that says it is large": b"PK\5\6" + struct.pack("<4H2IH", 0, 0, 65535, 65535, 2**32 - 1, 0, 0),
}


@pytest.mark.parametrize("what", OTHER)
def test_files_that_are_something_else(what: str, tmp_path: Path) -> None:
    path = tmp_path / "f.dflx"
    path.write_bytes(OTHER[what])
    with pytest.raises(difflang.ArtifactError, match="DL1241") as caught:
        difflang.runtime.load(path)
    assert isinstance(caught.value, ValueError)


def test_nothing_is_unpacked(whole: bytes) -> None:
    assert code_of(compressed(whole)) == "DL1241"


def test_files_that_are_not_there(tmp_path: Path) -> None:
    for path in (tmp_path / "none.dflx", tmp_path):
        with pytest.raises(difflang.DataError, match="DL0701"):
            difflang.runtime.load(path)


def test_a_file_that_is_too_large(tmp_path: Path) -> None:
    path = tmp_path / "f.dflx"
    with path.open("wb") as file:
        file.truncate(artifact_file.MAX_BYTES + 1)
    with pytest.raises(difflang.ArtifactError, match="larger than"):
        difflang.runtime.load(path)


# ---- Formats


def with_version(data: bytes, version: Any) -> bytes:
    members = artifact_file.unpack(data)
    about = json.loads(members["manifest.json"])
    members["manifest.json"] = json_bytes({**about, "version": version, "difflang": "9.1"})
    return artifact_file.pack({**members, "something new": b"1"} if version == NEWER else members)


def test_a_newer_format_is_told(whole: bytes) -> None:
    with pytest.raises(difflang.DifflangError, match="DL1242") as caught:
        from_bytes(with_version(whole, NEWER))
    assert "difflang 9.1" in caught.value.render() and f"format {NEWER}" in caught.value.render()
    assert [code_of(with_version(whole, v)) for v in (0, -1, "1", None, True)] == ["DL1241"] * 5


def test_a_file_of_each_format_is_kept() -> None:
    assert [path.stem for path in GOLDEN] == [f"format-{version}" for version in range(1, NEWER)]


@pytest.mark.parametrize("path", GOLDEN, ids=lambda p: p.stem)
def test_a_file_of_an_older_format_gives_what_it_gave(path: Path) -> None:
    """`tests/golden/artifacts` holds a file of each format, which every later difflang reads."""
    f = difflang.runtime.load(path)
    m = {"w": np.array([0.5, -1.0], np.float32), "b": 0.25, "name": "first"}
    x = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    assert f.__doc__ == "The mean square of what a layer gives."
    assert float(f(m, x, 1)) == pytest.approx(1.8856353, rel=1e-6)
    assert np.asarray(f.grad("m.w")(m, x, 1)) == pytest.approx([-0.82215184, -1.4530094], rel=1e-6)
    with pytest.raises(difflang.IndexFailure, match=r"index 2 is out of range.*\n  --> model.dfl:7:") as caught:
        f(m, x, 2)
    assert "table[i]" in str(caught.value)


def test_the_stablehlo_in_it_runs_by_jax_alone(whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / "f.dflx"
    path.write_bytes(whole)
    f = difflang.runtime.load(path)
    with zipfile.ZipFile(path) as archive:
        program = jax.export.deserialize(bytearray(archive.read("stablehlo/cpu")))
        table = np.frombuffer(archive.read("constants/0"), np.float32)
    w = np.arange(3, dtype=np.float32)
    z, _, _, failed = program.call(w, np.float32(0.5), np.float32(2.0), np.int32(1), table)
    assert float(z) == float(f({"w": w, "b": 0.5, "name": "a"}, f.classes["Twice"](2.0), 1)[0]) and failed == 0
    assert program.call(w, np.float32(0.5), np.float32(2.0), np.int32(5), table)[-1] == 1
    assert f.platforms == ("cpu",) and f.exported("cpu").platforms == ("cpu",)
    with pytest.raises(difflang.DifflangError, match="DL0601"):
        f.exported("tpu")
