"""Monitoring a run: JSON lines, the log file, metrics for Prometheus and requests for them, and the files for batch systems.

Arguments: the command, docs/watching.md (with docs/deploy and docs/errors.md next to it), the folder of models.
"""
import concurrent.futures
import json
import math
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

import yaml
from prometheus_client.parser import text_string_to_metric_families

GRADLOOM, PAGE, MODELS = (os.path.abspath(word) for word in sys.argv[1:4])
sys.argv[1:4] = []
DOCS = os.path.dirname(PAGE)
PATIENCE = 120  # seconds, for operations that take well under one
# Long enough for any test; each test ends it by a signal.
TRAIN = ["train", "models/housing_mlp.onnx", "--data", "models/data/boston.csv", "--map", "features=CRIM..LSTAT", "--map", "target=MEDV",
         "--eval-split", "20%", "--metric", "rmse", "--loss", "mse(value, target)", "--batch", "64", "--log-every", "1000000", "--progress", "none",
         "--epochs", "100000000"]


class WatchingTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        os.makedirs(f"{cls.folder}/bin")
        shutil.copytree(MODELS, f"{cls.folder}/models")
        os.symlink(GRADLOOM, f"{cls.folder}/bin/gradloom")
        cls.environment = {**os.environ, "PATH": f"{cls.folder}/bin:{os.environ['PATH']}"}

    def run_command(self, *words, **options):
        return subprocess.run([GRADLOOM, *words], cwd=self.folder, capture_output=True, text=True, timeout=PATIENCE, **options)

    def begin(self, *words):
        """Starts a training run that serves its metrics. Returns their address."""
        process = subprocess.Popen([GRADLOOM, *TRAIN, "--metrics-port", "0", *words], cwd=self.folder, stderr=subprocess.PIPE,
                                   stdout=subprocess.DEVNULL, text=True)
        self.addCleanup(self.finish, process)
        said = []
        for line in process.stderr:
            said.append(line)
            found = re.search(r"metrics http://([\d.]+):(\d+)/metrics", line)
            if found:
                return process, (found.group(1), int(found.group(2)))
        raise AssertionError("".join(said))

    def finish(self, process, code=None):
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        if not process.stderr.closed:
            process.stderr.read()
            process.stderr.close()
        ended = process.wait(PATIENCE)
        if code is not None:
            self.assertEqual(ended, code)

    # ---- Lines

    def test_page(self):
        with open(PAGE) as file:
            blocks = re.findall(r"^```sh\n(.*?)^```$", file.read(), re.M | re.S)
        self.assertEqual(len(blocks), 1)
        done = subprocess.run(["bash", "-euc", blocks[0]], cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [json.loads(line) for line in done.stderr.splitlines()]
        with open(f"{self.folder}/train.log") as file:
            self.assertEqual([json.loads(line) for line in file], lines)
        messages = [line for line in lines if "message" in line]
        steps = [line for line in lines if "step" in line]
        self.assertEqual(len(messages) + len(steps), len(lines))
        self.assertEqual({line["level"] for line in messages}, {"info"})
        self.assertTrue(any("done in" in line["message"] for line in messages))
        self.assertEqual([line["step"] for line in steps], list(range(10, steps[-1]["step"] + 1, 10)))
        for line in steps:
            self.assertTrue(math.isfinite(line["loss"]))
        # The run's own log is plain text.
        with open(f"{self.folder}/runs/watched/log.txt") as file:
            self.assertNotIn('{"', file.read())

    def test_errors_are_objects_with_the_exit_code(self):
        with open(f"{self.folder}/wrong.csv", "w") as file:
            file.write("a,b\n1,2\n3,nothing\n")
        done = self.run_command("train", "models/housing_mlp.onnx", "--data", "wrong.csv", "--loss", "mse(value, target)", "--log-format", "json",
                                "--log-file", "wrong.log")
        last = json.loads(done.stderr.splitlines()[-1])
        self.assertEqual((last["level"], last["exit_code"]), ("error", done.returncode))
        self.assertIn(last["code"], ("E-DATA", "E-CONFIG"))
        with open(f"{self.folder}/wrong.log") as file:
            self.assertEqual(file.read(), done.stderr)
        # A configuration or a command line that cannot be read is such an error, too.
        with open(f"{self.folder}/wrong.toml", "w") as file:
            file.write("version = 1\n[optimizer]\nlearning = 1\n")
        for words in (["--lr", "fast"], ["--learning", "1"], ["-c", "wrong.toml"], ["--set", "optimizer.lr=fast"], ["--epochs"]):
            for form in (["--log-format", "json"], ["--log-format=json"]):
                done = self.run_command("train", "models/housing_mlp.onnx", *form, *words)
                lines = [json.loads(line) for line in done.stderr.splitlines()]
                self.assertEqual((lines[-1]["level"], lines[-1]["code"], lines[-1]["exit_code"]), ("error", "E-CONFIG", 4), words)
                self.assertEqual(done.returncode, 4)
        # Once a file says so, errors before the process knows its rank are objects, too.
        with open(f"{self.folder}/json.toml", "w") as file:
            file.write('version = 1\n[log]\nformat = "json"\n')
        done = self.run_command("train", "-c", "json.toml", env={**self.environment, "RANK": "5", "WORLD_SIZE": "4"})
        self.assertEqual([json.loads(line)["code"] for line in done.stderr.splitlines()], ["E-CONFIG"])
        done = self.run_command(*TRAIN, "--log-file", "no/such/folder/log")
        self.assertEqual(done.returncode, 8)
        self.assertIn("cannot open the log", done.stderr)

    def test_evaluations_are_lines(self):
        words = [*TRAIN[:TRAIN.index("--progress")], "--epochs", "3"]
        done = self.run_command(*words, "--name", "evaluated", "--log-format", "json", "--log-file", "evaluated.log")
        lines = [json.loads(line) for line in done.stderr.splitlines()]
        with open(f"{self.folder}/runs/evaluated/metrics.jsonl") as file:
            wanted = [line for line in map(json.loads, file) if line["split"] == "eval"]
        self.assertEqual(len(wanted), 3)
        shown = [line for line in lines if line.get("split") == "eval"]
        for line, want in zip(shown, wanted, strict=True):
            self.assertEqual(line.keys(), want.keys())
            for name in line.keys() - {"t", "split"}:
                self.assertTrue(math.isclose(line[name], want[name], rel_tol=1e-4), (line, want))
        with open(f"{self.folder}/evaluated.log") as file:
            self.assertEqual([json.loads(line) for line in file], lines)
        # A bar has no lines for evaluations, but the file of the log has.
        self.run_command(*words, "--name", "drawn", "--progress", "bar", "--log-file", "drawn.log")
        with open(f"{self.folder}/drawn.log") as file:
            self.assertEqual(len(re.findall(r"^\S+ step=\d+ epoch=\S+ eval_loss=\S+ eval_rmse=", file.read(), re.M)), 3)

    def test_times_and_graphs_of_passes_are_lines(self):
        words = [*TRAIN[:-1], "1", "--time-passes", "--dump-after", "add_loss"]
        lines = [json.loads(line) for line in self.run_command(*words, "--name", "passes", "--log-format", "json").stderr.splitlines()]
        times = [line for line in lines if "ms" in line]
        self.assertIn("differentiate", {line["pass"] for line in times})
        for line in times:
            self.assertEqual(line.keys(), {"t", "pass", "ms", "nodes"})
            self.assertGreaterEqual(line["ms"], 0)
        graphs = [line for line in lines if "graph" in line]
        self.assertEqual({line["pass"] for line in graphs}, {"add_loss"})
        text = self.run_command(*words, "--name", "passes_as_text", "-q", "--log-file", "passes.log").stderr
        self.assertIn(f"# after add_loss\n{graphs[0]['graph']}\n", text)
        self.assertRegex(text, r"(?m)^pass differentiate  \d+\.\d+ ms  \d+ nodes$")
        with open(f"{self.folder}/passes.log") as file:
            self.assertIn(text, file.read())

    # ---- Numbers

    def scrape(self, where, path="/metrics"):
        with urllib.request.urlopen(f"http://{where[0]}:{where[1]}{path}", timeout=PATIENCE) as answer:
            return answer.read().decode(), answer.headers

    def numbers(self, where):
        text, headers = self.scrape(where)
        self.assertEqual(headers["Content-Type"], "text/plain; version=0.0.4; charset=utf-8")
        return {family.name: family for family in text_string_to_metric_families(text)}

    def value(self, families, name):
        return families[name].samples[0].value

    def test_numbers_of_a_run(self):
        process, where = self.begin("--name", 'a "run"\\ of ours')
        end = time.monotonic() + PATIENCE
        first = self.numbers(where)
        while "gradloom_evaluation" not in first or "gradloom_device_memory_bytes" not in first:
            self.assertLess(time.monotonic(), end)
            first = self.numbers(where)
        second = self.numbers(where)
        info = first["gradloom_run_info"].samples[0].labels
        self.assertEqual(info["run"], 'runs/a "run"\\ of ours')
        self.assertEqual(info["model"], "models/housing_mlp.onnx")
        for name in ("gradloom_batches", "gradloom_updates", "gradloom_samples", "gradloom_epochs", "gradloom_step_seconds"):
            self.assertGreaterEqual(self.value(second, name), self.value(first, name), name)
        for families in (first, second):
            batches = self.value(families, "gradloom_batches")
            self.assertEqual(self.value(families, "gradloom_updates"), batches)
            self.assertEqual(self.value(families, "gradloom_step"), batches)
            # 405 rows per epoch, in batches of 64.
            self.assertEqual(self.value(families, "gradloom_samples"), 405 * (batches // 7) + 64 * (batches % 7))
            self.assertAlmostEqual(self.value(families, "gradloom_learning_rate"), 0.001)
            buckets = [sample for sample in families["gradloom_step_seconds"].samples if sample.name.endswith("_bucket")]
            counts = [sample.value for sample in buckets]
            self.assertEqual(counts, sorted(counts))
            self.assertEqual(buckets[-1].labels["le"], "+Inf")
            self.assertEqual(counts[-1], next(s.value for s in families["gradloom_step_seconds"].samples if s.name.endswith("_count")))
            self.assertLess(abs(self.value(families, "gradloom_last_step_time_seconds") - time.time()), PATIENCE)
        self.assertEqual({sample.labels["metric"] for sample in second["gradloom_evaluation"].samples}, {"loss", "rmse"})
        self.assertEqual(first["gradloom_updates"].type, "counter")
        # Exactly the metrics that the page lists.
        with open(PAGE) as file:
            listed = set(re.findall(r"`((?:gradloom|process)_\w+)`", file.read()))
        served = {sample.name for family in second.values() for sample in family.samples}
        served -= {"gradloom_step_seconds_bucket", "gradloom_step_seconds_sum", "gradloom_step_seconds_count"}
        # The page says when there are these.
        elsewhere = {"gradloom_gradient_norm", "gradloom_train_loss_term"}
        self.assertEqual(served | {"gradloom_step_seconds"} | elsewhere, listed | elsewhere)
        self.finish(process, 138)
        with self.assertRaises(OSError):
            self.scrape(where)

    def test_memory_of_a_run_that_fails(self):
        # In its first epoch, and in the first steps of a run that is resumed.
        self.assertEqual(self.run_command(*TRAIN, "--lr", "1e-3", "--steps", "12", "--name", "fails").returncode, 0)
        for words, name in (([*TRAIN, "--lr", "1e30", "--name", "fails_at_once"], "fails_at_once"),
                            (["resume", "runs/fails", "--lr", "1e30", "--steps", "1000"], "fails")):
            done = self.run_command(*words)
            self.assertEqual(done.returncode, 10, done.stderr)
            step = int(re.search(r"at step (\d+)", done.stderr)[1])
            with open(f"{self.folder}/runs/{name}/memory.json") as file:
                held = json.load(file)
            # The last step before it.
            self.assertEqual(held["step"], step - 1, done.stderr)
            self.assertGreater(held["devices"][0]["cached_bytes"], 0)
            self.assertIn(f"after step {step - 1}\n", self.run_command("devices", f"runs/{name}").stdout)

    def test_foreign_requests_do_no_harm(self):
        process, where = self.begin("--name", "asked")
        self.assertEqual(self.scrape(where, "/healthz")[0], "ok\n")
        self.assertEqual(self.scrape(where, "/metrics?x=1")[0][:6], "# HELP")
        with self.assertRaises(urllib.error.HTTPError) as caught:
            self.scrape(where, "/etc/passwd")
        caught.exception.close()
        self.assertEqual(caught.exception.code, 404)

        def asked(data, ends=True):
            with socket.create_connection(where, timeout=PATIENCE) as connection:
                answer = b""
                try:
                    connection.sendall(data)
                    if ends:
                        connection.shutdown(socket.SHUT_WR)
                    while piece := connection.recv(65536):
                        answer += piece
                except ConnectionError:
                    pass  # refused
                return answer.split(b"\r\n")[0]

        self.assertEqual(asked(b"HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), b"HTTP/1.1 200 OK")
        self.assertEqual(asked(b"GET /healthz HTTP/1.0\n\n"), b"HTTP/1.1 200 OK")
        self.assertEqual(asked(b"POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello"), b"HTTP/1.1 405 Method Not Allowed")
        for hostile in (b"", b"\r\n\r\n", b"GET\r\n\r\n", b"GET /metrics\r\n\r\n", b"GET  HTTP/1.1\r\n\r\n", b"\x00" * 100 + b"\r\n\r\n",
                        b"\x16\x03\x01\x02\x00\x01\x00", b"GET " + b"/" * 20000 + b" HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 5000,
                        b"GET /../../etc/passwd HTTP/1.1\r\n\r\n", os.urandom(5000)):
            answer = asked(hostile)
            self.assertTrue(answer in (b"", b"HTTP/1.1 400 Bad Request", b"HTTP/1.1 404 Not Found"), (hostile[:40], answer))
        # An idle connection delays the others by at most two seconds.
        with socket.create_connection(where), socket.create_connection(where):
            self.assertEqual(asked(b"GET /healthz HTTP/1.1\r\n\r\n"), b"HTTP/1.1 200 OK")
        with concurrent.futures.ThreadPoolExecutor(20) as pool:
            pages = list(pool.map(lambda _: self.numbers(where), range(60)))
        self.assertEqual(len(pages), 60)
        before = self.value(self.numbers(where), "gradloom_batches")
        end = time.monotonic() + PATIENCE
        while self.value(self.numbers(where), "gradloom_batches") == before:
            self.assertLess(time.monotonic(), end, "the run stands still")
        self.finish(process, 138)

    def refuse(self, code, *words):
        """Refused before there is a folder, whose name would block the corrected command."""
        done = self.run_command(*TRAIN, "--name", "refused", *words)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertFalse(os.path.exists(f"{self.folder}/runs/refused"))
        return done.stderr[done.stderr.rindex("error["):]

    def test_invalid_ports_and_addresses(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            said = self.refuse(8, "--metrics-port", str(taken.getsockname()[1]))
        self.assertIn("cannot serve metrics at 127.0.0.1:", said)
        # Before anything is compiled.
        self.assertNotIn("model ", said)
        self.refuse(4, "--metrics-port", "0", "--metrics-address", "no such host")
        self.refuse(4, "--metrics-port", "70000")

    def test_unwritable_traces_and_profiles(self):
        self.assertIn("traced and profiled at once", self.refuse(4, "--trace", "t", "--profile", "p"))
        self.assertIn("invalid range of steps '5:3'", self.refuse(4, "--trace", "t", "--trace-steps", "5:3"))
        # A run of days must not fail at its end because of this.
        for flag in ("--trace", "--profile"):
            self.assertIn("--> nowhere/t", self.refuse(8, flag, "nowhere/t"))
            self.assertIn("the path exists and is not a regular file", self.refuse(8, flag, "models"))
        done = self.run_command(*TRAIN[:-1], "1", "--name", "traced", "--trace", "runs/traced/t")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(os.path.exists(f"{self.folder}/runs/traced/t"))

    def test_rank_0_of_a_job_serves(self):
        done = self.run_command("launch", "--standalone", "--nproc-per-node", "2", "--tee", "3", "--", *TRAIN[:-1], "1", "--metrics-port", "0",
                                "--name", "job")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(re.findall(r"metrics http://", done.stderr)), 1, done.stderr)

    # ---- Files for batch systems

    def flags(self, verb):
        return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", self.run_command(verb, "--help").stdout))

    def check_flags(self, words):
        """Checks a training command: its keys are valid, and it can resume after a restart."""
        used = [word for word in words if str(word).startswith("--")]
        self.assertLessEqual(set(used), self.flags("train"))
        self.assertEqual(words[words.index("--resume") + 1], "auto")
        self.assertIn("--name", used)

    def deployed(self, name):
        with open(f"{DOCS}/deploy/{name}.yaml") as file:
            return yaml.safe_load(file)

    def test_kubernetes(self):
        with open(f"{DOCS}/errors.md") as file:
            codes = {int(code) for code in re.findall(r"^\| E-[^|]*\| (\d+) \|", file.read(), re.M)}
        job = self.deployed("kubernetes-job")
        rules = {rule["action"]: rule["onExitCodes"]["values"] for rule in job["spec"]["podFailurePolicy"]["rules"] if "onExitCodes" in rule}
        self.assertEqual(set(rules["FailJob"]), {code for code in codes if code < 128})
        self.assertLessEqual({code for code in codes if code >= 128} | {130, 138}, set(rules["Count"]))
        self.assertEqual(job["spec"]["template"]["spec"]["restartPolicy"], "Never")  # required by pod failure policies
        pods = [job["spec"]["template"]["spec"]]
        for name, kinds in (("pytorchjob", "pytorchReplicaSpecs"), ("mpijob", "mpiReplicaSpecs")):
            spec = self.deployed(name)["spec"]
            pods += [replicas["template"]["spec"] for replicas in spec[kinds].values()]
        commands = 0
        with open(f"{DOCS}/deploy/Dockerfile") as file:
            built = set(re.findall(r"^#.* -t (\S+) ", file.read(), re.M))
        self.assertEqual({container["image"] for pod in pods for container in pod["containers"]}, built)
        for pod in pods:
            volumes = {volume["name"] for volume in pod.get("volumes", [])}
            for container in pod["containers"]:
                self.assertLessEqual({mount["name"] for mount in container.get("volumeMounts", [])}, volumes)
                if "args" not in container:
                    continue
                words = [*container["command"], *container["args"]]
                self.check_flags(words[words.index("gradloom") + 1:])
                self.assertTrue(all(isinstance(word, str) for word in words), words)
                commands += 1
        self.assertEqual(commands, 4)

    def test_mpirun_as_in_its_job(self):
        """As root, if this user is, with the image's variables; and a shell on the worker that knows no path to the program."""
        if shutil.which("mpirun") is None:
            self.skipTest("no mpirun")
        with open(f"{DOCS}/deploy/Dockerfile") as file:
            stage = file.read().split("AS mpi\n")[1].split("\nFROM ")[0]
        variables = dict(word.split("=") for line in re.findall(r"^ENV (.*)$", stage, re.M) for word in line.split())
        launcher = self.deployed("mpijob")["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
        words = [*launcher["command"], *launcher["args"]]
        words = words[:words.index("gradloom")]
        words[words.index("-n") + 1] = "2"
        with open(f"{self.folder}/shell", "w") as file:
            file.write('#!/bin/sh\nshift\nexec env -i HOME=/root PATH=/usr/bin:/bin sh -c "$*"\n')
        os.chmod(f"{self.folder}/shell", 0o755)
        environment = {name: value for name, value in self.environment.items() if not name.startswith(("OMPI_", "PMIX_"))}
        # A short path for its sockets.
        environment |= variables | {"TMPDIR": "/tmp", "OMPI_MCA_plm_rsh_agent": f"{self.folder}/shell"}
        done = subprocess.run([*words, "--host", "worker-0:2", "gradloom", "--version"], env=environment, capture_output=True, text=True,
                              timeout=PATIENCE)
        self.assertEqual((done.returncode, done.stdout.count("gradloom 0")), (0, 2), done.stdout + done.stderr)

    def test_slurm(self):
        """With a fake srun that records its arguments and exits as told: the job is requeued only for 138 and 140."""
        for name, text in (("srun", 'echo "$@" > srun.txt; exit "$CODE"'), ("scontrol", 'echo "$@" > scontrol.txt')):
            with open(f"{self.folder}/bin/{name}", "w") as file:
                file.write(f"#!/bin/bash\n{text}\n")
            os.chmod(f"{self.folder}/bin/{name}", 0o755)
        for code, again in ((0, False), (5, False), (138, True), (140, True)):
            done = subprocess.run(["bash", f"{DOCS}/deploy/slurm.sh"], cwd=self.folder,
                                  env={**self.environment, "CODE": str(code), "SLURM_JOB_ID": "77", "SLURM_CPUS_PER_TASK": "8"})
            self.assertEqual(done.returncode, code)
            self.assertEqual(os.path.exists(f"{self.folder}/scontrol.txt"), again)
            if again:
                with open(f"{self.folder}/scontrol.txt") as file:
                    self.assertEqual(file.read(), "requeue 77\n")
                os.remove(f"{self.folder}/scontrol.txt")
        with open(f"{self.folder}/srun.txt") as file:
            words = file.read().split()
        self.assertIn("--cpus-per-task=8", words[:words.index("gradloom")])
        self.check_flags(words[words.index("gradloom") + 1:])
        # sbatch stops reading options at the first line that is not a comment.
        with open(f"{DOCS}/deploy/slurm.sh") as file:
            self.assertRegex(file.read(), r"^#!/bin/bash\n(#SBATCH --[a-z-]+(=\S+)?\n)+#")

    def test_dockerfiles(self):
        """The build targets exist, and so does every stage from which files are copied."""
        for name in ("Dockerfile", "Dockerfile.cuda"):
            with open(f"{DOCS}/deploy/{name}") as file:
                text = file.read().replace("\\\n", " ")
            lines = [line for line in text.splitlines() if line and not line.startswith("#")]
            self.assertLessEqual({line.split()[0] for line in lines}, {"FROM", "RUN", "COPY", "WORKDIR", "ENV", "ENTRYPOINT", "CMD"})
            stages = set(re.findall(r"^FROM \S+ AS (\w+)", text, re.M))
            self.assertLessEqual(set(re.findall(r"--from=(\w+)", text)), stages)
            for copied in re.findall(r"^COPY (tools/\S+) ", text, re.M):
                self.assertTrue(os.path.exists(f"{DOCS}/../{copied}"), copied)
            for script in re.findall(r"\btools/\w+\.sh", text):
                self.assertTrue(os.path.exists(f"{DOCS}/../{script}"), script)
            self.assertEqual(re.findall(r"bazel build (?:--repo_env=WITH_CUDA=1 )?(\S+)", text), ["//:dist"])
            for mounts, command in re.findall(r"^RUN ((?:--mount=\S+ +)*)(.*)$", text, re.M):
                subprocess.run(["bash", "-nc", command], check=True)
                # The cache directory is that of Gradloom's builds.
                for target in re.findall(r"target=(\S+)", mounts):
                    with open(f"{DOCS}/../.bazelrc") as file:
                        self.assertIn(f"--disk_cache={target.replace('/root', '~')}\n", file.read())


if __name__ == "__main__":
    unittest.main()
