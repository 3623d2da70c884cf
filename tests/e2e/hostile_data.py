"""X01 to X25: data files of every kind."""
import gzip
import io
import os
import shutil
import struct
import zipfile
import zlib

import hostile_files
import numpy as np
import onnx
import PIL.Image
import sample_files
from hostile_files import Row, read, write

TRAIN = "--loss 'cross_entropy(logits, label)' --epochs 1 --progress none"
ARRAYS = f"train model.onnx --data d.npz {TRAIN}"
TABLE = f"train model.onnx --data d.csv --map x=a..d --map label=label {TRAIN}"
IDX = f"train model.onnx --data set --map x=images --map label=labels {TRAIN}"
IMAGES = f"train vision.onnx --data images {TRAIN}"
TOKENS = "train language.onnx --data d.bin --loss 'cross_entropy(logits, next, class_axis=-1)' --epochs 1 --batch 2 --progress none"
ONE = "predict runs/done --data d.npy"


def npy(header, data=b"", version=b"\1\0"):
    text = header.encode()
    return b"\x93NUMPY" + version + struct.pack("<H" if version[0] == 1 else "<I", len(text)) + text + data


def header(descr="'<f4'", order="False", shape="(60, 4)"):
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"


def array_bytes(array):
    out = io.BytesIO()
    np.save(out, array, allow_pickle=True)
    return out.getvalue()


def archive(**entries):
    """The bytes of an .npz with the correct label and the given entries: bytes, or (bytes, change of the entry's ZipInfo)."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for name, content in {"label.npy": array_bytes(np.arange(60) % 3), **entries}.items():
            info = zipfile.ZipInfo(name)
            if isinstance(content, tuple):
                content, info.compress_type = content
            file.writestr(info, content)
    return out.getvalue()


def tar_header(name, size):
    """size: the field's 12 bytes."""
    made = bytearray(name.encode().ljust(124, b"\0") + size + bytes(12) + b" " * 8 + b"0" + bytes(100) + b"ustar\x0000").ljust(512, b"\0")
    made[148:156] = b"%06o\0 " % sum(made)
    return bytes(made)


def claims(packed, size, at):
    """An archive that declares another uncompressed size for its entry `at`, in both headers."""
    made = bytearray(packed)
    for signature, offset in ((b"PK\3\4", 22), (b"PK\1\2", 24)):
        where = -1
        for _ in range(at + 1):
            where = packed.index(signature, where + 1)
        made[where + offset:where + offset + 4] = struct.pack("<I", size)
    return bytes(made)


def bomb():
    """Three gigabytes of zeros in three megabytes. Its checksum is checked last."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(bytes(64 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    packed, size = block * 48 + packer.flush(), 3 << 30
    local = struct.pack("<4sHHHHHIIIHH", b"PK\3\4", 20, 0, 8, 0, 33, 0, len(packed), size, 5, 0) + b"x.npy"
    central = struct.pack("<4sHHHHHHIIIHHHHHII", b"PK\1\2", 20, 20, 0, 8, 0, 33, 0, len(packed), size, 5, 0, 0, 0, 0, 0, 0) + b"x.npy"
    return local + packed + central + struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 1, 1, len(central), len(local) + len(packed), 0)


def idx(kind, extents, data):
    return bytes([0, 0, kind, len(extents)]) + b"".join(struct.pack(">I", e) for e in extents) + data


def tokens(count, ids, version=1):
    return struct.pack("<3i", 20240520, version, count) + bytes(1012) + np.array(ids, "<u2").tobytes()


def picture(mode="RGB", kind="JPEG", size=(8, 8), **options):
    out = io.BytesIO()
    channels = {"L": (), "RGB": (3,), "CMYK": (4,)}[mode]
    PIL.Image.fromarray(np.random.default_rng(1).integers(0, 255, (size[1], size[0], *channels)).astype("uint8"), mode).save(out, kind, **options)
    return out.getvalue()


def jpeg_of_size(width, height):
    made = bytearray(picture())
    at = made.index(b"\xff\xc0")
    made[at + 5:at + 9] = struct.pack(">HH", height, width)
    return bytes(made)


def png(width, height, rows):
    """Grayscale, 8 bits; `rows` are compressed as they are."""
    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def many_scans():
    """A progressive image whose last scan is repeated thousands of times."""
    made = picture("L", size=(256, 256), progressive=True)
    last = made.rindex(b"\xff\xda")
    return made[:-2] + made[last:-2] * 20000 + made[-2:]


def table(change):
    """The valid table with one change in its rows."""
    rows = [line.split(",") for line in read("train.csv").decode().strip().split("\n")]
    change(rows)
    write("d.csv", "\n".join(",".join(row) for row in rows) + "\n")


def cell(row, column, value):
    return lambda: table(lambda rows: rows[row].__setitem__(column, value))


def more_models():
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[N, 3, %d, %d] x) => (float[N, %d] logits)
        <float[3, %d] w = {%s}> { p = GlobalAveragePool (x)  f = Flatten (p)  logits = MatMul (f, w) }"""
    for name, side, classes in (("large", 64, 2), ("three", 8, 3)):
        numbers = ", ".join(["0.1"] * 3 * classes)
        onnx.save(onnx.parser.parse_model(text % (side, side, classes, classes, numbers)), name + ".onnx")
    text = """<ir_version: 8, opset_import: ["" : 17]> g (int64[N, 6] tokens) => (float[N, 6, 10] logits)
        <float[10, 4] table = {%s}, float[4, 10] head = {%s}>
        { e = Gather (table, tokens)  logits = MatMul (e, head) }""" % ((", ".join(["0.1"] * 40),) * 2)
    onnx.save(onnx.parser.parse_model(text), "language.onnx")


