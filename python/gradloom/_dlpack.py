"""Tensors that are passed to other libraries on their device."""
from __future__ import annotations

import ctypes
from typing import Any

_NAME = b"dltensor"


class _Managed(ctypes.Structure):
    """The fields of DLPack's DLManagedTensor that are used here."""

    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("dtype", ctypes.c_uint8 * 4), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64),
                ("context", ctypes.c_void_p), ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p))]


_new = ctypes.pythonapi.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
# These take the address of a capsule that is being destroyed, whose reference count must not change any more.
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))


def _delete(managed: int) -> None:
    _Managed.from_address(managed).deleter(managed)


@ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
def _forget(capsule: int) -> None:
    """Frees the tensor if no consumer has taken it; a consumer renames the capsule."""
    if _is_valid(capsule, _NAME):
        _delete(_pointer(capsule, _NAME))


class DeviceTensor:
    """A copy of a session's tensor on its device, complete when this object is created. `torch.from_dlpack(tensor)` takes it over without
    another copy; this works once."""

    def __init__(self, managed: int):
        self._capsule = _new(managed, _NAME, ctypes.cast(_forget, ctypes.c_void_p))
        described = _Managed.from_address(managed)
        self._device = (int(described.device_type), int(described.device_id))
        self.shape = tuple((ctypes.c_int64 * described.ndim).from_address(described.shape)) if described.ndim else ()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None) -> Any:
        if dl_device is not None and tuple(map(int, dl_device)) != self._device:
            raise BufferError(f"the tensor is on DLPack's device {self._device}, not {tuple(dl_device)}")
        if self._capsule is None:
            raise BufferError("the tensor has already been exported")
        capsule, self._capsule = self._capsule, None
        return capsule
