"""Sessions: a plan with its state, on its devices."""
from __future__ import annotations

import ctypes
import os
import threading
import warnings
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Sequence

import numpy as np

from ._dataset import Dataset
from ._errors import Error
from ._fit import Epoch, Evaluation, FitResult, Plateau, epoch_of, evaluation_of, run_fit
from ._handle import Owner
from ._library import library, path_bytes, string, taken
from ._dlpack import DeviceTensor
from ._plan import ENTRIES, Plan, TensorInfo, info_of
from ._results import StepResult, result_of
from ._tensors import _NUMBERS, array_of, borrow, copied, numpy_dtype

_KINDS = {"state": 0, "gradient": 1, "output": 2}


def _kind(name: str) -> int:
    if name not in _KINDS:
        raise ValueError(f'no kind of tensor "{name}"; there are {", ".join(_KINDS)}')
    return _KINDS[name]


Arrays = Mapping[str, Any]
"""Inputs by name: numpy arrays, DLPack tensors or lists."""


@dataclass(frozen=True)
class Location:
    """Where a tensor lives."""

    device: str
    num_devices: int
    """The number of devices with a copy; 0: several devices hold parts of it."""
    row_major: bool
    address: int | None
    bytes: int


@dataclass(frozen=True)
class DeviceMemory:
    """The memory that a session holds on a device, and the free memory there."""

    device: str
    allocated_bytes: int
    cached_bytes: int
    free_bytes: int


class Checkpoint(Owner):
    """A checkpoint in memory, loaded from a file or bytes of `Session.save`, a safetensors file of weights, the index of several, or the
    folder of a run."""

    def __init__(self, source: str | os.PathLike[str] | bytes):
        handle = ctypes.c_void_p()
        if isinstance(source, bytes):
            library().LoadCheckpointFromBuffer(source, len(source), ctypes.byref(handle))
        else:
            library().LoadCheckpoint(path_bytes(source), ctypes.byref(handle))
        self._own(handle, library().ReleaseCheckpoint)

    def get_property(self, name: str) -> str | None:
        """A property set by `Session.set_property`; None if there is none."""
        value = ctypes.c_char_p()
        library().GetCheckpointProperty(self._handle, name.encode(), ctypes.byref(value))
        return None if value.value is None else string(value.value)

    @property
    def skipped(self) -> list[str]:
        """What the folder of a run has that could not be loaded, newer than this checkpoint or of unknown age: "FOLDER: reason" for each."""
        text = ctypes.c_void_p()
        library().GetSkippedCheckpoints(self._handle, ctypes.byref(text))
        return taken(text.value).decode("utf-8", "replace").split("\n")[:-1]


