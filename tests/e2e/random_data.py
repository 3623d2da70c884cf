"""Random data files, valid ones and ones with something odd, and how an independent reader reads each: Python's csv and float, numpy,
zipfile, gzip and Pillow."""
import csv
import dataclasses
import gzip
import io
import re
import struct
import zipfile
import zlib
from fractions import Fraction
from typing import Optional

import numpy as np
import PIL.Image


# Messages for files that others can read but the command cannot. There are no other such cases.
LEFT_OUT = re.compile("|".join([
    r"needs \d+ bytes, but the file has", "inconsistent", "unsupported compression method", "its name does not end in .npy", "points outside the folder", "the .npy header is damaged", "the array's dtype", "the gzip data is damaged", "two entries have the same name", "a damaged (PNG|JPEG) image"]))


class Refused(Exception):
    """The reader rejects the file, for this reason."""


@dataclasses.dataclass
class Case:
    """A file `name` with `content`, the words that map it to the model's input, and its rows as the reader sees them; None if it is
    rejected for the reason `why`."""
    kind: str
    name: str
    content: bytes
    words: list
    rows: Optional[np.ndarray]
    why: str = ""


# The number syntax of C and Python; anything else is not a number.
NUMBER = re.compile(r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|nan|inf|infinity)", re.ASCII | re.IGNORECASE)


def nearest_float32(text):
    """The float32 nearest to a decimal text, without rounding to a double in between."""
    value = float(text)
    with np.errstate(over="ignore"):
        near = np.float32(value)
    if not np.isfinite(value) or value == 0:
        if np.isinf(value) and "inf" not in text.lower():
            raise Refused("a number past float32")
        return near
    exact = Fraction(text)
    around = [near, np.nextafter(near, np.float32(-np.inf)), np.nextafter(near, np.float32(np.inf))]
    finite = [one for one in around if np.isfinite(one)]
    if np.isinf(near) and abs(exact) >= Fraction(2) ** 128 - Fraction(2) ** 103:
        raise Refused("a number past float32")
    return min(finite, key=lambda one: (abs(Fraction(float(one)) - exact), int(one.view("uint32")) & 1))


def whole_number(text):
    if re.fullmatch(r"[+-]?\d+", text):
        value = int(text)
    else:
        value = float(text)
        if not value.is_integer() or abs(value) > 2**53:
            raise Refused("no whole number")
    if not -2**63 <= value < 2**63:
        raise Refused("past int64")
    return np.int64(int(value))


def number(text, dtype):
    text = text.strip(" \t")
    if not NUMBER.fullmatch(text):
        raise Refused(f"{text!r} is no number")
    if dtype == "int64" and text.lower().lstrip("+-") in ("nan", "inf", "infinity"):
        raise Refused("no whole number")
    return nearest_float32(text) if dtype == "float32" else whole_number(text)


