"""Parameters that a session shares with other processes."""
from __future__ import annotations

import ctypes
from typing import Any, Iterator, Mapping

import numpy as np

from ._handle import Owner
from ._library import library, string
from ._tensors import numpy_dtype


class AttachedParameters(Owner, Mapping[str, "np.ndarray[Any, Any]"]):
    """Parameters and running statistics that a session shares (`Session.share`), in this or another process of the same user.

    Each access returns a copy of the session's current value. The parameters stay available as long as this object, even after the session has
    ended. If the session writes during a copy, each element is either from before or from after its update.
    """

    def __init__(self, name: str):
        handle = ctypes.c_void_p()
        library().AttachParameters(name.encode(), ctypes.byref(handle))
        self._own(handle, library().ReleaseAttached)
        count = ctypes.c_size_t()
        library().GetAttachedCount(self._handle, ctypes.byref(count))
        self._indices: dict[str, int] = {}
        self._empty: list[tuple[tuple[int, ...], np.dtype[Any]]] = []
        for index in range(count.value):
            known, tensor = ctypes.c_char_p(), library().struct("GradloomTensor")
            library().GetAttached(self._handle, index, ctypes.byref(known), ctypes.byref(tensor))
            shape = tuple((ctypes.c_int64 * tensor.rank).from_address(tensor.shape)) if tensor.rank else ()
            self._indices[string(known.value)] = index
            self._empty.append((shape, numpy_dtype(tensor.dtype)))

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        index = self._indices[name]
        array = np.empty(*self._empty[index])
        library().CopyAttached(self._handle, index, array.ctypes.data, array.nbytes)
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._indices)

    def __len__(self) -> int:
        return len(self._indices)
