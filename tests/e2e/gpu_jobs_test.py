"""The command with GPUs, on the emulated device: the interaction of processes, driver and NCCL, markers for profilers, and sensor readings.
"""
import gzip
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import unittest

import onnx.parser

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from jobs import HOUSING, Job, JobTest, changed  # noqa: E402

GRADLOOM, PLUGIN, RECORDER, SENSORS = (os.path.abspath(sys.argv.pop(1)) for _ in range(4))

SHRUNK = """<ir_version: 10, opset_import: ["" : 20]>
shrunk (float[N,13] features) => (float[N,1] value)
<float[13,1] w = {4, -3, 2, 1, -1, 0.5, 3, -2, 1, 2, -4, 1, 0.25}, float[1] b = {20}, float[1] shrink = {0.75}, float limit = {1.5}>
{
  size = Abs (w)
  top = ReduceMax <keepdims = 0> (size)
  large = Greater (top, limit)
  v = Loop (, large, w) <
    body = body_graph (int64 i, bool going, float[13,1] s) => (bool again, float[13,1] next) {
      next = Mul (s, shrink)
      a = Abs (next)
      t = ReduceMax <keepdims = 0> (a)
      again = Greater (t, limit)
    }
  >
  p = MatMul (features, v)
  value = Add (p, b)
}"""


