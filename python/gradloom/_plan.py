"""Models and plans."""
from __future__ import annotations

import ctypes
import json
import os
from dataclasses import dataclass
from operator import index
from typing import Any, Mapping, Sequence, SupportsIndex

import numpy as np

from ._handle import Owner
from ._library import library, path_bytes, string, taken
from ._tensors import name_of

ENTRIES = {"train": 0, "eval": 1, "predict": 2}


@dataclass(frozen=True)
class TensorInfo:
    """The name, shape and type of a tensor."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    """ "float32", "int64" ..."""
    batch_axis: int | None
    """The axis of the samples; None if there is none."""


def info_of(struct: Any) -> TensorInfo:
    shape = tuple((ctypes.c_int64 * struct.rank).from_address(struct.shape)) if struct.rank else ()
    return TensorInfo(string(struct.name), shape, name_of(struct.dtype), None if struct.batch_axis < 0 else struct.batch_axis)


def settings_array(pairs: Sequence[tuple[str, str]]) -> tuple[Any, Any]:
    """An array of GradloomSetting, and the objects that must stay alive while it is used."""
    kept = [(key.encode(), value.encode()) for key, value in pairs]
    return library().array("GradloomSetting", kept), kept


def _quoted(text: str) -> str:
    """A TOML string. JSON's differ in DEL, and in characters written as two escapes."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _setting_text(value: Any) -> str:
    """A value in the syntax of `--set KEY=VALUE`: strings as they are, lists and mappings as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_quoted(str(key))} = {_inner_text(one)}" for key, one in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_inner_text, value)) + "]"
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def _inner_text(value: Any) -> str:
    return _quoted(value) if isinstance(value, str) else _setting_text(value)


class Plan(Owner):
    """An immutable, verified plan: which kernel runs when, at which addresses, and what it reads and writes."""

    def __init__(self, handle: Any):
        """Takes ownership of a handle of the C table; use `compile` or `load_plan` instead."""
        self._own(handle, library().ReleasePlan)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a .plan file for `load_plan` and the gradloom command."""
        library().SavePlan(self._handle, path_bytes(path))

    def text(self) -> str:
        """The whole plan, as `gradloom inspect` prints it."""
        return self._describe(0).decode()

    def memory(self) -> dict[str, Any]:
        """Memory in bytes by kind and by program, as in `gradloom inspect --json`."""
        return dict(json.loads(self._describe(1)))

    def notes(self) -> list[str]:
        """The compiler's guesses and warnings; empty for a plan from a file."""
        return self._describe(2).decode().splitlines()

    def get_property(self, key: str) -> str | None:
        """A property of the plan's compilation, for example "loss"; None if the plan does not have it."""
        value = ctypes.c_char_p()
        library().GetPlanProperty(self._handle, key.encode(), ctypes.byref(value))
        return None if value.value is None else string(value.value)

    @property
    def num_devices(self) -> int:
        """The number of devices that its steps run on."""
        count = ctypes.c_size_t()
        library().GetPlanDeviceCount(self._handle, ctypes.byref(count))
        return count.value

    def inputs(self, entry: str = "train") -> list[TensorInfo]:
        """The inputs of "train", "eval" or "predict", with the extents of the first batch size."""
        return self._infos("Input", entry)

    def outputs(self, entry: str = "train") -> list[TensorInfo]:
        """The outputs of "train", "eval" or "predict", with the extents of the first batch size."""
        return self._infos("Output", entry)

    def _infos(self, kind: str, entry: str) -> list[TensorInfo]:
        if entry not in ENTRIES:
            raise ValueError(f'no entry "{entry}"; there are {", ".join(ENTRIES)}')
        lib, count, list_ = library(), ctypes.c_size_t(), []
        getattr(lib, f"Get{kind}Count")(self._handle, ENTRIES[entry], ctypes.byref(count))
        for at in range(count.value):
            struct = lib.struct("GradloomTensorInfo")
            getattr(lib, f"Get{kind}Info")(self._handle, ENTRIES[entry], at, ctypes.byref(struct))
            list_.append(info_of(struct))
        return list_

    def _describe(self, what: int) -> bytes:
        text = ctypes.c_void_p()
        library().DescribePlan(self._handle, what, ctypes.byref(text))
        return taken(text.value)

    def __repr__(self) -> str:
        return f"<gradloom.Plan: {len(self.inputs())} inputs, {self.num_devices} device(s)>"


def load_plan(source: str | os.PathLike[str] | bytes) -> Plan:
    """Loads a plan from a file or from its bytes. It may come from an untrusted source: it is verified before it is returned."""
    handle = ctypes.c_void_p()
    if isinstance(source, bytes):
        library().LoadPlanFromBuffer(source, len(source), ctypes.byref(handle))
    else:
        library().LoadPlan(path_bytes(source), ctypes.byref(handle))
    return Plan(handle)


