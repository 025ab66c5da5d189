"""Random numbers as pure functions of a key: Threefry-2x32 in counter mode, 20 rounds (Salmon et al. 2011).

Element i, counted in row-major order, is the cipher of the 64-bit counter i, high word first, under the key; 32 random
bits are the exclusive or of its two words. These are the bits of `jax.random` with partitionable Threefry, but JAX's is
not called, so no setting of JAX changes them. The interpreter gives the same bits.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from difflang.ir.array_types import Array, ArrayT, Jax, JaxArray, NumpyDType
from difflang.ir.op import ArrayLowerRule, ArrayReferenceRule, Inactivity, Op, TypeRule, TypeSolver
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import BF16, F16, F32, F64, FLOATS, I32, U32, DType, Tensor, numpy_dtype
from difflang.ops.op_factories import FixedOperand, OpExample, inactive_op

Ints = tuple[int, ...]
# The high and the low half of 64 bits.
Words = tuple[ArrayT, ArrayT]

# The constants of Threefry-2x32 and the mantissa bits of each float type.
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA
MANTISSA = {BF16: 7, F16: 10, F32: 23, F64: 52}

EXAMPLE_KEY = FixedOperand((0x12345678, 0x9ABCDEF0), U32)


class Uint32Arithmetic(Protocol[ArrayT]):
    """Arithmetic on 32-bit words, in NumPy or in JAX, so that the cipher is written once."""

    def add(self, x: ArrayT, y: ArrayT) -> ArrayT: ...
    def xor(self, x: ArrayT, y: ArrayT) -> ArrayT: ...
    def rotate(self, x: ArrayT, by: int) -> ArrayT: ...
    def full_like(self, x: ArrayT, word: int) -> ArrayT: ...
    def iota(self, count: int) -> ArrayT: ...
    def broadcast(self, word: ArrayT, count: int) -> ArrayT: ...


class NumpyUint32Arithmetic:
    def add(self, x: Array, y: Array) -> Array:
        return np.add(x, y, dtype=np.uint32)

    def xor(self, x: Array, y: Array) -> Array:
        return np.bitwise_xor(x, y)

    def rotate(self, x: Array, by: int) -> Array:
        return np.left_shift(x, np.uint32(by)) | np.right_shift(x, np.uint32(32 - by))

    def full_like(self, x: Array, word: int) -> Array:
        return np.full_like(x, word)

    def iota(self, count: int) -> Array:
        return np.arange(count, dtype=np.uint32)

    def broadcast(self, word: Array, count: int) -> Array:
        return np.full(count, word, np.uint32)


class JaxUint32Arithmetic:
    def __init__(self, jax: Jax) -> None:
        self.lax = jax.lax

    def add(self, x: JaxArray, y: JaxArray) -> JaxArray:
        return self.lax.add(x, y)

    def xor(self, x: JaxArray, y: JaxArray) -> JaxArray:
        return self.lax.bitwise_xor(x, y)

    def rotate(self, x: JaxArray, by: int) -> JaxArray:
        left = self.lax.shift_left(x, self.full_like(x, by))
        return self.lax.bitwise_or(left, self.lax.shift_right_logical(x, self.full_like(x, 32 - by)))

    def full_like(self, x: JaxArray, word: int) -> JaxArray:
        return self.lax.full_like(x, word)

    def iota(self, count: int) -> JaxArray:
        return self.lax.iota(np.uint32, count)

    def broadcast(self, word: JaxArray, count: int) -> JaxArray:
        return self.lax.broadcast(word, (count,))


def threefry(arithmetic: Uint32Arithmetic[ArrayT], key: Words[ArrayT], counter: Words[ArrayT]) -> Words[ArrayT]:
    """The cipher of a two-word counter under a two-word key, element by element."""
    k0, k1 = key
    keys = (k0, k1, arithmetic.xor(arithmetic.xor(k0, k1), arithmetic.full_like(k0, PARITY)))
    x, y = arithmetic.add(counter[0], keys[0]), arithmetic.add(counter[1], keys[1])
    for group in range(5):
        for by in ROTATIONS[group % 2]:
            x = arithmetic.add(x, y)
            y = arithmetic.xor(arithmetic.rotate(y, by), x)
        x = arithmetic.add(x, keys[(group + 1) % 3])
        y = arithmetic.add(y, arithmetic.add(keys[(group + 2) % 3], arithmetic.full_like(y, group + 1)))
    return x, y


def threefry_stream(on: Uint32Arithmetic[ArrayT], key: Words[ArrayT], count: int) -> Words[ArrayT]:
    """The ciphers of 0, 1, ..., count - 1."""
    low = on.iota(count)
    return threefry(on, (on.broadcast(key[0], count), on.broadcast(key[1], count)), (on.full_like(low, 0), low))


def key_words(jax: Jax, key: JaxArray) -> Words[JaxArray]:
    lax = jax.lax
    first, second = (lax.reshape(lax.slice(key, (i,), (i + 1,)), ()) for i in (0, 1))
    return first, second


def flat_size(shape: Ints) -> int:
    return math.prod(shape)


# ---- Types


def check_key_type(same: TypeSolver, key: Tensor) -> None:
    same.accepts(key, (U32,))
    same.shape(key, Tensor(U32, (2,)))


def fold_in_type(same: TypeSolver, key: Tensor, data: Tensor) -> Tensor:
    check_key_type(same, key)
    same.accepts(data, (U32,))
    same.shape(data, Tensor(U32))
    return key


def random_bits_type(same: TypeSolver, key: Tensor, *, shape: tuple[Dim, ...]) -> Tensor:
    check_key_type(same, key)
    return Tensor(U32, shape)


def random_array_type(same: TypeSolver, key: Tensor, *, shape: tuple[Dim, ...], dtype: DType) -> Tensor:
    check_key_type(same, key)
    same.accepts(Tensor(dtype), FLOATS)
    return Tensor(dtype, shape)


def permutation_type(same: TypeSolver, key: Tensor, *, n: Dim) -> Tensor:
    check_key_type(same, key)
    return Tensor(I32, (n,))


# ---- NumPy references


def fold_in_reference(key: Array, data: Array) -> Array:
    zero = np.zeros_like(data)
    return np.stack(threefry(NumpyUint32Arithmetic(), (key[0], key[1]), (zero, data)))


def stream_reference(key: Array, count: int) -> Words[Array]:
    return threefry_stream(NumpyUint32Arithmetic(), (key[0], key[1]), count)


def random_bits_reference(key: Array, *, shape: Ints) -> Array:
    high, low = stream_reference(key, flat_size(shape))
    return (high ^ low).reshape(shape)


def uniform_reference(key: Array, *, shape: Ints, dtype: DType) -> Array:
    """As many top bits as the mantissa holds, times their weight: exact in every type."""
    numpy = numpy_dtype(dtype)
    high, low = stream_reference(key, flat_size(shape))
    if dtype is F64:
        return (high * 2.0**-32 + (low >> np.uint32(12)) * 2.0**-52).reshape(shape)
    bits = MANTISSA[dtype]
    steps = ((high ^ low) >> np.uint32(32 - bits)).astype(np.float32) * np.float32(2.0**-bits)
    return steps.astype(numpy).reshape(shape)


def normal_reference(key: Array, *, shape: Ints, dtype: DType) -> Array:
    import scipy.special

    wide = F64 if dtype is F64 else F32
    number = numpy_dtype(wide).type
    u = uniform_reference(key, shape=shape, dtype=wide)
    least = np.nextafter(number(-1), number(0))
    centred = np.maximum(least, u * (number(1) - least) + least)
    return (number(math.sqrt(2.0)) * scipy.special.erfinv(centred)).astype(numpy_dtype(dtype))


def permutation_reference(key: Array, *, n: int) -> Array:
    high, low = stream_reference(key, n)
    return np.lexsort((low, high)).astype(np.int32)


# ---- JAX lowerings


def fold_in_lower(jax: Jax, key: JaxArray, data: JaxArray) -> JaxArray:
    lax = jax.lax
    words = threefry(JaxUint32Arithmetic(jax), key_words(jax, key), (lax.full_like(data, 0), data))
    return lax.concatenate([lax.reshape(w, (1,)) for w in words], 0)


def stream_lower(jax: Jax, key: JaxArray, count: int) -> Words[JaxArray]:
    return threefry_stream(JaxUint32Arithmetic(jax), key_words(jax, key), count)


def random_bits_lower(jax: Jax, key: JaxArray, *, shape: Ints) -> JaxArray:
    high, low = stream_lower(jax, key, flat_size(shape))
    return jax.lax.reshape(jax.lax.bitwise_xor(high, low), shape)


def top_bits_as_float(jax: Jax, word: JaxArray, bits: int, weight: float, dtype: NumpyDType) -> JaxArray:
    """The top bits of a word as a number, in steps of `weight`."""
    lax = jax.lax
    steps = lax.shift_right_logical(word, lax.full_like(word, 32 - bits)) if bits < 32 else word
    number = lax.convert_element_type(steps, dtype)
    return lax.mul(number, lax.full_like(number, weight))


def uniform_lower(jax: Jax, key: JaxArray, *, shape: Ints, dtype: DType) -> JaxArray:
    lax = jax.lax
    high, low = stream_lower(jax, key, flat_size(shape))
    if dtype is F64:
        flat = lax.add(
            top_bits_as_float(jax, high, 32, 2.0**-32, np.float64),
            top_bits_as_float(jax, low, 20, 2.0**-52, np.float64),
        )
    else:
        bits = MANTISSA[dtype]
        wide = top_bits_as_float(jax, lax.bitwise_xor(high, low), bits, 2.0**-bits, np.float32)
        flat = lax.convert_element_type(wide, numpy_dtype(dtype))
    return lax.reshape(flat, shape)


def normal_lower(jax: Jax, key: JaxArray, *, shape: Ints, dtype: DType) -> JaxArray:
    lax = jax.lax
    wide = F64 if dtype is F64 else F32
    number = numpy_dtype(wide).type
    u = uniform_lower(jax, key, shape=shape, dtype=wide)
    least = np.nextafter(number(-1), number(0))
    moved = lax.add(lax.mul(u, lax.full_like(u, number(1) - least)), lax.full_like(u, least))
    z = lax.mul(lax.full_like(u, math.sqrt(2.0)), lax.erf_inv(lax.max(lax.full_like(u, least), moved)))
    return lax.convert_element_type(z, numpy_dtype(dtype))


def permutation_lower(jax: Jax, key: JaxArray, *, n: int) -> JaxArray:
    high, low = stream_lower(jax, key, n)
    _, _, order = jax.lax.sort((high, low, jax.lax.iota(np.int32, n)), num_keys=3)
    return order


# ---- Declarations


def random_op(
    name: str,
    type: TypeRule,
    reference: ArrayReferenceRule,
    lower: ArrayLowerRule,
    samples: tuple[OpExample, ...],
    doc: str,
    why: Inactivity,
) -> Op:
    return inactive_op(
        name, type=type, reference=reference, lower=lower, samples=samples, accepts=(U32,), doc=doc, why=why
    )


SHAPE_EXAMPLES = tuple(
    OpExample((EXAMPLE_KEY,), {"shape": s, "dtype": d}) for d, s in ((F32, (3, 5)), (F64, (7,)), (F32, (0,)), (F64, ()))
)
HALF_PRECISION_EXAMPLES = tuple(OpExample((EXAMPLE_KEY,), {"shape": (40,), "dtype": d}) for d in (F16, BF16))

fold_in = random_op(
    "fold_in",
    fold_in_type,
    fold_in_reference,
    fold_in_lower,
    tuple(OpExample((EXAMPLE_KEY, FixedOperand(n, U32))) for n in (0, 1, 2**32 - 1)),
    """A key made from a key and a number: the cipher of the number.""",
    "steps",
)
random_bits = random_op(
    "random_bits",
    random_bits_type,
    random_bits_reference,
    random_bits_lower,
    tuple(OpExample((EXAMPLE_KEY,), {"shape": s}) for s in ((4, 3), (), (0, 2))),
    """32 random bits an element.""",
    "draw",
)
uniform = random_op(
    "uniform",
    random_array_type,
    uniform_reference,
    uniform_lower,
    (*SHAPE_EXAMPLES, *HALF_PRECISION_EXAMPLES),
    """Uniform on [0, 1): a multiple of 2^-m, for a mantissa of m bits. f64 takes
    52 of the 64 bits, the others m of 32.""",
    "draw",
)
normal = random_op(
    "normal",
    random_array_type,
    normal_reference,
    normal_lower,
    (*SHAPE_EXAMPLES, *HALF_PRECISION_EXAMPLES),
    """Standard normal: `sqrt(2) erfinv(u)`, u uniform on (-1, 1); 16-bit floats are f32 rounded. The bits behind it
    are the same in both engines, the value within a few units in the last place.""",
    "draw",
)
permutation = random_op(
    "permutation",
    permutation_type,
    permutation_reference,
    permutation_lower,
    tuple(OpExample((EXAMPLE_KEY,), {"n": n}) for n in (10, 1, 0)),
    """0, 1, ..., n - 1 in the order of 64 random bits each, ties by position.""",
    "draw",
)
