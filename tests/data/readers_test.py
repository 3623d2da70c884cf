"""numpy and safetensors read what Gradloom writes, and Gradloom reads what they write."""
import io
import os
import subprocess
import sys
import tempfile
import unittest
import zipfile

import ml_dtypes
import numpy as np
import safetensors
import safetensors.numpy

COPY_FILE = os.path.abspath(sys.argv.pop(1))

DTYPES = ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"]


def arrays():
    rng = np.random.default_rng(7)
    result = {"grad/layer.0.weight": rng.standard_normal((3, 4)).astype("float32")}
    for dtype in DTYPES:
        result[dtype] = rng.integers(0, 2 if dtype == "bool" else 100, (2, 3, 4)).astype(dtype)
    result["scalar"] = np.float32(2.5)
    result["empty"] = np.zeros((0, 3), "int64")
    result["fortran"] = np.asfortranarray(result["float32"])
    result["big"] = result["float64"].astype(">f8")
    result["nan"] = np.array([np.nan, np.inf, -0.0], "float32")
    result["Größe"] = np.arange(3)
    return result


class ReadersTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def copy(self, name, *flags):
        """Lets Gradloom read the file and write it again; returns the new path."""
        to = self.path("copy_of_" + name)
        subprocess.run([COPY_FILE, self.path(name), to, *flags], check=True)
        return to

    def refuse(self, name, word, code=5):
        done = subprocess.run([COPY_FILE, self.path(name), self.path("never")], stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertIn(word, done.stderr)
        self.assertIn(name, done.stderr)
        self.assertFalse(os.path.exists(self.path("never")))

    def same(self, a, b):
        a = np.asarray(a)
        self.assertEqual((a.dtype.newbyteorder("="), a.shape), (b.dtype, b.shape))
        self.assertEqual(a.astype(b.dtype).tobytes(), b.tobytes())

    def test_npy(self):
        for name, array in arrays().items():
            for version in [(1, 0), (2, 0), (3, 0)]:
                with open(self.path("a.npy"), "wb") as file:
                    np.lib.format.write_array(file, np.asanyarray(array), version)
                self.same(array, np.load(self.copy("a.npy"), allow_pickle=False))

    def test_npy_bytes_match_numpy(self):
        for name, array in arrays().items():
            if name in ("fortran", "big"):
                continue
            np.save(self.path("a.npy"), array)
            with open(self.path("a.npy"), "rb") as ours, open(self.copy("a.npy"), "rb") as numpys:
                self.assertEqual(ours.read(), numpys.read(), name)

    def test_npz(self):
        for save in (np.savez, np.savez_compressed):
            for flags in ([], ["--compress"]):
                save(self.path("a.npz"), **arrays())
                with np.load(self.copy("a.npz", *flags), allow_pickle=False) as back:
                    self.assertEqual(sorted(back.files), sorted(arrays()))
                    for name, array in arrays().items():
                        self.same(array, back[name])

    def test_npz_without_arrays(self):
        np.savez(self.path("a.npz"))
        with np.load(self.copy("a.npz")) as back:
            self.assertEqual(back.files, [])

    def test_npz_is_a_valid_zip_file(self):
        np.savez(self.path("a.npz"), **arrays())
        with zipfile.ZipFile(self.copy("a.npz", "--compress")) as archive:
            self.assertIsNone(archive.testzip())

    def test_pickles_are_refused(self):
        np.save(self.path("a.npy"), np.array([{}], object), allow_pickle=True)
        self.refuse("a.npy", "pickled")
        np.savez(self.path("b.npz"), x=np.array([{}], object))
        self.refuse("b.npz", "x.npy")

    def npz(self, name, entry, content, method=zipfile.ZIP_STORED):
        with zipfile.ZipFile(self.path(name), "w", method) as archive:
            archive.writestr(entry, content)

    def array_file(self, array):
        file = io.BytesIO()
        np.save(file, array)
        return file.getvalue()

    def test_hostile_npz(self):
        content = self.array_file(np.arange(4))
        self.npz("up.npz", "../x.npy", content)
        self.refuse("up.npz", "points outside the folder")
        self.npz("bzip2.npz", "x.npy", content, zipfile.ZIP_BZIP2)
        self.refuse("bzip2.npz", "method 12")
        self.npz("lzma.npz", "x.npy", content, zipfile.ZIP_LZMA)
        self.refuse("lzma.npz", "method 14")
        self.npz("text.npz", "x.txt", content)
        self.refuse("text.npz", "x.txt")

    def test_zip_bomb(self):
        """3 GiB of zeros in 3 MB."""
        header = self.array_file(np.zeros(1, "uint8"))[:-1].replace(b"(1,), }" + b" " * 10, b"(3221225472,), }" + b" ")
        with zipfile.ZipFile(self.path("bomb.npz"), "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            with archive.open("x.npy", "w", force_zip64=True) as entry:
                entry.write(header)
                for _ in range(48):
                    entry.write(bytes(64 << 20))
        self.refuse("bomb.npz", "limit", 8)

    def tensors(self):
        result = {name: np.ascontiguousarray(a) for name, a in arrays().items() if name not in ("fortran", "big", "scalar")}
        result["scalar"] = np.array(2.5, "float32")
        result["bfloat16"] = np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16)
        result["a empty"] = np.zeros((2, 0), "float64")
        result["quote\"\\\n\x01\x7f"] = np.ones(1, "int16")
        return result

    def test_safetensors(self):
        for metadata in (None, {"step": "7 \u00e9\n"}):
            safetensors.numpy.save_file(self.tensors(), self.path("a.safetensors"), metadata)
            copy = self.copy("a.safetensors")
            with open(self.path("a.safetensors"), "rb") as theirs, open(copy, "rb") as ours:
                self.assertEqual(theirs.read(), ours.read())
            back = safetensors.numpy.load_file(copy)
            self.assertEqual(sorted(back), sorted(self.tensors()))
            for name, array in self.tensors().items():
                self.same(array, back[name])
            with safetensors.safe_open(copy, "numpy") as file:
                self.assertEqual(file.metadata(), metadata)

    def test_safetensors_of_eight_bits(self):
        """numpy has no such types, so the reference gets bytes. Two tensors of each type show the order in which it writes them."""
        types = ("float8_e5m2", "float8_e4m3fn", "float8_e8m0fnu", "float8_e4m3fnuz", "float8_e5m2fnuz", "uint8", "int8", "int16", "float32")
        content = [np.arange(24 * (i + 1), dtype="uint8") for i in range(2)]
        specs = {f"{i} {dtype}": safetensors.TensorSpec(dtype=dtype, shape=[3, 2], data_ptr=content[i].ctypes.data, data_len=6 * width)
                 for i in range(2) for dtype, width in zip(types, (1, 1, 1, 1, 1, 1, 1, 2, 4))}
        with open(self.path("a.safetensors"), "wb") as file:
            file.write(safetensors.serialize(specs))
        with open(self.path("a.safetensors"), "rb") as theirs, open(self.copy("a.safetensors"), "rb") as ours:
            self.assertEqual(theirs.read(), ours.read())

    def test_safetensors_without_tensors(self):
        safetensors.numpy.save_file({}, self.path("a.safetensors"))
        self.assertEqual(safetensors.numpy.load_file(self.copy("a.safetensors")), {})

    def test_safetensors_of_unknown_dtype(self):
        safetensors.numpy.save_file({"c": np.zeros(2, "complex64")}, self.path("a.safetensors"))
        self.refuse("a.safetensors", "C64", 7)


if __name__ == "__main__":
    unittest.main()
