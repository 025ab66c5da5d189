"""Gamma functions: `gamma`, `lgamma`, `digamma` and `polygamma` of every order, on the whole real line.

The interpreter and the lowering use the same formulas: XLA's and SciPy's own lose digits near zeros and poles and far
out. `m` is NumPy or `jax.numpy`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from difflang.ir.array_types import NUMPY, Array, ArrayT, Jax, JaxArray, NumpyModule
from difflang.ir.op import ArrayLowerRule
from difflang.numerics.accurate_elementary import horner, integer_power
from difflang.numerics.digamma_negative import dd_log, digamma_negative
from difflang.numerics.double_double import DoubleDouble, dd_add, dd_from_float, dd_mul
from difflang.ops.op_factories import OpExample, UniformSamples, unary_op

# Chebyshev fits by mpmath's `chebyfit`, highest power first; `tests/support/fits.py` recomputes them.
# psi(x) / (x - ROOT) for x = 1.75 + 0.75 s and s from -1 to 1
ROOT_QUOTIENT = (
    -8.934356011296607e-10, 2.084685603446026e-09, 9.430557062404434e-10, -2.200445705916143e-09,
    -1.156176906966138e-08, 2.6977745451521798e-08, -3.500133329871432e-08, 8.167352559979187e-08,
    -2.2075621816099983e-07, 5.151484439513242e-07, -1.18021728977209e-06, 2.7545238283035987e-06,
    -6.440728700090912e-06, 1.5037639097798307e-05, -3.511830836552196e-05, 8.206954316386523e-05,
    -0.0001919680188528313, 0.0004496886163981509, -0.0010559201165992072, 0.002489169460176379,
    -0.0059065251786198075, 0.014174890666917201, -0.03471423174384224, 0.08838006376052003, -0.24469097090107927,
    0.8581832171262995,
)  # fmt: skip
# (log x - 1 / (2 x) - psi(x)) x^2 in 1 / x^2, for x from 2.5
PSI_TAIL = (
    -138.07538488499677, 172.67957008683638, -100.25803909760218, 36.41520181835897, -9.536094055886467,
    2.016786241801458, -0.39153496701913143, 0.08136951730856672, -0.02103925711040969, 0.00757477549863857,
    -0.0041666555790601705, 0.003968253901552892, -0.008333333333172483, 0.08333333333333327,
)  # fmt: skip
# lgamma(2 + s) / (s (1 + s)) for s from -1 to 0.5
BETWEEN_ZEROS = (
    -1.5069416728386754e-07, -5.929080536705197e-07, -8.66945987804204e-07, -1.7898878266475367e-07,
    7.051540265756957e-07, 7.739811734147986e-07, -3.0047995251347475e-07, 1.4425579993472215e-08,
    -9.403407544212204e-07, 1.911608575161866e-06, -3.801597688095123e-06, 8.207856505261183e-06,
    -1.7671676469105627e-05, 3.816980476924877e-05, -8.30939198651485e-05, 0.000182552637680546,
    -0.0004057074808388794, 0.0009153769193331747, -0.002108130830829956, 0.004998641164825213, -0.01238419219342549,
    0.03296500062115426, -0.10031730167435364, 0.42278433509846713,
)  # fmt: skip
# x (lgamma(x) - (x - 1/2) log x + x - log(2 pi) / 2) in 1 / x^2, for x from 2.5
STIRLING_TAIL = (
    -0.3798798444577467, 0.43176800571851115, -0.23176632972839445, 0.08129466384616944, -0.022593560645490073,
    0.006035234354704072, -0.0019031412413929255, 0.0008413836627094221, -0.0005952323836025104,
    0.0007936507466535246, -0.002777777777623419, 0.08333333333333325,
)  # fmt: skip

# The positive root of psi as a double and its rounding error, and psi' there.
ROOT, ROOT_LOW_BITS, ROOT_SLOPE = 1.4616321449683622, 9.549995429965697e-17, 0.9676722454476212
# From here on the asymptotic series are accurate.
ASYMPTOTIC_FROM = 2.5
STIRLING_CONSTANT = 0.5 * math.log(2.0 * math.pi) - 0.5
HALF_LOG_2_PI = (0.9189385332046728, -3.8782941580672414e-17)
GAMMA_OVERFLOWS = 172.0

# Bernoulli numbers B_2, B_4, ...
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330)


def offset_from_integer(m: NumpyModule[ArrayT], x: ArrayT) -> ArrayT:
    """`x` minus the nearest integer: exact, from -0.5 to 0.5; 0 at +-Inf."""
    return m.where(m.abs(x) < 2.0**52, x - m.round(x), 0.0 * m.sign(x))


def cot_pi(m: NumpyModule[ArrayT], f: ArrayT) -> ArrayT:
    """`cot(pi f)` for f from -0.5 to 0.5; Inf at 0."""
    size = m.abs(f)
    steep = size > 0.25
    t = m.tan(math.pi * m.where(steep, 0.5 - size, size))
    return m.where(f < 0, -1.0, m.ones_like(f)) * m.where(steep, t, 1.0 / t)


def reflect_argument(m: NumpyModule[ArrayT], x: ArrayT) -> ArrayT:
    """`x` where it is positive, `1 - x` where it is negative."""
    return m.where(x < 0, 1.0 - x, x)


def lgamma_stirling(m: NumpyModule[ArrayT], x: ArrayT) -> ArrayT:
    """`lgamma(x)` for x from `ASYMPTOTIC_FROM`."""
    v = 1.0 / x
    return (x - 0.5) * (m.log(x) - 1.0) + (STIRLING_CONSTANT + v * horner(STIRLING_TAIL, v * v))


def lgamma_formula(m: NumpyModule[ArrayT], x: ArrayT) -> ArrayT:
    """A polynomial times the zeros at 1 and 2 around them, then Stirling's series; reflected for negative arguments.

    Source: Abramowitz and Stegun 6.1.17, 6.1.40.
    """
    y = reflect_argument(m, x)
    low = y < 1.0
    z = m.where(y < ASYMPTOTIC_FROM, y, 1.5)
    s = m.where(low, z - 1.0, z - 2.0)
    near = s * m.where(low, z, z - 1.0) * horner(BETWEEN_ZEROS, s) - m.where(low, m.log(z), 0.0)
    f = m.where(y < ASYMPTOTIC_FROM, ASYMPTOTIC_FROM, y)
    right = m.where(y < ASYMPTOTIC_FROM, near, lgamma_stirling(m, f))
    beside = m.abs(offset_from_integer(m, x))
    left = m.log(math.pi / m.sin(math.pi * beside)) - right
    return m.where(x > 0, right, m.where(beside == 0, math.inf, left))


def dd_lgamma_stirling(m: NumpyModule[ArrayT], x: ArrayT) -> DoubleDouble:
    """Stirling's series in double-double arithmetic, for doubles from `ASYMPTOTIC_FROM`."""
    v = 1.0 / x
    main = dd_add(dd_mul(dd_from_float(x - 0.5), dd_log(m, dd_from_float(x))), dd_from_float(-x))
    return dd_add(dd_add(main, HALF_LOG_2_PI), dd_from_float(v * horner(STIRLING_TAIL, v * v)))


