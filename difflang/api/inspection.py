"""Inspection of a loaded function: its IR, jaxpr and StableHLO, export, memory and cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from difflang.ad.expand_derivatives import custom_rules
from difflang.api.loaded_program import CallArguments, tangent_type_at
from difflang.api.option_values import parse_budget
from difflang.api.signature import innermost_function
from difflang.api.transforms import TransformMixin, WrtSpec, wrt_list
from difflang.base.diagnostics import DifflangError
from difflang.base.error_codes import nearest_word, suggestion
from difflang.base.errors import CheckError, classify_errors
from difflang.driver.elaborate_call import CallArgument, ElaboratedCall
from difflang.driver.type_specs import declared_arguments, is_text
from difflang.elaborate.context import Session
from difflang.embed.jax_primitive import lower_placed
from difflang.execution.callable_graph import finalize_within_limit
from difflang.execution.check_failures import with_check_number
from difflang.ir.graph import Graph as IrGraph
from difflang.ir.text_printer import graph_to_text
from difflang.lower.lowering_pipeline import COMPILE, COMPILE_ON_MESH, STAGES, graph_at_stage
from difflang.passes.pipelines import Pipeline
from difflang.runtime.compile import compile_lowered, options_of
from difflang.runtime.devices import sharding_of
from difflang.runtime.stablehlo_and_jaxpr import jaxpr_text, lower_to_stablehlo
from difflang.syntax import tree
from difflang.tools.cost import CostReport as Expenses
from difflang.tools.cost import program_cost
from difflang.tools.export.export_function import export_error, save_artifact, symbolic_sizes
from difflang.tools.memory_report import MemoryReport as Memory
from difflang.tools.memory_report import graph_memory, number_checks
from difflang.types.function_code import FnCode
from difflang.types.module_scope import ModuleScope
from difflang.types.type_errors import make_error
from difflang.types.type_resolver import TypeBinding

if TYPE_CHECKING:
    from difflang.graph.computational_graph import Graph


class InspectMixin(TransformMixin):
    """Methods that show a function's programs for described arguments, without running them."""

    def _bind_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[CallArguments, Any]:
        raise NotImplementedError

    def _elaborate(self, specs: tuple[Any, ...], named: dict[str, Any]) -> ElaboratedCall:
        """The graph for arguments described by specs, elaborated afresh."""
        return self._elaborate_types(self._argument_specs(specs, named))

    def _elaborate_types(self, arguments: tuple[CallArgument, ...]) -> ElaboratedCall:
        return self.loaded.elaborate_call(self.__name__, self.function_type, arguments, Session())

    def _argument_specs(self, specs: tuple[Any, ...], named: dict[str, Any]) -> tuple[CallArgument, ...]:
        """The arguments described by specs; without specs, as the declaration determines them."""
        return self._placed_specs(specs, named)[0]

    def _placed_specs(
        self, specs: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[tuple[CallArgument, ...], list[Any]]:
        """The arguments, and the sharding of each array in them: None where the spec says nothing of devices."""
        base = innermost_function(self.function_type).code
        decl = (base.decl, base.module) if isinstance(base, FnCode) and not specs and not named else None
        if decl is not None and (found := self._declared_arguments(*decl)) is not None:
            return found, []
        given, _ = self._bind_arguments(specs, dict(named))
        typed = self.loaded.type_arguments(self.__name__, self.full_signature, given, specs=True)
        return typed.arguments, [sharding_of(given.leaves[i]) if isinstance(i, int) else None for i in typed.order]

    def _symbolic_specs(
        self, sizes: tuple[str, ...], specs: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[CallArgument, ...]:
        """The arguments with symbolic sizes; of specs only texts of parameters that are texts.

        Errors: DL1207 for other specs, DL1210 for a missing text, DL1240 for a mapped function.
        """
        base = innermost_function(self.function_type).code
        params = base.decl.params if isinstance(base, FnCode) else ()
        texts = {p.name: p for p in params if isinstance(base, FnCode) and is_text(base.decl, p.name)}
        if specs or not all([name in texts and isinstance(value, str) for name, value in named.items()]):
            message = "beside symbolic sizes, only bound sizes and named texts describe arguments"
            way = f'write `f.bind(…).export(path, symbolic="{sizes[0]}")`'
            raise make_error("DL1207", message, help=way)
        for name, param in texts.items():
            if name not in named and param.default is None:
                message = f"the text of parameter `{name}` of `{self.__name__}` is not given"
                way = f'pass it by name: `f.export(path, symbolic="{sizes[0]}", {name}="…")`'
                raise make_error("DL1210", message, (param.span, ""), help=way)
        found = None
        if isinstance(base, FnCode):
            found = self._declared_arguments(base.decl, base.module, symbolic_sizes(base.decl, sizes), named)
        if found is None:
            way = "export the function itself, and use `jax.vmap` on what is loaded"
            raise export_error(f"`{self.__name__}` has axes that no declaration names, so none is symbolic", way)
        return found

    def _declared_arguments(
        self,
        decl: tree.Fn,
        module: ModuleScope,
        symbolic: Mapping[str, TypeBinding] = MappingProxyType({}),
        texts: Mapping[str, str] = MappingProxyType({}),
    ) -> tuple[CallArgument, ...] | None:
        """The arguments, with tangents, that a declaration, bound sizes and texts determine; None for a mapped one."""
        count = len(decl.params)
        tangents = self.full_signature.parameters[count:]
        # A batch size is in no declaration.
        if self.full_signature.vmap_depth or any(p.tangent_of is None for p in tangents):
            return None
        try:
            found = declared_arguments(module, decl, {**texts, **{n: str(size) for n, size in self.sizes}}, symbolic)
        except DifflangError as error:
            raise undetermined_sizes(error, self.signature.dims) from None
        if tangents and len(found) < count:
            return None
        types = {a.name: a.type for a in found}
        for p in tangents:
            assert p.tangent_of is not None
            position, path = p.tangent_of
            types[p.name] = tangent_type_at(types[self.full_signature.names[position]], path)
            found = (*found, CallArgument(p.name, types[p.name]))
        return found

    def lower(self, *specs: Any, platform: str | None = None, **named: Any) -> Lowered:
        """The program for such arguments, lowered for XLA, from the checked source each time.

        A spec is an array, a `jax.ShapeDtypeStruct`, or a string such as `"f32[3, 4]"` or `"Mlp[64, 32, 10]"`. No spec
        is needed if the declaration determines every size. Shardings of specs are those of the lowered program, also on
        a `jax.sharding.AbstractMesh`. Errors: DL0603 for a size that the mesh does not divide, DL0604, DL0605, DL0609.
        """
        with classify_errors():
            arguments, shardings = self._placed_specs(specs, named)
            entry = self._elaborate_types(arguments)
            placed, mesh = any(s is not None for s in shardings), self.loaded.run_context.mesh
            graph = finalize_within_limit(entry.graph, mesh=mesh, pipeline=self._pipeline(placed=placed))
            graph = with_check_number(graph) if entry.fails else graph
            program = lower_placed(graph, shardings, platform) if placed else lower_to_stablehlo(graph, platform)
            return Lowered(graph, program, entry)

    def _pipeline(self, *, placed: bool = False) -> Pipeline:
        """What prepares a call: it is made of tiles on one device only."""
        return COMPILE_ON_MESH if placed or self.loaded.run_context.mesh is not None else COMPILE

    def ir(self, stage: str = "ir", *specs: Any, **named: Any) -> str:
        """The program's graph as text: elaborated (`ir`), without derivative operators (`derived`), or `optimized`."""
        with classify_errors():
            return graph_to_text(graph_at_stage(self._elaborate(specs, named).graph, stage))

    def graph(self, *specs: Any, stage: str = "ir", **named: Any) -> Graph:
        """The program's graph as an object, at a stage of `ir`: see `difflang.graph`.

        Its inputs are the arrays of the arguments, then a random key if it draws numbers, then arrays of the file.
        Errors: DL1207 for an unknown stage; those of `ir`.
        """
        from difflang.graph.computational_graph import Graph
        from difflang.graph.run_graph import RunContext

        if stage not in STAGES:
            with classify_errors():
                raise make_error("DL1207", f"there is no stage `{stage}`", help=suggestion(stage, STAGES))
        with classify_errors():
            session = Session()
            entry = self.loaded.elaborate_call(
                self.__name__, self.function_type, self._argument_specs(specs, named), session
            )
            with self.loaded.lock:
                constants = self.loaded.constants(entry)
            dropped = () if stage == "ir" else custom_rules(entry.graph)
            context = RunContext(session, self.loaded.lock, constants, entry.random, entry.limit, dropped)
            return Graph(graph_at_stage(entry.graph, stage), context, can_fail=entry.fails)

    def memory(
        self,
        *specs: Any,
        wrt: WrtSpec | None = None,
        budget: str | int | None = None,
        compiled: bool = False,
        **named: Any,
    ) -> Memory:
        """The memory that it, or its gradient in `wrt`, needs for such arguments, under a budget: `"64 MiB"`, or bytes.

        Nothing is compiled, unless `compiled` asks for a comparison with XLA's figure, after which another plan may be
        the one that fits. `str` of the report is a table by lines. In a module loaded for a mesh, the memory and the
        budget are those of each device. Errors: DL1012 if the budget is too small; DL0801
        for specs that are split over several devices.
        """
        for name in set(named) - set(self.signature.names):
            if near := nearest_word(name.lower(), ("wrt", "budget", "compiled")):
                with classify_errors():
                    raise make_error("DL1207", f"`memory` has no option `{name}`", help=f"did you mean `{near}`?")
        if wrt is not None:
            return self.grad(wrt).memory(*specs, budget=budget, compiled=compiled, **named)
        with classify_errors():
            arguments, shardings = self._placed_specs(specs, named)
            if any(s is not None and s.num_devices > 1 for s in shardings):
                message = "the memory of a program on several devices is not predicted"
                way = f"XLA says it of the compiled program: `{self.__name__}.lower(…).compile().memory_analysis()`"
                raise make_error("DL0801", message, help=way)
            mesh = self._mesh_sizes
            graph = number_checks(self._elaborate_types(arguments), mesh)
            return graph_memory(graph, f"`{self.__name__}`", parse_budget(budget), compiled=compiled, mesh=mesh)

    @property
    def _mesh_sizes(self) -> dict[str, int]:
        """The sizes of the axes of the mesh that the module was loaded for."""
        mesh = self.loaded.run_context.mesh
        return {} if mesh is None else dict(mesh.shape)

    def cost(self, *specs: Any, wrt: WrtSpec | None = None, **named: Any) -> Expenses:
        """The cost of it and of its gradient for such arguments: operations, bytes, memory. Nothing is compiled or run.

        The counts are of the compiler's graph as it is lowered; none is a time. The gradient is in `wrt`, by default in
        the first parameter; without a gradient the report says why. `str` of the report is a table, `.table()` its
        rows. In a module loaded for a mesh, what each device does and holds; specs that are split over devices by
        themselves cost what they cost unsplit: on all devices together.

        Errors: those of `grad` if `wrt` is given; DL1210 if a size is missing.
        """
        with classify_errors():
            mesh = self._mesh_sizes
            value = program_cost(number_checks(self._elaborate(specs, named), mesh), mesh)
        gradient, places, why = None, "", ""
        try:
            with classify_errors():
                places = ", ".join([self._wrt_name(self._wrt_path(w)) for w in wrt_list(0 if wrt is None else wrt)])
                gradient_of = self.grad() if wrt is None else self.grad(wrt)
                gradient = program_cost(number_checks(gradient_of._elaborate(specs, named), mesh), mesh)
        # Without `wrt`, a missing gradient is a result and not an error.
        except CheckError as error:
            if wrt is not None:
                raise
            why = error.diagnostics[0].message
        return Expenses(f"`{self.__name__}`", value, gradient, places, why, mesh)

    def jaxpr(self, *specs: Any, **named: Any) -> str:
        """The program as JAX primitives."""
        with classify_errors():
            return jaxpr_text(finalize_within_limit(self._elaborate(specs, named).graph, pipeline=self._pipeline()))

    def stablehlo(self, *specs: Any, platform: str | None = None, **named: Any) -> str:
        """The program as StableHLO, XLA's input."""
        return self.lower(*specs, platform=platform, **named).as_text()

    def export(
        self,
        path: str | Path,
        *specs: Any,
        platforms: Sequence[str] | None = None,
        source: bool = True,
        symbolic: str | Sequence[str] = (),
        **named: Any,
    ) -> None:
        """Write it to a file that `difflang.runtime.load` reads, for arguments described as in `lower`.

        Besides the portable program, the file holds StableHLO for the `platforms`, which need not be available here
        (by default cpu, cuda and tpu), and the program's source for error reports, unless `source` is false. The sizes
        that `symbolic` names are those of each call: `f.bind(d=2).export("f.dflx", symbolic="n")`. There is then no
        StableHLO, `bind` determines the other sizes, and texts are passed by name.

        Errors: ArtifactError for a function that prints, or takes or returns functions, and for a symbolic size on
        which a `where` depends; DL1210 if a size is missing.
        """
        with classify_errors():
            # Captured arrays may be traced or on a device, and are not part of the source.
            if self.captures:
                raise export_error(
                    f"`{self.__name__}` holds values of this process and cannot be exported",
                    "export the function that created it",
                )
            session = Session()
            sizes = (symbolic,) if isinstance(symbolic, str) else tuple(symbolic)
            arguments = self._symbolic_specs(sizes, specs, named) if sizes else self._argument_specs(specs, named)
            entry = self.loaded.elaborate_call(self.__name__, self.function_type, arguments, session)
            made = replace(self.loaded.export_unit(self, entry, arguments, session), sizes=sizes)
            save_artifact(Path(path), made, platforms, source=source)


def undetermined_sizes(error: DifflangError, dims: Sequence[str]) -> DifflangError:
    """The error for missing sizes, with Python's ways to supply them."""
    bound = f", or bind its sizes: `f.bind({', '.join([f'{name}=3' for name in dims])})`" if dims else ""
    way = f'pass arrays, `jax.ShapeDtypeStruct`s or texts such as `"f32[3]"`{bound}'
    return DifflangError(*[replace(d, helps=(way,)) if d.code == "DL1210" else d for d in error.diagnostics])


class Lowered:
    """A program for XLA before compilation. `graph` is what it was lowered from."""

    def __init__(self, graph: IrGraph, program: Any, entry: ElaboratedCall) -> None:
        self.graph, self.entry, self._program = graph, entry, program

    def as_text(self, debug_info: bool = False) -> str:
        """StableHLO; with `debug_info`, each operation carries its source position."""
        return self._program.as_text(debug_info=debug_info)

    def compile(self, options: dict[str, Any] | None = None) -> Callable[..., Any]:
        """JAX's compiled program. It maps leaves of the arguments to leaves of the results.

        Errors: DL0601 if it was lowered for an abstract mesh, DL1011.
        """
        try:
            return compile_lowered(self._program, self.graph, {**options_of(self.graph), **(options or {})})
        except RuntimeError as error:
            if "device_assignment" not in str(error):
                raise
            way = "lower it with shardings on a `jax.sharding.Mesh`"
            with classify_errors():
                raise make_error("DL0601", "an abstract mesh has no devices to compile for", help=way) from None
