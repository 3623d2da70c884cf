"""The exception class of the package."""
from __future__ import annotations


class Error(Exception):
    """An error: its class (explained in docs/errors.md), what is wrong, where, and what to do about it."""

    def __init__(self, code: str, message: str, where: str = "", help: str = ""):
        super().__init__(code, message, where, help)
        self.code = code
        """The class, for example "E-SHAPE"."""
        self.message = message
        self.where = where
        """File, ONNX node and shapes; may be empty."""
        self.help = help
        """What to do; may be empty."""

    def __str__(self) -> str:
        text = f"{self.code}: {self.message}"
        if self.where:
            text += f"\n  --> {self.where}"
        if self.help:
            text += f"\n  help: {self.help}"
        return text