def _load_model(model: Any, external_dir: str | os.PathLike[str] | None) -> ctypes.c_void_p:
    lib, handle = library(), ctypes.c_void_p()
    folder = None if external_dir is None else path_bytes(external_dir)
    options = lib.struct("GradloomLoadOptions", external_dir=folder)
    if hasattr(model, "SerializeToString"):  # onnx.ModelProto
        model = model.SerializeToString()
    if isinstance(model, bytes):
        lib.LoadModelFromBuffer(model, len(model), ctypes.byref(options), ctypes.byref(handle))
    else:
        lib.LoadModel(path_bytes(model), ctypes.byref(options), ctypes.byref(handle))
    return handle


def compile(
    model: Any,
    *,
    loss: str | Sequence[str] | None = None,
    optimizer: str | None = None,
    lr: float | None = None,
    batch: SupportsIndex | Sequence[SupportsIndex] | None = None,
    devices: str | None = None,
    settings: Mapping[str, Any] | None = None,
    config: str | os.PathLike[str] | None = None,
    evaluate: bool = True,
    predict: bool = True,
    gradients: bool = False,
    outputs: bool = False,
    input_gradients: Sequence[str] = (),
    external_dir: str | os.PathLike[str] | None = None,
) -> Plan:
    """Compiles an ONNX model with a loss and an optimizer into a verified plan.

    Args:
        model: the path of an .onnx file, the bytes of one, or an onnx.ModelProto.
        loss: "cross_entropy(logits, label)"; several losses are summed. None: guessed from the outputs, as reported in the plan's notes.
        optimizer: "sgd", "momentum", "adam", "adamw" ... with `lr`; None: the configuration's optimizer.
        batch: the batch sizes to compile now; others are compiled when they first occur.
        devices: "cpu", "cpu:4", "cuda:0,1".
        settings: any keys of the configuration, which override `config`: {"optimizer.weight_decay": 0.01}; `settings()` lists all keys.
        config: a TOML configuration file.
        evaluate, predict, gradients, outputs: what the plan contains besides training steps. `gradients` is needed for `Session.backward`; with
            `outputs`, training steps also return the model's outputs.
        input_gradients: inputs or targets of which `Session.step` and `Session.backward` also return the gradient of their batch's loss, as
            `session.output("grad/NAME")`.
        external_dir: the folder of the model's external data, if it is not the model's folder.
    Raises:
        Error: see docs/errors.md for the classes.
    """
    pairs = [(key, value) for key, value in (("loss.name", loss), ("optimizer.name", optimizer), ("optimizer.lr", lr), ("devices.use", devices))
             if value is not None]
    pairs += list((settings or {}).items())
    lib = library()
    array, kept = settings_array([(key, _setting_text(value)) for key, value in pairs])
    sizes = [] if batch is None else [index(size) for size in np.atleast_1d(np.asarray(batch))]
    batches = (ctypes.c_int64 * len(sizes))(*sizes)
    bits = {"GRADLOOM_WITH_EVAL": evaluate, "GRADLOOM_WITH_PREDICT": predict, "GRADLOOM_WITH_GRADIENTS": gradients, "GRADLOOM_WITH_OUTPUTS": outputs}
    wanted = sum(lib.header.constants[name] for name, is_wanted in bits.items() if is_wanted) or lib.header.constants["GRADLOOM_WITH_NOTHING_ELSE"]
    inputs = (ctypes.c_char_p * len(input_gradients))(*[name.encode() for name in input_gradients])
    options = lib.struct("GradloomCompileOptions", config_path=None if config is None else path_bytes(config), settings=ctypes.addressof(array),
                         num_settings=len(kept), batches=ctypes.addressof(batches), num_batches=len(sizes),
                         input_gradients=ctypes.addressof(inputs), num_input_gradients=len(input_gradients))
    setattr(options, "with", wanted)
    loaded, handle = _load_model(model, external_dir), ctypes.c_void_p()
    try:
        lib.Compile(loaded, ctypes.byref(options), ctypes.byref(handle))
    finally:
        lib.ReleaseModel(loaded)
    return Plan(handle)


def settings() -> dict[str, Any]:
    """Every key of the configuration with its default: {"optimizer.lr": {"value": 0.001, ...}, ...}."""
    text = ctypes.c_void_p()
    library().GetSettings(ctypes.byref(text))
    return dict(json.loads(taken(text.value)))


def devices() -> dict[str, Any]:
    """The devices of this machine, as in `gradloom devices --json`."""
    text = ctypes.c_void_p()
    library().GetDevices(ctypes.byref(text))
    return dict(json.loads(taken(text.value)))


def set_default_devices(devices: str | None) -> None:
    """Sets the devices that `compile` uses in this process if none are named, for example "cuda:0". None restores the configuration's default."""
    library().SetDefaultDevices((devices or "").encode())


def default_devices() -> str | None:
    """The devices set by `set_default_devices`; None if none are set."""
    text = ctypes.c_void_p()
    library().GetDefaultDevices(ctypes.byref(text))
    return taken(text.value).decode() or None


def version() -> str:
    """The version of the library."""
    return string(library().GetLibraryVersion())
