"""Steps in time: ode and lstm."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from gradbench.twins.registry import f64, twin


def ode_input(value):
    return (value["s"],), (f64(value["x"]),)


def ode_value(steps):
    def value(x):
        h = 2.0 / steps

        def rate(y):
            return x * jnp.concatenate([jnp.ones(1), y[:-1]])

        def step(y, _):
            k1 = rate(y)
            k2 = rate(y + 0.5 * h * k1)
            k3 = rate(y + 0.5 * h * k2)
            k4 = rate(y + h * k3)
            return y + h / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4), None

        return jax.lax.scan(step, jnp.zeros_like(x), None, length=steps)[0]

    return value


@twin("ode", "primal", prepare=ode_input, finish=lambda y: y.tolist())
def ode_primal(static):
    return ode_value(*static)


@twin("ode", "gradient", prepare=ode_input, finish=lambda g: g.tolist())
def ode_gradient(static):
    value = ode_value(*static)
    return jax.grad(lambda x: value(x)[-1])


def lstm_input(v):
    arrays = tuple(f64(v[n]) for n in ("main_params", "extra_params", "state", "sequence"))
    return (len(v["state"]) // 2,), arrays


def lstm_value(layers):
    def value(main, extra, state, sequence):
        bits = sequence.shape[1]
        params = main.reshape(layers, 2, 4, bits)
        start = state.reshape(layers, 2, bits)

        def step(carry, pair):
            now, nxt = pair
            signal = now * extra[0]
            fresh = []
            for i in range(layers):
                w, b = params[i, 0], params[i, 1]
                hidden, cell = carry[i]
                forget = jax.nn.sigmoid(signal * w[0] + b[0])
                gate = jax.nn.sigmoid(hidden * w[1] + b[1])
                out = jax.nn.sigmoid(signal * w[2] + b[2])
                change = jnp.tanh(hidden * w[3] + b[3])
                cell = cell * forget + gate * change
                signal = out * jnp.tanh(cell)
                fresh.append((signal, cell))
            guess = signal * extra[1] + extra[2]
            norm = guess - jnp.log(2.0 + jnp.sum(jnp.exp(guess)))
            return tuple(fresh), jnp.sum(nxt * norm)

        carry = tuple((start[i, 0], start[i, 1]) for i in range(layers))
        _, terms = jax.lax.scan(step, carry, (sequence[:-1], sequence[1:]))
        return -jnp.sum(terms) / ((sequence.shape[0] - 1) * bits)

    return value


@twin("lstm", "objective", prepare=lstm_input, finish=float)
def lstm_objective(static):
    return lstm_value(*static)


@twin(
    "lstm", "jacobian", prepare=lstm_input,
    finish=lambda g: g[0].ravel().tolist() + g[1].ravel().tolist(),
)  # fmt: skip
def lstm_jacobian(static):
    return jax.grad(lstm_value(*static), argnums=(0, 1))