class Session(Owner):
    """A plan with its state, on its devices. Calls on one session run one after the other, from any threads.

    Inputs are borrowed during a call and never modified; results are copies in row-major order.

    Args:
        plan: a plan from `compile` or `load_plan`.
        seed: seed of everything random; a checkpoint with a position uses its own.
        checkpoint: the checkpoint to continue from, as a `Checkpoint`, a path or bytes. None: the model's initial weights.
        any_plan: also accept a checkpoint of a plan with other options (same model and state); the session continues, but not to the same bits.
        ordinals: CUDA devices by rank; empty: 0, 1, 2 ...
        check_numerics: look at the numbers of every instruction, for non_finite_origin and the texts of E-DIVERGED; steps give the same bits,
            but are far slower.
    """

    _copy_hint = ": save_bytes() returns its state, from which another session can continue"

    def __init__(self, plan: Plan, *, seed: int = 0, checkpoint: Checkpoint | str | os.PathLike[str] | bytes | None = None, any_plan: bool = False,
                 ordinals: Sequence[int] = (), check_numerics: bool = False):
        if not isinstance(plan, Plan):
            raise TypeError(f"a session needs a Plan, from compile or load_plan, not a {type(plan).__name__}")
        self.plan = plan
        if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
            checkpoint = Checkpoint(checkpoint)
        numbers = (ctypes.c_int32 * len(ordinals))(*ordinals)
        options = library().struct("GradloomSessionOptions", seed=seed, ordinals=ctypes.addressof(numbers), num_ordinals=len(ordinals),
                                   any_plan=int(any_plan), check_numerics=int(check_numerics))
        handle = ctypes.c_void_p()
        library().CreateTrainingSession(plan._handle, ctypes.byref(options), None if checkpoint is None else checkpoint._handle, ctypes.byref(handle))
        self._own(handle, library().ReleaseTrainingSession)
        # Held during every call: results that are returned by reference are copied before another call runs, and the handle stays alive.
        self._calls = threading.RLock()
        # Held by what may be called during a call of another thread, and by close.
        self._closing = threading.Lock()
        self._fitting = False
        self._under_way: Any = None
        self._predicted: list[str] | None = None  # names of the outputs of predictions
        self._dtypes: dict[str, int] = {}
        for entry in ENTRIES:
            try:
                self._dtypes.update((info.name, _NUMBERS.get(info.dtype, 0)) for info in plan.inputs(entry))
            except library().Error:
                continue  # a plan need not have all entries

    def _alive(self) -> ctypes.c_void_p:
        """The handle; the caller must hold the lock."""
        if not self._handle:
            raise Error("E-CONFIG", "the session is closed", "", "create a new session")
        return self._handle

    def _alone(self) -> threading.RLock:
        """The lock that serializes all calls."""
        if os.getpid() != self._process:
            raise Error("E-CONFIG", "the session was created before a fork, and the child process does not have its threads",
                        f"process {os.getpid()}", "create sessions in the process that uses them")
        return self._calls

    def _call(self, function: str, *arguments: Any) -> None:
        with self._alone():
            getattr(library(), function)(self._alive(), *arguments)

    # ---- Steps

    def step(self, inputs: Arrays | None = None, /, **named: Any) -> StepResult:
        """Trains on one batch: forward, backward and update as one program: `session.step(image=x, label=y)`."""
        return self._run("Step", inputs, named)

    def step_async(self, inputs: Arrays | None = None, /, **named: Any) -> None:
        """The same on a thread of the session; `wait` returns the result. The inputs must not be modified until then."""
        names, tensors, count, keep = self._feeds(inputs, named)
        with self._alone():
            self._call("StepAsync", names, tensors, count)
            self._under_way = (names, tensors, keep)

    def wait(self) -> StepResult:
        """Waits for the running step and returns its result."""
        result = library().struct("GradloomStepResult")
        with self._alone():
            self._call("Wait", ctypes.byref(result))
            self._under_way = None
        return result_of(result)

    def backward(self, inputs: Arrays | None = None, /, **named: Any) -> StepResult:
        """Forward and backward: adds the gradients to those accumulated for `update`. The plan needs `gradients=True`."""
        return self._run("TrainStep", inputs, named)

    def update(self) -> StepResult:
        """Updates with the accumulated gradients, and sets them to zero."""
        result = library().struct("GradloomStepResult")
        self._call("OptimizerStep", ctypes.byref(result))
        return result_of(result)

    def reset_gradients(self) -> None:
        """Sets the accumulated gradients to zero."""
        self._call("LazyResetGrad")

    def evaluate(self, inputs: Arrays | None = None, /, **named: Any) -> StepResult:
        """Computes the loss without training; `output` returns the model's outputs."""
        return self._run("EvalStep", inputs, named)

    def predict(self, inputs: Arrays | None = None, /, **named: Any) -> dict[str, np.ndarray[Any, Any]]:
        """Computes the model's outputs, by name."""
        names, tensors, count, _keep = self._feeds(inputs, named)
        with self._alone():
            self._call("Predict", names, tensors, count)
            if self._predicted is None:
                self._predicted = [info.name for info in self.plan.outputs("predict")]
            return {name: self.output(name) for name in self._predicted}

    def output(self, name: str) -> np.ndarray[Any, Any]:
        """A copy of an output of the last run, including "loss". Other libraries can import it with from_dlpack without another copy."""
        tensor = library().struct("GradloomTensor")
        with self._alone():
            self._call("GetOutput", name.encode(), ctypes.byref(tensor))
            return copied(tensor)

    def _feeds(self, inputs: Arrays | None, named: Arrays) -> tuple[Any, Any, int, Any]:
        if inputs is None:
            inputs = {}
        elif isinstance(inputs, Dataset):
            raise TypeError("a Dataset has many batches, and this call takes one: for batch in data.batches(32): session.step(batch); "
                            "session.fit trains on all of them")
        elif not hasattr(inputs, "keys"):
            name = next(iter(self._dtypes), "image")
            raise TypeError(f"inputs are given by name, as in {name}=x or {{'{name}': x}}, not as a {type(inputs).__name__}")
        borrowed = {}
        for name, value in {**inputs, **named}.items():
            try:
                borrowed[name] = borrow(value, self._dtypes.get(name, 0))
            except Exception:
                # Inputs that the plan does not have are ignored, so they need not be tensors: texts, None.
                if name in self._dtypes:
                    raise
        names = (ctypes.c_char_p * len(borrowed))(*[name.encode() for name in borrowed])
        return names, array_of([struct for struct, _ in borrowed.values()]), len(borrowed), borrowed

    def _run(self, function: str, inputs: Arrays | None, named: Arrays) -> StepResult:
        names, tensors, count, _keep = self._feeds(inputs, named)
        result = library().struct("GradloomStepResult")
        self._call(function, names, tensors, count, ctypes.byref(result))
        return result_of(result)

    def fit(self, train: Dataset, eval: Dataset | None = None, *, epochs: int = 1, updates: int = 0, batch: int = 32, evaluate_every: str = "1ep",
            metrics: Sequence[str] = (), watch: str | None = None, patience: int = 0, plateau: Plateau | None = None, skip_non_finite: bool = False,
            in_order: bool = False, on_step: Callable[[StepResult], object] | None = None,
            on_evaluation: Callable[[Evaluation], object] | None = None, on_epoch: Callable[[Epoch], object] | None = None) -> FitResult:
        """Runs a whole training, starting at the session's position.

        Args:
            epochs: passes over the data, including those already made by the session; `updates` sets a total number of updates instead. A
                UserWarning says if the session has already made them, so that nothing is trained.
            evaluate_every: "1ep", or "500" for updates.
            metrics: "accuracy", of the output and the target of the first loss, or "accuracy(logits, label)".
            watch: the value that selects the best model: "eval/loss:min". None: the loss. Needs evaluation data, like patience, plateau and
                metrics.
            patience: if above 0, stop after this many evaluations in a row without improvement.
            plateau: reduces the learning rate when the watched value makes no progress.
            skip_non_finite: leave out batches whose loss is NaN or infinite, which costs a copy of all state per step, instead of an Error.
            in_order: take the rows in their order in each epoch, not in one that depends on the session's seed and the epoch.
            on_step, on_evaluation, on_epoch: called between two steps. Returning False ends the run; an exception ends it and is raised here.
        """
        for data in (train, *([] if eval is None else [eval])):
            if not isinstance(data, Dataset):
                raise TypeError(f"fit needs a Dataset (Dataset.from_arrays makes one from arrays), not a {type(data).__name__}")
        with self._alone():
            outer, self._fitting = self._fitting, True
            before = self.num_batches
            try:
                result = run_fit(self._alive(), train, eval, epochs, updates, batch, evaluate_every, metrics, watch, patience, plateau, skip_non_finite,
                                 in_order, [(on_step, result_of), (on_evaluation, evaluation_of), (on_epoch, epoch_of)])
            finally:
                self._fitting = outer
            if result.stopped == "done" and self.num_batches == before:
                total = f"updates={updates}" if updates > 0 else f"epochs={epochs}"
                warnings.warn(f"fit trained nothing: {total} counts from the session's beginning, and it has already made {self.num_updates} updates "
                              f"in {before} batches; give a larger total to continue", stacklevel=2)
            return result

    def stop_fit(self) -> None:
        """For other threads while `fit` runs: ends it as a callback would, and also between two batches of an evaluation. Returns at once, and does
        nothing if no fit runs."""
        self._alone()  # only for its check: fit holds the lock
        with self._closing:
            library().StopFit(self._alive())

    # ---- Parameters and gradients

    def parameter_infos(self, trainable_only: bool = True) -> list[TensorInfo]:
        """The trained parameters; without `trainable_only` also the running statistics."""
        count, infos = ctypes.c_size_t(), []
        with self._alone():  # `close` frees the names
            self._call("GetParameterCount", int(trainable_only), ctypes.byref(count))
            for index in range(count.value):
                name = ctypes.c_char_p()
                self._call("GetParameterName", index, ctypes.byref(name))
                infos.append(self._info(string(name.value)))
        return infos

    def parameters(self, trainable_only: bool = True) -> dict[str, np.ndarray[Any, Any]]:
        """Copies of all parameters, by their names in the ONNX file."""
        return {info.name: self.parameter(info.name) for info in self.parameter_infos(trainable_only)}

    def parameter(self, name: str) -> np.ndarray[Any, Any]:
        """A copy of a parameter."""
        return self._copy("GetParameter", name)

    def set_parameter(self, name: str, value: Any) -> None:
        """Sets a parameter to a copy of an array of the same shape."""
        tensor, _keep = borrow(value, _NUMBERS[self._info(name).dtype])
        self._call("UpdateParameter", name.encode(), ctypes.byref(tensor))

    def gradient(self, parameter: str) -> np.ndarray[Any, Any]:
        """A copy of the accumulated gradient."""
        return self._copy("GetGradient", parameter)

    def set_gradient(self, parameter: str, value: Any) -> None:
        """Replaces the accumulated gradient by a copy of an array: clipped, summed over machines, computed by other means. `update` uses it, even if
        no `backward` came before; gradients that were neither set nor accumulated are zero."""
        tensor, _keep = borrow(value, _NUMBERS[self._info(parameter).dtype])
        self._call("SetGradient", parameter.encode(), ctypes.byref(tensor))

    def flat_parameters(self, trainable_only: bool = True) -> np.ndarray[Any, Any]:
        """All parameters as one float32 vector, for example for federated learning."""
        count = ctypes.c_size_t()
        self._call("GetParametersSize", int(trainable_only), ctypes.byref(count))
        values = np.empty(count.value, np.float32)
        if count.value:
            self._call("CopyParametersToBuffer", int(trainable_only), values.ctypes.data, count.value)
        return values

    def set_flat_parameters(self, values: Any, trainable_only: bool = True) -> None:
        """Sets all parameters from such a vector."""
        flat = np.ascontiguousarray(values, np.float32).reshape(-1)
        self._call("CopyBufferToParameters", int(trainable_only), flat.ctypes.data, flat.size)

    def location(self, name: str, kind: str = "state") -> Location:
        """Where a tensor of the kind "state", "gradient" or "output" lives."""
        place = library().struct("GradloomLocation")
        self._call("GetLocation", _kind(kind), name.encode(), ctypes.byref(place))
        return Location(string(place.device), place.num_devices, bool(place.row_major), place.address, place.bytes)

    def on_device(self, name: str, kind: str = "output") -> DeviceTensor:
        """A copy of such a tensor on its own device, for libraries that support DLPack; a GPU tensor is not copied through host memory."""
        managed = ctypes.c_void_p()
        self._call("CopyToDLPack", _kind(kind), name.encode(), ctypes.byref(managed))
        assert managed.value is not None
        return DeviceTensor(managed.value)

    @property
    def devices(self) -> list[str]:
        """The plan's devices by rank: ["cuda:0", "cuda:1"]."""
        return [self.memory(rank).device for rank in range(self.plan.num_devices)]

    @property
    def default_device(self) -> str:
        """The first of them. A session on one GPU expects GPU inputs there, and outputs that all devices have are copied from it."""
        return self.memory(0).device

    def _info(self, name: str) -> TensorInfo:
        struct = library().struct("GradloomTensorInfo")
        with self._alone():
            self._call("GetParameterTypeAndShape", name.encode(), ctypes.byref(struct))
            return info_of(struct)

    def _copy(self, function: str, name: str) -> np.ndarray[Any, Any]:
        info = self._info(name)
        array = np.empty(info.shape, numpy_dtype(_NUMBERS[info.dtype]))
        self._call(function, name.encode(), array.ctypes.data, array.nbytes)
        return array

    def non_finite_origin(self) -> str:
        """Where the NaN or infinity of the last step's loss came from or, if the loss is finite, that of a parameter, optimizer state or
        accumulated gradient: "Log '/log' in the forward pass of step 3: ...". "" if all are finite. E-CONFIG without check_numerics."""
        text = ctypes.c_void_p()
        self._call("GetNonFiniteOrigin", ctypes.byref(text))
        return taken(text.value).decode("utf-8", "replace")

    def share(self, name: str | None) -> None:
        """Shares the parameters with other processes of this user on this host: `AttachedParameters(name)`. None stops sharing."""
        self._call("ShareParameters", None if name is None else name.encode())

    # ---- Learning rate, position, memory

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next update. Setting it overrides the plan's schedule; a negative value restores the schedule."""
        lr = ctypes.c_double()
        self._call("GetLearningRate", ctypes.byref(lr))
        return lr.value

    @learning_rate.setter
    def learning_rate(self, lr: float) -> None:
        self._call("SetLearningRate", lr)

    @property
    def num_updates(self) -> int:
        """The number of updates so far."""
        return self._position()[0]

    @property
    def num_batches(self) -> int:
        """The number of batches trained on so far."""
        return self._position()[1]

    def _position(self) -> tuple[int, int]:
        step, batch = ctypes.c_int64(), ctypes.c_int64()
        self._call("GetPosition", ctypes.byref(step), ctypes.byref(batch))
        return step.value, batch.value

    def set_seed(self, seed: int) -> None:
        """Sets the seed of everything random from now on."""
        self._call("SetSeed", seed)

    def memory(self, device: int = 0) -> DeviceMemory:
        """The memory of the plan's device of this rank."""
        struct = library().struct("GradloomDeviceMemory")
        self._call("GetDeviceMemory", device, ctypes.byref(struct))
        return DeviceMemory(string(struct.device), struct.allocated_bytes, struct.cached_bytes, struct.free_bytes)

    def release_memory(self) -> None:
        """Frees memory that only a running step needs; the next step allocates it again."""
        self._call("ReleaseMemory")

    # ---- Checkpoints and export

    def save(self, path: str | os.PathLike[str], *, optimizer: bool = True) -> None:
        """Writes one safetensors file, complete or not at all. With `optimizer=False` it has only weights.

        Between two batches of an update, a save may change the last bits of later results if several devices accumulate gradients
        (docs/embedding.md, "Checkpoints")."""
        self._call("SaveCheckpoint", path_bytes(path), int(optimizer))

    def save_bytes(self, *, optimizer: bool = True) -> bytes:
        """The bytes of the file that `save` would write."""
        text = ctypes.c_void_p()
        self._call("SaveCheckpointToBuffer", int(optimizer), ctypes.byref(text))
        return taken(text.value)

    def set_property(self, name: str, value: str) -> None:
        """Sets a text that is stored in the session's checkpoints."""
        self._call("AddProperty", name.encode(), value.encode())

    def get_property(self, name: str) -> str | None:
        """A property that was set or loaded with the checkpoint; None if there is none."""
        value = ctypes.c_char_p()
        with self._alone():  # other calls may free the text
            self._call("GetProperty", name.encode(), ctypes.byref(value))
            return None if value.value is None else string(value.value)

    def export(self, path: str | os.PathLike[str], outputs: Sequence[str] = ()) -> None:
        """Writes the model's own file with the trained weights, for inference. `outputs`: the outputs to keep, with what they need; empty: all."""
        if not os.fsdecode(path).endswith(".onnx"):
            raise Error("E-CONFIG", "a trained model must be written as .onnx", os.fsdecode(path), "for example session.export('trained.onnx')")
        names = (ctypes.c_char_p * len(outputs))(*[output.encode() for output in outputs])
        self._call("ExportModelForInferencing", path_bytes(path), names, len(outputs))

    # ---- The end

    def close(self) -> None:
        """Frees the session's memory after calls of other threads have ended. The session cannot be used afterwards."""
        with self._alone():
            if self._fitting:
                raise Error("E-CONFIG", "a callback of fit cannot close its session", "", "return False to end the run first")
            with self._closing:
                self._release()
                self._handle = ctypes.c_void_p()

    def __enter__(self) -> Session:
        return self

    def __repr__(self) -> str:
        # A notebook or a debugger must not wait for the call of another thread, such as a long fit.
        if os.getpid() != self._process or not self._calls.acquire(blocking=False):
            return "<gradloom.Session: in use elsewhere>"
        try:
            what = f"{self.num_updates} updates, {self.plan.num_devices} device(s)" if self._handle else "closed"
            return f"<gradloom.Session: {what}>"
        finally:
            self._calls.release()

    def __exit__(self, *_: object) -> None:
        self.close()
