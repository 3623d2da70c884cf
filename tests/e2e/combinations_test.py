"""Random combinations of flags with random small models, checked against properties that hold for all of them.

GRADLOOM_SEED=N starts from another seed, GRADLOOM_WALK_SECONDS=N sets the duration. Failures are printed with the seed of their own
combination."""
import gzip
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

import numpy as np
import onnx
import onnxruntime
import PIL.Image

GRADLOOM = os.path.abspath(sys.argv.pop(1))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import small_nets  # noqa: E402
from jobs import assert_same_run, without_times  # noqa: E402

onnxruntime.disable_telemetry_events()
SEED = int(os.environ.get("GRADLOOM_SEED", "1"))
SECONDS = float(os.environ.get("GRADLOOM_WALK_SECONDS", "15"))
LEAST_WALKS = 4
# Flags that `check` and `compile` have as well.
COMPILED = ("--optimizer", "--weight-decay", "--clip-norm", "--clip-value", "--batch", "--micro-batch", "--accumulate", "--accumulate-by",
            "--precision", "--loss-scale", "--devices", "--place", "--pipeline", "--gather-to", "--shard-optimizer", "--sync-bn", "--freeze", "--threads")
# Tolerances for outputs and losses, relative to the largest: the second run sums in another order, or in another type, than the first.
ROUNDING = {"fp32": 2e-5, "bf16": 5e-2, "fp16": 1e-2}


