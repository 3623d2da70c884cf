"""Conversion between Python arrays and the tensors of the C table."""
from __future__ import annotations

import ctypes
import functools
import importlib
from typing import Any, Sequence

import numpy as np

from ._errors import Error
from ._library import library

# ONNX element types and numpy's names for them; bfloat16 comes from ml_dtypes.
_NAMES = {1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool", 10: "float16", 11: "float64",
          12: "uint32", 13: "uint64", 16: "bfloat16"}
_NUMBERS = {name: number for number, name in _NAMES.items()}
_HOST, _CUDA = (1, 3), 2  # kDLCPU, kDLCUDAHost; kDLCUDA

_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype, _capsule_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def address_of(array: np.ndarray[Any, Any]) -> int:
    address: int = array.__array_interface__["data"][0]  # array.ctypes.data makes an object first
    return address


def name_of(dtype: int) -> str:
    return _NAMES.get(dtype, "undefined")


def numpy_dtype(dtype: int) -> np.dtype[Any]:
    if name_of(dtype) != "bfloat16":
        return np.dtype(name_of(dtype))
    try:
        bfloat16 = importlib.import_module("ml_dtypes").bfloat16
    except ImportError as error:
        raise Error("E-TYPE", "numpy does not support bfloat16", "", "pip install ml_dtypes") from error
    made: np.dtype[Any] = np.dtype(bfloat16)
    return made


@functools.lru_cache(maxsize=256)
def _number_of(dtype: np.dtype[Any]) -> int | None:
    return _NUMBERS.get(dtype.name)  # numpy makes the name at each access


def _of_array(array: np.ndarray[Any, Any]) -> tuple[Any, Any]:
    # Arrays in a packed record or over the bytes of a file need not be aligned.
    flags = array.flags
    if not (flags.c_contiguous and flags.aligned and array.dtype.isnative and type(array) is np.ndarray):  # np.require takes longer than this
        array = np.require(array, array.dtype.newbyteorder("="), ["C", "ALIGNED", "ENSUREARRAY"])
    number = _number_of(array.dtype)
    if number is None:
        advice = ("number the names of classes from 0: names, labels = numpy.unique(array, return_inverse=True); for digits, array.astype('int64')"
                  if array.dtype.kind in "USOT" else "convert it, for example with array.astype('float32')")
        raise Error("E-TYPE", f"unsupported numpy dtype {array.dtype}", "", advice)
    shape = (ctypes.c_int64 * array.ndim)(*array.shape)
    struct = library().struct("GradloomTensor", data=address_of(array), shape=ctypes.addressof(shape), rank=array.ndim, dtype=number)
    return struct, (array, shape)


def _same_kind(array: np.ndarray[Any, Any], dtype: int) -> np.ndarray[Any, Any]:
    """The array with this element type. Where numbers would change, other than by rounding of floats, it is returned as it is."""
    if not dtype or _number_of(array.dtype) in (dtype, None):
        return array
    wanted = numpy_dtype(dtype)
    if not np.can_cast(array.dtype, wanted, "same_kind"):
        return array
    with np.errstate(over="ignore"):
        made = array.astype(wanted)
    if np.can_cast(array.dtype, wanted):
        return made
    changed = made != array if made.dtype.kind in "iu" else np.isinf(made) & ~np.isinf(array)
    return array if changed.any() else made


def borrow(value: Any, dtype: int = 0) -> tuple[Any, Any]:
    """A GradloomTensor that borrows the elements of `value`, and the objects that must stay alive while it is used.

    numpy arrays and DLPack tensors (of PyTorch, JAX ...) are not copied if they are row-major; tensors on a GPU can be used by sessions on
    that GPU. Other values, such as lists and numbers, are copied into an array. Arrays are converted to `dtype`, if it is known and of the
    same kind: numpy and pandas make float64 where nobody asks for a type. Tensors of other libraries have the type that was asked for.
    """
    if isinstance(value, np.ndarray):
        return _of_array(_same_kind(value, dtype))
    if hasattr(value, "__dlpack__") and not isinstance(value, np.generic):
        device = value.__dlpack_device__()
        on_gpu = int(device[0]) == _CUDA
        if int(device[0]) not in _HOST and not on_gpu:
            raise Error("E-DEVICE", "inputs must be in host or GPU memory", f"a tensor of DLPack device type {int(device[0])}",
                        "call tensor.cpu() first")
        # PyTorch exports the elements of a lazily negated tensor as they are stored.
        if hasattr(value, "is_neg") and value.is_neg():
            value = value.resolve_neg()
        if hasattr(value, "is_contiguous") and not value.is_contiguous():
            value = value.contiguous()
        # stream=1: the producer's work is ordered before the default stream, after which the tensor is read.
        capsule = value.__dlpack__(stream=1) if on_gpu else value.__dlpack__()
        struct = library().struct("GradloomTensor")
        try:
            library().FromDLPack(_capsule_pointer(capsule, b"dltensor"), ctypes.byref(struct))
        except Error as error:
            if error.code != "E-SHAPE" or on_gpu:
                raise
            return _of_array(np.ascontiguousarray(np.from_dlpack(value)))
        return struct, (value, capsule)
    return _of_array(_same_kind(np.asarray(value), dtype))


def copied(tensor: Any) -> np.ndarray[Any, Any]:
    """Copies the elements of a GradloomTensor to a new array."""
    shape = tuple((ctypes.c_int64 * tensor.rank).from_address(tensor.shape)) if tensor.rank else ()
    array = np.empty(shape, numpy_dtype(tensor.dtype))
    if array.nbytes:
        ctypes.memmove(address_of(array), tensor.data, array.nbytes)
    return array


def array_of(tensors: Sequence[Any]) -> Any:
    return library().array("GradloomTensor", tensors)
