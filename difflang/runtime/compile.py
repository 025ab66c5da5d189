"""Compiles graphs with XLA through JAX: tracing, lowering, compiling and calling, always with 64-bit types enabled.

It also lowers programs for platforms that are not on this machine. Arguments are converted by `argument_conversion`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Protocol

import jax
import jax.core
from jax.sharding import SingleDeviceSharding

from difflang.base.diagnostics import Diagnostic, DifflangError, InternalError, Label
from difflang.base.gc_pause import pause_gc
from difflang.ir.graph import Eqn, Graph, graphs_postorder
from difflang.ir.interpreter import TextSink, discard_text
from difflang.ir.tensor_types import Tensor, numpy_dtype
from difflang.lower.drop_transfers_in_maps import drop_transfers_in_maps
from difflang.lower.graph_to_jax import Lowering
from difflang.ops.control.extern_call import ExternFunction, extern
from difflang.ops.loop.host_offload import to_host
from difflang.runtime.argument_conversion import argument_converter, concrete_array_class
from difflang.runtime.devices import default_device, device_of_setting, is_elsewhere
from difflang.runtime.forked_process import refuse_after_fork, refuse_to_run, uses_threads
from difflang.runtime.program_cache import install_program_cache

install_program_cache()

Array = Any
Tracer = jax.core.Tracer

# A CPU and a TPU add in a fixed order anyway; on a GPU XLA then sorts before it sums.
DETERMINISTIC_OPTIONS = {"xla_gpu_deterministic_ops": True}
# XLA's algebra takes `x / y / z` as `x / (y * z)`, `x / c` as `x * (1 / c)`, `log(x ^ n)` as `n * log(x)`, and more:
# other numbers where a part overflows or is NaN. Ours is in `passes`. For other devices XLA's pipelines need it.
EXACT_OPTIONS = {"xla_disable_hlo_passes": "algsimp"}
# By default XLA copies early what loops change.
LOW_MEMORY_OPTIONS = {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"}


class Device(Protocol):
    """One of `jax.devices()`."""

    @property
    def platform(self) -> str: ...


class Executable:
    """A callable graph, compiled at its first call on arrays; see `build`.

    Under an outer JAX trace (jit, vmap, scan, ...) the graph is evaluated in that trace instead. `on_print` receives
    what the program prints: all of it before a call outside of traces returns.
    """

    __slots__ = (
        "__weakref__",
        "array_classes",
        "compiled",
        "converters",
        "deterministic",
        "device",
        "graph",
        "home",
        "lock",
        "low_memory",
        "on_print",
        "setting",
        "wide",
        "xla_executable",
    )  # fmt: skip

    def __init__(
        self,
        graph: Graph,
        device: Device | None = None,
        on_print: TextSink = discard_text,
        *,
        deterministic: bool = False,
        low_memory: bool = False,
    ) -> None:
        self.graph = graph
        self.deterministic = deterministic  # whether scatters add in a fixed order
        self.low_memory = low_memory  # whether kernels run in the order of least memory
        self.on_print = on_print
        self.device = device
        self.converters = tuple(
            [argument_converter(p.type, p.hint or f"argument {i}") for i, p in enumerate(graph.params, 1)]
        )
        self.wide = any([numpy_dtype(p.type.dtype).itemsize > 4 for p in graph.params if isinstance(p.type, Tensor)])
        self.compiled: Callable[..., list[Array]] | None = None
        self.xla_executable: Any = None  # the XLA program that `compiled` calls
        self.home: Device | None = None  # the device it is compiled for
        self.setting: Any = None  # JAX's setting of the default device when it was compiled
        self.lock = threading.Lock()
        # The class of JAX's concrete arrays, once it is compiled.
        self.array_classes: frozenset[type] = frozenset()

    def __call__(self, *given: Any) -> list[Array]:
        """The graph's results as JAX arrays. Errors: those of `argument_converter`; DL1202 for another count."""
        compiled = self.compiled
        # Fast path for JAX arrays: the compiled program itself checks their types, number and device.
        if compiled is not None and self.array_classes.issuperset(map(type, given)):
            try:
                return compiled(*given)
            except (TypeError, ValueError):
                pass
        return self.call_converting(given)

    def call_converting(self, given: Sequence[Any]) -> list[Array]:
        """The same, with each argument converted and checked."""
        if len(given) != len(self.converters):
            raise argument_count_error(self.graph, len(given))
        arrays = [convert(x) for convert, x in zip(self.converters, given, strict=True)]
        for x in arrays:
            if isinstance(x, Tracer):
                return self.trace_inline(arrays)
        if self.device is not None:
            arrays = [jax.device_put(x, self.device) if isinstance(x, jax.Array) else x for x in arrays]
        return self.on_arrays(arrays)

    def on_arrays(self, arrays: Sequence[Any]) -> list[Array]:
        """The results for NumPy and JAX arrays of the declared types."""
        # A program is one computation all the same.
        if jax.config.jax_disable_jit:  # pyright: ignore[reportAttributeAccessIssue]
            with jax.disable_jit(False):
                return self.on_arrays(arrays)
        compiled = self.compiled or self.build()
        # Without 64-bit params JAX narrows no argument.
        if not self.wide:
            return compiled(*arrays)
        with jax.enable_x64(True):
            return compiled(*arrays)

    def serves(self, arrays: Sequence[Any]) -> bool:
        """Whether it is compiled for where these arrays are; those that were put nowhere go to the default device."""
        setting = default_device()
        if self.compiled is not None and self.device is None and setting != self.setting:
            return False
        return not is_elsewhere(arrays, self.home or self.device or device_of_setting(setting))

    def stop_after_fork(self) -> None:
        self.lock = threading.Lock()  # another thread may have held it
        if self.compiled is not None:
            self.compiled = refuse_to_run

    @property
    def memory_bytes(self) -> int:
        """The memory of the compiled program: arguments, results and temporary buffers."""
        self.build()
        sizes = self.xla_executable.memory_analysis()
        return sizes.argument_size_in_bytes + sizes.output_size_in_bytes + sizes.temp_size_in_bytes

    def trace_inline(self, arrays: Sequence[Array]) -> list[Array]:
        """Evaluate the graph in the active trace."""
        with jax.enable_x64(True):
            return Lowering(jax, device_platform(self.device), self.on_print).graph(self.graph, *arrays)

    @property
    def offload_warnings(self) -> tuple[Diagnostic, ...]:
        """Warning DL0602, if the device or a map prevents a loop's states from moving to the host."""
        requested, moved = host_transfers(self.graph), host_transfers(drop_transfers_in_maps(self.graph))
        if device_platform(self.device) == "cpu" and requested:
            message = "this device uses the memory of the host: the saved states of a loop stay where they are"
        elif len(moved) < len(requested):
            message = (
                "the saved states of a loop in a comprehension stay where they are: batches are not moved to the host"
            )
        else:
            return ()
        label = Label(next(e.span for e in requested if len(moved) == len(requested) or e not in moved))
        return (Diagnostic("DL0602", message, (label,), ("`sqrt` and `revolve` save less",), severity="warning"),)

    @property
    def orders(self) -> bool:
        """Whether the kernel order of XLA can be chosen on this device."""
        return device_platform(self.device) == "cpu"

    @property
    def compiler_options(self) -> dict[str, Any]:
        """The compiler options for XLA."""
        chosen = options_of(self.graph, self.device)
        if self.deterministic:
            chosen |= DETERMINISTIC_OPTIONS
        return chosen | LOW_MEMORY_OPTIONS if self.low_memory and self.orders else chosen

    def build(self) -> Callable[..., list[Array]]:
        """Compile now, if that has not been done. Errors: DL1010 and DL1011 where XLA's limits are met."""
        refuse_after_fork()
        with self.lock:
            if self.compiled is None:
                uses_threads(self)
                self.array_classes = frozenset([concrete_array_class()])
                self.setting = default_device()
                self.home = self.device or device_of_setting(self.setting)
                sharding = None if self.device is None else SingleDeviceSharding(self.device)
                # A program without arguments has no other place for its device.
                with nullcontext() if self.device is None else jax.default_device(self.device):
                    program = lower_graph(self.graph, device_platform(self.device), sharding, says=self.on_print)
                    self.xla_executable = made = compile_lowered(program, self.graph, self.compiler_options)
                self.compiled = wait_for_prints(made) if self.graph.effectful else made
                if hosts := host_callbacks(self.graph):
                    self.compiled = wait_for_callbacks(self.compiled, hosts)
        return self.compiled