class GpuJobsTest(JobTest):
    gradloom = GRADLOOM

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # The emulation is slow, and slower with each batch size, so there are 192 rows for training, in batches of 48, and as many for
        # evaluation.
        with gzip.open("models/data/digits.csv.gz", "rt") as whole, open(cls.out + "/few.csv", "w") as few:
            few.writelines(line for _, line in zip(range(241), whole))
        os.environ.update(GRADLOOM_CUDA_LIBRARY=PLUGIN, GRADLOOM_EMULATED_DEVICES="4", GRADLOOM_EMULATED_CODE=cls.out + "/code")

    def train(self, name, **changes):
        return super().train(name, **{"data": self.path("few.csv"), "epochs": "2", "batch": "48", "devices": "cuda", **changes})

    def housing(self, name, **changes):
        flags = {"devices": "cuda", "name": name, "out": self.out, **changes}
        return ["train", *changed(HOUSING, {"--" + key.replace("_", "-"): value for key, value in flags.items()})]

    def test_bits_of_one_process(self):
        self.one(self.train("one2", devices="cuda:0,1"))
        said = self.job(2, self.train("job2"))
        self.assertIn("done in", said[0])
        self.assert_same_run("job2", "one2")
        with open(self.path("job2", "config.toml")) as file:
            kept = file.read()
        self.assertIn('use = "cuda:0,1"', kept)
        with open(self.path("one2", "metrics.jsonl")) as file:
            lines = [line for line in map(json.loads, file) if line["split"] == "train"]
        with open(self.path("one2", "memory.json")) as file:
            held = [device["allocated_bytes"] + device["cached_bytes"] for device in json.load(file)["devices"]]
        for line in lines:
            self.assertTrue(0 < line["gpu_mem_mb"] < 2 * max(held) / 1e6, (line, held))
        self.assertNotIn("sm_90", kept, "which GPUs there were is nothing that a run is resumed with")
        # Two processes with two devices each, given by name, and without CUDA graphs.
        self.one(self.train("one4", devices="cuda:0,1,2,3"))
        flags = {rank: self.train("job4", devices=f"cuda:{2 * rank},{2 * rank + 1}", cuda_graph="off") for rank in range(2)}
        self.job(2, [], own=flags)
        self.assert_same_run("job4", "one4")

    def test_fallback_kernels_are_reported_once(self):
        flags = {"devices": "cuda:0", "eval_every": "never", "epochs": "1"}
        self.one(self.train("libraries", **flags))
        self.assertNotIn("notice", self.read("libraries", "log.txt"))
        os.environ["GRADLOOM_EMULATED_NO_ALGORITHMS"] = "1"
        try:
            said = self.one(self.train("stands_in", **flags)).stderr
        finally:
            del os.environ["GRADLOOM_EMULATED_NO_ALGORITHMS"]
        notice = r"notice  cu(DNN|BLASLt) has nothing for a \w+ of \[[\d, ]+\], cuda\.\w+ runs: .*   \[and \d+ more like it\]"
        for text in (said, self.read("stands_in", "log.txt")):
            self.assertEqual(len(re.findall("notice", text)), 1, text)
            self.assertRegex(text, notice)

    def test_missing_pinned_memory_is_reported_once(self):
        flags = {"devices": "cuda:0,1", "eval_every": "never", "epochs": "1"}
        self.one(self.train("pinned", **flags))
        os.environ["GRADLOOM_EMULATED_NO_PINNING"] = "1"
        try:
            said = self.one(self.train("pageable", **flags)).stderr
        finally:
            del os.environ["GRADLOOM_EMULATED_NO_PINNING"]
        for text in (said, self.read("pageable", "log.txt")):
            self.assertEqual(len(re.findall("notice  the system refuses pinned memory, ", text)), 1, text)
        self.assert_same_run("pageable", "pinned")

    def test_model_stages_in_several_processes(self):
        self.one([*self.housing("parts_one", devices="cuda:2,1"), "--place", "layer2*=cuda:1"])
        self.job(2, [*self.housing("parts_job"), "--place", "layer2*=cpu:1"])
        self.assert_same_run("parts_job", "parts_one")

    def test_stages_and_replicas_of_several_processes(self):
        """Processes with two devices each: NCCL connects two processes in what they do first, and waits for both."""
        devices = {rank: f"cuda:{2 * rank},{2 * rank + 1}" for rank in range(3)}
        placed = ["--place", "layer2*=cpu:1", "--place", "layer3*=cpu:2"]
        os.environ["GRADLOOM_EMULATED_DEVICES"] = "6"
        try:
            self.one([*self.housing("stages_one", devices="cuda:0,1,2,3,4,5", epochs="2"), *placed])
            self.job(3, [], own={rank: [*self.housing("stages_job", devices=devices[rank], epochs="2"), *placed] for rank in range(3)})
        finally:
            os.environ["GRADLOOM_EMULATED_DEVICES"] = "4"
        self.assert_same_run("stages_job", "stages_one")
        gathered = ["--gather-to", "cuda:0"]
        self.one([*self.housing("gathered_one", devices="cuda:0,1,2,3", epochs="2"), *gathered])
        self.job(2, [], own={rank: [*self.housing("gathered_job", devices=devices[rank], epochs="2"), *gathered] for rank in range(2)})
        self.assert_same_run("gathered_job", "gathered_one")

    def test_profiles_of_jobs(self):
        """Timed steps are no graphs, in all processes alike, although only the first writes the profile."""
        profile = self.path("profile.json")
        self.job(2, [*self.housing("profiled", epochs="3"), "--profile", profile])
        with open(profile) as file:
            self.assertGreater(json.load(file)["steps"], 3)

    def test_processes_decide_alike(self):
        """A loop over weights that runs while they are large: each process decides for itself, between collectives."""
        model = onnx.parser.parse_model(SHRUNK)
        onnx.save(model, self.path("shrunk.onnx"))

        def words(name, devices):
            return ["train", self.path("shrunk.onnx"), *self.housing(name, devices=devices, epochs="2")[2:]]

        self.one(words("decides_one", "cuda:0,1"))
        self.job(2, words("decides_job", "cuda"))
        self.assert_same_run("decides_job", "decides_one")

    def test_resume_with_any_number_of_processes(self):
        self.one(self.housing("whole", devices="cuda:0,1", epochs="40"))
        self.stopped(2, self.housing("stopped", epochs="40"), "stopped")
        shutil.copytree(self.path("stopped"), self.path("alone"))
        self.job(2, ["resume", self.path("stopped")])
        self.assert_same_run("stopped", "whole")
        self.one(["resume", self.path("alone")])
        self.assert_same_run("alone", "whole")
        said = self.job(3, ["resume", self.path("alone")], code=4)
        self.assertIn("the run is for 2 devices, but the job has 3 processes", said[0])

    def test_a_lost_rank_ends_the_job(self):
        for how, reason in ((signal.SIGKILL, r"is gone: "), (signal.SIGSTOP, r"has not answered within the collective timeout of 20 s")):
            job = Job(GRADLOOM, 2, self.housing(f"lost{how}", epochs="100000", collective_timeout="20s"))
            try:
                self.wait_for(self.path(f"lost{how}", "checkpoints", "step-000010"), job)
                job.processes[1].send_signal(how)
                said = job.processes[0].communicate(timeout=120)[1]
            finally:
                job.kill()
            self.assertEqual(job.codes(), [140, -signal.SIGKILL], said)
            self.assertRegex(said, r"E-PEER\]: rank 1 \(host \S+, pid \d+\) " + reason)
            self.assertIn("gradloom resume " + self.path(f"lost{how}"), said)

    def test_a_straggler_is_named(self):
        # Its GPU is slow, so the other one waits within a collective, where the hosts see nothing of it.
        job = Job(GRADLOOM, 2, self.housing("late", epochs="100000", batch="16", eval_every="never", save_every="never"), last=1,
                  under=lambda _: ["env", "GRADLOOM_EMULATED_KERNEL_US=2000"])
        try:
            self.wait_for(self.path("late", "log.txt"), job)
            self.wait_until(lambda: "straggler" in self.read("late", "log.txt"), "straggler", job)
            self.assertRegex(self.read("late", "log.txt"), r"straggler rank 1 \(host \S+, pid \d+\): the others wait \d+% of the time for it\n")
            job.processes[0].send_signal(signal.SIGTERM)
            job.end()
        finally:
            job.kill()
        self.assertEqual(job.codes(), [138] * 2)

    def test_invalid_jobs_are_refused_by_all(self):
        def refused(text, own, environment=None, code=4):
            flags = {rank: self.train("refused", devices=devices) for rank, devices in enumerate(own)}
            for said in self.job(len(own), [], own=flags, code=code, environment=environment):
                self.assertRegex(said, text)
            self.assertFalse(os.path.exists(self.path("refused")))

        refused(r"E-CONFIG\]: a GPU cannot be used twice in a job: rank 0 \(.*\) and rank 1 \(.*\) both use GPU-", ("cuda:2", "cuda:2"))
        refused(r"E-CONFIG\]: each process of a job must have the same number of GPUs: of 3 GPUs for 2 processes rank 0 \(.*\) has 2", ("cuda:0,1", "cuda:2"))
        refused(r"E-CONFIG\]: the processes of the job differ: rank 0 \(.*\) has devices.use = GPUs, but rank 1 .* \"cpu\"", ("cuda", "cpu"))
        refused(r"E-DEVICE\]: rank 0 \(.*\) has a GPU, but rank 1 \(.*\) has none: training on the CPU instead of cuda:7: this machine has cuda:0",
                ("cuda:0", "cuda:7,else=cpu"), code=9)
        refused(r"E-CONFIG\]: the GPUs of a job must have one architecture: rank 0 \(.*\) has sm_90, and rank 1 \(.*\) has sm_80", ("cuda:2", "cuda:3"),
                {"GRADLOOM_EMULATED_OLDER": "1"})
        said = self.one(self.train("refused", devices="cuda:7"), code=9).stderr
        self.assertIn("there is no device cuda:7", said)

    def test_evaluation_is_shared(self):
        self.one(self.housing("used", devices="cuda:0"))
        words = ["eval", self.path("used"), "--data", "models/data/boston.csv", "--json"]
        alone = self.one(words).stdout
        job = Job(GRADLOOM, 2, [*words, "--devices", "cuda"])
        outputs = [process.communicate(timeout=180) for process in job.processes]
        self.assertEqual(job.codes(), [0, 0], outputs)
        self.assertEqual([output[0] for output in outputs], [alone, ""])

    def test_sensors(self):
        os.environ["LD_LIBRARY_PATH"] = os.path.dirname(SENSORS)
        try:
            devices = json.loads(self.one(["devices", "--json"]).stdout)["devices"]
        finally:
            del os.environ["LD_LIBRARY_PATH"]
        self.assertEqual([device["id"] for device in devices], ["cpu", "cuda:0", "cuda:1", "cuda:2", "cuda:3"])
        names = ("memory_free_bytes", "busy_percent", "temperature_c", "power_w")
        self.assertEqual([devices[2][name] for name in names], [4 << 30, 97, 81, 650])
        self.assertEqual([devices[3][name] for name in names], [8 << 30, 0, 30, 70])
        self.assertNotIn("power_w", json.loads(self.one(["devices", "--json"]).stdout)["devices"][2], "there is no such library here")

    def test_profilers_see_steps_and_nodes(self):
        record = self.path("ranges.txt")
        os.environ.update(NVTX_INJECTION64_PATH=RECORDER, GRADLOOM_TEST_RANGES=record)
        try:
            self.one(self.train("marked", devices="cuda:0", cuda_graph="off", eval_every="never"))
        finally:
            del os.environ["NVTX_INJECTION64_PATH"]
        with open(record) as file:
            lines = file.read().splitlines()
        self.assertIn("stream steps", lines)
        self.assertIn("stream rank 0 stream 0", lines)
        runs = [line for line in lines if re.fullmatch(r"gradloom: step (\d+), (accumulate|update|step) of \d+ = \1", line)]
        self.assertEqual(len(runs), 8, runs)
        # Within a step its phases, and within these each instruction with its node.
        step = re.search(r"step (\d+)", runs[-1]).group(1)
        last = lines[lines.index(runs[-1]) + 1:]
        phases = [line for line in last if re.fullmatch(rf"  gradloom: (fwd|bwd|opt) = {step}", line)]
        self.assertEqual([phases[0][12:15], phases[-1][12:15]], ["fwd", "opt"], phases)
        self.assertIn(f"  gradloom: bwd = {step}", phases)
        self.assertTrue(any(re.fullmatch(rf"    gradloom: #\d+ \S*Conv '\S+' = {step}", line) for line in last), last[:20])
        self.assertFalse(any(line.startswith("  gradloom: #") for line in last), "an instruction outside of a phase")


if __name__ == "__main__":
    unittest.main(verbosity=2)
