"""Whole training runs."""
from __future__ import annotations

import contextlib
import ctypes
import math
import os
import signal
import threading
import time
from dataclasses import dataclass, fields
from types import FrameType
from typing import Any, Callable, Iterator, Sequence

import numpy as np

from ._dataset import Dataset
from ._errors import Error
from ._library import library, string

_STOPPED = ("done", "callback", "patience")


@dataclass(frozen=True)
class Evaluation:
    """The results of an evaluation during a fit."""

    values: dict[str, float]
    """ "loss", its terms if there are several ("loss/box"), and the metrics."""
    step: int
    epoch: int
    best: bool
    """Whether it is better than all previous evaluations."""


@dataclass(frozen=True)
class Epoch:
    """One pass over the data during a fit."""

    epoch: int
    """Counted from 1."""
    step: int
    train_loss: float
    """Mean over the samples of the epoch."""
    lr: float
    seconds: float
    samples_per_second: float


@dataclass(frozen=True)
class Plateau:
    """Multiplies the learning rate by `factor` when the watched value makes no progress, as PyTorch's ReduceLROnPlateau does. Needs evaluation
    data and a plan without a schedule."""

    factor: float = 0.1
    patience: int = 10
    """Evaluations without progress that are tolerated."""
    threshold: float = 1e-4
    """Least progress that counts, as a share of the best value."""
    cooldown: int = 0
    """Evaluations after a reduction that do not count."""
    min_lr: float = 0.0
    """The learning rate is not reduced further."""


@dataclass(frozen=True)
class FitResult:
    """The result of a fit."""

    train_loss: float | None
    """Mean over the last epoch; None if no epoch ended."""
    best: float | None
    """The best watched value; None if nothing was evaluated."""
    best_step: int | None
    step: int
    stopped: str
    """ "done", "callback" or "patience"."""


def evaluation_of(struct: Any) -> Evaluation:
    names = (ctypes.c_char_p * struct.count).from_address(struct.names)
    values = (ctypes.c_double * struct.count).from_address(struct.values)
    return Evaluation({string(name): value for name, value in zip(names, values)}, struct.step, struct.epoch, bool(struct.best))


def epoch_of(struct: Any) -> Epoch:
    return Epoch(struct.epoch, struct.step, struct.train_loss, struct.lr, struct.seconds, struct.samples_per_second)


class _Signals:
    """Handles exceptions from signal handlers (usually KeyboardInterrupt) while a fit runs in the main thread. An exception inside a user callback
    is left to that callback. Outside of one no exception may propagate through the C code, so it is stored here and raised later.

    Python handles signals only while it executes Python code, which may be after a long evaluation. So a thread learns of Ctrl-C at once, and
    calls `stop` if the handler has not run shortly after."""

    NOTICED = 0.05  # seconds until the handler has run if Python code is being executed

    def __init__(self, stop: Callable[[], object]) -> None:
        self.raised: list[BaseException] = []
        self.within_a_callback = False
        self._stop = stop
        self._interrupts = 0  # handled

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """Passes the numbers of signals to a thread, and to whoever received them before. Call it in the main thread."""
        reads, writes = os.pipe()
        os.set_blocking(writes, False)
        before = signal.set_wakeup_fd(writes, warn_on_full_buffer=False)

        def watch() -> None:
            seen = self._interrupts
            while numbers := os.read(reads, 4096):
                if before >= 0:
                    with contextlib.suppress(OSError):
                        os.write(before, numbers)
                seen += numbers.count(signal.SIGINT)
                if signal.SIGINT not in numbers:
                    continue
                time.sleep(self.NOTICED)
                if self._interrupts < seen:
                    self._stop()
                seen = self._interrupts  # several may have been handled as one

        thread = threading.Thread(target=watch, name="gradloom signals", daemon=True)
        try:
            thread.start()
            yield
        finally:
            signal.set_wakeup_fd(before)
            os.close(writes)
            thread.join()
            os.close(reads)

    @contextlib.contextmanager
    def kept(self) -> Iterator[bool]:
        """Yields whether signals are delivered to this thread."""
        before: dict[signal.Signals, Any] = {}
        if threading.current_thread() is threading.main_thread():
            before = {number: signal.getsignal(number) for number in signal.Signals if callable(signal.getsignal(number))}
        try:
            for number, handler in before.items():
                signal.signal(number, self._keeping(handler))
            # Another handler may want the run to go on.
            with self._watched() if before.get(signal.SIGINT) is signal.default_int_handler else contextlib.nullcontext():
                yield bool(before)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _keeping(self, handler: Callable[[int, FrameType | None], object]) -> Callable[[int, FrameType | None], None]:
        def handle(number: int, frame: FrameType | None) -> None:
            self._interrupts += number == signal.SIGINT
            try:
                handler(number, frame)
            except BaseException as error:
                if self.within_a_callback:
                    raise
                self.raised.append(error)

        return handle


