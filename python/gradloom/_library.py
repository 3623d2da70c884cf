"""The library, which is loaded once per process."""
from __future__ import annotations

import ctypes
import functools
import os

from ._c_interface import Library
from ._errors import Error

_HERE = os.path.dirname(os.path.abspath(__file__))


@functools.lru_cache(maxsize=None)
def library() -> Library:
    """libgradloom.so from $GRADLOOM_LIBRARY, or else from this package. Opened on first use and never closed."""
    path = os.environ.get("GRADLOOM_LIBRARY") or os.path.join(_HERE, "lib", "libgradloom.so")
    header = os.environ.get("GRADLOOM_HEADER") or os.path.join(_HERE, "include", "gradloom", "gradloom_c.h")
    for file in (path, header):
        if not os.path.exists(file):
            raise Error("E-IO", "the package has no library: install a wheel, or set GRADLOOM_LIBRARY and GRADLOOM_HEADER", file,
                        "pip install the wheel that bazel build //python:wheel makes")
    try:
        return Library(header, path)
    except OSError as error:
        raise Error("E-RESOURCE", f"cannot open the library: {error}", path) from error


def string(pointer: bytes | None) -> str:
    """Converts a string that is borrowed from the library."""
    return "" if pointer is None else pointer.decode("utf-8", "replace")


def taken(handle: int | None) -> bytes:
    """Returns the bytes of a GradloomText and releases it."""
    lib = library()
    try:
        # GetTextData is called for the address, because the bytes may contain zeros.
        data = ctypes.cast(lib.api.GetTextData, ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p))(handle)
        return ctypes.string_at(data, lib.GetTextBytes(handle))
    finally:
        lib.ReleaseText(handle)


def path_bytes(path: str | os.PathLike[str]) -> bytes:
    return os.fsencode(os.fspath(path))
