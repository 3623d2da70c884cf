"""Gradloom trains ONNX models: compile a model with a loss and an optimizer, step with arrays, export.

    import gradloom

    plan = gradloom.compile("mnist_cnn.onnx", loss="cross_entropy(logits, label)", optimizer="adamw", lr=1e-3, batch=64)
    session = gradloom.Session(plan, seed=1234)
    for x, y in batches:
        loss = session.step(image=x, label=y).loss
    session.save("mnist.ckpt")
    session.export("trained.onnx")

Arrays are numpy arrays, or any DLPack tensors in host memory. The package is a thin layer over the C interface (docs/python.md).
"""
from ._dataset import Dataset
from ._dlpack import DeviceTensor
from ._errors import Error
from ._fit import Epoch, Evaluation, FitResult, Plateau
from ._plan import Plan, TensorInfo, compile, default_devices, devices, load_plan, set_default_devices, settings, version
from ._results import StepResult
from ._session import Checkpoint, DeviceMemory, Location, Session
from ._sharing import AttachedParameters

__all__ = ["AttachedParameters", "Checkpoint", "Dataset", "DeviceMemory", "DeviceTensor", "Epoch", "Error", "Evaluation", "FitResult",
           "Location", "Plan", "Plateau", "Session", "StepResult", "TensorInfo", "compile", "default_devices", "devices", "load_plan",
           "set_default_devices", "settings", "version"]


def __getattr__(name: str) -> str:
    # Asks the library, which is opened on first use.
    if name == "__version__":
        return version()
    raise AttributeError(f"module 'gradloom' has no attribute '{name}'")
