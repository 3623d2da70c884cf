"""Tar archives as data: as Python's tarfile writes them in each of its formats, compared with the same images in folders."""
import gzip
import io
import itertools
import json
import os
import random
import subprocess
import sys
import tarfile
import tempfile
import unittest

import numpy as np
import onnx
import PIL.Image
from onnx import helper

GRADLOOM = os.path.abspath(sys.argv.pop(1))
SEED = int(os.environ.get("GRADLOOM_SEED", random.SystemRandom().randrange(1 << 31)))
FORMATS = {"ustar": tarfile.USTAR_FORMAT, "pax": tarfile.PAX_FORMAT, "gnu": tarfile.GNU_FORMAT}
CLASSES = ["cat", "dog", "eel"]
TRAIN = ["train", "images.onnx", "--transform", "x=scale 1/255", "--loss", "cross_entropy(scores, label)", "--epochs", "2", "--batch", "5",
         "--threads", "1", "--progress", "none"]


def archive(path, files, kind=tarfile.PAX_FORMAT):
    """files: pairs of a name and bytes, or None for a folder."""
    with tarfile.open(path, "w", format=kind) as tar:
        for name, content in files:
            member = tarfile.TarInfo(name)
            member.type = tarfile.DIRTYPE if content is None else tarfile.REGTYPE
            member.size = len(content or b"")
            tar.addfile(member, io.BytesIO(content or b""))


