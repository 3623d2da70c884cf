"""`gradloom launch`, tested by what its processes observe and leave behind: torchrun's variables, restarts, the first failure, signals,
logs. Also tests how a command determines its place in a job from flags and the environment."""
import json
import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import uuid


GRADLOOM = os.path.abspath(sys.argv.pop(1))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import sample_files  # noqa: E402
from sample_files import TRAIN  # noqa: E402

PATIENCE = 120  # seconds, for operations that take well under one
# Variables that a launcher of this test might have set.
LAUNCHERS = re.compile(r"(GRADLOOM_(?!CUDA)|TORCHELASTIC_|PET_|SLURM_|OMPI_|PMIX?_|MPI_|MV2_|PALS_|ALPS_|GROUP_|ROLE_|MASTER_)|"
                       r"((LOCAL_)?(RANK|WORLD_SIZE)|NODE_RANK|OMP_NUM_THREADS)$")


def wait_for(condition, what):
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"nothing came of waiting for {what}")
        time.sleep(0.02)


def processes_with(mark):
    """The processes that have this in their environment, except for zombies."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if mark.encode() in file.read():
                    found.append(int(pid))
        except OSError:
            pass
    return found


class LaunchTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.base = sample_files.in_folder_of(cls)

    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=self.base)
        os.makedirs(os.path.join(self.folder, "tmp"))
        self.mark = f"LAUNCH_TEST={uuid.uuid4()}"

    def tearDown(self):
        # Everything that a test has started is gone, even if it failed.
        left = processes_with(self.mark)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        self.assertEqual(left, [])

    def path(self, name):
        return os.path.join(self.folder, name)

    def read(self, name):
        with open(self.path(name)) as file:
            return file.read()

    def environment(self, **variables):
        kept = {name: value for name, value in os.environ.items() if not LAUNCHERS.match(name)}
        name, value = self.mark.split("=")
        return {**kept, name: value, "F": self.folder, "TMPDIR": self.path("tmp"), **variables}

    def start(self, words, **variables):
        return subprocess.Popen([GRADLOOM, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=self.environment(**variables))

    def run_command(self, words, code=0, **variables):
        process = self.start(words, **variables)
        out, err = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, code, f"{words}\n{out}\n{err}")
        return subprocess.CompletedProcess(words, code, out, err)

    def launch(self, flags, script, code=0, **variables):
        return self.run_command(["launch", *flags, "--", "sh", "-c", script], code, **variables)

    def seen(self, rank):
        """The variables that a rank has seen, recorded by SEE."""
        return dict(line.split("=", 1) for line in self.read(f"seen{rank}").splitlines() if "=" in line)

    # What processes are told.

    SEE = 'env > "$F/seen$RANK"'

    def test_variables_match_torchrun(self):
        self.launch(["--nproc-per-node", "2"], self.SEE, GRADLOOM_RANK="7", GRADLOOM_WORLD_SIZE="8", RANK="3", WORLD_SIZE="4", PET_RDZV_ID="job7")
        for rank in (0, 1):
            seen = self.seen(rank)
            expected = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0",
                        "GROUP_WORLD_SIZE": "1", "ROLE_RANK": str(rank), "ROLE_WORLD_SIZE": "2", "ROLE_NAME": "default", "MASTER_ADDR": "127.0.0.1",
                        "MASTER_PORT": "29500", "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "0", "TORCHELASTIC_RUN_ID": "job7"}
            self.assertEqual({name: seen.get(name) for name in expected}, expected)
            self.assertNotIn("GRADLOOM_RANK", seen)
            self.assertNotIn("GRADLOOM_WORLD_SIZE", seen)
        self.assertNotEqual(self.seen(0)["TORCHELASTIC_ERROR_FILE"], self.seen(1)["TORCHELASTIC_ERROR_FILE"])
        self.assertEqual(os.listdir(self.path("tmp")), [])

    def test_hosts(self):
        flags = ["--nproc_per_node=2", "--nnodes=2", "--rdzv_endpoint", "127.0.0.1:29511"]
        both = [self.start(["launch", *flags, f"--node_rank={node}", "--", "sh", "-c", self.SEE]) for node in (0, 1)]
        for launcher in both:
            out, err = launcher.communicate(timeout=PATIENCE)
            self.assertEqual(launcher.returncode, 0, out + err)
        for rank in range(4):
            seen = self.seen(rank)
            self.assertEqual([seen[name] for name in ("LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_PORT")],
                             [str(rank % 2), str(rank // 2), "4", "2", "29511"])

    def test_variables_of_torchruns_flags(self):
        self.launch([], self.SEE, PET_NNODES="2", PET_NPROC_PER_NODE="2", PET_NODE_RANK="1", PET_MASTER_ADDR="10.0.0.1", PET_MASTER_PORT="29400")
        self.assertEqual([self.seen(3)[name] for name in ("WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")], ["4", "10.0.0.1", "29400"])

    def test_threads_are_divided_and_said(self):
        cores = len(os.sched_getaffinity(0))
        said = self.launch(["--nproc-per-node", "2"], self.SEE).stderr
        self.assertEqual(self.seen(1)["OMP_NUM_THREADS"], str(max(1, cores // 2)))
        self.assertIn(f"OMP_NUM_THREADS={max(1, cores // 2)}", said)
        said = self.launch(["--nproc-per-node", "2"], self.SEE, OMP_NUM_THREADS="5").stderr
        self.assertEqual(self.seen(1)["OMP_NUM_THREADS"], "5")
        self.assertNotIn("OMP_NUM_THREADS", said)
        self.launch([], self.SEE)
        self.assertNotIn("OMP_NUM_THREADS", self.seen(0))

    def test_standalone_takes_a_free_port(self):
        for flags in (["--standalone"], ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]):
            self.launch([*flags, "--nproc-per-node", "2"], self.SEE)
            port = self.seen(0)["MASTER_PORT"]
            self.assertEqual(self.seen(1)["MASTER_PORT"], port)
            with socket.socket() as taken:
                taken.bind(("127.0.0.1", int(port)))

    # How a job ends.

    def test_all_restart_after_a_transient_failure(self):
        script = """n=$TORCHELASTIC_RESTART_COUNT
            echo "$n of $TORCHELASTIC_MAX_RESTARTS" >> "$F/rank$RANK"
            [ $n = 2 ] && exit 0
            [ $RANK = 0 ] && sleep 1000
            until grep -q "^$n " "$F/rank0"; do sleep 0.02; done
            exit 138"""
        said = self.launch(["--nproc-per-node", "2", "--max-restarts", "3"], script).stderr
        for rank in (0, 1):
            self.assertEqual(self.read(f"rank{rank}"), "0 of 3\n1 of 3\n2 of 3\n")
        self.assertRegex(said, r"restart 2 of 3: rank 1 \(host .*, pid \d+\) ended with exit 138")

    def test_restarts_are_limited(self):
        said = self.launch(["--max-restarts", "2"], 'echo >> "$F/starts"; kill -9 $$', 137).stderr
        self.assertEqual(len(self.read("starts")), 3)
        self.assertRegex(said, r"error\[E-PEER\]: rank 0 \(host .*, pid \d+\) was killed by signal 9 \(SIGKILL\), possibly out of memory: dmesg")
        self.assertTrue(said.endswith("gradloom: the job stopped (exit 137)\n"), said)

    def test_permanent_errors_are_not_retried(self):
        for code in (1, 3, 11, 127):
            self.launch(["--max-restarts", "2"], f'echo >> "$F/starts{code}"; exit {code}', code)
            self.assertEqual(len(self.read(f"starts{code}")), 1)

    def test_the_first_failure_is_shown_last(self):
        said = self.launch(["--nproc-per-node", "3"], 'echo "from $RANK" >&2; [ $RANK = 1 ] && exit 5; sleep 1000', 5).stderr
        lines = said.splitlines()
        self.assertRegex(lines[-4], rf"failed  rank 1 \(host {re.escape(socket.gethostname())}, pid \d+\) ended with exit 5")
        self.assertRegex(lines[-3], r"  --> .*/attempt_0/1/stderr.log")
        self.assertEqual(lines[-2:], ["from 1", "gradloom: the job stopped (exit 5)"])
        # The logs of a failed job are kept.
        self.assertEqual(len(os.listdir(self.path("tmp"))), 1)

    def test_losing_a_peer_is_not_the_cause(self):
        script = """if [ $RANK = 0 ]; then
              while [ ! -e "$F/ready" ]; do sleep 0.05; done
              echo $$ > "$F/first"
              exit 140
            fi
            trap '' TERM
            touch "$F/ready"
            while [ ! -s "$F/first" ] || kill -0 "$(cat "$F/first")" 2> /dev/null; do sleep 0.05; done
            kill -11 $$"""
        said = self.launch(["--nproc-per-node", "2"], script, 139).stderr
        self.assertIn("rank 1 (host", said)
        self.assertIn("was killed by signal 11 (SIGSEGV), the first of 2 that failed", said)

    def test_a_failing_process_reports_before_it_is_terminated(self):
        # Rank 0 alone checks whether a run of this name exists, and the other ends as soon as it is told.
        self.run_command([*TRAIN, "--name", "taken"])
        for _ in range(8):
            done = self.run_command(["launch", "--nproc-per-node", "2", "--standalone", "--", *TRAIN, "--name", "taken"], 4)
            self.assertRegex(done.stderr, r"failed  rank 0 \(.* ended with exit 4(.*\n)*error\[E-CONFIG\]: a run with this name exists")

    def test_processes_that_ignore_sigterm_are_killed(self):
        started = time.monotonic()
        self.launch(["--nproc-per-node", "2", "--shutdown-timeout", "1"],
                    "trap '' TERM; touch \"$F/ready$RANK\"; if [ $RANK = 1 ]; then while [ ! -e \"$F/ready0\" ]; do sleep 0.05; done; exit 6; fi; "
                    "while true; do sleep 1000; done", 6)
        self.assertLess(time.monotonic() - started, 900)

    def test_report(self):
        report = json.loads(self.launch(["--nproc-per-node", "2", "--json"], "[ $RANK = 0 ] || { echo why >&2; exit 9; }", 9).stdout)
        self.assertEqual([report["exit_code"], report["world_size"], report["restarts"]], [9, 2, 0])
        self.assertEqual(report["first_failure"]["message"], "why")
        self.assertEqual([end["exit_code"] for end in report["ranks"] if end["rank"] == 1], [9])
        self.assertEqual(sorted(end["rank"] for end in report["ranks"]), [0, 1])

    # Signals, and what is left behind.

    COUNT_SIGNALS = """