# ---- Prints and callbacks, which end after the program's results are there


def host_transfers(graph: Graph) -> list[Eqn]:
    """The equations that move a value to the host."""
    return [eqn for g in graphs_postorder(graph)[0] for eqn in g.eqns if eqn.op is to_host]


def wait_for_prints(program: Callable[..., list[Array]]) -> Callable[..., list[Array]]:
    """The same program, but it returns only when it has printed everything."""

    def run_and_wait(*arrays: Array) -> list[Array]:
        found = program(*arrays)
        jax.effects_barrier()
        return found

    return run_and_wait


def host_callbacks(graph: Graph) -> list[ExternFunction]:
    """The Python functions that the program calls back."""
    return [function for function in python_functions(graph) if function.host]


def python_functions(graph: Graph) -> list[ExternFunction]:
    """The functions of Python that the program calls, those of JAX included."""
    return [eqn.attrs["function"] for g in graphs_postorder(graph)[0] for eqn in g.eqns if eqn.op is extern]


def wait_for_callbacks(
    program: Callable[..., list[Array]], hosts: Sequence[ExternFunction]
) -> Callable[..., list[Array]]:
    """The same program, but it returns only when its callbacks have; their exceptions are raised as they are."""

    def run_and_wait(*arrays: Array) -> list[Array]:
        try:
            return jax.block_until_ready(program(*arrays))
        except jax.errors.JaxRuntimeError:
            failures = [f.failure for f in hosts if f.failure is not None]
            for function in hosts:
                function.failure = None
            if not failures:
                raise
            raise failures[0] from failures[0].__cause__

    return run_and_wait


