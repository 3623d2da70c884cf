"""What a resumed run tells about itself, and the changes that it refuses, with their causes and remedies."""
import os
import shutil
import subprocess
import sys
import unittest

import onnx

GRADLOOM = os.path.abspath(sys.argv.pop(1))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import sample_files  # noqa: E402
from sample_files import TRAIN, read, write  # noqa: E402

# 12 steps: two per epoch.
WORDS = [*TRAIN, "--eval-split", "20%", "--save-every", "2", "--keep", "9", "--threads", "1"]
WORDS[WORDS.index("--epochs") + 1] = "6"


class ResumeChecksTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        sample_files.in_folder_of(cls)
        cls.run_command(cls, [*WORDS, "--name", "whole"])

    def run_command(self, words, code=0):
        done = subprocess.run([GRADLOOM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
        if done.returncode != code:
            raise AssertionError(f"{words}: exit {done.returncode}, not {code}\n{done.stderr}")
        return done.stderr

    def copy(self, name):
        """A complete run, as if it had been made under this name."""
        shutil.copytree("runs/whole", f"runs/{name}")
        self.addCleanup(shutil.rmtree, f"runs/{name}")
        return f"runs/{name}"

    def unsaved(self, name):
        """As if it had been killed before its first save."""
        run = self.copy(name)
        shutil.rmtree(f"{run}/checkpoints")
        for name in ("state.safetensors", "export/model.onnx"):
            os.remove(f"{run}/{name}")
        return run

    def interrupted(self, name, step):
        """As if it had been killed after this step."""
        run = self.copy(name)
        for saved in os.listdir(f"{run}/checkpoints"):
            if saved.startswith("step-") and int(saved[5:11]) > step:
                shutil.rmtree(f"{run}/checkpoints/{saved}")
        write(f"{run}/checkpoints/LATEST", f"step-{step:06}\n")
        for name in ("state.safetensors", "export/model.onnx"):
            os.remove(f"{run}/{name}")
        return run

    def assert_whole(self, run):
        for name in ("state.safetensors", "export/model.onnx"):
            self.assertEqual(read(f"{run}/{name}"), read(f"runs/whole/{name}"), name)

    def test_a_run_that_begins_again_has_its_model_and_data(self):
        resumes = {"unsaved": [], "begun": ["--from", "start"]}
        rows = read("train.csv").split(b"\n")
        model = onnx.load("model.onnx")
        model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(model.graph.initializer[0]) + 1, "w1"))
        for name, flags in resumes.items():
            run = self.unsaved(name) if not flags else self.copy(name)
            with self.subTest(run):
                before = {file: read(f"{run}/{file}") for file in ("results.csv", "metrics.jsonl", "data.json", "plan.plan", "config.toml")}
                write("train.csv", b"\n".join(rows[:50]) + b"\n")
                said = self.run_command(["resume", run, *flags], 7)
                self.assertIn("the data is not what the run began with: the data had 60 rows, now it has 49", said)
                self.assertIn(f"help: resume with the original data, or start a new run with --init-weights {run}", said)
                write("train.csv", b"\n".join(rows))
                original = read("model.onnx")
                onnx.save(model, "model.onnx")
                said = self.run_command(["resume", run, *flags], 7)
                self.assertIn("the run began with another model: model: 'model.onnx'", said)
                self.assertIn("help: restore the model file that the run began with", said)
                write("model.onnx", original)
                # Nothing of it is lost, and it ends as it would have.
                self.assertEqual({file: read(f"{run}/{file}") for file in before}, before)
                self.run_command(["resume", run, *flags])
                self.assert_whole(run)

    def test_changes_of_a_run_that_begins_again(self):
        run = self.unsaved("changed")
        # Other rows of the same data, other steps: nothing is lost.
        said = self.run_command(["resume", run, "--eval-split", "30%", "--lr", "0.01", "--batch", "16"])
        self.assertIn("config  data.batch = 16, was not set", said)
        self.assertRegex(said, r"changed batch sizes: 16; 32 when the run began, 10; 16 now")
        self.assertIn("resume  from the start: nothing has been saved yet", said)

    def test_from_the_start_of_a_saved_run(self):
        run = self.copy("again")
        said = self.run_command(["resume", run, "--from", "start"])
        self.assertIn("resume  from the start, as --from start says: metrics.jsonl and results.csv begin anew, and new checkpoints replace "
                      "the old ones (--keep); export/model.onnx stays until the run ends\n", said)
        self.assertNotIn("nothing has been saved", said)
        self.assert_whole(run)

    def test_fewer_epochs_than_were_trained(self):
        run = self.interrupted("short", 6)
        before = read(f"{run}/config.toml")
        said = self.run_command(["resume", run, "--epochs", "2"], 4)
        self.assertIn("error[E-CONFIG]: the run has trained for 3 epochs already, and --epochs 2 counts all of them\n", said)
        self.assertIn("help: use --epochs 3 or more, or --from with an earlier checkpoint", said)
        said = self.run_command(["resume", run, "--steps", "5"], 4)
        self.assertIn("the run has trained for 6 steps already, and --steps 5 counts all of them", said)
        self.assertFalse(os.path.exists(f"{run}/export/model.onnx"))
        self.assertEqual(read(f"{run}/config.toml"), before)
        self.run_command(["resume", run])
        self.assert_whole(run)
        # It may end here.
        run = self.interrupted("ended", 6)
        self.run_command(["resume", run, "--epochs", "3"])
        self.assertTrue(os.path.exists(f"{run}/export/model.onnx"))

    def test_refusals_name_the_change(self):
        run = self.copy("refused")
        new = f", or start a new run with --init-weights {run}"
        for flags, message, omit in ((["--batch", "16"], "a run keeps the size of its batches: it was trained in batches of 32, and would go on in "
                                      "batches of 16", "--batch"),
                                     (["--eval-split", "30%"], "the run was trained on 48 rows in batches of 32; there are now 42 rows", "--eval-split"),
                                     (["--eval-split", "tail:20%"], "other rows were held back", "--eval-split"),
                                     (["--optimizer", "sgd"], "does not hold the state of this plan", "--optimizer"),
                                     (["--freeze", "w1"], "does not hold the state of this plan", "--freeze")):
            with self.subTest(flags):
                said = self.run_command(["resume", run, *flags, "--epochs", "9"], 7)
                self.assertIn(message, said)
                self.assertIn(f"help: omit {omit}{new}", said)

    def test_the_state_of_an_unfinished_run_is_named(self):
        run = self.interrupted("open", 6)
        line = f"weights {run}/checkpoints/step-000006: the run is unfinished, at step 6, after 3 of 6 epochs\n"
        self.assertIn(line, self.run_command(["eval", run]))
        self.assertIn(line, self.run_command(["predict", run, "--data", "train.csv", "-o", "y.csv"]))
        self.assertNotIn("unfinished", self.run_command(["eval", "runs/whole"]))
        self.assertNotIn("unfinished", self.run_command(["eval", run, "--from", "step-000004"]))

    def test_a_damaged_record_of_the_data(self):
        run = self.copy("damaged")
        for content in ("{}", "[1", '{"columns": 3}'):
            write(f"{run}/data.json", content)
            for words in (["eval", run], ["resume", run, "--epochs", "7"]):
                if words[0] == "resume" and content == "{}":
                    continue  # a record of an earlier release
                said = self.run_command(words, 4)
                self.assertIn("error[E-CONFIG]: the record of a run's data is damaged: its columns, transforms or classes cannot be read\n", said)
                self.assertIn("help: restore the file from a copy of the run", said)
                self.assertNotIn("json.exception", said)


if __name__ == "__main__":
    unittest.main()