def gamma_formula(m: NumpyModule[ArrayT], x: ArrayT) -> ArrayT:
    """`x gamma(x)` by a polynomial up to `ASYMPTOTIC_FROM`, then Stirling's series; reflected for negative arguments.

    Source: Abramowitz and Stegun 6.1.15, 6.1.17, 6.1.40.
    """
    dtype = x.dtype
    if dtype.itemsize < 8:
        x = x.astype(m.result_type(float))
    size = m.abs(x)
    low = size < 1.0
    z = m.where(size < ASYMPTOTIC_FROM, size, 1.5)
    s = m.where(low, z - 1.0, z - 2.0)
    near = m.exp(s * m.where(low, z, z - 1.0) * horner(BETWEEN_ZEROS, s))
    times_x = near * m.where(low, 1.0, z)
    f = m.where(size < ASYMPTOTIC_FROM, ASYMPTOTIC_FROM, m.minimum(size, 2.0 * GAMMA_OVERFLOWS))
    # The exponential multiplies the error of the logarithm by its size: f64 needs it in double-double.
    high, rest = dd_lgamma_stirling(m, f) if dtype == np.float64 else (lgamma_stirling(m, f), 0.0)
    right = m.where(size < ASYMPTOTIC_FROM, near / m.where(low, z, 1.0), m.exp(high) * (1.0 + rest))
    inverse = m.where(size < ASYMPTOTIC_FROM, 1.0 / times_x, m.exp(-high) * (1.0 - rest))
    beside = offset_from_integer(m, x)
    odd = m.floor(size) - 2.0 * m.floor(0.5 * size)
    left = inverse * (math.pi / m.sin(math.pi * m.abs(beside))) / m.where(size < ASYMPTOTIC_FROM, 1.0, size)
    pole = m.where(x == 0, m.copysign(math.inf, x), math.nan)
    y = m.where(x > 0, right, m.where(beside == 0, pole, m.where(odd == 1, left, -left)))
    return m.where(m.isnan(x), x, y).astype(dtype)


