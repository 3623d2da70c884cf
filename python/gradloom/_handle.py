"""The base class of objects that own a handle of the C table."""
from __future__ import annotations

import ctypes
import os
import weakref
from typing import Any, Callable, NoReturn


def released(process: int, release: Callable[[Any], None], handle: Any) -> None:
    """Finalizer: releases the handle only in the process that created it, because the threads behind it do not exist in a forked child."""
    if os.getpid() == process:
        release(handle)


class Owner:
    """Owns a handle, which is released once, in the process that created it."""

    _handle: ctypes.c_void_p
    _copy_hint = ""

    def _own(self, handle: ctypes.c_void_p, release: Callable[[Any], None]) -> None:
        self._handle = handle
        self._process = os.getpid()
        self._release = weakref.finalize(self, released, self._process, release, handle)
        # At the interpreter's end a daemon thread may still be in a call with the handle; the end of the process frees everything.
        self._release.atexit = False

    def __reduce__(self) -> NoReturn:
        # A copy would share the handle and could outlive it.
        raise TypeError(f"a {type(self).__name__} is neither copied nor pickled{self._copy_hint}")
