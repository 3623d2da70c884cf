"""ctypes declarations for gradloom_c.h: structs, constants, and the function table, all parsed from the header itself."""
from __future__ import annotations

import ctypes
import re
from typing import Any, Callable, Iterable

from ._errors import Error

SCALARS: dict[str, Any] = {"int": ctypes.c_int, "int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64, "uint32_t": ctypes.c_uint32,
                           "size_t": ctypes.c_size_t, "double": ctypes.c_double, "float": ctypes.c_float, "char": ctypes.c_char}


def _groups(pattern: str, text: str) -> tuple[str, ...]:
    match = re.fullmatch(pattern, text)
    if match is None:
        raise ValueError(f"not a declaration of the C interface: {text}")
    return match.groups()


class Header:
    """The declarations in the text of the header."""

    def __init__(self, text: str):
        text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
        self.version = int(re.findall(r"#define GRADLOOM_API_VERSION (\d+)", text)[0])
        self.constants: dict[str, int] = {}
        for body in re.findall(r"\benum \{(.*?)\};", text, re.S):
            for name, value in re.findall(r"(\w+) = (\d+)", body):
                self.constants[name] = int(value)
        self.scalars = dict(SCALARS)
        for base, name in re.findall(r"typedef (\w+) (\w+);", text):
            self.scalars[name] = self.scalars[base]
        self.handles = re.findall(r"typedef struct (\w+) \1;", text)
        self.structs: dict[str, Any] = {}
        self.fields: dict[str, Any] = {}
        for name, body in re.findall(r"typedef struct (\w+) \{(.*?)\} \1;", text, re.S):
            self.fields[name] = [self._field(" ".join(field.split())) for field in body.split(";") if field.strip()]
            flat = [one for field in self.fields[name] for one in field]
            self.structs[name] = type(name, (ctypes.Structure,), {"_fields_": [(field, kind) for field, kind, _ in flat]})
        self.table = self.structs["GradloomApi"]
        # Function name -> [(type, parameter, spelling)], and its return type.
        self.functions = {field[0][0]: field[0][2] for field in self.fields["GradloomApi"] if field[0][2]}

    def _field(self, text: str) -> list[tuple[str, Any, Any]]:
        """[(name, ctypes type, (return, parameters) or None)] of one declaration, which may declare several fields."""
        function = re.fullmatch(r"(.+?)\(\*(\w+)\)\((.*)\)", text)
        if function:
            returns, name, parameters = function.groups()
            listed = [] if parameters in ("void", "") else [self._parameter(p.strip()) for p in parameters.split(",")]
            signature = (returns.strip(), listed)
            return [(name, ctypes.CFUNCTYPE(self._type(returns), *[kind for kind, _, _ in listed]), signature)]
        array = re.fullmatch(r"char (\w+)\[(\d+)\]", text)
        if array:
            return [(array.group(1), ctypes.c_char * int(array.group(2)), None)]
        kind, names = _groups(r"((?:const |struct )*\w+[ *const]*?[ *])((?:\w+, )*\w+)", text)
        return [(name, self._type(kind), None) for name in names.split(", ")]

    def _parameter(self, text: str) -> tuple[Any, str, str]:
        kind, name = _groups(r"(.*?[ *])(\w+)", text)
        return self._type(kind), name, " ".join(kind.split())

    def _type(self, text: str) -> Any:
        """Pointers to anything but char are untyped, because callers pass buffers, arrays and byref objects."""
        if "*" in text:
            return ctypes.c_char_p if text.replace("const", "").replace(" ", "") == "char*" else ctypes.c_void_p
        word = text.replace("const", "").split()[-1]
        return None if word == "void" else self.scalars.get(word) or self.structs[word]


class Library:
    """A loaded library with a method for each function of its table. A failing function raises Error; the GIL is released during a call."""

    Error = Error

    def __init__(self, header_path: str, library_path: str):
        with open(header_path, encoding="utf-8") as file:
            self.header = Header(file.read())
        self.path = library_path
        self.library = ctypes.CDLL(library_path)
        self.library.GradloomGetApi.restype = ctypes.POINTER(self.header.table)
        self.library.GradloomGetApi.argtypes = [ctypes.c_uint32]
        table = self.library.GradloomGetApi(self.header.version)
        if not table:
            raise Error("E-VERSION", f"the library has no table of version {self.header.version}", library_path)
        self.api = table.contents

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__") or name == "header" or name not in self.header.functions:
            raise AttributeError(name)
        function: Callable[..., Any] = getattr(self.api, name)
        made = function
        if self.header.functions[name][0].replace(" ", "") == "GradloomStatus*":

            def made(*arguments: Any) -> None:
                status = function(*arguments)
                if status:
                    self._raise(status)

        # Later accesses find the attribute directly.
        setattr(self, name, made)
        return made

    def _raise(self, status: int) -> None:
        parts = [getattr(self.api, part)(status).decode() for part in ("GetErrorName", "GetErrorMessage", "GetErrorWhere", "GetErrorHelp")]
        self.api.ReleaseStatus(status)
        raise Error(*parts)

    def struct(self, name: str, **fields: Any) -> Any:
        """A struct of the header, with its `size` field set if it has one."""
        kinds = dict(self.header.structs[name]._fields_)
        for field, value in fields.items():
            # ctypes would take the number modulo the size of the field.
            if isinstance(value, int) and issubclass(kinds[field], ctypes._SimpleCData) and kinds[field]._type_ in "bBhHiIlLqQ":
                if kinds[field](value).value != value:
                    raise OverflowError(f"{field} = {value} does not fit into {8 * ctypes.sizeof(kinds[field])} bits")
        made = self.header.structs[name](**fields)
        if hasattr(made, "size"):
            made.size = ctypes.sizeof(made)
        return made

    def array(self, name: str, rows: Iterable[Any]) -> Any:
        """An array of structs made from tuples."""
        listed = list(rows)
        return (self.header.structs[name] * len(listed))(*listed)