def compile_graph(
    graph: Graph,
    device: Device | None = None,
    on_print: TextSink = discard_text,
    *,
    deterministic: bool = False,
    sparing: bool = False,
) -> Executable:
    """A callable for one concrete graph, on that device or the default one; see `Executable`."""
    return Executable(graph, device, on_print, deterministic=deterministic, low_memory=sparing)


# ---- Tracing and lowering


def lower_for_platform(graph: Graph, platform: str, *, debug_info: bool = False) -> str:
    """StableHLO for the platform "cpu", "cuda", "rocm" or "tpu", which need not be on this machine."""
    return lower_graph(graph, platform, lowering_platforms=(platform,)).as_text(debug_info=debug_info)


def lower_graph(
    graph: Graph,
    platform: str,
    sharding: SingleDeviceSharding | None = None,
    lowering_platforms: tuple[str, ...] | None = None,
    says: TextSink = discard_text,
) -> Any:
    """The lowered program of JAX. Errors: DL1221 for another platform than this one, if it prints."""
    if lowering_platforms is not None:
        refuse_prints_elsewhere(graph, platform)
    with jax.enable_x64(True), pause_gc():
        try:
            return trace_graph(graph, platform, sharding, says).lower(lowering_platforms=lowering_platforms)
        except (DifflangError, InternalError):
            raise
        except Exception as error:
            foreign = equations_of_users(graph)
            if not foreign:
                raise
            raise foreign_lowering_error(foreign[0], platform, error) from error