class Tables:
    """Tables, plain or compressed."""

    def __init__(self, rng):
        self.rng = rng

    def numeral(self, whole):
        rng = self.rng
        if whole:
            value = rng.choice([rng.randrange(5), rng.randrange(-10**6, 10**6), rng.choice([2**31, 2**53, 2**53 + 1, 2**63 - 1, -2**63])])
            return rng.choice([str(value)] * 8 + [f"{value}.0", f"+{abs(value)}", f"00{abs(value)}", f"{value}e0"])
        value = rng.choice([rng.uniform(-1, 1), rng.gauss(0, 1) * 10.0 ** rng.randint(-50, 45), float(rng.randrange(-99, 99)), 0.0, -0.0])
        if rng.random() < 0.1:
            # Halfway between two float32 numbers, except for the last of many digits.
            low = np.float32(rng.uniform(-8, 8))
            return f"{(Fraction(float(low)) + Fraction(float(np.nextafter(low, np.float32(9))))) / 2 * 10**40 // 1}e-40"
        return rng.choice([repr(value)] * 5 + [f"{value:.3e}", f"{value:E}", f"{value:+.5f}", f"{value:.60g}", f"{value:.0f}.", f"{value:.4f}".replace("0.", ".", 1)])

    def oddity(self):
        return self.rng.choice(["", " ", "nan", "NaN", "-inf", "Infinity", "n/a", "1,5", "1_000", "0x10", "1e", "1e+", "--1", "+-1", "+", ".", "e5", "1e400",
                                "1e-400", "1e39", "3.4028235e38", "3.4028236e38", "1e-46", "٣", "1 2", "1\t", "\xa01", "1\x00", "1\r", "true", "9" * 400,
                                "0." + "0" * 400 + "1", "1d5", "1f", "nan(1)", "inf0", "0b1", "1e5.0", "9223372036854775808", "1.5e0", "\"1\"", "1\"", "#1", "=1"])

    def field(self, text, delimiter):
        if self.rng.random() < 0.05 or any(c in text for c in delimiter + '"\r\n'):
            return '"' + text.replace('"', '""') + '"'
        return self.rng.choice([text] * 12 + [" " + text, text + " ", "\t" + text if delimiter != "\t" else text])

    def draw(self, name, dtype, width):
        rng = self.rng
        suffix = rng.choice([".csv", ".csv", ".csv", ".tsv", ".txt", ".csv.gz"])
        delimiter = "\t" if suffix == ".tsv" else ","
        end = rng.choice(["\n", "\n", "\n", "\r\n", "\r\n", "\r"])
        notes = ["note", "5\" pipe", "a, b", "two\nlines", "say \"hi\"", "", " x", "Größe", "l\r\n2", "=1+1", "'", "\"\"\""]
        used = [chr(ord("a") + i) for i in range(width)]
        extra = [rng.choice(["id", "note", "a ", "Ä", "0", "x..y", "1.5", ""]) for _ in range(rng.choice([0, 0, 1, 2]))]
        header = rng.random() < 0.75
        # The position of the columns among the others.
        left = [name for name in extra if rng.random() < 0.5]
        right = extra[len(left):]
        rows = [left + used + right] if header else []
        rare = rng.choice([0, 0, 0.02, 0.1])
        for _ in range(rng.randint(1, 12)):
            numbers = [self.oddity() if rng.random() < rare else self.numeral(dtype == "int64") for _ in used]
            rows.append([rng.choice(notes) for _ in left] + numbers + [rng.choice(notes) for _ in right])
        if rng.random() < 0.08:
            row = rng.choice(rows)
            rng.choice([lambda: row.append("1"), lambda: row and row.pop(), row.clear])()
        raw = rng.random() < 0.04  # nothing is quoted, even where it should be
        lines = [delimiter.join(cell if raw else self.field(cell, delimiter) for cell in row) for row in rows]
        for _ in range(rng.choice([0, 0, 0, 1, 2])):
            lines.insert(rng.randrange(len(lines) + 1), "")
        text = end.join(lines) + rng.choice([end, end, "", end + end])
        if rng.random() < 0.05:
            text = text.replace(end, end if end == "\r" else rng.choice(["\n", "\r\n"]), rng.randint(1, 3))
        data = rng.choice([b"", b"", b"", b"\xef\xbb\xbf"]) + text.encode("utf-8", "replace")
        if rng.random() < 0.03:
            data = text.encode(rng.choice(["utf-16", "latin-1", "utf-16-le"]), "replace")
        if rng.random() < 0.06:
            data = damaged(rng, data)
        selection = f"{used[0]}..{used[-1]}" if header and width > 1 else used[0] if header else ",".join(str(len(left) + i) for i in range(width))
        words = ["--map", f"{name}={selection}"]
        columns = (used if header else [len(left) + i for i in range(width)])
        content = data
        if suffix.endswith(".gz"):
            parts = [data[:len(data) // 2], data[len(data) // 2:]] if rng.random() < 0.3 else [data]
            content = b"".join(gzip.compress(part, rng.choice([0, 1, 9])) for part in parts)
            if rng.random() < 0.15:
                content = rng.choice([content[:-rng.randint(1, 12)], content + bytes(3), content + b"tail", damaged(rng, content)])
        try:
            rows, why = self.read(content, suffix, delimiter, columns, dtype), ""
        except Refused as refusal:
            rows, why = None, str(refusal)
        return Case("table", "d" + suffix, content, words, rows, why)

    def read(self, content, suffix, delimiter, columns, dtype):
        if suffix.endswith(".gz"):
            try:
                content = gzip.decompress(content)
            except (EOFError, OSError, zlib.error, struct.error) as error:
                raise Refused(f"gzip: {error}") from None
        if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise Refused("UTF-16")
        text = content.removeprefix(b"\xef\xbb\xbf").decode("latin-1")
        try:
            rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True) if row]
        except csv.Error as error:
            raise Refused(f"csv: {error}") from None
        if not rows:
            raise Refused("no rows")
        first = [cell.strip(" \t") for cell in rows[0]]
        said = [cell for cell in first if cell]
        words = [cell for cell in said if not NUMBER.fullmatch(cell) or np.isinf(float(cell)) and "inf" not in cell.lower()]
        names = first if 2 * len(words) > len(said) else None
        if names is not None:
            rows = rows[1:]
        if not rows or any(len(row) != len(first) for row in rows):
            raise Refused("rows of other lengths, or none")
        at = []
        for column in columns:
            found = [i for i, name in enumerate(names or []) if name.encode("latin-1") == str(column).encode()]
            if len(found) > 1 or not found and isinstance(column, str):
                raise Refused(f"column {column}")
            at.append(found[0] if found else column)
        if isinstance(columns[0], str):
            at = list(range(at[0], at[-1] + 1))
        if any(column >= len(first) for column in at) or len(at) != len(columns):
            raise Refused("columns")
        return np.array([[number(row[column], dtype) for column in at] for row in rows], dtype)


