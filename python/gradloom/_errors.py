"""What goes wrong."""
from __future__ import annotations


class Error(Exception):
    """An error of Gradloom's: its class (docs/errors.md explains each), what, where, and what to do about it."""

    def __init__(self, code: str, message: str, where: str = "", help: str = ""):
        super().__init__(code, message, where, help)
        self.code = code
        """The class: "E-SHAPE"."""
        self.message = message
        self.where = where
        """File, ONNX node, shapes; may be empty."""
        self.help = help
        """What to do; may be empty."""

    def __str__(self) -> str:
        text = f"{self.code}: {self.message}"
        if self.where:
            text += f"\n  --> {self.where}"
        if self.help:
            text += f"\n  help: {self.help}"
        return text