def digamma_positive(m: NumpyModule[ArrayT], x: ArrayT) -> ArrayT:
    """A polynomial times the distance from the root, then the asymptotic series. For `x` from 0.

    Source: Abramowitz and Stegun 6.3.5, 6.3.18.
    """
    low = x < 1.0
    z = m.where(x < ASYMPTOTIC_FROM, m.where(low, x + 1.0, x), 1.5)
    root = x.dtype.type(ROOT)
    rest = (ROOT - float(root)) + ROOT_LOW_BITS
    near = (z - root) * horner(ROOT_QUOTIENT, (z - 1.75) / 0.75) - rest * ROOT_SLOPE
    f = m.where(x < ASYMPTOTIC_FROM, ASYMPTOTIC_FROM, x)
    v = 1.0 / f
    far = m.log(f) - v * (0.5 + v * horner(PSI_TAIL, v * v))
    return m.where(x < ASYMPTOTIC_FROM, near - m.where(low, 1.0 / x, 0.0), far)


def numpy_cond(condition: Array, yes: Callable[..., Array], no: Callable[..., Array], *operands: Array) -> Array:
    """NumPy's counterpart of `jax.lax.cond`."""
    return yes(*operands) if condition else no(*operands)


def digamma_formula(m: NumpyModule[ArrayT], x: ArrayT, cond: Callable[..., ArrayT]) -> ArrayT:
    """Reflected for negative arguments, in double-double arithmetic."""
    right = m.where(x == 0, m.copysign(math.inf, -x), digamma_positive(m, m.maximum(x, 0.0)))
    # Double-double takes four times as long, so only if there are negative arguments.
    return cond(m.any(x < 0), lambda x, y: m.where(x < 0, digamma_reflected(m, x), y), lambda x, y: y, x, right)


def digamma_reflected(m: NumpyModule[ArrayT], x: ArrayT) -> ArrayT:
    """NaN at the poles. Narrow types are computed in plain f64, longdouble (in checks) in its own precision."""
    beside = offset_from_integer(m, x)
    if x.dtype == np.float64:
        y = digamma_negative(m, x, beside)
    else:
        dtype = x.dtype if x.dtype.itemsize > 8 else m.result_type(float)
        wide = x.astype(dtype)
        y = (digamma_positive(m, 1.0 - wide) - math.pi * cot_pi(m, beside.astype(dtype))).astype(x.dtype)
    return m.where(beside == 0, math.nan, y)


