"""An epoch of a residual network: `python benchmarks/residual/run.py [--rounds N]`.

`examples/resnet.dfl` has a list of blocks; `by_fields.dfl` is the same network with its blocks written field by field,
and the twin is flax and optax, a compiled step in a loop of Python. The first two give the same numbers, which is
checked. All are measured in turns; the targets are 1.1 times the time by fields and 1.2 times the twin's.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from flax import nnx  # noqa: E402

import difflang  # noqa: E402
from timing import interleaved, ratio  # noqa: E402

EXAMPLES = HERE.parents[1] / "examples"
BLOCKS, CHANNELS = 3, 16


class Block(nnx.Module):
    """Two convolutions with their normalizations, added to what comes in."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.conv1 = nnx.Conv(CHANNELS, CHANNELS, (3, 3), use_bias=False, rngs=rngs)
        self.norm1 = nnx.BatchNorm(CHANNELS, momentum=0.9, rngs=rngs)
        self.conv2 = nnx.Conv(CHANNELS, CHANNELS, (3, 3), use_bias=False, rngs=rngs)
        self.norm2 = nnx.BatchNorm(CHANNELS, momentum=0.9, scale_init=nnx.initializers.zeros, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return nnx.relu(x + self.norm2(self.conv2(nnx.relu(self.norm1(self.conv1(x))))))


class Net(nnx.Module):
    """The twin of the example's network."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.stem = nnx.Conv(1, CHANNELS, (3, 3), use_bias=False, rngs=rngs)
        self.blocks = nnx.List([Block(rngs) for _ in range(BLOCKS)])
        self.head = nnx.Linear(CHANNELS, 10, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        x = nnx.relu(self.stem(x))
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((1, 2)))


def twin(images: np.ndarray, labels: np.ndarray) -> Callable[[], Any]:
    """An epoch in flax and optax."""
    model = Net(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(3e-3), wrt=nnx.Param)
    rng = np.random.default_rng(1)

    @nnx.jit
    def step(model: Net, optimizer: Any, x: Any, y: Any) -> Any:
        def loss(model: Net) -> Any:
            return optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()

        value, slope = nnx.value_and_grad(loss)(model)
        optimizer.update(model, slope)
        return value

    def epoch() -> Any:
        order = rng.permutation(len(images))
        total = jnp.zeros(())
        for rows in order[: len(order) // 32 * 32].reshape(-1, 32):
            total += step(model, optimizer, images[rows], labels[rows])
        return jax.block_until_ready(total)

    return epoch


def fields_of(state: Any) -> dict[str, Any]:
    """The state of the example, for the program that has its blocks field by field."""

    def net(m: Any) -> dict[str, Any]:
        first, second = m.blocks.first, m.blocks.second
        blocks = {
            "w1": first.w, "scale1": first.norm.scale, "shift1": first.norm.shift,
            "w2": second.w, "scale2": second.norm.scale, "shift2": second.norm.shift,
        }  # fmt: skip
        return {"stem": m.stem, "blocks": blocks, "head": m.head}

    seen, opt = state.seen, state.opt
    return {
        "net": net(state.net),
        "seen": {
            "mean1": seen.first.mean, "variance1": seen.first.variance,
            "mean2": seen.second.mean, "variance2": seen.second.variance,
        },
        "opt": {"mean": net(opt.mean), "square": net(opt.square), "count": opt.count},
        "epoch": state.epoch,
    }  # fmt: skip


def main(rounds: int) -> None:
    """Prints milliseconds of an epoch and the ratios."""
    table = np.loadtxt(EXAMPLES / "data" / "digits.csv", delimiter=",", skiprows=1).astype(np.float32)[300:]
    images, labels = (table[:, :64] / 16).reshape(-1, 8, 8, 1), table[:, 64].astype(np.int32)
    layers, fields = difflang.load(EXAMPLES / "resnet.dfl"), difflang.load(HERE / "by_fields.dfl")
    state = layers.init(k=BLOCKS, c=CHANNELS, key=0)
    runs = {
        "blocks": lambda: jax.block_until_ready(layers.passed(state, images, labels, key=1)[1]),
        "fields": lambda: jax.block_until_ready(fields.passed(fields_of(state), images, labels, key=1)[1]),
        "twin": twin(images, labels),
    }
    losses = {name: float(run()) for name, run in runs.items()}
    np.testing.assert_allclose(losses["blocks"], losses["fields"], rtol=1e-5)
    seconds = interleaved(runs, rounds, at_least=0.2)
    for name in runs:
        print(f"{name:7} {1000 * float(np.median(seconds[name])):8.1f} ms")
    print(f"blocks / fields {ratio(seconds['blocks'], seconds['fields'])}")
    print(f"blocks / twin   {ratio(seconds['blocks'], seconds['twin'])}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    main(parser.parse_args().rounds)
