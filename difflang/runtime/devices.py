"""Looks up JAX devices by name, lists those of this machine, and says where arrays are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.base.error_codes import nearest_word

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


def refuse_scattered(arrays: Sequence[Any], names: Sequence[str]) -> None:
    """Errors: DL0609 for arrays that were put on devices that differ."""
    placed = [(n, x.sharding) for n, x in zip(names, arrays, strict=True) if isinstance(x, jax.Array) and x.committed]
    for name, sharding in placed[1:]:
        first, like = placed[0]
        if sharding.device_set != like.device_set:
            message = f"`{first}` is on {devices_text(like)}, but `{name}` is on {devices_text(sharding)}"
            way = f"move one of them: `{name} = jax.device_put({name}, …)`, to the same device or devices"
            raise DifflangError(Diagnostic("DL0609", message, helps=(way,)))


def devices_text(sharding: Any) -> str:
    """The devices of an array in words."""
    names = [f"{d.platform}:{d.id}" for d in sorted(sharding.device_set, key=lambda d: d.id)]
    return names[0] if len(names) == 1 else f"{len(names)} devices, {names[0]} to {names[-1]}"


def local_devices() -> list[tuple[str, str]]:
    """The name and kind of each device of this machine."""
    return [(f"{d.platform}:{d.id}", str(d.device_kind)) for d in jax.devices()]