def write_idx(path, array):
    code, kind = (0x0D, ">f4") if array.dtype.kind == "f" else (0x0C, ">i4")
    with (gzip.open if path.endswith(".gz") else open)(path, "wb") as file:
        file.write(bytes([0, 0, code, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.astype(kind).tobytes())


def as_words(flags):
    return [word for name, value in flags.items() if value not in (None, False) for word in ([name] if value is True else [name, str(value)])]


class Combination:
    """A random model, data and flags."""

    def __init__(self, rng, numbers):
        self.rng = rng
        self.norm = rng.random() < 0.35
        self.family = rng.choice(sorted(small_nets.FAMILIES))
        self.model = small_nets.make(self.family, numbers, rng.choice([0, 0, 0.3]), self.norm)
        self.train = small_nets.samples(self.model, numbers, rng.randint(17, 75))
        self.other = small_nets.samples(self.model, numbers, rng.randint(5, 40))
        options = ", class_axis=-1" if small_nets.is_language(self.model) else ""
        self.loss = ["--loss", f"cross_entropy(logits, label{options})"] + (["--loss", "mse(value, t)"] if "t" in self.train else [])
        self.devices = rng.choice([1, 1, 1, 2, 2, 3, 4])
        self.clipping = rng.choice(["--clip-norm", "--clip-norm", "--clip-value"])
        self.flags = {**self.arithmetic(), **self.placing(), **self.watching()}

    def maybe(self, share, name, *values):
        return {name: self.rng.choice(values)} if self.rng.random() < share else {}

    def arithmetic(self):
        rng, maybe = self.rng, self.maybe
        batch = rng.choice([1, 3, 4, 5, 8, 10, 16, 32])
        self.precision = rng.choice(["fp32"] * 4 + ["bf16", "fp16"])
        made = {"--optimizer": rng.choice("sgd momentum nesterov adam adamw nadam radam rmsprop adagrad adadelta adamax lamb lion".split()),
                "--lr": rng.choice(["0.01", "0.003", "0.05"]), **maybe(0.4, "--weight-decay", "0.01"), **maybe(0.4, self.clipping, "1", "0.1"),
                "--schedule": rng.choice("constant linear cosine step one_cycle polynomial cosine_restarts exponential wsd inverse_sqrt".split()), **maybe(0.4, "--warmup", "2", "20%"), "--batch": batch,
                "--precision": self.precision, **maybe(0.15, "--loss-scale", "dynamic", "1024", "off"),
                **maybe(0.2, "--freeze", small_nets.layers(self.model)[0] + "*"), "--on-nan": rng.choice(["stop", "stop", "skip"]),
                "--seed": rng.randrange(10**4), "--threads": rng.choice([1, 1, 2]), **maybe(0.2, "--deterministic", True)}
        made |= {"--steps": rng.randint(1, 17)} if rng.random() < 0.3 else {"--epochs": rng.randint(1, 3)}
        divisors = [n for n in (1, 2, 4, 5, 8) if batch % (n * self.devices) == 0]
        accumulated = maybe(0.5, "--accumulate", 2, 3)
        if accumulated:
            return made | accumulated | maybe(0.5, "--accumulate-by", "batches", "samples", "samples")
        return made | (maybe(0.4, "--micro-batch", *divisors) if divisors else {})

    def placing(self):
        count, maybe = self.devices, self.maybe
        if count == 1:
            return {}
        gathered = maybe(0.25, "--gather-to", f"cpu:{self.rng.randrange(count)}")
        place = f"{self.rng.choice(small_nets.layers(self.model))}*=" + (gathered.get("--gather-to") or "cpu:1")
        placed = {**gathered, **maybe(0.4, "--place", place)}
        if placed and not gathered:
            placed |= maybe(0.5, "--pipeline", 2, 3, 5)
        shared = {} if placed or self.precision != "fp32" else maybe(0.4, "--shard-optimizer", True)
        return {"--devices": f"cpu:{count}", **placed, **shared, **maybe(0.4, "--sync-bn", True)}

    def watching(self):
        rng, maybe = self.rng, self.maybe
        saved = {"--save-every": rng.choice(["1ep", "1", "2", "5", "never"]), "--keep": rng.randint(1, 3), "--log-every": rng.choice([1, 2, 50])}
        self.evaluates = rng.random() < 0.7
        if not self.evaluates:
            return saved
        held = {"--eval-data": "other.npz"} if rng.random() < 0.5 else {"--eval-split": rng.choice(["20%", "tail:30%"])}
        return {**saved, **held, "--eval-every": rng.choice(["1ep", "2", "3"]), **maybe(0.5, "--metric", "accuracy"),
                **maybe(0.3, "--best", "eval/loss:min"), **maybe(0.3, "--early-stop", 1, 2, 3), **maybe(0.2, "--plateau-patience", 0)}

    def words(self, changes=(), data="train.npz", model="model.onnx"):
        return [model, "--data", data, *self.loss, *as_words({**self.flags, **dict(changes)}), "--progress", "none"]

    def compiled(self):
        return [*self.loss, *as_words({name: self.flags[name] for name in COMPILED if name in self.flags})]

    def stops_by_value(self):
        """Whether the duration of the training, or its learning rate, depends on evaluations."""
        return "--early-stop" in self.flags or "--plateau-patience" in self.flags


class Walk:
    """The run of a combination, and others that are compared with it, in a separate working directory."""

    def __init__(self, test, seed):
        self.test, self.rng, self.made, self.said = test, random.Random(seed), 0, []
        self.drawn = Combination(self.rng, np.random.default_rng(seed))
        onnx.save(self.drawn.model, "model.onnx")
        np.savez("train.npz", **self.drawn.train)
        np.savez("other.npz", **self.drawn.other)
        self.inputs = [value.name for value in self.drawn.model.graph.input]
        np.savez("inputs.npz", **{name: self.drawn.other[name] for name in self.inputs})

    def command(self, words, codes=(0,)):
        self.said.append(" ".join(map(str, words)))
        done = subprocess.run([GRADLOOM, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
        self.test.assertIn(done.returncode, codes, done.stderr[-2000:])
        return done

    def json(self, words):
        return json.loads(self.command([*words, "--json"]).stdout)

    def name(self):
        self.made += 1
        return f"run{self.made}"

    def run(self, changes=(), before=(), codes=(0,), more=(), **options):
        name = self.name()
        self.last = self.command([*before, "train", *self.drawn.words(changes, **options), *more, "--name", name, "--report", "json"], codes)
        return f"runs/{name}"

    def begin(self):
        """Whether there is a run. An impossible combination is refused with a remedy before a folder is created."""
        self.base = self.run(codes=(0, 4, 10))
        if not self.may_be(self.base):
            return False
        self.report = json.loads(self.last.stdout)
        return True

    def may_be(self, run):
        """Whether the last command created this run. An impossible one is refused with a remedy before a folder is created."""
        if self.last.returncode in (3, 4):
            self.test.assertRegex(self.last.stderr, r"(?s)error\[E-(CONFIG|UNSUPPORTED)\].*\n  help: ")
            self.test.assertFalse(os.path.exists(run))
        return self.last.returncode == 0

    def same(self, other, rows=True, base=None):
        base = base or self.base
        assert_same_run(self.test, base, other)
        if rows:
            self.test.assertEqual(*(self.table(run) for run in (base, other)))
            for name in ("BEST", "LATEST"):
                # A second save after the same step has a different name.
                ours, theirs = (self.pointer(run, name) for run in (base, other))
                self.test.assertEqual(ours, theirs)

    def pointer(self, run, name):
        path = f"{run}/checkpoints/{name}"
        if not os.path.exists(path):
            return None
        with open(path) as file:
            return file.read().strip().split(".")[0]

    def table(self, run):
        with open(f"{run}/results.csv") as file:
            names, *rows = [line.split(",") for line in file.read().split()]
        kept = [i for i, name in enumerate(names) if name not in ("time", "samples_per_s")]
        return [[row[i] for i in kept] for row in rows]

    def losses(self, run):
        with open(f"{run}/metrics.jsonl") as file:
            return [(line["step"], line["split"], line["loss"]) for line in map(json.loads, file)]

    def near(self, other):
        ours, theirs = self.losses(self.base), self.losses(other)
        self.test.assertEqual([line[:2] for line in ours], [line[:2] for line in theirs])
        # Optimizers that divide by small numbers amplify rounding errors.
        np.testing.assert_allclose([line[2] for line in ours], [line[2] for line in theirs], rtol=5e-3, atol=5e-3)

    def checkpoints(self, run):
        return sorted(name for name in os.listdir(f"{run}/checkpoints") if name.startswith("step-"))

    # The properties to check. Each function returns False if it does not apply to the combination.

    def again(self):
        self.same(self.run())

    def what_changes_no_bit(self):
        """Streams, delays, recomputation, traces, reports and servers. For threads see docs/guarantees.md."""
        rng = self.rng
        every = {"--streams": rng.randint(1, 3), "--chaos": rng.randrange(99), "--recompute": rng.choice(["full", "none"]), "--metrics-port": 0,
                 rng.choice(["--trace", "--profile"]): "traced", "--no-tensorboard": True, "--report-every": 2, "--log-format": "json", "-v": True}
        self.same(self.run({name: value for name, value in every.items() if rng.random() < 0.4}))

    def other_saves(self):
        other = self.run({"--save-every": self.rng.choice(["1", "3", "never"]), "--keep": self.rng.choice([1, 4])})
        self.same(other, rows=False)

    def its_own_configuration(self):
        name = self.name()
        self.command(["train", "-c", f"{self.base}/config.toml", "--name", name, "--progress", "none"])
        self.same(f"runs/{name}")

    def a_plan_from_a_file(self):
        # The layouts of weights are chosen for the first batch size.
        with open(f"{self.base}/data.json") as file:
            if json.load(file)["rows"] < 2 * self.drawn.flags["--batch"]:
                return False
        name = self.name()
        self.command(["compile", "model.onnx", *self.drawn.compiled(), "-o", "made.plan"])
        own = {name: value for name, value in self.drawn.flags.items() if name not in COMPILED}
        self.command(["train", "--plan", "made.plan", "--data", "train.npz", *as_words(own), "--name", name, "--progress", "none"])
        self.same(f"runs/{name}")

    def a_table(self):
        if "--eval-data" in self.drawn.flags or any(array.ndim > 2 for array in self.drawn.train.values()):
            return False
        columns, maps = {}, []
        for name, array in self.drawn.train.items():
            flat = array.reshape(len(array), -1)
            names = [f"{name}_{i}" for i in range(flat.shape[1])]
            columns.update(zip(names, flat.T))
            maps += ["--map", f"{name}={names[0]}..{names[-1]}"]
        with open("train.csv", "w") as file:
            file.write("\n".join([",".join(columns), *(",".join(str(value) for value in row) for row in zip(*columns.values()))]) + "\n")
        name = self.name()
        self.command(["train", *self.drawn.words(data="train.csv"), *maps, "--name", name])
        self.same(f"runs/{name}")

    def other_files(self):
        """The same rows as IDX files, as several files selected by a pattern, and under a name that does not reveal the format."""
        arrays, kind = self.drawn.train, self.rng.choice(["idx", "parts", "unnamed"])
        if kind == "unnamed":
            os.symlink("train.npz", "train")
            return self.same(self.run(data="train", more=["--data-format", "npz"]))
        if kind == "idx":
            # Maps must be given for both training and evaluation data, or for neither.
            maps = [word for name in arrays for word in ("--map", f"{name}={name}")]
            for name, array in arrays.items():
                write_idx(f"set-{name}-idx{array.ndim}-any{self.rng.choice(['', '.gz'])}", array)
            return self.same(self.run(data="set", more=maps))
        rows = len(arrays["label"])
        cuts = sorted({0, rows, *self.rng.sample(range(1, rows), 2)})
        for i, (first, last) in enumerate(zip(cuts, cuts[1:])):
            np.savez(f"part-{i}.npz", **{name: array[first:last] for name, array in arrays.items()})
        return self.same(self.run(data=self.rng.choice(["part-*.npz", "part-[0-9].npz", "part-{0,1,2}.npz"])))

    def a_file_of_tokens(self):
        if not small_nets.is_language(self.drawn.model):
            return False
        stream = np.append(self.drawn.train["x"].ravel(), self.drawn.train["label"][-1, -1]).astype("<u2")
        head = struct.pack("<3i", 20240520, 1, len(stream)) + bytes(1012) if self.rng.random() < 0.5 else b""
        with open("tokens.bin", "wb") as file:
            file.write(head + stream.tobytes())
        return self.same(self.run(data="tokens.bin"))

    def a_folder_of_images(self):
        if not small_nets.is_picture(self.drawn.model):
            return False
        arrays = self.drawn.train
        order = np.argsort(arrays["label"], kind="stable")
        np.savez("sorted.npz", **{name: array[order] for name, array in arrays.items()})
        for label in range(3):
            os.makedirs(f"images/class{label}")
        for i in order:
            pixels = arrays["x"][i].transpose(1, 2, 0).astype("uint8")
            PIL.Image.fromarray(pixels).save(f"images/class{arrays['label'][i]}/{i:04}.png")
        changed = {"--transform": f"x={self.rng.choice(['scale 1/2', 'normalize 0.5 2', 'resize'])}"} if self.rng.random() < 0.5 else {}
        base = self.run({name: value for name, value in changed.items() if "resize" not in value}, data="sorted.npz")
        return self.same(self.run(changed, data="images"), base=base)

    def without_locks(self):
        """Losses are finite, all updates are made, and the results are usable. The numbers differ between runs."""
        if self.drawn.devices > 1:
            return False
        other = self.run({"--sync": "hogwild"}, ["launch", "--nproc-per-node", 2, "--standalone", "--"], codes=(0, 3, 4, 10))
        if not self.may_be(other):
            return False
        self.test.assertGreater(json.loads(self.last.stdout)["steps"], 0)
        self.test.assertTrue(all(loss is None or np.isfinite(loss) for _, _, loss in self.losses(other)))
        return self.used_elsewhere(other)

    def cut_by_itself(self):
        """`--place auto`: stages that fit a limit which the whole model exceeds."""
        flags = self.drawn.flags
        # If the whole model fits, the devices share the batch, and each has its own batch statistics.
        if self.drawn.devices > 1 or self.drawn.norm or flags["--precision"] != "fp32" or self.drawn.stops_by_value():
            return False
        limit = int(self.report["planned_bytes"] * self.rng.choice([0.7, 0.85, 0.95, 2]))
        other = self.run({"--devices": f"cpu:{self.rng.choice([2, 3])}", "--place": "auto", "--memory-limit": limit, "--pipeline": self.rng.choice([1, 2, 4])}, codes=(0, 4, 8))
        if self.last.returncode == 8:
            self.test.assertIn("error[E-LIMIT]", self.last.stderr)
            self.test.assertFalse(os.path.exists(other))
            return True
        if not self.may_be(other):
            return False
        self.test.assertLessEqual(json.loads(self.last.stdout)["planned_bytes"], limit)
        return self.near(other)

    def other_devices(self):
        flags = self.drawn.flags
        if self.drawn.norm or flags["--precision"] != "fp32" or "--micro-batch" in flags or self.drawn.stops_by_value():
            return False
        count = self.rng.choice([n for n in (1, 2, 3, 5) if n != self.drawn.devices])
        self.near(self.run({"--devices": f"cpu:{count}" if count > 1 else "cpu", "--place": None, "--pipeline": None, "--gather-to": None}))

    def shared_out(self):
        """`--shard-optimizer` changes where states are, but no bit of them. In 16 bits it does without copies of weights that updates write."""
        flags = self.drawn.flags
        if self.drawn.devices == 1 or "--place" in flags or "--gather-to" in flags:
            return False
        other = {"--shard-optimizer": None if "--shard-optimizer" in flags else True}
        if flags["--precision"] == "fp32":
            return self.same(self.run(other))
        without_copies = {"--disable-pass": "keep_weight_copies"}
        self.same(self.run({**other, **without_copies}), base=self.run(without_copies))

    def a_job(self):
        counts = [n for n in (2, 3, 4) if self.drawn.devices % n == 0]
        if not counts:
            return False
        count = self.rng.choice(counts)
        self.same(self.run({"--devices": f"cpu:{self.drawn.devices // count}"}, ["launch", "--nproc-per-node", count, "--standalone", "--"]))

    def micro_batches(self):
        flags = self.drawn.flags
        if self.drawn.devices > 1 or "--accumulate" not in flags:
            return False
        by_samples = self.run({"--accumulate-by": "samples"})
        parts = {"--batch": flags["--batch"] * flags["--accumulate"], "--micro-batch": flags["--batch"], "--accumulate": None, "--accumulate-by": None}
        self.same(self.run(parts), base=by_samples)

    def stops(self):
        """Killed or stopped at random times, at most three times. Delays make the run long enough."""
        name = self.name()
        for left in (3, 2, 1, 0):
            begun = os.path.exists(f"runs/{name}/plan.plan")
            words = ["resume", f"runs/{name}"] if begun else ["train", *self.drawn.words({"--chaos": 1}), "--name", name, "--resume", "auto"]
            process = subprocess.Popen([GRADLOOM, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            try:
                said = process.communicate(timeout=0.05 + 0.4 * self.rng.random() if left else 120)[1]
            except subprocess.TimeoutExpired:
                sent, codes = self.rng.choice([(signal.SIGKILL, (-9, 0)), (signal.SIGTERM, (138, -15, 0)), (signal.SIGINT, (130, -2, 0))])
                process.send_signal(sent)
                said = process.communicate(timeout=120)[1]
                self.test.assertIn(process.returncode, codes, said)
                if process.returncode != 0:
                    continue
            self.test.assertEqual(process.returncode, 0, said)
            break
        self.same(f"runs/{name}")

    def goes_back(self):
        found = self.checkpoints(self.base)
        other = f"runs/{self.name()}"
        shutil.copytree(self.base, other)
        every = {"--streams": self.rng.randint(1, 3), "--chaos": 7, "--recompute": self.rng.choice(["full", "none"]), "--keep": 4, "--save-every": 3,
                 "--report-every": 1, "--metrics-port": 0, "--memory-limit": "1GiB"}
        flags = {name: value for name, value in every.items() if self.rng.random() < 0.25}
        self.command(["resume", other, "--from", self.rng.choice([*found, "start"]), *as_words(flags)])
        self.same(other, rows="--save-every" not in flags)

    def goes_back_otherwise(self):
        """Compares with a run from the start with other flags."""
        other = f"runs/{self.name()}"
        shutil.copytree(self.base, other)
        flags = {**self.drawn.maybe(0.7, "--lr", "0.007"), **self.drawn.maybe(0.3, self.drawn.clipping, "0.7"), **self.drawn.maybe(0.3, "--schedule", "step")}
        self.command(["resume", other, "--from", "start", *as_words(flags)])
        self.same(other, base=self.run(flags))

    def more_epochs(self):
        flags = self.drawn.flags
        if flags.get("--epochs", 1) == 1 or flags["--schedule"] != "constant" or flags.get("--warmup") == "20%":
            return False
        # A run evaluates at its end, whenever that is.
        if flags.get("--eval-every", "1ep") != "1ep" or self.drawn.stops_by_value():
            return False
        other = self.run({"--epochs": flags["--epochs"] - 1})
        self.command(["resume", other, "--epochs", flags["--epochs"]])
        self.same(other)

    def used_elsewhere(self, run=None):
        """The results of `predict` and onnxruntime match, and frozen tensors have their original bits."""
        run = run or self.base
        predict = ["predict", run, "--data", "inputs.npz", *self.rng.choice([[], ["--devices", "cpu:2"], ["--batch", "3"], ["--streams", "2"]])]
        self.command([*predict, "-o", "outputs.npz"])
        self.predicted_as_text(predict)
        self.command(["export", run, "-o", "exported.onnx"])
        model = onnx.load("exported.onnx")
        onnx.checker.check_model(model, full_check=True)
        session = onnxruntime.InferenceSession("exported.onnx", providers=["CPUExecutionProvider"])
        outputs = session.run(None, {value.name: self.drawn.other[value.name] for value in session.get_inputs()})
        with np.load("outputs.npz") as ours:
            for value, array in zip(session.get_outputs(), outputs):
                np.testing.assert_allclose(ours[value.name] / np.abs(array).max(), array / np.abs(array).max(), rtol=0,
                                           atol=ROUNDING[self.drawn.flags["--precision"]])
        frozen = self.drawn.flags.get("--freeze", "nothing*")[:-1]
        before, after = ({w.name: w.raw_data for w in m.graph.initializer if w.name.startswith(frozen)} for m in (self.drawn.model, model))
        self.test.assertEqual(before, after)

    def predicted_as_text(self, predict):
        self.command([*predict, "-o", "outputs.json"])
        self.command([*predict, "-o", "outputs.csv"])
        with np.load("outputs.npz") as arrays, open("outputs.json") as texts:
            listed = json.load(texts)
            for name in arrays:
                np.testing.assert_array_equal(arrays[name], np.array(listed[name], "float32"))
            table = np.genfromtxt("outputs.csv", "float32", delimiter=",", skip_header=1, ndmin=2)
            np.testing.assert_array_equal(np.concatenate([arrays[name].reshape(len(table), -1) for name in sorted(arrays)], 1), table)

    def evaluated(self):
        if not self.drawn.evaluates:
            return False
        with open(f"{self.base}/metrics.jsonl") as file:
            last = [line for line in map(json.loads, file) if line["split"] == "eval"][-1]
        self.test.assertEqual(last["step"], self.report["steps"])
        found = self.json(["eval", self.base])
        for name in {"loss", "accuracy"} & set(last):
            # It may use a different number of threads than the run, which leaves the bits unchanged only in fp32.
            within = 0 if self.drawn.flags["--precision"] == "fp32" else ROUNDING[self.drawn.flags["--precision"]]
            self.test.assertAlmostEqual(found[name], last[name], delta=within * max(1, abs(last[name])), msg=name)
        # Whether it evaluates by whole batches or divides them like a step, the numbers are those of one process.
        several = self.command(["launch", "--nproc-per-node", 2, "--standalone", "--", "eval", self.base, "--json"])
        self.test.assertEqual(json.loads(several.stdout), found)
        other = self.json(["eval", self.base, *self.rng.choice([["--batch", "7"], ["--devices", "cpu:2"], ["--streams", "2"]])])
        self.test.assertAlmostEqual(other["loss"], found["loss"], delta=ROUNDING[self.drawn.flags["--precision"]] * max(1, found["loss"]))

    def memory(self):
        """`check` and `compile` report the memory needed. A limit is kept with the same bits, or what does not fit is refused."""
        checked = self.json(["check", "model.onnx", *self.drawn.compiled()])
        compiled = self.json(["compile", "model.onnx", *self.drawn.compiled(), "-o", "checked.plan"])
        for name in ("state_bytes", "transient_bytes"):
            self.test.assertEqual(checked[name], compiled[name])
        self.command(["verify", "checked.plan"])
        limit = int(self.report["planned_bytes"] * self.rng.choice([0.6, 0.9, 0.99, 1]))
        other = self.run({"--memory-limit": limit}, codes=(0, 8))
        if self.last.returncode == 8:
            self.test.assertLess(limit, self.report["planned_bytes"])
            self.test.assertIn("error[E-LIMIT]", self.last.stderr)
            self.test.assertFalse(os.path.exists(other))
            return True
        self.test.assertLessEqual(json.loads(self.last.stdout)["planned_bytes"], limit)
        self.same(other)
        return True

    def begun_with_its_weights(self):
        """A run that starts from another run's state is the same as one that trains its exported model."""
        one = self.run({"--init-weights": f"{self.base}/state.safetensors"})
        other = self.run(model=f"{self.base}/export/model.onnx")
        self.test.assertEqual(without_times(f"{one}/metrics.jsonl"), without_times(f"{other}/metrics.jsonl"))


TRIED = [Walk.again, Walk.what_changes_no_bit, Walk.other_saves, Walk.its_own_configuration, Walk.a_plan_from_a_file, Walk.a_table,
         Walk.other_files, Walk.a_file_of_tokens, Walk.a_folder_of_images, Walk.without_locks, Walk.cut_by_itself, Walk.goes_back_otherwise, Walk.other_devices, Walk.shared_out, Walk.a_job, Walk.micro_batches, Walk.stops, Walk.goes_back, Walk.more_epochs, Walk.used_elsewhere, Walk.evaluated,
         Walk.memory, Walk.begun_with_its_weights]


class CombinationsTest(unittest.TestCase):
    def test_walks(self):
        walks, tried, end = 0, {}, time.monotonic() + SECONDS
        self.addCleanup(os.chdir, os.getcwd())
        while walks < LEAST_WALKS or time.monotonic() < end:
            seed = SEED * 10**6 + walks
            walks += 1
            with tempfile.TemporaryDirectory() as folder:
                os.chdir(folder)
                walk = Walk(self, seed)
                begun = False
                with self.subTest(seed=seed, words=" ".join(walk.drawn.words())):
                    begun = walk.begin()
                for what in walk.rng.sample(TRIED, 4) if begun else ():
                    walk.said.clear()
                    with self.subTest(seed=seed, words=" ".join(walk.drawn.words()), tried=what.__name__, commands=walk.said):
                        if what(walk) is not False:
                            tried[what.__name__] = tried.get(what.__name__, 0) + 1
                os.chdir("/")
        print(f"{walks} walks from seed {SEED}: {tried}", flush=True)
        self.assertGreater(sum(tried.values()), walks)


if __name__ == "__main__":
    unittest.main()
