"""A trampoline for tree walks: generators that yield the walk of a child and receive its result, without recursion."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from difflang.base.process_termination import atomic

# A sum of 100,000 terms is a tree 100,000 deep, far past Python's own stack.
ResultT = TypeVar("ResultT")
Walk = Generator[Any, Any, ResultT]


def run_walk(walk: Walk[ResultT]) -> ResultT:
    """The result of a walk. Errors: whatever the walk or a child raises and no parent catches."""
    stack: list[Walk[Any]] = [walk]
    try:
        return drive_walks(stack)
    finally:
        close_walks(stack)


@atomic
def close_walks(stack: list[Walk[Any]]) -> None:
    """Close the walks that an interrupt between two steps has left, children before their parents."""
    while stack:
        stack.pop().close()


def drive_walks(stack: list[Walk[Any]]) -> Any:
    value: Any = None
    error: BaseException | None = None
    while stack:
        top = stack[-1]
        try:
            child = top.send(value) if error is None else top.throw(error)
        except StopIteration as stop:
            stack.pop()
            value, error = stop.value, None
        except BaseException as raised:
            # After an interrupt the walk is still open: close it before its parent sees the exception.
            top.close()
            stack.pop()
            if not stack:
                raise
            value, error = None, raised
        else:
            stack.append(child)
            value = error = None
    return value
