"""A function as a module of flax: the record it takes becomes the module's parameters.

`nnx(f, params="m")` and `linen(f, params="m")` give classes of modules. What else the function takes, in order, is what
a module is called with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from flax import linen as flax_linen
from flax import nnx as flax_nnx

from difflang.api.function import Function
from difflang.base.codes import nearest
from difflang.base.errors import classified
from difflang.bridge.nested import Shape, nested, shape_of
from difflang.check.reports import mistake


def nnx(f: Function, params: str = "params", *, state: str = "", stream: str = "") -> type[flax_nnx.Module]:
    """A class of nnx modules that call `f`. `Net(record)` has the record's arrays as `nnx.Param`, in `net.record`.

    `Net(init, rngs=nnx.Rngs(0))` takes a function that draws the record, with a key of the stream `params`. A `state`
    parameter is given as the second argument and kept in `nnx.BatchStat`; `f` gives its result and the next state. Of a
    function that draws, `stream` says which of the `rngs` its keys come from.

    Errors: ArgumentError where `f` has no such parameter.
    """
    known_parameters(f, params, state)

    class Module(flax_nnx.Module):
        def __init__(self, initial: Any, initial_state: Any = None, *, rngs: flax_nnx.Rngs | None = None) -> None:
            initial = drawn(initial, lambda: rngs.params() if rngs is not None else None)
            self.shape = flax_nnx.static(shape_of(initial))
            self.record = variables(initial, flax_nnx.Param)
            if state:
                self.state_shape = flax_nnx.static(shape_of(initial_state))
                self.state = variables(initial_state, flax_nnx.BatchStat)
            self.keys = flax_nnx.data(rngs[stream].fork() if stream and rngs is not None else None)

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            given = {params: self.shape.whole(self.record, value_of), **by_name(f, (params, state), args), **kwargs}
            if stream and self.keys is not None:
                given["key"] = self.keys()
            if not state:
                return f(**given)
            result, after = f(**given, **{state: self.state_shape.whole(self.state, value_of)})
            put(self.state, nested(after))
            return result

    return called(Module, f)


def linen(f: Function, params: str = "params", *, state: str = "", stream: str = "") -> Any:
    """A class of linen modules that call `f`. `Net(record)` begins with that record, `Net(init)` with one it draws.

    The arrays are in the collection `params`, in `record`, in dicts under the names of the fields; a `state` is in
    `batch_stats`, and begins with `initial_state`. Keys of a function that draws come from the `stream`.

    Errors: ArgumentError where `f` has no such parameter.
    """
    known_parameters(f, params, state)

    class Module(flax_linen.Module):
        initial: Any
        initial_state: Any = None

        @flax_linen.compact
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            given = {**by_name(f, (params, state), args), **kwargs}
            shape = self.shape()
            held = self.param("record", lambda key: nested(drawn(self.initial, lambda: key)))
            given[params] = shape.whole(held)
            if stream:
                given["key"] = self.make_rng(stream)
            if not state:
                return f(**given)
            kept = self.variable("batch_stats", state, lambda: nested(self.initial_state))
            result, after = f(**given, **{state: shape_of(self.initial_state).whole(kept.value)})
            if self.is_mutable_collection("batch_stats") and not self.is_initializing():
                kept.value = nested(after)
            return result

        def shape(self) -> Shape:
            """That of the record, which is drawn for it in no more than its shape."""
            if not callable(self.initial):
                return shape_of(self.initial)
            return shape_of(jax.eval_shape(lambda key: drawn(self.initial, lambda: key), jax.random.key(0)))

    return called(Module, f)


def called(module: Any, f: Function) -> Any:
    """The class, under the function's name."""
    module.__name__ = module.__qualname__ = f.__name__
    module.__doc__ = f.__doc__
    return module


def known_parameters(f: Function, params: str, state: str) -> None:
    names = f.signature.names
    for name in filter(None, (params, state)):
        if name not in names:
            near = nearest(name, names)
            help = f"did you mean `{near}`?" if near else f"it has {', '.join(names) or 'none'}"
            raise mistake_of(f"`{f.__name__}` has no parameter `{name}`", help)


def mistake_of(message: str, help: str) -> Exception:
    return classified(mistake("DL1207", message, help=help))


def by_name(f: Function, taken: tuple[str, ...], args: tuple[Any, ...]) -> dict[str, Any]:
    """What a module is called with, by the names of the parameters that are left."""
    names = [name for name in f.signature.names if name not in taken]
    if len(args) > len(names):
        raise mistake_of(f"this module takes {len(names)} arguments, not {len(args)}", f"they are {', '.join(names)}")
    return dict(zip(names, args, strict=False))


def drawn(initial: Any, key: Callable[[], Any]) -> Any:
    """A record, given or drawn."""
    if not callable(initial):
        return initial
    found = key()
    if found is None:
        raise mistake_of("a module that draws its parameters needs `rngs`", "write `Net(init, rngs=nnx.Rngs(0))`")
    return initial(key=found) if isinstance(initial, Function) else initial(found)


def variables(tree: Any, kind: Callable[[Any], Any]) -> Any:
    """A structure as dicts of nnx, each array in a variable of that kind."""
    return as_nnx(nested(tree, kind))


def as_nnx(found: Any) -> Any:
    return flax_nnx.Dict({k: as_nnx(v) for k, v in found.items()}) if isinstance(found, dict) else found


def value_of(variable: Any) -> Any:
    return variable.get_value()


def put(kept: Any, after: dict[str, Any]) -> None:
    """Write new values into variables."""
    for name, value in after.items():
        if isinstance(value, dict):
            put(kept[name], value)
        else:
            kept[name].set_value(value)
