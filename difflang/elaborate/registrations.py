"""All that registers elaborators of syntax, built-in functions or kinds of functions: importing it runs them."""

from __future__ import annotations

import difflang.ops  # noqa: F401  # pyright: ignore[reportUnusedImport]  registers the ops
from difflang.elaborate.arrays import (
    complex_numbers,
    convolution_pooling,
    creation_and_shape,
    fft,
    indexing,
    linear_algebra,
    random_draws,
    reduce_and_scan,
    reductions,
    roll_tile_and_triangles,
)
from difflang.elaborate.calls import (
    builtin_functions,
    call_expressions,
    constructors,
    extern_calls,
    function_calls,
    lambdas,
    vmap,
)
from difflang.elaborate.derivatives import grad_jvp_vjp, linear_functions
from difflang.elaborate.expressions import comprehensions, operators, primary_expressions
from difflang.elaborate.patterns import match_expressions
from difflang.elaborate.statements import basic_statements, branches, checkpoint_blocks, loops, printing

REGISTERING = (
    basic_statements, branches, builtin_functions, call_expressions, checkpoint_blocks, complex_numbers,
    comprehensions, constructors, convolution_pooling, creation_and_shape, extern_calls, fft, function_calls,
    grad_jvp_vjp, indexing, linear_algebra, lambdas, linear_functions, loops, match_expressions, operators,
    primary_expressions, printing, random_draws, reduce_and_scan, reductions, roll_tile_and_triangles, vmap,
)  # fmt: skip
