"""Looks up JAX devices by name, lists those of this machine, and says where arrays are."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import jax
from jax.sharding import AbstractMesh, NamedSharding

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.base.error_codes import nearest_word
from difflang.ir.tensor_types import Tensor

PLATFORMS = ("cpu", "gpu", "cuda", "rocm", "tpu")


def find_device(name: str) -> Any:
    """A device of this process: `cpu` is the first of its platform, `cpu:1` the second. Errors: DL0601 for none."""
    platform, colon, number = name.partition(":")
    try:
        found = [d for d in jax.devices(platform) if d.process_index == jax.process_index()]
    except RuntimeError:
        here = sorted({d.platform for d in jax.devices()})
        near = nearest_word(platform, [*PLATFORMS, *here]) if platform not in PLATFORMS else None
        way = f"did you mean `{near}{colon}{number}`?" if near else f"the devices here are {', '.join(here)}"
        raise no_device(name, way) from None
    if colon and not (number.isascii() and number.isdigit() and int(number) < len(found)):
        here = [f"`{platform}:{i}`" for i in range(len(found))]
        raise no_device(name, f"the devices of this platform are {here[0]}{f' to {here[-1]}' if here[1:] else ''}")
    return found[int(number or 0)]


def no_device(name: str, way: str) -> DifflangError:
    return DifflangError(Diagnostic("DL0601", f"there is no device `{name}` here", (), (way,)))


def default_device() -> Any:
    """JAX's setting for where arrays go that are on no device yet: a device, a platform's name, or None."""
    config: Any = jax.config  # its attributes have no types
    return config.jax_default_device


def device_of_setting(setting: Any) -> Any:
    """The device that such a setting means."""
    return setting if isinstance(setting, jax.Device) else jax.local_devices(backend=setting)[0]


def is_elsewhere(arrays: Sequence[Any], home: Any) -> bool:
    """Whether any of these was put on several devices, on another one than `home`, or on a mesh that its type names."""
    placed = [x for x in arrays if isinstance(x, jax.Array) and x.committed]
    return any(x.sharding.device_set != {home} or jax.typeof(x).sharding.mesh.explicit_axes for x in placed)


def device_of(arrays: Sequence[Any]) -> Any:
    """A device that arrays were put on; the default one for those that were put nowhere."""
    for x in arrays:
        if isinstance(x, jax.Array) and x.committed:
            return next(iter(x.sharding.device_set))
    return device_of_setting(default_device())


def sharding_of(spec: Any) -> Any:
    """Where a described array is: its sharding if it was put on several devices, or not on the default one."""
    if isinstance(spec, jax.ShapeDtypeStruct):
        return spec.sharding
    return spec.sharding if is_elsewhere([spec], device_of_setting(default_device())) else None


def refuse_scattered(shardings: Sequence[Any], names: Sequence[str]) -> None:
    """Errors: DL0609 for arrays that were put on devices that differ; None stands for one that was put nowhere."""
    placed = [(n, s) for n, s in zip(names, shardings, strict=True) if s is not None]
    for name, sharding in placed[1:]:
        first, like = placed[0]
        if devices_of(sharding) != devices_of(like):
            message = f"`{first}` is on {devices_text(like)}, but `{name}` is on {devices_text(sharding)}"
            way = f"move one of them: `{name} = jax.device_put({name}, …)`, to the same device or devices"
            raise DifflangError(Diagnostic("DL0609", message, helps=(way,)))


def devices_of(sharding: Any) -> Any:
    """The devices of a sharding; of an abstract mesh, which has none, the sizes of its axes."""
    mesh = getattr(sharding, "mesh", None)
    return dict(mesh.shape) if isinstance(mesh, AbstractMesh) else sharding.device_set


def check_divides(sharding: Any, type: Tensor, name: str) -> None:
    """Errors: DL0603 for an axis that the mesh does not divide into equal parts."""
    if not isinstance(sharding, NamedSharding):
        return
    for size, entry in zip(type.shape, sharding.spec, strict=False):
        axes = [entry] if isinstance(entry, str) else list(entry or ())
        count = prod([sharding.mesh.shape[a] for a in axes])
        if isinstance(size, int) and size % count:
            by = " and ".join([f"`{a}`" for a in axes])
            message = f"`{name}` is {type}: {size} is not a multiple of {count}, the size of {by}"
            raise DifflangError(Diagnostic("DL0603", message, helps=("pad the array, or split another axis",)))


def devices_text(sharding: Any) -> str:
    """The devices of an array in words."""
    if isinstance(getattr(sharding, "mesh", None), AbstractMesh):
        return f"a mesh with {', '.join([f'{name} = {size}' for name, size in devices_of(sharding).items()])}"
    names = [f"{d.platform}:{d.id}" for d in sorted(sharding.device_set, key=lambda d: d.id)]
    return names[0] if len(names) == 1 else f"{len(names)} devices, {names[0]} to {names[-1]}"


def local_devices() -> list[tuple[str, str]]:
    """The name and kind of each device of this machine."""
    return [(f"{d.platform}:{d.id}", str(d.device_kind)) for d in jax.devices()]
