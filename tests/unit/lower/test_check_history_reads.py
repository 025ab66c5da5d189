"""A history is read over the steps in which it was saved, and nowhere else: proved through loops and branches."""

from __future__ import annotations

import pytest

from difflang.ir.text_parser import graph_from_text
from difflang.ir.verify import verify
from difflang.lower.check_history_reads import reads_history_out_of_scope

OPEN = "exact = false, length = none"
FOUR = "exact = true, length = 4"
PROGRAM = """
graph @f(%x: f64[]) {
  %none: i32[] = const {type = i32[], value = -1}
  %four: i32[] = const {type = i32[], value = 4}
  %m: i32[], %w: f64[], %ns: COUNTS, %ks: COUNTS, %ss: history[history[f64[]]] =
      loop LIMIT, %x {carry = 1, consts = 0, HOW, reverse = false} (%i: i32[], %x: f64[]) {
    %none: i32[] = const {type = i32[], value = -1}
    %n: i32[], %y: f64[], %s: history[f64[]] =
        loop %none, %x {carry = 1, consts = 0, OPEN, reverse = false} (%i: i32[], %x: f64[]) {
      %y: f64[] = mul %x, %x
      yield %y, %x
    } (%i: i32[], %x: f64[]) {
      %end: f64[] = const {type = f64[], value = 9.0}
      %more: bool[] = lt %x, %end
      yield %more
    }
    %k: i32[], %z: f64[] = loop %none, %x {carry = 1, consts = 0, OPEN, reverse = false} (%i: i32[], %x: f64[]) {
      %y: f64[] = mul %x, %x
      yield %y
    } (%i: i32[], %x: f64[]) {
      %end: f64[] = const {type = f64[], value = 8.0}
      %more: bool[] = lt %x, %end
      yield %more
    }
    yield %y, %n, %k, %s
  }GO
  %q: i32[], %r: f64[] = loop AGAIN, %ns, %ss, %m, %x, %ns, %ks, %ss
      {carry = 1, consts = 3, HOW, reverse = true}
      (%i: i32[], %ns: COUNTS, %ss: history[history[f64[]]], %m: i32[], %ct: f64[],
       %n: i32[], %k: i32[], %s: history[f64[]]) {
    %four: i32[] = const {type = i32[], value = 4}
    BODY
    yield %c
  }
  yield %r
}
"""
READ = """%j: i32[], %c: f64[] = loop {limit}, %ct, {history} {{carry = 1, consts = 0, OPEN, reverse = true}}
        (%i: i32[], %ct: f64[], %s: f64[]) {{
      %c: f64[] = mul %ct, %s
      yield %c
    }}"""
AGAIN = """%p: i32[], %c: f64[] = loop LENGTH, %n, %ct, %ns, %ss {carry = 1, consts = 1, HOW, reverse = false}
        (%i: i32[], %n: i32[], %ct: f64[], %n#1: i32[], %s: history[f64[]]) {
      READ
      yield %c
    }"""
GO = """ (%i: i32[], %x: f64[]) {
    %end: f64[] = const {type = f64[], value = 100.0}
    %more: bool[] = lt %x, %end
    yield %more
  }"""


def read(body: str, how: str) -> bool:
    """Whether the body of the loop that reads does so over other steps."""
    known = how == FOUR
    text = PROGRAM.replace("BODY", body)
    for name, put in {
        "COUNTS": "i32[4]" if known else "history[i32[]]",
        "LIMIT": "%four" if known else "%none",
        "AGAIN": "%four" if known else "%m",
        "LENGTH": "%four" if known else "%m",
        "GO": "" if known else GO,
        "HOW": how,
        "OPEN": OPEN,
    }.items():
        text = text.replace(name, put)
    return reads_history_out_of_scope(verify(graph_from_text(text)))


@pytest.mark.parametrize("how", [OPEN, FOUR], ids=["open", "four"])
def test_what_a_step_saved_is_read_over_its_own_count(how: str) -> None:
    assert not read(READ.format(limit="%n", history="%s"), how)
    assert not read(AGAIN.replace("READ", READ.format(limit="%n#1", history="%s")), how)


WRONG = {
    "the count of a loop that goes on otherwise": READ.format(limit="%k", history="%s"),
    "the count of the loop around": READ.format(limit="%m", history="%s"),
    "a number": READ.format(limit="%four", history="%s"),
    "the count of another step": AGAIN.replace("READ", READ.format(limit="%n", history="%s")),
    "what the steps saved, read as if it were one": READ.format(limit="%n", history="%ss")
    .replace("%s: f64[]", "%s: history[f64[]]")
    .replace("mul %ct, %s", "mul %ct, %ct"),
}


@pytest.mark.parametrize("how", [OPEN, FOUR], ids=["open", "four"])
@pytest.mark.parametrize("body", WRONG.values(), ids=WRONG)
def test_other_steps_are_noticed(body: str, how: str) -> None:
    assert read(body, how)


BRANCHES = """
graph @f(%x: f64[], %p: bool[], %q: bool[]) {
  %n: i32[], %s: history[f64[]] = cond %p, %x (%x: f64[]) {
    %none: i32[] = const {type = i32[], value = -1}
    %n: i32[], %y: f64[], %s: history[f64[]] =
        loop %none, %x {carry = 1, consts = 0, OPEN, reverse = false} (%i: i32[], %x: f64[]) {
      %y: f64[] = mul %x, %x
      yield %y, %x
    } (%i: i32[], %x: f64[]) {
      %end: f64[] = const {type = f64[], value = 9.0}
      %more: bool[] = lt %x, %end
      yield %more
    }
    yield %n, %s
  } (%x: f64[]) {
    %n: i32[] = const {type = i32[], value = 0}
    %s: history[f64[]] = empty_history {type = history[f64[]]}
    yield %n, %s
  }
  %c: f64[] = cond TRUTH, %n, %s, %x (%n: i32[], %s: history[f64[]], %ct: f64[]) {
    READ
    yield %c
  } (%n: i32[], %s: history[f64[]], %ct: f64[]) {
    READ
    yield %c
  }
  yield %c
}
"""


@pytest.mark.parametrize("truth", ["%p", "%q"])
def test_what_a_branch_saved_is_read_in_the_same_branch(truth: str) -> None:
    text = BRANCHES.replace("READ", READ.format(limit="%n", history="%s")).replace("OPEN", OPEN)
    graph = verify(graph_from_text(text.replace("TRUTH", truth)))
    assert reads_history_out_of_scope(graph) is (truth == "%q")