def rows(tools):
    rng = np.random.default_rng(0)
    sample_files.models(rng)
    sample_files.tables(rng)
    for name in ("images/cat", "images/dog"):
        os.makedirs(name)
        for i in range(2):
            write(f"{name}/{i}.png", picture(kind="PNG"))
    more_models()
    tools.right(f"train model.onnx --data train.npz {TRAIN} --name done")
    hostile_files.keep_only(*(name + ".onnx" for name in ("model", "vision", "large", "three", "language")), "train.csv", "train.npz", "images", "runs")
    x = np.load("train.npz")["x"]
    good = array_bytes(x)

    def arrays(id, what, says, place="", wanted="E-DATA", **entries):
        return Row(id, what, lambda: write("d.npz", archive(**entries)), ARRAYS, wanted, says, place or "d.npz")

    def one(id, what, content, says, wanted="E-DATA"):
        return Row(id, what, lambda: write("d.npy", content), ONE, wanted, says, "d.npy")

    def entry(content):
        return {"x.npy": content}

    def image(id, what, name, content, says, wanted="E-DATA"):
        return Row(id, what, lambda: write(f"images/dog/{name}", content), IMAGES, wanted, says, f"images/dog/{name}")

    def idx_set(id, what, images, labels, says, place, wanted="E-DATA"):
        def make():
            write("set-images-idx2-ubyte", images)
            write("set-labels-idx1-ubyte", labels)
        return Row(id, what, make, IDX, wanted, says, place)

    good_labels = idx(8, [60], bytes([0, 1, 2] * 20))

    def token_file(id, what, content, says, wanted="E-DATA", place="d.bin"):
        return Row(id, what, lambda: write("d.bin", content), TOKENS, wanted, says, place)

    def csv(id, what, make, says, place, wanted="E-DATA"):
        return Row(id, what, make if callable(make) else lambda: write("d.csv", make), TABLE, wanted, says, place)

    def named_images(path):
        write("d.csv", f"path,label\nimages/cat/0.png,0\n{path},1\n")

    def from_table(id, what, make, says, place, wanted):
        return Row(id, what, make, f"train vision.onnx --data d.csv --map x=images:path --map label=label --batch 2 {TRAIN}", wanted, says, place)

    return [
        arrays("X00", "good arrays", "", wanted="OK", **entry(good)),
        one("X00", "a good array", good, "logits", "OK"),
        csv("X00", "a good table", lambda: shutil.copy("train.csv", "d.csv"), "", "", "OK"),
        idx_set("X00", "good IDX files", idx(8, [60, 4], bytes(range(240))), good_labels, "", "", "OK"),
        image("X00", "a good image", "2.jpg", picture(), "", "OK"),
        token_file("X00", "good tokens", tokens(61, [i % 10 for i in range(61)]), "", "OK"),
        one("X01", "empty", b"", "too short"),
        one("X01", "other magic", b"\x93NUMPZ" + good[6:], "not a .npy file"),
        one("X01", "version 9", npy(header(), bytes(960), b"\x09\0"), "version 9.0 is not supported"),
        one("X01", "a header of 4 GB", b"\x93NUMPY\2\0\xff\xff\xff\xff" + bytes(960), "ends within the .npy header"),
        one("X01", "a header of 200 kB", npy(header() + " " * 200000, bytes(960), b"\2\0"), "header has"),
        one("X01", "code in the header", npy(header(shape="(__import__('os').system('touch pwned'),)"), bytes(960)), "expected a dimension"),
        one("X01", "a key twice", npy(header().replace("}", "'shape': (1,), }"), bytes(960)), "repeated key 'shape'"),
        one("X01", "a negative dimension", npy(header(shape="(-60, -4)"), bytes(960)), "a negative dimension"),
        one("X01", "1,000 dimensions", npy(header(shape="(" + "1, " * 1000 + ")"), bytes(960)), "more than 32 dimensions"),
        one("X01", "half of its data", good[:-480], "needs 960 bytes, but the file has 480"),
        arrays("X02", "pickled objects", "pickled Python objects.*would run code", "entry 'x.npy'",
               **entry(array_bytes(np.array([{}] * 60, dtype=object)))),
        arrays("X02", "records", "structured", "entry 'x.npy'", **entry(array_bytes(np.zeros(60, [("a", "f4")])))),
        arrays("X03", "column-major", "", wanted="OK", **entry(array_bytes(np.asfortranarray(x)))),
        arrays("X04", "big-endian", "", wanted="OK", **entry(array_bytes(x.astype(">f4")))),
        one("X05", "2^62 rows", npy(header(shape="(4611686018427387904, 4)")), "more elements than any file"),
        one("X05", "a product that wraps to 240", npy(header(shape="(4294967296, 4294967296, 60, 4)"), bytes(960)), "more elements than any file"),
        one("X05", "2^40 rows", npy(header(shape="(1099511627776, 4)")), "needs 17592186044416 bytes, but the file has 0"),
        one("X05", "no rows of 2^62 columns", npy(header(shape="(0, 4611686018427387904)", order="True")), "no rows"),
        Row("X06", "3 GB in 3 MB", lambda: write("d.npz", bomb()), ARRAYS, "E-LIMIT", "unpacked, the arrays have more bytes than the limit", "d.npz"),
        Row("X06", "an entry that claims 2 GB", lambda: write("d.npz", claims(archive(**{"x.npy": (good, zipfile.ZIP_DEFLATED)}), 2 << 30, 1)),
            ARRAYS, "E-DATA", "claims 2147483648 bytes, more than its \\d+ can hold", "entry 'x.npy'"),
        Row("X06", "a table of 128 MB in one line", lambda: write("d.csv.gz", gzip.compress(bytes(128 << 20))), TABLE.replace("d.csv", "d.csv.gz"),
            "E-DATA", "a row of more than 64 MiB", r"d\.csv\.gz:1:1"),
        arrays("X07", "an entry above the folder", "the entry's name points outside the folder", r"entry '\.\./x\.npy'", **{"../x.npy": good}),
        arrays("X07", "an entry above the folder, Windows' way", "points outside the folder", "d.npz", **{"a\\..\\..\\x.npy": good}),
        Row("X07", "two entries of one name", lambda: write("d.npz", archive(**{"x.npy": good, "y.npy": good}).replace(b"y.npy", b"x.npy")), ARRAYS,
            "E-DATA", "two entries have the same name", "d.npz"),
        arrays("X08", "bzip2", "unsupported compression method 12", "entry 'x.npy'", **{"x.npy": (good, zipfile.ZIP_BZIP2)}),
        arrays("X08", "LZMA", "unsupported compression method 14", "entry 'x.npy'", **{"x.npy": (good, zipfile.ZIP_LZMA)}),
        Row("X08", "a damaged entry", lambda: write("d.npz", archive(**entry(good)).replace(x.tobytes()[:40], bytes(40))), ARRAYS, "E-DATA",
            "cannot be unpacked: .*CRC", "entry 'x.npy'"),
        idx_set("X09", "4 G images", idx(8, [0xFFFFFFFF, 4], bytes(240)), good_labels, "larger than the limit", "set-images-idx2-ubyte"),
        idx_set("X09", "2 M images", idx(8, [2000000, 4], bytes(240)), good_labels, "too short for", "set-images-idx2-ubyte"),
        idx_set("X09", "one image more", idx(8, [61, 4], bytes(240)), good_labels, "ends before its last element", "set-images-idx2-ubyte"),
        idx_set("X09", "one image fewer", idx(8, [59, 4], bytes(240)), good_labels, "after the last element", "set-images-idx2-ubyte"),
        idx_set("X09", "255 dimensions", idx(8, [1] * 255, bytes(1)), good_labels, "255 dimensions", "set-images-idx2-ubyte"),
        idx_set("X09", "no such type", idx(7, [60, 4], bytes(240)), good_labels, "not an IDX file", "set-images-idx2-ubyte"),
        csv("X10", "a field fewer", lambda: table(lambda rows: rows[8].pop()), "a row of 4 fields; expected as many as the first row, 5", r"d\.csv:9:5"),
        csv("X10", "a field more", lambda: table(lambda rows: rows[8].append("1")), "a row of 6 fields; expected as many as the first row, 5", r"d\.csv:9:6"),
        csv("X10", "a quote that is never closed", cell(5, 1, '"1'), "a quote is never closed", r"d\.csv:6:1"),
        csv("X11", "a word", cell(4, 1, "n/a"), "'n/a' is not a number", r"d\.csv:5:2"),
        csv("X11", "past float32", cell(4, 1, "1e60"), "does not fit float32", r"d\.csv:5:2"),
        csv("X11", "past int64", cell(4, 4, "99999999999999999999"), "does not fit int64", r"d\.csv:5:5"),
        csv("X11", "control bytes", cell(4, 1, "\x1b[31m\x00"), r"'\\x1b\[31m\\x00' is not a number", r"d\.csv:5:2"),
        csv("X12", "10 MB", cell(4, 1, "1" * 10000000), "does not fit float32", r"d\.csv:5:2"),
        csv("X12", "2 M fields", "1," * 2000000, "more than 1048576 fields", r"d\.csv:1:"),
        csv("X13", "-1", cell(11, 4, "-1"), r"row 10 \(counted from 0\) has class -1", r"d\.csv"),
        csv("X13", "7 of 3", cell(11, 4, "7"), "has class 7 in 'label'; the model has classes 0 to 2", r"d\.csv"),
        csv("X13", "2^62", cell(11, 4, str(1 << 62)), "has class 4611686018427387904", r"d\.csv"),
        arrays("X13", "255 as uint8", r"row 3 \(counted from 0\) has class 255", **{**entry(good), "label.npy": array_bytes(np.array([0, 1, 2, 255] * 15, "uint8"))}),
        image("X14", "half a JPEG", "2.jpg", picture()[:300], "a damaged JPEG image"),
        image("X14", "half a PNG", "2.png", picture(kind="PNG")[:100], "a damaged PNG image"),
        image("X14", "text", "2.png", b"<html>404</html>", "neither a JPEG nor a PNG image"),
        image("X14", "empty", "2.png", b"", "the file is empty"),
        image("X15", "65,500 x 65,500 JPEG", "2.jpg", jpeg_of_size(65500, 65500), "65500 x 65500 pixels, more than", "E-LIMIT"),
        image("X15", "900,000 x 900,000 PNG", "2.png", png(900000, 900000, b""), "900000 x 900000 pixels, more than", "E-LIMIT"),
        image("X15", "a JPEG of 20,000 scans", "2.jpg", many_scans(), "scans"),
        Row("X15", "a PNG of 1 x 100,000, scaled until it is 64 wide", lambda: write("images/dog/2.png", png(1, 100000, bytes(200000))),
            IMAGES.replace("vision", "large") + " --transform x=resize_crop", "E-LIMIT", "64 x 6400000 pixels while it is scaled", "images/dog/2.png"),
        image("X16", "a PNG with a wrong checksum", "2.png", (lambda p: p[:60] + bytes([p[60] ^ 1]) + p[61:])(picture(kind="PNG")), "a damaged PNG image"),
        image("X17", "a JPEG of four colours", "2.jpg", picture("CMYK"), "CMYK JPEG images are not supported"),
        Row("X18", "a class without images, which is a class all the same", lambda: os.makedirs("images/ant"), IMAGES.replace("vision", "three"), "OK",
            "warning no images of the class 'ant'"),
        Row("X18", "no class has images", lambda: (shutil.rmtree("images"), os.makedirs("images/ant")), IMAGES, "E-DATA", "no images", "images"),
        Row("X18", "an empty folder", lambda: (shutil.rmtree("images"), os.makedirs("images")), IMAGES, "E-DATA", "the folder is empty", "images"),
        from_table("X19", "an image that is not there", lambda: named_images("images/dog/9.png"), "No such file", "images/dog/9.png", "E-IO"),
        from_table("X19", "a pipe in place of an image", lambda: (named_images("pipe"), os.mkfifo("pipe")), "regular file", "pipe", "E-IO"),
        from_table("X19", "a loop of links", lambda: (named_images("loop"), os.symlink("loop", "loop")), "symbolic links|regular file", "loop", "E-IO"),
        Row("X19", "a link to itself", lambda: os.symlink("circle", "circle"), ARRAYS.replace("d.npz", "circle"), "E-IO",
            "Too many levels of symbolic links", "circle"),
        Row("X19", "a name of 300 letters", lambda: None, ARRAYS.replace("d.npz", "n" * 300), "E-IO", "File name too long", "nnn"),
        Row("X19", "a name that no configuration can keep", lambda: shutil.copy("train.csv", "\udcff.csv"), TABLE.replace("d.csv", "\udcff.csv"),
            "E-CONFIG", r"data\.train '.*/\\xff\.csv' is not UTF-8", "--data"),
        Row("X19", "the same, where nothing is kept", lambda: shutil.copy("train.csv", "\udcff.csv"),
            "eval runs/done --map x=a..d --map label=label --json --data \udcff.csv", "OK", '"data":"\ufffd.csv"'),
        Row("X20", "60 rows, batches of 100", lambda: shutil.copy("train.csv", "d.csv"), TABLE + " --batch 100", "OK"),
        arrays("X21", "60 rows, 50 labels", "60.*50|50.*60", **{**entry(good), "label.npy": array_bytes(np.arange(50) % 3)}),
        idx_set("X21", "60 images, 50 labels", idx(8, [60, 4], bytes(240)), idx(8, [50], bytes(50)), "60.*50|50.*60", "set"),
        arrays("X22", "complex numbers", "dtype '<c8' is not supported", "entry 'x.npy'", **entry(array_bytes(x.astype("complex64")))),
        arrays("X22", "text", "holds text, not numbers", "entry 'x.npy'", **entry(array_bytes(np.array([["ab"] * 4] * 60)))),
        arrays("X22", "letters for classes", "holds text, not numbers", "entry 'label.npy'",
               **{**entry(good), "label.npy": array_bytes(np.array(["0", "1", "2"] * 20))}),
        arrays("X22", "fractions for classes", "1.5", **{**entry(good), "label.npy": array_bytes(np.full(60, 1.5))}),
        Row("X23", "NaN and infinity", lambda: table(lambda rows: [rows[3].__setitem__(1, "nan"), rows[9].__setitem__(2, "-inf")]),
            TABLE + " --on-nan skip --batch 8", "OK", r"2 values of column 'x' are NaN or infinite, the first at d\.csv:4:2"),
        Row("X24", "a tar archive without samples", lambda: write("d.tar", bytes(10240)), f"train model.onnx --data d.tar {TRAIN}",
            "E-DATA", "the archive has no samples", "d.tar"),
        Row("X24", "a member that ends beyond the archive", lambda: write("d.tar", tar_header("a.jpg", b"77777777777\0") + bytes(1024)),
            f"train model.onnx --data d.tar {TRAIN}", "E-DATA", "a member ends beyond the end of the archive", "d.tar"),
        Row("X24", "a member of 2^62 bytes", lambda: write("d.tar", tar_header("a.jpg", b"\x80\0\0\0@" + bytes(7)) + bytes(1024)),
            f"train model.onnx --data d.tar {TRAIN}", "E-DATA", "a member ends beyond the end of the archive", "d.tar"),
        Row("X24", "an absolute path is only a name", lambda: write("d.tar", tar_header("/etc/a.cls", b"00000000001\0") + bytes(1536)),
            f"train model.onnx --data d.tar {TRAIN}", "E-DATA", "the sample '/etc/a' has no file for 'images'", "d.tar"),
        Row("X24", "a member outside of the folder is only a name", lambda: write("d.tar", tar_header("../../a.cls", b"00000000001\0") + bytes(1536)),
            f"train model.onnx --data d.tar {TRAIN}", "E-DATA", "the sample '../../a' has no file for 'images'", "d.tar"),
        token_file("X25", "token 10 of 10", tokens(61, [10] + [i % 10 for i in range(60)]), "has 10 in 'tokens'; the model has a weight of 10 rows"),
        token_file("X25", "tokens past the end", tokens(2000000000, [1] * 61), "counts 2000000000 tokens, but is followed by 122 bytes"),
        token_file("X25", "a negative count", tokens(-61, [1] * 61), "counts -61 tokens"),
        token_file("X25", "version 2", tokens(61, [1] * 61, 2), "version 2"),
        token_file("X25", "half a token", b"\1\0" * 60 + b"\1", "not a whole number of 16-bit tokens"),
        token_file("X25", "too few", b"\1\0" * 6, "6 tokens are too few for a window"),
        token_file("X25", "none", b"", "0 tokens are too few for a window"),
    ]