def linear(path, extents, outputs, rng):
    elements = int(np.prod(extents))
    weights = onnx.numpy_helper.from_array(rng.standard_normal((elements, outputs)).astype("float32") / 10, "w")
    graph = helper.make_graph([helper.make_node("Flatten", ["x"], ["f"]), helper.make_node("MatMul", ["f", "w"], ["scores"])], "linear",
                              [helper.make_tensor_value_info("x", 1, ["N", *extents])],
                              [helper.make_tensor_value_info("scores", 1, ["N", outputs])], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


class ArchivesTest(unittest.TestCase):
    numbers = itertools.count()

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        os.chdir(folder.name)
        cls.addClassCleanup(os.chdir, "/")
        print("seed", SEED)
        rng = np.random.default_rng(SEED)
        linear("images.onnx", [3, 6, 5], 3, rng)
        cls.samples = []  # in the order of the folders: key, image, label
        for label, name in enumerate(CLASSES):
            os.makedirs(f"photos/{name}")
            for i in range(7):
                made = io.BytesIO()
                PIL.Image.fromarray(rng.integers(0, 255, (6, 5, 3)).astype("uint8")).save(made, "PNG")
                with open(f"photos/{name}/{i}.png", "wb") as file:
                    file.write(made.getvalue())
                cls.samples.append((f"{name}/{i}", made.getvalue(), label))
        cls.run_command(cls, [*TRAIN, "--data", "photos", "--name", "folder"])

    def run_command(self, words, code=0):
        done = subprocess.run([GRADLOOM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
        if done.returncode != code:
            raise AssertionError(f"{words}: exit {done.returncode}, not {code}\n{done.stderr}")
        return done

    def files(self, samples, name=lambda key: key, more=lambda key: []):
        return [file for key, image, label in samples
                for file in [(name(key) + ".PNG", image), (name(key) + ".cls", b"%d\n" % label), *((name(key) + e, c) for e, c in more(key))]]

    def weights(self, run):
        return onnx.numpy_helper.to_array(onnx.load(f"runs/{run}/export/model.onnx").graph.initializer[0])

    def test_every_format_trains_to_the_same_bits_as_a_folder(self):
        for name, kind in FORMATS.items():
            # Long names need a prefix (ustar) or a record of their own (pax, GNU).
            long = lambda key, name=name: ("d/" * 60 + key) if name == "ustar" else ("d\u00f6" * 90 + "/" + "e" * 120 + key.replace("/", "-"))
            more = [("notes/", None), (".hidden.png", b""), ("README", b"no ending"), ("._0.cls", b"?"), ("README.md", b"of no sample")]
            each = lambda key: [(".caption.txt", b"a picture"), (".json", b"{}"), (".seg.png", b"not of the images")]
            archive(f"{name}.tar", [*more, *self.files(self.samples, long, each), ("__index__.json", b"{}")], kind)
            self.run_command([*TRAIN, "--data", f"{name}.tar", "--name", name])
            np.testing.assert_array_equal(self.weights(name), self.weights("folder"), name)
        told = self.run_command(["inspect", "gnu.tar"]).stdout
        self.assertIn("an archive: 23 samples", told)  # all names count, whatever a model needs
        self.assertIn("caption.txt", told)
        self.assertEqual(json.loads(self.run_command(["inspect", "gnu.tar", "--json"]).stdout)["endings"]["cls"], 21)

    def test_shards(self):
        for i in range(12):
            archive(f"shard-{i:02}.tar", self.files(self.samples[i * 2:i * 2 + 2] if i < 11 else self.samples[:1]))
        archive("shard-10.tar", self.files(self.samples[20:]))
        for pattern, name in (("shard-{00..10}.tar", "range"), ("shard-0?.tar", "few"), ("shard-{0{0..9},10}.tar", "braces"),
                              ("shard-{0..10}.tar", "not_padded")):
            if name == "not_padded":
                self.assertIn("shard-0.tar", self.run_command([*TRAIN, "--data", pattern, "--name", name], 2).stderr)
                continue
            self.run_command([*TRAIN, "--data", pattern, "--name", name])
        np.testing.assert_array_equal(self.weights("range"), self.weights("folder"))
        np.testing.assert_array_equal(self.weights("braces"), self.weights("folder"))
        self.assertFalse(np.array_equal(self.weights("few"), self.weights("folder")))
        os.rename("photos", "photos7")
        self.run_command([*TRAIN, "--data", "photos{7..7}", "--name", "one_folder"])
        os.rename("photos7", "photos")
        np.testing.assert_array_equal(self.weights("one_folder"), self.weights("folder"))
        # A missing one is told, and not left out.
        for pattern in ("shard-{09..12}.tar", "{shard,shard}-{8..12}.tar", "shard-{00,{11..12}}.tar"):
            self.assertIn("shard-12.tar", self.run_command([*TRAIN, "--data", pattern.replace("{8", "{08"), "--name", "x"], 2).stderr)
        self.assertIn("does not ascend", self.run_command([*TRAIN, "--data", "shard-{10..00}.tar", "--name", "x"], 5).stderr)
        self.assertIn("more than 100000 names", self.run_command([*TRAIN, "--data", "shard-{0..9999999}.tar", "--name", "x"], 5).stderr)

    def test_predictions_have_the_names_of_members(self):
        archive("new.tar", [(f"{key}.png", image) for key, image, _ in self.samples])
        self.run_command(["predict", "runs/folder", "--data", "new.tar", "-o", "archive.csv"])
        self.run_command(["predict", "runs/folder", "--data", "photos", "-o", "folder.csv"])
        with open("archive.csv", encoding="utf-8") as file, open("folder.csv", encoding="utf-8") as wanted:
            self.assertEqual(file.read().replace("new.tar/", "photos/"), wanted.read())

    def test_numbers(self):
        rng = np.random.default_rng(SEED)
        linear("boxes.onnx", [3, 6, 5], 4, rng)
        boxes = rng.standard_normal((21, 4)).astype("float32")
        texts = {key: " ".join(repr(float(x)) for x in box).encode() for (key, _, _), box in zip(self.samples, boxes)}
        archive("boxes.tar", self.files(self.samples, more=lambda key: [(".box.txt", texts[key])]))
        np.savez("boxes.npz", boxes=boxes)
        train = ["train", "boxes.onnx", "--data", "boxes.tar", "--map", "x=.PNG", "--map", "target=box.txt", "--loss", "mse(scores, target)",
                 "--epochs", "1", "--batch", "21", "--progress", "none", "--optimizer", "sgd", "--lr", "0", "--json", "--name"]
        first = json.loads(self.run_command([*train, "boxes"]).stdout.splitlines()[-1])
        pixels = np.stack([np.asarray(PIL.Image.open(io.BytesIO(image))) for _, image, _ in self.samples]).transpose(0, 3, 1, 2)
        scores = pixels.reshape(21, -1).astype("float32") @ self.weights("boxes")
        with open("runs/boxes/results.csv", encoding="utf-8") as file:
            header, row = (line.split(",") for line in file.read().splitlines())
        np.testing.assert_allclose(float(row[header.index("train/loss")]), np.mean((scores - boxes) ** 2), rtol=1e-4, err_msg=str(first))

    def test_numbers_are_those_of_arrays(self):
        """Their range and what is not finite, as in every format."""
        train = ["train", "images.onnx", "--loss", "mse(scores, target)", "--map", "x=png", "--map", "target=t", "--epochs", "1", "--progress", "none"]
        for text, said in ((b"1e300 0 0", "does not fit float32"), (b"nan 0 0", "1 value of column 'target' is NaN or infinite")):
            archive("odd.tar", [f for i, (_, image, _) in enumerate(self.samples[:4])
                                for f in ((f"{i}.png", image), (f"{i}.t", text if i == 3 else b"0.5 1 2"))])
            done = subprocess.run([GRADLOOM, *train, "--data", "odd.tar", "--name", f"odd{len(text)}"], capture_output=True, text=True, timeout=60)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(said, done.stderr)
        self.assertNotIn("NaN", self.run_command([*train, "--data", "odd.tar", "--transform", "target=fill 0", "--name", "filled"]).stderr)

    def refused(self, content, said, code=5, flags=()):
        with open("wrong.tar", "wb") as file:
            file.write(content)
        error = self.run_command([*TRAIN, "--data", "wrong.tar", "--name", f"wrong{next(self.numbers)}", *flags], code).stderr
        self.assertIn(said, error)
        self.assertIn("wrong.tar", error)

    def test_what_is_refused(self):
        def made(files):
            archive("made.tar", files, tarfile.USTAR_FORMAT)
            with open("made.tar", "rb") as file:
                return file.read()

        good = made(self.files(self.samples))
        self.refused(b"", "the file is empty")
        self.refused(good[:300], "it ends within a header")
        self.refused(good[:560], "ends beyond the end of the archive")
        self.refused(good[:good.rindex(b"ustar") - 257], "it ends without the mark of its end")
        self.refused(good + good, "something follows the end of the archive")
        for kind in (tarfile.LNKTYPE, tarfile.SYMTYPE):
            with tarfile.open("link.tar", "w") as tar:
                member = tarfile.TarInfo("cat/1.png")
                member.type, member.linkname = kind, "cat/0.png"
                tar.addfile(member)
            with open("link.tar", "rb") as file:
                self.refused(file.read(), "a link is not supported")
        self.refused(gzip.compress(good), "it is compressed: unpack it first")
        self.refused(b"not an archive " * 100, "this is no tar archive")
        second = good.index(b"cat/0.cls")
        self.refused(good[:second + 4] + b"7" + good[second + 5:], "a header has a wrong checksum")
        self.refused(bytes(1024), "the archive has no samples")
        key, image, _ = self.samples[0]
        self.refused(made([(key + ".png", image)]), "the sample 'cat/0' has no file for 'labels'")
        self.refused(made([(key + ".png", image), (key + ".jpg", image), (key + ".cls", b"0")]), "has two files for 'images'")
        self.refused(made([(key + ".png", image), (key + ".cls", b"cat")]), "'cat' is not a number")
        self.refused(made([(key + ".png", image), (key + ".cls", b" \n")]), "there is no number")
        self.refused(made([(key + ".png", image), (key + ".cls", b"9")]), "label")
        self.refused(made([(key + ".png", image[:40]), (key + ".cls", b"0")]), "cat/0.png")
        self.refused(made([("a.png", image), ("a.cls", b"0 1"), ("b.png", image), ("b.cls", b"0")]), "1 number, but the samples before have 2")
        self.refused(made([(key + ".png", image), (key + ".cls", b"0")]), "has no file for 'depth'", flags=("--map", "x=depth", "--map", "label=cls"))
        # Every change of a header is noticed, except within its checksum, whose form varies.
        rng = np.random.default_rng(SEED)
        for at in rng.choice([at for at in range(512) if not 148 <= at < 156], 24):
            changed = bytearray(good)
            changed[at] ^= 1 << int(rng.integers(0, 8))
            self.refused(bytes(changed), "E-DATA")


if __name__ == "__main__":
    unittest.main()