def run_fit(session: Any, train: Dataset, eval: Dataset | None, epochs: int, updates: int, batch: int, evaluate_every: str,
            metrics: Sequence[str], watch: str | None, patience: int, plateau: Plateau | None, skip_non_finite: bool, in_order: bool,
            callbacks: Sequence[tuple[Callable[[Any], object] | None, Any]]) -> FitResult:
    """`callbacks`: for steps, evaluations and epochs, each with the function that converts the struct to its argument."""
    # The table takes zeros for its defaults, and no factor for no plateau.
    if (epochs == 0 and updates == 0) or batch == 0:
        raise Error("E-CONFIG", "epochs and batch must not be 0")
    if plateau is not None and plateau.factor == 0:
        raise Error("E-CONFIG", "the factor that reduces the learning rate must not be 0")
    lib = library()
    signals = _Signals(lambda: lib.StopFit(session))
    raised = signals.raised
    types = dict(lib.header.structs["GradloomCallbacks"]._fields_)
    structs = ("GradloomStepResult", "GradloomEvaluation", "GradloomEpoch")
    made = lib.struct("GradloomCallbacks")

    def wrapped(call: Callable[[Any], object], read: Any, struct: Any) -> Callable[[Any, int], int]:
        def run(_user: Any, address: int) -> int:
            try:
                if raised:
                    return 1
                signals.within_a_callback = True
                try:
                    answer = call(read(struct.from_address(address)))
                finally:
                    signals.within_a_callback = False
                # A comparison of numpy's numbers is no bool.
                return int((isinstance(answer, (bool, np.bool_)) and not answer) or bool(raised))
            except BaseException as error:  # no exception may cross the table
                raised.append(error)
                return 1

        return run

    for name, struct, (call, read) in zip(("on_step", "on_evaluation", "on_epoch"), structs, callbacks):
        if call is not None:
            setattr(made, name, types[name](wrapped(call, read, lib.header.structs[struct])))
    names = (ctypes.c_char_p * len(metrics))(*[metric.encode() for metric in metrics])
    options = lib.struct("GradloomFitOptions", epochs=epochs, updates=updates, batch=batch, evaluate_every=evaluate_every.encode(),
                         metrics=ctypes.addressof(names), num_metrics=len(metrics), watch=None if watch is None else watch.encode(),
                         patience=patience, skip_non_finite=int(skip_non_finite), in_order=int(in_order))
    if plateau is not None:
        for field in fields(plateau):
            setattr(options, f"plateau_{field.name}", getattr(plateau, field.name))
    result = lib.struct("GradloomFitResult")
    try:
        with signals.kept() as come_here:
            if come_here and callbacks[0][0] is None:
                # Python handles signals only while it executes Python code.
                made.on_step = types["on_step"](lambda _user, _address: int(bool(raised)))
            lib.Fit(session, train._handle, None if eval is None else eval._handle, ctypes.byref(options), ctypes.byref(made), ctypes.byref(result))
    finally:
        if raised:
            raise raised[0]
    evaluated = result.best_step >= 0
    return FitResult(None if math.isnan(result.train_loss) else result.train_loss, result.best if evaluated else None,
                     result.best_step if evaluated else None, result.step, _STOPPED[result.stopped])