def refuse_prints_elsewhere(graph: Graph, platform: str) -> None:
    """Errors: DL1221 for a program that prints, if the platform is not that of this process."""
    if graph.effectful and platform != jax.default_backend():
        ways = ("compile on the machine where the program will run, or remove the printing",)
        message = f"a program that prints calls back to its own process, so it cannot be lowered for `{platform}` here"
        raise DifflangError(Diagnostic("DL1221", message, helps=ways))


def equations_of_users(graph: Graph) -> list[Eqn]:
    """The equations that are lowered by code of JAX which is not ours: ops of users, functions of Python."""
    eqns = [eqn for g in graphs_postorder(graph)[0] for eqn in g.eqns]
    return [e for e in eqns if e.op.module or (e.op is extern and not e.attrs["function"].host)]


def foreign_lowering_error(eqn: Eqn, platform: str, error: Exception) -> DifflangError:
    """What JAX does not lower, such as a kernel for another device or without a batch. Errors: DL1271, DL1232."""
    name = eqn.op.name if eqn.op.module else eqn.attrs["function"].name
    first = next(iter(str(error).splitlines()), error.__class__.__name__)
    message = f"JAX cannot lower this program for `{platform}`: {first}"
    way = f"`{name}` is lowered by code of yours: is it for this device?"
    return DifflangError(Diagnostic("DL1271" if eqn.op.module else "DL1232", message, (Label(eqn.span),), (way,)))


def trace_graph(
    graph: Graph, platform: str, sharding: SingleDeviceSharding | None = None, on_print: TextSink = discard_text
) -> Any:
    """The traced program of JAX, before it is lowered. 64-bit types must be enabled."""
    return jit_graph(graph, platform, on_print).trace(*[shape_struct(p.type, sharding) for p in graph.params])


def jit_graph(graph: Graph, platform: str, on_print: TextSink = discard_text) -> Any:
    """The program as a jitted JAX function, not traced yet."""
    lowering = Lowering(jax, platform, on_print)

    def program(*arrays: Array) -> list[Array]:
        return lowering.graph(graph, *arrays)

    program.__name__ = program.__qualname__ = graph.name or "program"
    return jax.jit(program, keep_unused=True)


def shape_struct(type: Any, sharding: SingleDeviceSharding | None) -> jax.ShapeDtypeStruct:
    assert isinstance(type, Tensor), "a history cannot be a parameter of a program"
    return jax.ShapeDtypeStruct(type.shape, numpy_dtype(type.dtype), sharding=sharding)


def options_of(graph: Graph, device: Device | None = None) -> dict[str, Any]:
    """XLA's options for every program on that device or the default one."""
    # What JAX writes may need XLA's algebra: on the CPU there is no code for a padding that removes elements.
    return {**EXACT_OPTIONS} if device_platform(device) == "cpu" and not equations_of_users(graph) else {}


def compile_lowered(program: Any, graph: Graph, options: Mapping[str, Any]) -> Callable[..., list[Array]]:
    """The program compiled by XLA. Errors: DL1011."""
    # XLA's options change from version to version: without the one for the kernel order, it keeps its default.
    try:
        with jax.enable_x64(True):
            return program.compile(compiler_options=dict(options) or None)
    except jax.errors.JaxRuntimeError as error:
        if any(name in options and name in str(error) for name in LOW_MEMORY_OPTIONS):
            return compile_lowered(
                program, graph, {name: options[name] for name in options if name not in LOW_MEMORY_OPTIONS}
            )
        where = (Label(graph.eqns[0].span),) if graph.eqns else ()
        message = f"XLA could not compile {graph.name or 'this program'}: {str(error).splitlines()[0]}"
        raise DifflangError(Diagnostic("DL1011", message, where)) from error


def device_platform(device: Device | None) -> str:
    return jax.default_backend() if device is None else device.platform


def argument_count_error(graph: Graph, given: int) -> DifflangError:
    wanted = len(graph.params)
    name = graph.name or "this program"
    return DifflangError(Diagnostic("DL1202", f"{name} takes {wanted} argument{'s' * (wanted != 1)}, not {given}"))