def damaged(rng, data):
    """Changes, duplicates or removes bytes."""
    made = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(made) + 1)
        rng.choice([lambda: made.__setitem__(slice(at, at + 1), bytes([rng.randrange(256)])), lambda: made.insert(at, rng.choice(b"\"\n\r,;'\0 \t-\xff")),
                    lambda: made.__delitem__(slice(at, at + rng.randint(1, 9))), lambda: made.extend(made[at:at + 20])])()
    return bytes(made)


class Arrays:
    """.npy and .npz."""

    TYPES = ["<f4", "<f8", "<f2", ">f4", ">f8", "<i8", "<i4", "<i2", "|i1", "|u1", "<u2", "<u4", "<u8", ">i8", ">u2", "|b1"]

    def __init__(self, rng):
        self.rng = rng

    def array(self, dtype, row):
        rng = self.rng
        shape = (rng.randint(1, 9), *row)
        if rng.random() < 0.06:
            shape = rng.choice([(0, *row), row, (), (*shape, 1), (shape[0], *(e + 1 for e in row)), (1, *shape)])
        kind = rng.choice(self.TYPES if dtype == "float32" or rng.random() < 0.1 else [t for t in self.TYPES if t[1] in "iub"])
        seed = np.random.default_rng(rng.randrange(2**32))
        if kind[1] == "f":
            made = seed.standard_normal(shape) * 10.0 ** rng.randint(-3, 3)
            if rng.random() < 0.1 and made.size:
                made.flat[0] = rng.choice([np.nan, np.inf, 1e300 if kind[2] == "8" else 0.0, 1e-300, -0.0])
        elif kind[1] == "b":
            made = seed.integers(0, 2, shape)
        else:
            info = np.iinfo(kind)
            made = seed.integers(*((info.min, info.max) if rng.random() < 0.3 else (0, 100)), shape, kind.replace(">", "<"), endpoint=True)
        with np.errstate(over="ignore"):
            made = np.asarray(made).astype(kind)
        return np.asfortranarray(made) if rng.random() < 0.25 else made

    def header(self, array):
        """As numpy writes it, or in another valid form."""
        rng = self.rng
        parts = {"descr": repr(array.dtype.str), "fortran_order": str(array.flags.f_contiguous and not array.flags.c_contiguous), "shape": repr(array.shape)}
        if rng.random() < 0.3:
            key = rng.choice(sorted(parts))
            parts[key] = rng.choice({
                "descr": ["'f4'", "'=f4'", "'<f4 '", "'|O'", "'O8'", "'<M8[ns]'", "'<c8'", "'<U4'", "'|S4'", "'<f16'", "[('a', '<f4')]", "b'<f4'", "'<f\\x34'", "\"<f4\"",
                          "'float32'", "'<V4'", "None", "'<f8'", "'>f4'"],
                "fortran_order": ["True", "False", "0", "1", "true", "None", "not True"],
                "shape": ["(3,)", "(3L, 4L)", "[3, 4]", "(3, 4,)", "(3, -4)", "(3, 4.0)", "3", "()", "(0x3, 4)", "(3 , 4)", "(+3, 4)", "(1_0, 4)", "(2**40, 4)",
                          "(4611686018427387904, 4)", "(9223372036854775808, 4)", "(0, 9223372036854775807)"]}[key])
        keys = list(parts)
        if rng.random() < 0.1:
            rng.shuffle(keys)
        if rng.random() < 0.05:
            rng.choice([lambda: keys.pop(), lambda: keys.append(keys[0]), lambda: (keys.append("more"), parts.update(more="1"))])()
        return "{" + ", ".join(f"'{key}': {parts[key]}" for key in keys) + rng.choice([", }", "}", ",}", " }", ", } # end", ", }, 1"] if rng.random() < 0.1 else [", }"])

    def file(self, array):
        rng = self.rng
        text = self.header(array).encode()
        version = rng.choice([1, 1, 1, 2, 3]) if rng.random() < 0.95 else rng.choice([0, 4, 255])
        before = 10 if version == 1 else 12
        if rng.random() < 0.9:
            text += b" " * (-(before + len(text) + 1) % 64) + b"\n"
        length = len(text) + (rng.choice([-1, 1, 64, -len(text)]) if rng.random() < 0.02 else 0)
        data = array.tobytes("A")
        if rng.random() < 0.06:
            data = rng.choice([data[:-1], data + b"\0", b"", data * 2, data[:len(data) // 2]])
        made = b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", max(length, 0)) + text + data
        return damaged(rng, made) if rng.random() < 0.04 else made

    def draw(self, name, dtype, row):
        made, array = self.file(self.array(dtype, row)), None
        if self.rng.random() < 0.4:
            case = Case("npy", "d.npy", made, [], None)
        else:
            case = Case("npz", "d.npz", self.archive(name, made), [], None)
        try:
            file = io.BytesIO(case.content)
            # numpy.load requires the archive at the beginning of the file.
            array = (np.load(file, allow_pickle=False, max_header_size=65536) if case.kind == "npy" else
                     np.lib.npyio.NpzFile(file, allow_pickle=False, max_header_size=65536)[name])
            array = np.asarray(array)
        except Exception as error:  # noqa: BLE001
            case.why = f"numpy: {error!r}"[:200]
            return case
        case.rows, case.why = as_rows(array, dtype, row)
        return case

    def archive(self, name, content):
        rng, out = self.rng, io.BytesIO()
        if rng.random() < 0.05:
            out.write(b"#!/bin/sh\n")
        with zipfile.ZipFile(out, rng.choice(["w", "w", "a"]), allowZip64=True) as file:
            others = [rng.choice(["label", "a/b", "y", "Größe", "", ".", "x.y"]) for _ in range(rng.choice([0, 0, 1, 2]))]
            for entry in rng.sample([name, *others], len(others) + 1):
                bytes_of = content if entry == name else npy_bytes(np.arange(3))
                info = zipfile.ZipInfo(entry + rng.choice([".npy"] * 30 + ["", ".txt"]), rng.choice([(1980, 1, 1, 0, 0, 0), (2026, 11, 25, 1, 2, 3)]))
                info.compress_type = rng.choice([zipfile.ZIP_STORED] * 6 + [zipfile.ZIP_DEFLATED] * 5 + [zipfile.ZIP_BZIP2])
                info.external_attr = 0o644 << 16
                if rng.random() < 0.1:
                    info.extra = struct.pack("<HH", 0x9901, 4) + b"more"
                    info.comment = b"a comment"
                with file.open(info, "w", force_zip64=rng.random() < 0.4) as entry_file:
                    entry_file.write(bytes_of)
            if rng.random() < 0.1:
                file.comment = b"comment"
        made = out.getvalue()
        if rng.random() < 0.1:
            made = rng.choice([made + b"\0", made[:-1], damaged(rng, made), made[:len(made) // 2], made.replace(b"PK\1\2\x14", b"PK\1\2\x2d")])
        return made


def npy_bytes(array):
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def as_rows(array, dtype, row):
    """An array in the shape of the model's input, and the reason if that is impossible."""
    # Extents of 1 are ignored.
    if array.ndim == 0 or array.shape[0] == 0 or [e for e in array.shape[1:] if e != 1] != [e for e in row if e != 1]:
        return None, f"shape {array.shape}"
    if array.dtype.kind not in "fiub":
        return None, f"dtype {array.dtype}"
    native = array.reshape(-1, *row).astype(array.dtype.newbyteorder("="))
    if dtype == "int64" and array.dtype.kind == "f":
        whole = np.isfinite(native) & (native == np.floor(native)) & (np.abs(native.astype("float64")) <= 2**53)
        return (native.astype("float64").astype("int64"), "") if whole.all() else (None, "no whole numbers")
    if dtype == "int64":
        return (native.astype("int64"), "") if native.dtype != "uint64" or (native < 2**63).all() else (None, "past int64")
    with np.errstate(over="ignore"):
        made = native.astype("float32")
    if native.dtype == "float64" and (np.isinf(made) & ~np.isinf(native)).any():
        return None, "past float32"
    return made, ""


class Idx:
    """MNIST's format, plain or compressed."""

    TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}

    def __init__(self, rng):
        self.rng = rng

    def draw(self, name, dtype, row):
        rng = self.rng
        code = rng.choice(sorted(self.TYPES))
        shape = (rng.randint(1, 9), *row)
        if rng.random() < 0.1:
            shape = rng.choice([(0, *row), row, (), (*shape, 1), (2**31 - 1, *row), (2**32 - 1, *row), (1,) * 9, (0, 2**32 - 1, 2**32 - 1)])
        count = int(np.prod([min(e, 9) for e in shape], dtype=np.int64))
        values = np.random.default_rng(rng.randrange(2**32)).integers(0, 120, count)
        data = values.astype(self.TYPES[code]).tobytes()
        head = bytes([0, 0, code if rng.random() < 0.95 else rng.choice([0, 7, 0x0A, 0x0F, 255]), len(shape)])
        made = head + b"".join(struct.pack(">I", e) for e in shape) + data
        if rng.random() < 0.1:
            made = rng.choice([made + b"\0", made[:-1], made[:3], made[:7], damaged(rng, made)])
        suffix = rng.choice([".idx", ".idx", "-idx2-ubyte", ".idx.gz", "-idx3-ubyte.gz"])
        content = made
        if suffix.endswith(".gz"):
            content = gzip.compress(made)
            if rng.random() < 0.1:
                content = rng.choice([content[:-5], content + b"tail", made])
        case = Case("idx", "d" + suffix, content, [], None)
        try:
            case.rows, case.why = as_rows(self.read(content, suffix), dtype, row)
        except Refused as refusal:
            case.why = str(refusal)
        return case

    def read(self, content, suffix):
        if suffix.endswith(".gz") and content[:2] == b"\x1f\x8b":
            try:
                content = gzip.decompress(content)
            except (EOFError, OSError, zlib.error, struct.error) as error:
                raise Refused(f"gzip: {error}") from None
        if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in self.TYPES or len(content) < 4 + 4 * content[3]:
            raise Refused("no IDX")
        shape = struct.unpack(f">{content[3]}I", content[4:4 + 4 * content[3]])
        kind = np.dtype(self.TYPES[content[2]])
        total = kind.itemsize
        for extent in shape:
            total *= extent
        if len(content) - 4 - 4 * len(shape) != total or total == 0:
            raise Refused("another length, or nothing")
        return np.frombuffer(content, kind, offset=4 + 4 * len(shape)).reshape(shape)


class Tokens:
    """llm.c's files and headerless ones, as windows."""

    def __init__(self, rng):
        self.rng = rng

    def draw(self, name, dtype, row):
        rng, length = self.rng, row[0]
        ids = np.random.default_rng(rng.randrange(2**32)).integers(0, 10, rng.choice([rng.randint(0, length + 1), rng.randint(length + 1, 9 * length)]))
        magic, version, count = 20240520, 1, len(ids)
        if rng.random() < 0.15:
            magic, version, count = rng.choice([(20240520, 2, count), (20240520, 1, count + 1), (20240520, 1, -1), (20240801, 7, count), (20240520, 1, 0)])
        data = ids.astype("<u4" if magic == 20240801 else "<u2").tobytes()
        headed = magic == 20240801 or rng.random() < 0.7
        made = (struct.pack("<3i", magic, version, count) + bytes(1012) if headed else b"") + data
        if rng.random() < 0.05:
            made = rng.choice([made + b"\0", made[:-1], made[:1000]])
        case = Case("tokens", "d.bin", made, [], None)
        try:
            found = self.read(made)
            windows = (len(found) - 1) // length
            if windows < 1:
                raise Refused("no window")
            case.rows = found[:windows * length].reshape(windows, length).astype("int64")
        except Refused as refusal:
            case.why = str(refusal)
        return case

    @staticmethod
    def read(content):
        head = struct.unpack("<3i", content[:12]) if len(content) >= 1024 else (0, 0, 0)
        if head[0] == 20240801:
            raise Refused("32-bit tokens")
        if head[0] == 20240520:
            content = content[1024:]
            if head[1] != 1 or head[2] * 2 != len(content):
                raise Refused("header")
        if len(content) % 2:
            raise Refused("half a token")
        return np.frombuffer(content, "<u2")


def with_chunk(png, name, content):
    """A PNG with an additional chunk after its header."""
    header = 8 + 25
    return png[:header] + struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content)) + png[header:]


class Images:
    """An 8 x 8 image in the folder of its class. `kind` is "JPEG?" for a damaged one, which every decoder reads differently."""

    def __init__(self, rng):
        self.rng = rng

    def picture(self, mode):
        made = np.random.default_rng(self.rng.randrange(2**32)).integers(0, 256, (8, 8, 3), "uint8")
        return PIL.Image.fromarray(made[..., 0].astype("uint16") * 257) if mode == "I;16" else PIL.Image.fromarray(made).convert(mode)

    def draw(self):
        rng, out = self.rng, io.BytesIO()
        mode = rng.choice(["RGB", "RGB", "L", "P", "1", "CMYK", "I;16"])
        kind = "PNG" if mode in ("P", "1", "I;16") else "JPEG" if mode == "CMYK" else rng.choice(["PNG", "JPEG"])
        options = ({"compress_level": rng.randrange(10)} if kind == "PNG" else
                   {"quality": rng.choice([10, 75, 95, 100]), "progressive": rng.random() < 0.3, "optimize": rng.random() < 0.3})
        self.picture(mode).save(out, kind, **options)
        content = out.getvalue()
        if kind == "PNG" and rng.random() < 0.3:
            content = with_chunk(content, *rng.choice([(b"gAMA", struct.pack(">I", rng.choice([45455, 100000, 55556]))), (b"sRGB", b"\0"), (b"tEXt", b"a\0b")]))
        if rng.random() < 0.1:
            kind += "?"
            content = rng.choice([content[:-rng.randint(13, 60)], damaged(rng, content), content + b"tail", b""])
        case = Case(kind, f"2.{rng.choice(['png', 'jpg', 'jpeg', 'JPG', 'PNG'])}", content, [], None)
        try:
            with PIL.Image.open(io.BytesIO(content)) as opened:
                opened.load()
                if opened.mode == "CMYK" or opened.size != (8, 8) or opened.format not in ("PNG", "JPEG") or "transparency" in opened.info:
                    raise Refused(f"mode {opened.mode}, size {opened.size}")
                pixels = np.repeat(np.asarray(opened)[..., None] // 257, 3, 2) if opened.mode.startswith("I") else np.asarray(opened.convert("RGB"))
                case.rows = pixels.transpose(2, 0, 1)[None].astype("float32")
        except Refused as refusal:
            case.why = str(refusal)
        except Exception as error:  # noqa: BLE001
            case.why = f"Pillow: {error!r}"[:200]
        return case
