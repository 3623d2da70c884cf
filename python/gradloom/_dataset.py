"""Data sets and their batches."""
from __future__ import annotations

import ctypes
import os
import weakref
from typing import Any, Iterator, Mapping, Sequence

import numpy as np

from ._errors import Error
from ._handle import Owner, released
from ._library import library, path_bytes, string, taken
from ._plan import Plan, settings_array
from ._tensors import array_of, borrow, copied


def _pairs(mapping: Mapping[str, str | Sequence[str]] | None) -> list[tuple[str, str]]:
    """One pair for each string; lists are flattened in order."""
    return [(key, one) for key, value in (mapping or {}).items() for one in ([value] if isinstance(value, str) else value)]


class Dataset(Owner):
    """An immutable table of samples in memory, stored by columns.

    Reads .npz, .npy, IDX, tables (.csv, .tsv, .gz), tokens (.bin) or a folder of images for the inputs of `plan` (docs/data.md). A path with
    *, ?, [ or { is a pattern of files that are read one after the other.

    Args:
        columns: model input or target -> array or columns of the file: {"features": "CRIM..LSTAT"}. None: guessed.
        transforms: input or target -> transform or list of them, fitted on the training part: {"features": "standardize"}.
        eval_path: evaluation data of the same format, available as `held_back`.
        eval_split: alternatively, a share to hold back: "20%", "tail:20%".
        seed: seed of that split.
        format: format of all files, if their names do not tell it: csv, tsv, npz, npy, idx, tokens, images or tar.
    """

    held_back: Dataset | None
    """The evaluation data given by `eval_path` or `eval_split`, if any."""

    def __init__(self, path: str | os.PathLike[str], plan: Plan, *, columns: Mapping[str, str | Sequence[str]] | None = None,
                 transforms: Mapping[str, str | Sequence[str]] | None = None, eval_path: str | os.PathLike[str] | None = None,
                 eval_split: str | None = None, seed: int = 0, format: str | None = None):
        lib = library()
        column_array, kept_columns = settings_array(_pairs(columns))
        transform_array, kept_transforms = settings_array(_pairs(transforms))
        options = lib.struct("GradloomDataOptions", columns=ctypes.addressof(column_array), num_columns=len(kept_columns),
                             transforms=ctypes.addressof(transform_array), num_transforms=len(kept_transforms),
                             eval_path=None if eval_path is None else path_bytes(eval_path),
                             eval_split=None if eval_split is None else eval_split.encode(), seed=seed,
                             format=None if format is None else format.encode())
        train, held_back = ctypes.c_void_p(), ctypes.c_void_p()
        lib.LoadDataset(path_bytes(path), plan._handle, ctypes.byref(options), ctypes.byref(train), ctypes.byref(held_back))
        self._own(train, lib.ReleaseDataset)
        self.held_back = Dataset._of(held_back) if held_back else None

    @classmethod
    def from_arrays(cls, **columns: Any) -> Dataset:
        """Makes a data set from arrays by name, which are copied; the first axis is the sample. `Session.fit` lays the samples along the axis where the model
        has them, and so does `batches` with a plan."""
        handle = ctypes.c_void_p()
        borrowed = [borrow(value) for value in columns.values()]
        names = (ctypes.c_char_p * len(columns))(*[name.encode() for name in columns])
        library().CreateDataset(names, array_of([struct for struct, _ in borrowed]), len(columns), ctypes.byref(handle))
        return cls._of(handle)

    def notes(self) -> list[str]:
        """What reading the data guessed and warned of: the columns that were chosen, the names of classes, NaN. Empty for arrays."""
        text = ctypes.c_void_p()
        library().GetDatasetNotes(self._handle, ctypes.byref(text))
        return taken(text.value).decode("utf-8", "replace").splitlines()

    def batches(self, size: int = 32, *, epoch: int = 0, seed: int = 0, in_order: bool = False,
                plan: Plan | None = None) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
        """The batches of an epoch as arrays by name, ready for `Session.step`; the last batch has the remainder. The samples lie along the axes where `plan`
        has them. None: the plan for which the data set was read; of arrays, along the first axis."""
        if size == 0:  # the table takes zero for its default
            raise Error("E-CONFIG", "the batch size must be at least 1, got 0")
        lib, handle = library(), ctypes.c_void_p()
        options = lib.struct("GradloomBatchOptions", batch=size, epoch=epoch, seed=seed, in_order=int(in_order),
                             plan=None if plan is None else plan._handle)
        lib.CreateBatches(self._handle, ctypes.byref(options), ctypes.byref(handle))
        walk = self._walk(handle)
        # A generator that is never started does not run its cleanup either.
        release = weakref.finalize(walk, released, os.getpid(), lib.ReleaseBatches, handle)
        release.atexit = False  # as in Owner: a daemon thread may be in the middle of a batch
        return walk

    @staticmethod
    def _walk(handle: Any) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
        lib, count, columns = library(), ctypes.c_int64(), ctypes.c_size_t()
        names, tensors = ctypes.POINTER(ctypes.c_char_p)(), ctypes.POINTER(lib.header.structs["GradloomTensor"])()
        lib.GetBatchCount(handle, ctypes.byref(count))
        for index in range(count.value):
            lib.GetBatch(handle, index, ctypes.byref(names), ctypes.byref(tensors), ctypes.byref(columns))
            yield {string(names[i]): copied(tensors[i]) for i in range(columns.value)}

    def __repr__(self) -> str:
        return f"<gradloom.Dataset: {len(self)} rows>"

    def __len__(self) -> int:
        rows = ctypes.c_int64()
        library().GetDatasetRows(self._handle, ctypes.byref(rows))
        return rows.value

    @classmethod
    def _of(cls, handle: Any) -> Dataset:
        made = cls.__new__(cls)
        made.held_back = None
        made._own(handle, library().ReleaseDataset)
        return made
