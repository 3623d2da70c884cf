"""The one library of this process."""
from __future__ import annotations

import ctypes
import functools
import os

from ._c_interface import Library
from ._errors import Error

_HERE = os.path.dirname(os.path.abspath(__file__))


@functools.lru_cache(maxsize=None)
def library() -> Library:
    """libgradloom.so: that of $GRADLOOM_LIBRARY, else the one of this package. Opened when it is first needed, and never closed."""
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
    """A text that the library lends."""
    return "" if pointer is None else pointer.decode("utf-8", "replace")


def taken(handle: int | None) -> bytes:
    """The bytes of a GradloomText, which is released."""
    lib = library()
    try:
        # GetTextData as an address: the bytes may have zeros among them.
        data = ctypes.cast(lib.api.GetTextData, ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p))(handle)
        return ctypes.string_at(data, lib.GetTextBytes(handle))
    finally:
        lib.ReleaseText(handle)


def path_bytes(path: str | os.PathLike[str]) -> bytes:
    return os.fsencode(os.fspath(path))
