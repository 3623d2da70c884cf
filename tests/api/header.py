"""gradloom_c.h as ctypes sees it: structs, constants, and the table with the types of its functions, all read from the header itself."""
import ctypes
import re

SCALARS = {"int": ctypes.c_int, "int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64, "uint32_t": ctypes.c_uint32, "size_t": ctypes.c_size_t,
           "double": ctypes.c_double, "float": ctypes.c_float, "char": ctypes.c_char}


class Header:
    def __init__(self, text):
        text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
        self.constants = {}
        for body in re.findall(r"\benum \{(.*?)\};", text, re.S):
            for name, value in re.findall(r"(\w+) = (\d+)", body):
                self.constants[name] = int(value)
        self.scalars = dict(SCALARS)
        for base, name in re.findall(r"typedef (\w+) (\w+);", text):
            self.scalars[name] = self.scalars[base]
        self.handles = re.findall(r"typedef struct (\w+) \1;", text)
        self.structs = {}
        self.fields = {}
        for name, body in re.findall(r"typedef struct (\w+) \{(.*?)\} \1;", text, re.S):
            self.fields[name] = [self._field(" ".join(field.split())) for field in body.split(";") if field.strip()]
            flat = [one for field in self.fields[name] for one in field]
            self.structs[name] = type(name, (ctypes.Structure,), {"_fields_": [(field, kind) for field, kind, _ in flat]})
        self.table = self.structs["GradloomApi"]
        # Function name -> [(type, parameter, spelled)], and what it returns.
        self.functions = {field[0][0]: field[0][2] for field in self.fields["GradloomApi"] if field[0][2]}

    def _field(self, text):
        """[(name, ctypes type, (return, parameters) or None)] of one declaration, which may declare several."""
        function = re.fullmatch(r"(.+?)\(\*(\w+)\)\((.*)\)", text)
        if function:
            returns, name, parameters = function.groups()
            listed = [] if parameters in ("void", "") else [self._parameter(p.strip()) for p in parameters.split(",")]
            signature = (returns.strip(), listed)
            return [(name, ctypes.CFUNCTYPE(self._type(returns), *[kind for kind, _, _ in listed]), signature)]
        array = re.fullmatch(r"char (\w+)\[(\d+)\]", text)
        if array:
            return [(array.group(1), ctypes.c_char * int(array.group(2)), None)]
        kind, names = re.fullmatch(r"((?:const |struct )*\w+[ *const]*?[ *])((?:\w+, )*\w+)", text).groups()
        return [(name, self._type(kind), None) for name in names.split(", ")]

    def _parameter(self, text):
        kind, name = re.fullmatch(r"(.*?[ *])(\w+)", text).groups()
        return self._type(kind), name, " ".join(kind.split())

    def _type(self, text):
        """Pointers to what is not a plain char are untyped: callers pass buffers, arrays and byref of all kinds."""
        if "*" in text:
            return ctypes.c_char_p if text.replace("const", "").replace(" ", "") == "char*" else ctypes.c_void_p
        word = text.replace("const", "").split()[-1]
        return None if word == "void" else self.scalars.get(word) or self.structs[word]


class Gradloom:
    """The library, with a method for each function of the table; one that fails raises."""

    class Error(Exception):
        pass

    def __init__(self, header_path, library_path):
        with open(header_path) as file:
            self.header = Header(file.read())
        self.library = ctypes.CDLL(library_path)
        self.library.GradloomGetApi.restype = ctypes.POINTER(self.header.table)
        self.library.GradloomGetApi.argtypes = [ctypes.c_uint32]
        self.api = self.library.GradloomGetApi(1).contents

    def __getattr__(self, name):
        function = getattr(self.api, name)
        if self.header.functions[name][0].replace(" ", "") != "GradloomStatus*":
            return function

        def checked(*arguments):
            status = function(*arguments)
            if status:
                text = [getattr(self.api, part)(status).decode() for part in ("GetErrorName", "GetErrorMessage", "GetErrorHelp")]
                self.api.ReleaseStatus(status)
                raise Gradloom.Error(": ".join(text[:2]) + ("\n  help: " + text[2] if text[2] else ""))

        return checked

    def struct(self, name, **fields):
        made = self.header.structs[name](**fields)
        if "size" in dict(made._fields_):
            made.size = ctypes.sizeof(made)
        return made

    def array(self, name, rows):
        """An array of structs from tuples."""
        return (self.header.structs[name] * len(rows))(*rows)