import os, signal, sys, time
folder, rank = os.environ["F"], os.environ["RANK"]
def note(number, frame):
    with open(f"{folder}/signals{rank}", "a") as file:
        file.write(signal.Signals(number).name + "\\n")
for name in ("SIGINT", "SIGTERM", "SIGUSR1", "SIGUSR2"):
    signal.signal(getattr(signal, name), note)
open(f"{folder}/ready{rank}", "w").close()
while not os.path.exists(f"{folder}/end"):
    time.sleep(0.02)
sys.exit(138)
"""

    def start_counting(self, flags=()):
        launcher = self.start(["launch", "--nproc-per-node", "2", *flags, "--", sys.executable, "-c", self.COUNT_SIGNALS])
        wait_for(lambda: all(os.path.exists(self.path(f"ready{rank}")) for rank in (0, 1)), "both ranks")
        return launcher

    def noted(self, rank):
        return self.read(f"signals{rank}").split() if os.path.exists(self.path(f"signals{rank}")) else []

    def test_signals_reach_all(self):
        launcher = self.start_counting(["--max-restarts", "3"])
        names = ["SIGUSR2", "SIGUSR1", "SIGTERM"]
        for i, name in enumerate(names):
            launcher.send_signal(getattr(signal, name))
            wait_for(lambda: all(self.noted(rank) == names[:i + 1] for rank in (0, 1)), name)
        open(self.path("end"), "w").close()
        _, err = launcher.communicate(timeout=PATIENCE)
        # A requested stop ends the job, even if restarts are left.
        self.assertEqual(launcher.returncode, 138, err)
        self.assertIn("stopped by SIGUSR1", err)
        self.assertNotIn("restart", err)

    def test_a_failure_during_shutdown_is_shown(self):
        script = """trap 'echo "the disk is full" >&2; exit 8' TERM
            touch "$F/ready$RANK"
            while true; do sleep 0.05; done"""
        launcher = self.start(["launch", "--nproc-per-node", "2", "--redirects", "3", "--", "sh", "-c", script])
        wait_for(lambda: all(os.path.exists(self.path(f"ready{rank}")) for rank in (0, 1)), "both ranks")
        launcher.terminate()
        _, err = launcher.communicate(timeout=PATIENCE)
        self.assertEqual(launcher.returncode, 8, err)
        self.assertRegex(err, r"stopped by SIGTERM(.|\n)*ended with exit 8, the first of 2 that failed\n  --> .*\n(Terminated\n)?the disk is full\n")

    def test_a_requested_stop_ends_with_stopped_and_hung_processes(self):
        """One that was suspended (SIGSTOP) gets the signal, and one that does not react is killed once another has failed."""
        noting = """trap 'echo stopped > "$F/noted$RANK"; exit 138' TERM
            echo $$ > "$F/ready$RANK"
            while true; do sleep 0.05; done"""
        failing = """if [ $RANK = 1 ]; then trap '' TERM; else trap 'exit 140' TERM; fi
            echo $$ > "$F/ready$RANK"
            while true; do sleep 0.05; done"""
        for script, suspends, code in ((noting, True, 138), (failing, False, 140)):
            launcher = self.start(["launch", "--nproc-per-node", "2", "--shutdown-timeout", "1", "--", "sh", "-c", script])
            ready = [self.path(f"ready{rank}") for rank in (0, 1)]
            wait_for(lambda: all(os.path.exists(path) and os.path.getsize(path) for path in ready), "both ranks")
            if suspends:
                os.kill(int(self.read("ready1")), signal.SIGSTOP)
            launcher.terminate()
            _, err = launcher.communicate(timeout=PATIENCE)
            self.assertEqual(launcher.returncode, code, err)
            if suspends:
                self.assertEqual([self.read(f"noted{rank}") for rank in (0, 1)], ["stopped\n"] * 2)
            for path in ready:
                os.remove(path)

    def test_programs_that_cannot_start(self):
        plain, without = self.path("plain"), self.path("without")
        sample_files.write(plain, "true\n")
        sample_files.write(without, "#!/nowhere/interpreter\n")
        os.chmod(without, 0o755)
        for program, said in ((plain, "this file is not executable"), (self.folder, "this is a folder, not a program"),
                              (without, "the interpreter that its first line names"), (self.path("none"), "no verb or program is named")):
            self.assertIn(said, self.run_command(["launch", "--nproc-per-node", "2", "--", program], 4).stderr)

    def test_the_last_lines_of_a_long_log(self):
        said = self.launch(["--redirects", "3"], "seq 100000 >&2; exit 5", 5).stderr
        self.assertEqual(said.splitlines()[-21:-1], [str(i) for i in range(99981, 100001)])
        self.assertIn("cannot find a folder for temporary files", self.launch([], "true", 8, TMPDIR=self.path("nowhere")).stderr)

    def test_ctrl_c_is_one_signal(self):
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(GRADLOOM, [GRADLOOM, "launch", "--nproc-per-node", "2", "--", sys.executable, "-c", self.COUNT_SIGNALS], self.environment())
        wait_for(lambda: all(os.path.exists(self.path(f"ready{rank}")) for rank in (0, 1)), "both ranks")
        os.write(terminal, b"\x03")
        wait_for(lambda: all(self.noted(rank) for rank in (0, 1)), "SIGINT")
        open(self.path("end"), "w").close()
        while True:
            try:
                if not os.read(terminal, 4096):
                    break
            except OSError:
                break
        _, status = os.waitpid(pid, 0)
        os.close(terminal)
        self.assertEqual(os.waitstatus_to_exitcode(status), 138)
        self.assertEqual([self.noted(0), self.noted(1)], [["SIGINT"], ["SIGINT"]])

    def test_the_first_rank_has_the_terminal(self):
        pid, terminal = pty.fork()
        if pid == 0:
            script = 'if [ -t 2 ]; then echo yes; else echo no; fi > "$F/terminal$RANK"'
            os.execve(GRADLOOM, [GRADLOOM, "launch", "--nproc-per-node", "2", "--", "sh", "-c", script], self.environment())
        while True:
            try:
                if not os.read(terminal, 4096):
                    break
            except OSError:
                break
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
        os.close(terminal)
        self.assertEqual([self.read("terminal0"), self.read("terminal1")], ["yes\n", "no\n"])

    def test_processes_die_with_the_launcher(self):
        launcher = self.start_counting()
        self.assertEqual(len(processes_with(self.mark)), 3)
        launcher.kill()
        launcher.communicate(timeout=PATIENCE)
        wait_for(lambda: not processes_with(self.mark), "the end of the ranks")

    def test_descendants_of_ranks_are_terminated(self):
        for code in (0, 4):
            # In the process group of its rank, and in a session of its own.
            self.launch(["--nproc-per-node", "2"], f"sleep 1000 & setsid sleep 1000 & exit {code}", code)
            self.assertEqual(processes_with(self.mark), [])

    def test_earlier_children_are_left_alone(self):
        script = f'sleep 1000 > /dev/null 2>&1 & echo $! > "$F/own"; exec "{GRADLOOM}" launch -- true'
        done = subprocess.run(["sh", "-c", script], env=self.environment(), capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, 0, done.stderr)
        os.kill(int(self.read("own")), signal.SIGKILL)
        wait_for(lambda: not processes_with(self.mark), "its end")

    def test_process_1_of_a_container(self):
        unshare = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
        if not shutil.which("unshare") or subprocess.run([*unshare, "true"], capture_output=True).returncode != 0:
            self.skipTest("no process numbers of one's own here")
        # As process 1 it reaps orphaned processes, and ends on SIGTERM, which process 1 ignores by default.
        script = """(sh -c "exit 0" & exec sleep 0) &
            echo $PPID > "$F/parent$RANK"
            trap "exit 138" TERM
            touch "$F/ready$RANK"
            while true; do sleep 0.05; done"""
        launcher = subprocess.Popen([*unshare, GRADLOOM, "launch", "--nproc-per-node", "2", "--", "sh", "-c", script], env=self.environment(),
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_for(lambda: all(os.path.exists(self.path(f"ready{rank}")) for rank in (0, 1)), "both ranks")
        self.assertEqual([self.read("parent0"), self.read("parent1")], ["1\n", "1\n"])
        with open(f"/proc/{launcher.pid}/task/{launcher.pid}/children") as file:
            os.kill(int(file.read().split()[0]), signal.SIGTERM)
        _, err = launcher.communicate(timeout=PATIENCE)
        self.assertEqual(launcher.returncode, 138, err)

    def test_programs_have_the_callers_limit_of_open_files(self):
        """The launcher raises its own."""
        words = ["sh", "-c", 'ulimit -Sn 100; ulimit -Hn 400; exec "$0" "$@"', GRADLOOM, "launch", "--", "sh", "-c", "ulimit -Sn; ulimit -Hn"]
        done = subprocess.run(words, env=self.environment(), capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual((done.returncode, done.stdout.split()), (0, ["100", "400"]), done.stderr)

    def test_verbs_are_launched_without_proc(self):
        """By its absolute path, by a relative one, and by a name in PATH."""
        script = 'mount -t tmpfs tmpfs /proc || exit 99; shift; exec "$@" launch --nproc-per-node 2 -- explain E-SHAPE'
        unshare = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", ""]
        folder, name = os.path.split(GRADLOOM)
        # The loader learns from /proc where the command's own folder is.
        found = subprocess.run(["ldd", GRADLOOM], capture_output=True, text=True, check=True).stdout
        libraries = ":".join({os.path.dirname(line.split()[2]) for line in found.splitlines() if " => /" in line})
        for word, where in ((GRADLOOM, "/"), (f"./{name}", folder), (name, "/")):
            variables = self.environment(PATH=f"{folder}:{os.environ['PATH']}", LD_LIBRARY_PATH=libraries)
            done = subprocess.run([*unshare, word], cwd=where, env=variables, capture_output=True, text=True, timeout=PATIENCE)
            if "unshare" in done.stderr or done.returncode == 99:
                self.skipTest("no file system of its own can be had here: " + done.stderr)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("E-SHAPE (exit 2)", done.stdout)

    # Logs and messages.

    def test_logs(self):
        words = 'echo "out $RANK"; echo "err $RANK" >&2'
        done = self.launch(["--nproc-per-node", "2", "--log-dir", self.path("logs"), "--rdzv-id", "job"], words)
        self.assertEqual(done.stdout, "out 0\n")
        [name] = os.listdir(self.path("logs"))
        self.assertTrue(name.startswith("job_"))
        self.assertEqual(self.read(f"logs/{name}/attempt_0/1/stdout.log"), "out 1\n")
        self.assertEqual(self.read(f"logs/{name}/attempt_0/1/stderr.log"), "err 1\n")
        self.assertFalse(os.path.exists(self.path(f"logs/{name}/attempt_0/0/stdout.log")))

    def test_redirects_and_tee(self):
        words = 'echo "out $RANK"; echo "err $RANK" >&2'
        done = self.launch(["--nproc-per-node", "2", "--redirects", "0:3,1:2"], words)
        self.assertEqual(done.stdout, "out 1\n")
        self.assertNotIn("err", done.stderr)
        self.assertEqual(sorted(self.launch(["--nproc-per-node", "2", "-r", "0"], words).stdout.split("\n")), ["", "out 0", "out 1"])
        done = self.launch(["--nproc-per-node", "2", "-t", "3", "--log-dir", self.path("logs")], words + "; printf 'no newline'")
        self.assertEqual(sorted(done.stdout.split("\n")), ["", "[rank0]: no newline", "[rank0]: out 0", "[rank1]: no newline", "[rank1]: out 1"])
        self.assertIn("[rank1]: err 1\n", done.stderr)
        [name] = os.listdir(self.path("logs"))
        self.assertEqual(self.read(f"logs/{name}/attempt_0/0/stdout.log"), "out 0\nno newline")

    def test_tee_passes_everything_on(self):
        rows = 20000
        done = self.launch(["--nproc-per-node", "2", "-t", "1"], f"seq -f \"$RANK %.0f\" {rows}")
        for rank in (0, 1):
            own = [line for line in done.stdout.splitlines() if line.startswith(f"[rank{rank}]: ")]
            self.assertEqual(own, [f"[rank{rank}]: {rank} {i}" for i in range(1, rows + 1)])

    def test_a_job_outlives_the_reader_of_its_output(self):
        process = self.start(["launch", "--nproc-per-node", "2", "-t", "3", "--", "sh", "-c", 'seq 100000; echo whole > "$F/end$RANK"'])
        process.stdout.readline()
        process.stdout.close()
        process.stderr.close()
        self.assertEqual(process.wait(timeout=PATIENCE), 0)
        for rank in (0, 1):
            self.assertEqual(self.read(f"end{rank}"), "whole\n")

    def test_a_process_that_prints_without_pause_delays_nothing(self):
        """Neither the end of another one nor the memory of the launcher, also without line breaks."""
        for printed in ("yes", "yes | tr -d '\\n'"):
            start = time.monotonic()
            with open(os.devnull, "w") as null:
                process = subprocess.Popen([GRADLOOM, "launch", "--nproc-per-node", "2", "-t", "1", "--", "sh", "-c",
                                            f'if [ $RANK = 1 ]; then sleep 0.2; exit 3; fi; {printed} | head -c 400000000; sleep 60'],
                                           stdout=null, stderr=subprocess.DEVNULL, env=self.environment())
                _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            self.assertEqual(process.returncode, 3)
            self.assertLess(time.monotonic() - start, 20)
            self.assertLess(usage.ru_maxrss, 200 << 10)

    def test_long_lines_are_kept(self):
        done = self.launch(["-t", "1", "--log-dir", self.path("logs")], "head -c 200000 /dev/zero | tr '\\0' x; echo; echo last")
        [name] = os.listdir(self.path("logs"))
        self.assertEqual(self.read(f"logs/{name}/attempt_0/0/stdout.log"), "x" * 200000 + "\nlast\n")
        pieces = done.stdout.splitlines()
        self.assertTrue(all(piece.startswith("[rank0]: ") for piece in pieces))
        self.assertEqual("".join(piece[9:] for piece in pieces), "x" * 200000 + "last")

    def test_error_file_of_every_verb(self):
        for words in (["check", "nowhere.onnx"], ["launch", "--", "nowhere-to-be-found"], ["train", "--nonsense"]):
            error_file = self.path("error.json")
            done = self.run_command(words, 4 if words[0] != "check" else 2, TORCHELASTIC_ERROR_FILE=error_file)
            message = json.loads(self.read("error.json"))["message"]
            self.assertEqual(set(message), {"message", "extraInfo"})
            # torchrun displays this field instead of the message if there is a call stack.
            self.assertEqual(message["extraInfo"]["py_callstack"], message["message"])
            self.assertLess(abs(int(message["extraInfo"]["timestamp"]) - time.time()), 3600)
            self.assertIn(message["message"], done.stderr)
            self.assertRegex(message["message"], r"^error\[E-")
            os.remove(error_file)
        # If the file cannot be written, nothing else changes.
        self.run_command(["check", "nowhere.onnx"], 2, TORCHELASTIC_ERROR_FILE="/nowhere/error.json")

    def test_error_files_are_passed_up(self):
        inner = f'exec "{GRADLOOM}" check nowhere$RANK.onnx'
        said = self.launch(["--nproc-per-node", "2", "--redirects", "3"], inner, 2, TORCHELASTIC_ERROR_FILE=self.path("error.json"))
        message = json.loads(self.read("error.json"))["message"]["message"]
        self.assertRegex(message, r"failed  rank [01] [^\n]*ended with exit 2(.|\n)*error\[E-IO\]: cannot open the file(.|\n)*nowhere[01].onnx")
        self.assertIn(message, said.stderr)

    # How a verb finds its place in a job.

    def test_verbs_are_launched(self):
        done = self.run_command(["launch", "--nproc-per-node", "2", "--", "doctor", "--json"])
        self.assertIn("findings", json.loads(done.stdout))
        done = self.run_command(["launch", "--", *TRAIN, "--name", "launched", "--out", self.path("runs")])
        self.assertIn("topology gradloom launch rank 0 of 1, node 0 of 1\n", done.stderr)
        self.assertTrue(os.path.exists(self.path("runs/launched/export/model.onnx")))

    def test_a_number_of_processes_without_its_flag(self):
        for words in (["2", "--", "doctor"], ["2", "doctor"], ["--", "2", "doctor"]):
            self.assertIn("for 2 processes on this host: --nproc-per-node 2", self.run_command(["launch", *words], 4).stderr)
        for words in (["0", "--", "doctor"], ["--", "0", "doctor"]):
            self.assertIn("for N processes on this host: --nproc-per-node N", self.run_command(["launch", *words], 4).stderr)

    def test_a_killed_run_resumes_and_a_stopped_one_saves(self):
        words = [*TRAIN, "--name", "long", "--out", self.path("runs"), "--resume", "auto", "--save-every", "200"]
        words[words.index("--epochs") + 1] = "1000000"

        def saved():
            folder = self.path("runs/long/checkpoints")
            names = os.listdir(folder) if os.path.isdir(folder) else []
            return max((int(name[5:]) for name in names if re.fullmatch(r"step-\d+", name)), default=0)

        launcher = self.start(["launch", "--max-restarts", "1", "--", *words])
        wait_for(lambda: saved() > 0, "a checkpoint")
        [rank] = set(processes_with(self.mark)) - {launcher.pid}
        os.kill(rank, signal.SIGKILL)
        wait_for(lambda: set(processes_with(self.mark)) - {launcher.pid, rank}, "another process")
        before = saved()
        wait_for(lambda: saved() > before, "a checkpoint of the second process")
        launcher.terminate()
        _, err = launcher.communicate(timeout=PATIENCE)
        self.assertEqual(launcher.returncode, 138, err)
        self.assertRegex(err, rf"restart 1 of 1: rank 0 \(host .*, pid {rank}\) was killed by signal 9")
        self.assertRegex(err, r"resume  .*/checkpoints/step-\d+  step \d+\n")
        self.assertRegex(err, r"stopped by SIGTERM after step \d+   saved")
        self.assertIn("stopped by SIGTERM   all processes have ended, exit 138\n", err)

    def test_processes_train_one_run(self):
        out = self.path("runs")
        words = [*TRAIN, "--batch", "5", "--threads", "1", "--out", out]
        self.run_command([*words, "--name", "threads", "--devices", "cpu:2"])
        said = self.run_command(["launch", "--nproc-per-node", "2", "--", *words, "--name", "processes", "--devices", "cpu:1"]).stderr
        self.assertRegex(said, r"topology gradloom launch rank 0 of 2, node 0 of 1, master 127.0.0.1:29500")
        self.assertEqual(sorted(os.listdir(out)), ["processes", "threads"])
        self.run_command(["diff", self.path("runs/threads"), self.path("runs/processes")])

    TWO = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}

    def test_localhost_has_an_address_without_names(self):
        """In a container without /etc/hosts and without a name server."""
        script = 'for file in hosts resolv.conf; do mount --bind /dev/null /etc/$file || exit 99; done; exec "$@"'
        unshare = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]
        words = ["launch", "--nproc-per-node", "2", "--rdzv-endpoint", "localhost:29547", "--", *TRAIN, "--name", "nameless", "--out", self.path("runs")]
        done = subprocess.run([*unshare, GRADLOOM, *words], env=self.environment(), capture_output=True, text=True, timeout=PATIENCE)
        if "unshare" in done.stderr or done.returncode == 99:
            self.skipTest("no file system of its own can be had here: " + done.stderr)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_each_process_has_a_trace_of_its_own(self):
        self.run_command(["launch", "--nproc-per-node", "2", "--", *TRAIN, "--batch", "8", "--out", self.path("runs"), "--trace", self.path("t.json"),
                          "--trace-format", "chrome-json"])
        for rank, name in enumerate(("t.json", "t.rank-1.json")):
            events = json.loads(self.read(name))["traceEvents"]
            names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
            self.assertEqual(set(names.values()), {"cpu:0", "cpu:1", f"rank {rank}"})
            # Each trace has only the devices of its process.
            self.assertEqual({names[event["pid"]] for event in events if event["ph"] == "X"}, {f"cpu:{rank}", f"rank {rank}"})

    def test_topology_of_verbs(self):
        run = self.path("runs/main")
        said = self.run_command([*TRAIN, "--name", "main", "--out", self.path("runs"), "--eval-split", "20%"]).stderr
        self.assertTrue(said.startswith("topology single process\n"), said)
        # Overridden by flags, in both spellings. The run does not store it.
        said = self.run_command(["resume", run, "--epochs", "3", "--world_size=1"], **self.TWO).stderr
        self.assertTrue(said.startswith("topology flags rank 0 of 1, node 0 of 1\n"
                                        "topology ignored: RANK=1 WORLD_SIZE=2 (environment)\n"), said)
        self.assertNotIn("job", said)
        self.assertNotIn("[job]", self.read("runs/main/config.toml"))

    def test_topology_of_a_process_of_several(self):
        run = self.path("runs/main")
        self.run_command([*TRAIN, "--name", "main", "--out", self.path("runs"), "--eval-split", "20%"])
        alone = self.run_command(["eval", run, "--json"])
        launched = self.run_command(["launch", "--standalone", "--nproc-per-node", "2", "--", "eval", run, "--json"])
        self.assertEqual(launched.stdout, alone.stdout)
        self.assertIn("topology gradloom launch rank 0 of 2, node 0 of 1, master 127.0.0.1:", launched.stderr)
        # Rank 0 speaks for the job.
        self.assertNotIn("rank 1 of 2", launched.stderr)
        # One process alone generates text.
        for verb in (["predict", run, "--generate", "2"], ["predict", run, "--generate", "2", "--local_rank=1"],
                     ["--local-rank=1", "predict", run, "--generate", "2"], ["--local_rank=1", "predict", run, "--generate", "2"],
                     ["predict", run, "--generate", "2", "--local-rank", "1"]):
            said = self.run_command(verb, 3, **self.TWO).stderr
            self.assertIn("over several processes is not supported yet\n  --> topology environment rank 1 of 2, node 0 of 1, master 127.0.0.1:29500", said)
        self.assertIn("unknown verb 'trian'", self.run_command(["--local-rank=1", "trian", "model.onnx"], 4, **self.TWO).stderr)
        for verb in (["resume", run], ["eval", run], list(TRAIN)):
            said = self.run_command(verb, 4, RANK="5", WORLD_SIZE="4").stderr
            self.assertIn("error[E-CONFIG]: RANK=5 WORLD_SIZE=4 contradict each other", said)

    def test_threads_follow_omp_num_threads(self):
        said = self.run_command([*TRAIN, "--dry-run", "--out", self.path("runs")], OMP_NUM_THREADS="3").stderr
        self.assertIn("3 threads", said)
        said = self.run_command([*TRAIN, "--dry-run", "--threads", "2", "--out", self.path("runs")], OMP_NUM_THREADS="3").stderr
        self.assertIn("2 threads", said)
        # In a job it is the number of threads of each process.
        words = ["launch", "--nproc-per-node", "2", "--", *TRAIN, "--name", "threads", "--out", self.path("runs"), "--devices", "cpu:1"]
        self.run_command(words, OMP_NUM_THREADS="3")
        self.assertIn("threads = 3", self.read("runs/threads/config.toml"))


if __name__ == "__main__":
    unittest.main()