def polygamma_formula(m: NumpyModule[ArrayT], x: ArrayT, n: int) -> ArrayT:
    """The first terms of its series and the Euler-Maclaurin formula for the rest; reflected for negative arguments.

    Source: Abramowitz and Stegun 6.4.7, 6.4.10, 23.1.30.
    """
    y, s, terms = reflect_argument(m, x), n + 1, 10 + n
    far = y > 32.0
    w = m.where(far, y, y + float(terms))
    v = 1.0 / w
    total, rising, square = 1.0 / n + 0.5 * v, float(s), v * v
    even = square
    for j, b in enumerate(BERNOULLI, 1):
        total = total + even * (b * rising / math.factorial(2 * j))
        rising, even = rising * (s + 2 * j - 1) * (s + 2 * j), even * square
    head = 1.0 / integer_power(m, y + (terms - 1.0), s)
    for k in reversed(range(terms - 1)):
        head = head + 1.0 / integer_power(m, y + float(k), s)
    right = (total / integer_power(m, w, n) + m.where(far, 0.0, head)) * ((-1.0) ** s * math.factorial(n))
    beside = offset_from_integer(m, x)
    c = cot_pi(m, m.where(beside == 0, 0.5, beside))
    left = (-1.0) ** n * right - math.pi**s * horner([0.0, *cot_derivative_polynomial(n)], c)
    return m.where(x < 0, m.where(beside == 0, math.nan, left), right)


def cot_derivative_polynomial(n: int) -> list[float]:
    """The `n`th derivative of the cotangent as a polynomial in it, highest power first: c' = -(1 + c^2)."""
    lowest_first = [0.0, 1.0]
    for _ in range(n):
        slope = [k * a for k, a in enumerate(lowest_first)][1:]
        lowest_first = [-a - b for a, b in zip([*slope, 0.0, 0.0], [0.0, 0.0, *slope], strict=True)]
    return lowest_first[::-1]


def lower_formula(function: Callable[..., JaxArray], *, branches: bool = False) -> ArrayLowerRule:
    """A lowering by a formula above, which may take a `cond`. 16-bit floats are computed in f32."""

    def lower(jax: Jax, x: JaxArray, **attrs: int) -> JaxArray:
        narrow = x.dtype.itemsize == 2
        wide = jax.lax.convert_element_type(x, "float32") if narrow else x
        y = function(jax.numpy, wide, *attrs.values(), *([jax.lax.cond] if branches else []))
        return jax.lax.convert_element_type(y, x.dtype)

    return lower


lgamma = unary_op(
    "lgamma",
    jvp=lambda dx, y, x: dx * digamma.one(x),
    reference=lambda x: lgamma_formula(NUMPY, x),
    lower=lower_formula(lgamma_formula),
    samples=UniformSamples(0.3, 5.0),
    doc="""Logarithm of the absolute value of the gamma function; +Inf at its poles. Units: 1 -> 1.
    Kinks: -Inf at 0 and Inf at -0.0; NaN at the poles -1, -2, ...""",
)
gamma = unary_op(
    "gamma",
    jvp=lambda dx, y, x: dx * (y * digamma.one(x)),
    reference=lambda x: gamma_formula(NUMPY, x),
    lower=lower_formula(gamma_formula),
    samples=UniformSamples(0.3, 5.0),
    doc="""The gamma function; +-Inf at +-0, NaN at its other poles. Units: 1 -> 1.
    Kinks: -Inf at 0 and -0.0; NaN at the poles -1, -2, ...""",
)
digamma = unary_op(
    "digamma",
    jvp=lambda dx, y, x: dx * polygamma.one(x, n=1),
    reference=lambda x: digamma_formula(NUMPY, x, numpy_cond),
    lower=lower_formula(digamma_formula, branches=True),
    traits=("asks all elements",),
    samples=UniformSamples(0.3, 5.0),
    doc="""Derivative of `lgamma`; -Inf at 0 and Inf at -0.0. Units: 1 -> 1.
    Kinks: Inf at 0; NaN at the poles -1, -2, ...""",
)


polygamma = unary_op(
    "polygamma",
    jvp=lambda dx, y, x, n: dx * polygamma.one(x, n=n + 1),
    reference=lambda x, n: polygamma_formula(NUMPY, x, n),
    lower=lower_formula(polygamma_formula),
    samples=tuple(OpExample(((2, 3),), {"n": n}, UniformSamples(0.3, 5.0)) for n in (1, 2, 3)),
    doc="""Derivative number `n` (at least 1) of `digamma`. Units: 1 -> 1.
    Kinks: +-Inf at 0, the limit from the right; NaN at the other poles.""",
)
