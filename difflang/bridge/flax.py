"""Functions as flax modules: the record that a function takes becomes the module's parameters.

`nnx(f, params="m")` and `linen(f, params="m")` return module classes. A module is called with the function's other
arguments, in order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from flax import linen as flax_linen
from flax import nnx as flax_nnx
from flax.core import unfreeze

from difflang.api.function import Function
from difflang.base.error_codes import suggestion
from difflang.base.errors import classify_error
from difflang.base.wording import count_of
from difflang.bridge.nested import TreeShape, is_differentiable, to_nested_dict, tree_shape
from difflang.types.type_errors import make_error


class Fixed(flax_nnx.Variable[Any]):
    """A part of a record without derivative: integers and booleans."""


def nnx(
    f: Function, params: str = "params", *, state: str = "", stream: str = "", training: str = ""
) -> type[flax_nnx.Module]:
    """A class of nnx modules that call `f`. `Net(record)` holds the record's arrays as `nnx.Param`, in `net.record`.

    `Net(init, rngs=nnx.Rngs(0))` takes a function that draws the record, with a key from the stream `params`. Arrays
    without derivative are `Fixed`. A `state` is passed as the second argument and kept in `nnx.BatchStat`; `f` then
    returns its result and the next state. For a random function, `stream` names the stream of `rngs` for its keys. A
    parameter `training` is true until `net.eval()` and after `net.train()`.

    Errors: ArgumentError if `f` has no such parameter, if a module is created without what it needs, or if `f` returns
    no next state.
    """
    check_parameters(f, params, state, training)

    class NnxModule(flax_nnx.Module):
        def __init__(self, initial: Any, initial_state: Any = None, *, rngs: flax_nnx.Rngs | None = None) -> None:
            initial = initial_record(initial, lambda: rngs.params() if rngs is not None else None)
            if stream and rngs is None:
                raise usage_error(
                    "a module that draws random numbers needs `rngs`", f"write `Net(…, rngs=nnx.Rngs({stream}=0))`"
                )
            check_state(f, state, initial_state)
            self.shape = flax_nnx.static(tree_shape(initial))
            self.record = as_variables(initial, lambda x: (flax_nnx.Param if is_differentiable(x) else Fixed)(x))
            if state:
                self.state_shape = flax_nnx.static(tree_shape(initial_state))
                self.state = as_variables(initial_state, flax_nnx.BatchStat)
            # A forked stream: draws of this module do not depend on others.
            self.keys = flax_nnx.data(rngs[stream].fork() if stream and rngs is not None else None)
            self.deterministic = False

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            given = {**bind_positional(f, (params, state, training), args), **kwargs}
            given[params] = self.shape.rebuild(self.record, variable_value)
            if training:
                # `net.eval()` sets `deterministic` on all modules, as for flax's own.
                given.setdefault(training, not self.deterministic)
            if self.keys is not None:
                given["key"] = self.keys()
            if not state:
                return f(**given)
            given[state] = self.state_shape.rebuild(self.state, variable_value)
            result, after = split_next_state(f, state, self.state_shape, f(**given))
            write_variables(self.state, to_nested_dict(after))
            return result

    return name_module(NnxModule, f)


def linen(f: Function, params: str = "params", *, state: str = "", stream: str = "") -> Any:
    """A class of linen modules that call `f`. `Net(record)` starts from that record, `Net(init)` from one that it
    draws.

    The arrays are in the collection `params` under `record`, in dicts by field names, and those without derivative in
    `fixed`; a `state` is in `batch_stats` and starts from `initial_state`. Keys of a random function come from
    `stream`.

    Errors: as in `nnx`.
    """
    check_parameters(f, params, state)

    class Module(flax_linen.Module):
        initial: Any
        initial_state: Any = None

        @flax_linen.compact
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            first = unfreeze(self.initial_state)
            check_state(f, state, first)
            given = {**bind_positional(f, (params, state), args), **kwargs}
            given[params] = self.read_record()
            if stream:
                given["key"] = self.make_rng(stream)
            if not state:
                return f(**given)
            kept = self.variable("batch_stats", state, lambda: to_nested_dict(mask_texts(first)))
            shape = tree_shape(first)
            result, after = split_next_state(f, state, shape, f(**given, **{state: shape.rebuild(kept.value)}))
            # Linen allows writes only if the caller made the collection mutable.
            if self.is_mutable_collection("batch_stats") and not self.is_initializing():
                kept.value = to_nested_dict(after)
            return result

        def read_record(self) -> Any:
            """The record, out of its collections."""
            # The initial record is drawn once, though its leaves go to two collections.
            first: list[Any] = []

            def init_params(key: Any) -> Any:
                first.append(self.draw_initial(key))
                return to_nested_dict(select_leaves(first[0], smooth=True))

            like = self.record_like()
            held = self.param("record", init_params)
            if jax.tree_util.tree_leaves(rest := select_leaves(like, smooth=False)):
                later = lambda: to_nested_dict(select_leaves(first[0] if first else rest, smooth=False))  # noqa: E731
                held = merge_dicts(held, self.variable("fixed", "record", later).value)
            return tree_shape(like).rebuild(held)

        def record_like(self) -> Any:
            """The record, or one of its shape, where it is drawn."""
            if callable(self.initial):
                return jax.eval_shape(self.draw_initial, jax.random.key(0))
            return self.draw_initial(None)

        def draw_initial(self, key: Any) -> Any:
            """The record before training. Linen has frozen a dict that it was given."""
            return initial_record(unfreeze(self.initial), lambda: key)

    return name_module(Module, f)


def select_leaves(tree: Any, *, smooth: bool) -> Any:
    """The leaves with a derivative, or those without one that are not texts; None in place of the others."""
    return jax.tree_util.tree_map(
        lambda x: x if is_differentiable(x) is smooth and not isinstance(x, str) else None, tree
    )


def mask_texts(tree: Any) -> Any:
    return jax.tree_util.tree_map(lambda x: None if isinstance(x, str) else x, tree)


def merge_dicts(some: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """Nested dicts merged into one."""
    both = {k: merge_dicts(some[k], others[k]) for k in some.keys() & others.keys()}
    return {**some, **others, **both}


def check_state(f: Function, state: str, initial: Any) -> None:
    if state and initial is None:
        raise usage_error(
            f"a module of `{f.__name__}` starts from a state", f"pass the first `{state}` after the record"
        )
    if initial is not None and not state:
        raise usage_error(f"a module of `{f.__name__}` has no state", 'name the parameter: `state="stats"`')


def split_next_state(f: Function, state: str, shape: TreeShape, found: Any) -> tuple[Any, Any]:
    """A result and the next state. Errors: DL1207 if a function returns something else."""
    if not isinstance(found, tuple) or len(found) != 2 or tree_shape(found[1]).paths != shape.paths:
        help = f"return both: `fn {f.__name__}(…) -> (f32[n], Stats)`"
        raise usage_error(f"`{f.__name__}` does not return its result and the next `{state}`", help)
    return found


def name_module(module: Any, f: Function) -> Any:
    """Name the class after the function."""
    module.__name__ = module.__qualname__ = f.__name__
    module.__doc__ = f.__doc__
    return module


def check_parameters(f: Function, *parameters: str) -> None:
    names = f.signature.names
    for name in filter(None, parameters):
        if name not in names:
            raise usage_error(f"`{f.__name__}` has no parameter `{name}`", suggestion(name, names))


def usage_error(message: str, help: str) -> Exception:
    return classify_error(make_error("DL1207", message, help=help))


def bind_positional(f: Function, taken: tuple[str, ...], args: tuple[Any, ...]) -> dict[str, Any]:
    """A module's positional arguments by the names of the remaining parameters."""
    names = [name for name in f.signature.names if name not in taken]
    if len(args) > len(names):
        raise usage_error(
            f"this module takes {count_of(len(names), 'argument')}, not {len(args)}", f"they are {', '.join(names)}"
        )
    return dict(zip(names, args, strict=False))


def initial_record(initial: Any, key: Callable[[], Any]) -> Any:
    """A record, passed or drawn."""
    if not callable(initial):
        return initial
    found = key()
    if found is None:
        raise usage_error("a module that draws its parameters needs `rngs`", "write `Net(init, rngs=nnx.Rngs(0))`")
    return initial(key=found) if isinstance(initial, Function) else initial(found)


def as_variables(tree: Any, kind: Callable[[Any], Any]) -> Any:
    """A structure as nnx dicts, with each array in a variable of that kind."""
    return as_nnx_dict(to_nested_dict(mask_texts(tree), kind))


def as_nnx_dict(found: Any) -> Any:
    return flax_nnx.Dict({k: as_nnx_dict(v) for k, v in found.items()}) if isinstance(found, dict) else found


def variable_value(variable: Any) -> Any:
    return variable.get_value()


def write_variables(kept: Any, after: dict[str, Any]) -> None:
    """Assign new values to variables."""
    for name, value in after.items():
        if isinstance(value, dict):
            write_variables(kept[name], value)
        else:
            kept[name].set_value(value)
