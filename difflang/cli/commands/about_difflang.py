"""`explain`, `doctor`: error codes, and what is installed."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from difflang.base.byte_sizes import format_bytes
from difflang.base.error_codes import CODE_FAMILIES, CODE_TITLES, nearest_word
from difflang.base.package_data import cache_folder, data_folder, error_page, state_folder
from difflang.base.private_cache import UnsafeFolderError, require_private


@click.command()
@click.argument("code", required=False)
def explain(code: str | None) -> None:
    """Explain an error CODE: its cause, a wrong example and a right one. Without a code, list all."""
    click.echo(list_codes() if code is None else code_page(code))


def list_codes() -> str:
    """Every code with its title, by family."""
    chapters: list[str] = []
    for number, family in CODE_FAMILIES.items():
        codes = [f"  {code}  {title}" for code, title in CODE_TITLES.items() if code[2:4] == number]
        chapters.append("\n".join([f"DL{number}  {family}", *codes]))
    return "\n\n".join(chapters)


def code_page(code: str) -> str:
    """The page of a code in any spelling: DL0310, dl0310, 310. Errors: UsageError for an unknown code."""
    full = code.upper() if code.upper().startswith("DL") else f"DL{code:0>4}"
    if full not in CODE_TITLES:
        near = nearest_word(full, CODE_TITLES)
        way = f"Did you mean '{near}'?" if near and near[:4] == full[:4] else "`difflang explain` lists them."
        raise click.UsageError(f"there is no code '{code}'. {way}")
    return error_page(full).rstrip()


# ---- Doctor


PACKAGES = ("jax", "jaxlib", "flax", "numpy", "scipy", "lark", "prompt_toolkit")


@click.command()
def doctor() -> None:
    """Show versions, devices, folders, and which optional packages are missing.

    Exit code 1 if something is missing that every program needs.
    """
    lines = [*version_rows(), *device_rows(), *folder_rows(), *extra_rows()]
    width = max(len(name) for name, _, _ in lines)
    for name, text, well in lines:
        click.echo(f"{'  ' if well else '! '}{name:<{width}}  {text}")
    sys.exit(int(any(not well for _, _, well in lines)))


Row = tuple[str, str, bool]  # name, text, and whether it is all right


def version_rows() -> Iterator[Row]:
    from importlib import metadata  # late: it imports the standard library's `email`

    yield "difflang", metadata.version("difflang"), True
    yield "python", f"{platform.python_version()} on {platform.platform()}", True
    for package in PACKAGES:
        try:
            yield package, metadata.version(package), True
        except metadata.PackageNotFoundError:
            yield package, f"not installed: `pip install {package}`", False


def device_rows() -> Iterator[Row]:
    """The devices that programs can run on. This starts JAX."""
    try:
        # Late: everything else can be shown without JAX.
        from difflang.runtime.devices import local_devices

        for name, kind in local_devices():
            yield "device", f"{name}: {kind}", True
    except (ImportError, RuntimeError) as error:
        yield "device", f"JAX does not start: {str(error).splitlines()[0]}", False


def folder_rows() -> Iterator[Row]:
    try:
        error_page("DL0101")
        yield "grammar", str(data_folder("grammar")), True
        yield "stdlib", str(data_folder("stdlib")), True
    except OSError as error:
        yield "files", f"the installation is broken: {error}", False
    yield "cache", *describe_folder(cache_folder())
    yield "history", *describe_folder(state_folder())


def describe_folder(path: Path) -> tuple[str, bool]:
    """A user folder: its size and whether it is writable; and whether it is not one that others can write to."""
    if not path.is_dir():
        return f"{path}, which does not exist yet", True
    try:
        require_private(path)
    except UnsafeFolderError as error:
        return f"{path}, which is not used: {error}", False
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return f"{path}, {format_bytes(size)}" + ("" if os.access(path, os.W_OK) else ", which is not writable"), True


def extra_rows() -> Iterator[Row]:
    """Optional packages: a missing one is no error."""
    from difflang.host.optional_packages import EXTRAS, is_installed

    for package, extra in EXTRAS.items():
        text = "installed" if is_installed(package) else f"missing: `pip install 'difflang[{extra}]'`"
        yield package, f"optional, {text}", True
