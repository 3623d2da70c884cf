"""The command in the environments that production has: without the system's folders, under the settings of other programs, with small limits,
refused system calls, odd paths. Each run must reach the bits of a plain one, or refuse with a reason."""
import ctypes
import errno
import glob
import itertools
import os
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

GRADLOOM = os.path.abspath(sys.argv.pop(1))
MODELS = os.path.abspath("models")
PATIENCE = 120  # seconds, for commands that take well under one
TRAIN = ["train", "digits_cnn.onnx", "--data", "digits.csv.gz", "--map", "image=p0..p63", "--map", "label=label", "--eval-split", "20%", "--loss",
         "cross_entropy(logits, label)", "--optimizer", "adamw", "--lr", "0.01", "--batch", "64", "--epochs", "1", "--threads", "2", "--progress",
         "none", "--log-every", "10"]
# Of an ordinary shell, without anything that other environments set.
PLAIN = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "GOMP_SPINCOUNT": "100"}

# The system calls of x86-64 that profiles of containers refuse, or that older kernels lack.
CALLS = {"mremap": 25, "madvise": 28, "flock": 73, "sysinfo": 99, "prctl": 157, "sched_setaffinity": 203, "sched_getaffinity": 204, "eventfd2": 290,
         "perf_event_open": 298, "prlimit64": 302, "getrandom": 318, "memfd_create": 319, "membarrier": 324, "statx": 332, "rseq": 334,
         "io_uring_setup": 425, "openat2": 437}
libc = ctypes.CDLL(None, use_errno=True)


def refusing(numbers, error):
    """For the child process: these system calls fail with this error."""
    load, jump_if, return_, allow, refuse_with = 0x20, 0x15, 0x06, 0x7fff0000, 0x00050000
    instructions = [(load, 0, 0, 0)]
    for number in numbers:
        instructions += [(jump_if, 0, 1, number), (return_, 0, 0, refuse_with | error)]
    program = b"".join(struct.pack("HBBI", *one) for one in [*instructions, (return_, 0, 0, allow)])
    buffer = ctypes.create_string_buffer(program, len(program))
    filters = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))

    def refuse(held=buffer):
        # PR_SET_NO_NEW_PRIVS and PR_SET_SECCOMP with a filter.
        if libc.prctl(38, 1, 0, 0, 0) != 0 or libc.prctl(22, 2, filters, 0, 0) != 0:
            os._exit(99)

    return refuse


def limited(**limits):
    """For the child process: soft and hard limits. RLIMIT_... in small letters."""
    def limit():
        for name, value in limits.items():
            resource.setrlimit(getattr(resource, "RLIMIT_" + name.upper()), (value, value))

    return limit


def closing(*streams):
    return lambda: [os.close(stream) for stream in streams]


def under(script):
    """A prefix of a command: runs a script in a mount namespace of its own first, and enters the working folder as it is then."""
    return ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", f'({script}) || exit 99; cd "$PWD"; exec "$@"', "sh"]


def library_path():
    """Where the command finds its libraries. The loader learns the command's own folder from /proc."""
    found = subprocess.run(["ldd", GRADLOOM], capture_output=True, text=True, check=True).stdout
    return ":".join(sorted({os.path.dirname(line.split()[2]) for line in found.splitlines() if " => /" in line}))


class EnvironmentsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        for name in ("digits_cnn.onnx", "data/digits.csv.gz"):
            shutil.copy(f"{MODELS}/{name}", cls.folder)
        cls.numbers = itertools.count()
        cls.expected = cls.results()

    @classmethod
    def results(cls, words=(), environment=None, cwd=None, preexec_fn=None):
        """Trains, resumes and predicts, and returns the files that must not depend on where. `words` come before the command."""
        cwd = cwd or cls.folder
        run = f"run{next(cls.numbers)}"
        for command in ([*TRAIN, "--name", run], ["resume", f"runs/{run}", "--epochs", "2"],
                        ["predict", f"runs/{run}", "--data", "digits.csv.gz", "--map", "image=p0..p63", "-o", f"{run}.npz"]):
            done = subprocess.run([*words, GRADLOOM, *command], cwd=cwd, env=environment or PLAIN, preexec_fn=preexec_fn, stdin=subprocess.DEVNULL,
                                  capture_output=True, timeout=PATIENCE)
            said = done.stderr.decode(errors="replace")
            if done.returncode == 99 or "unshare: " in said:
                raise unittest.SkipTest("this machine has no such environment: " + said)
            if done.returncode != 0:
                raise AssertionError(f"{command}: exit {done.returncode}\n{said}")
        files = [f"runs/{run}/export/model.onnx", f"runs/{run}/state.safetensors", f"{run}.npz"]
        files += glob.glob(f"runs/{run}/checkpoints/step-*/rank-0.safetensors", root_dir=cwd)
        found = {}
        for name in files:
            with open(os.path.join(cwd, name), "rb") as file:
                found[name.replace(run, "run")] = file.read()
        return found

    def compare(self, environments):
        """`environments`: name -> arguments of results."""
        for name, options in environments.items():
            with self.subTest(name):
                found = self.results(**options)
                self.assertEqual(found.keys(), self.expected.keys())
                self.assertEqual([file for file in found if found[file] != self.expected[file]], [])

    def test_variables_of_other_programs(self):
        for_others = {
            "none": {},
            "Turkish": {"LANG": "tr_TR.UTF-8", "LC_ALL": "tr_TR.UTF-8"},
            "decimal commas": {"LANG": "de_DE.UTF-8", "LC_ALL": "de_DE.UTF-8"},
            "nothing exists": {"HOME": "/no", "TMPDIR": "/no", "TZ": ":/no", "LOCPATH": "/no", "XDG_CACHE_HOME": "/no", "XDG_RUNTIME_DIR": "/no"},
            "empty": dict.fromkeys(("HOME", "TMPDIR", "TZ", "LANG", "PATH", "TERM", "OMP_NUM_THREADS", "COLUMNS", "TORCHELASTIC_ERROR_FILE"), ""),
            "OpenMP binds": {"OMP_PROC_BIND": "close", "OMP_PLACES": "cores", "GOMP_CPU_AFFINITY": "0"},
            "OpenMP adjusts": {"OMP_DYNAMIC": "true", "OMP_NESTED": "true", "OMP_WAIT_POLICY": "passive", "OMP_SCHEDULE": "dynamic,1"},
            "OpenMP has small stacks": {"OMP_STACKSIZE": "256k"},
            "Intel's OpenMP": {"KMP_AFFINITY": "granularity=fine,compact,1,0", "KMP_BLOCKTIME": "1", "KMP_DUPLICATE_LIB_OK": "TRUE"},
            "MKL": {"MKL_NUM_THREADS": "1", "MKL_DYNAMIC": "TRUE", "MKL_CBWR": "COMPATIBLE"},
            "oneDNN is to round to bfloat16": {"ONEDNN_DEFAULT_FPMATH_MODE": "BF16", "DNNL_DEFAULT_FPMATH_MODE": "BF16"},
            "oneDNN keeps nothing": {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "0", "ONEDNN_CPU_ISA_HINTS": "PREFER_YMM", "ONEDNN_JIT_PROFILE": "0"},
            "malloc fills": {"MALLOC_PERTURB_": "165", "MALLOC_ARENA_MAX": "1", "MALLOC_TOP_PAD_": "0", "MALLOC_MMAP_THRESHOLD_": "4096"},
            "proxies": {"http_proxy": "http://127.0.0.1:1", "HTTPS_PROXY": "http://127.0.0.1:1", "no_proxy": ""},
            "a narrow terminal": {"TERM": "xterm", "COLUMNS": "1", "LINES": "1"},
            "Python": {"PYTHONHOME": "/no", "PYTHONPATH": "/no", "PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "1"},
        }
        keep = ("none", "empty")
        environments = {name: {"environment": {**(PLAIN if name not in keep else {}), **variables}} for name, variables in for_others.items()}
        # An empty dictionary would be the default.
        environments["none"]["environment"] = {"_": ""}
        self.compare(environments)

    def test_without_the_systems_folders(self):
        folders = ["/proc", "/sys", "/dev", "/dev/shm", "/tmp", "/etc", "/run", "/var"]
        # Those in which the test itself lies stay.
        folders = [folder for folder in folders if not any(os.path.realpath(path).startswith(folder + "/") for path in (self.folder, GRADLOOM))]
        environment = {**PLAIN, "LD_LIBRARY_PATH": library_path()}
        self.compare({f"no {folder}": {"words": under(f"mount -t tmpfs -o ro tmpfs {folder}"), "environment": environment} for folder in folders})

    def test_a_system_that_is_read_only(self):
        """All but the working folder."""
        script = f'mount --bind "{self.folder}" "{self.folder}" && mount -o remount,bind,ro / && ! touch /x 2> /dev/null && touch "{self.folder}/x"'
        self.compare({"read-only": {"words": under(script)}})

    def test_users(self):
        """Without an entry in /etc/passwd, and with a mask that hides everything from others."""
        self.compare({"umask 077": {"preexec_fn": lambda: os.umask(0o077)},
                      "nobody knows the user": {"words": ["unshare", "--user", "--map-user=54321", "--map-group=54321"]}})

    def test_streams(self):
        environments = {f"closed: {closed}": {"preexec_fn": closing(*closed)} for closed in ((0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2))}
        self.compare(environments)

    def test_limits(self):
        environments = {"few files": limited(nofile=16), "no core": limited(core=0), "no locked memory": limited(memlock=0),
                        "small stacks": limited(stack=256 << 10), "stacks without end": lambda: resource.setrlimit(resource.RLIMIT_STACK, (
                            resource.getrlimit(resource.RLIMIT_STACK)[1],) * 2),
                        "no priority": limited(nice=0, rtprio=0), "no message queues": limited(msgqueue=0), "few signals": limited(sigpending=0)}
        self.compare({name: {"preexec_fn": limit} for name, limit in environments.items()})

    def test_refused_system_calls(self):
        if os.uname().machine != "x86_64":
            self.skipTest("the numbers are those of x86-64")
        asked = [sys.executable, "-c", "import os; os.sched_getaffinity(0)"]
        said = subprocess.run(asked, preexec_fn=refusing(CALLS.values(), errno.EPERM), capture_output=True, text=True).stderr
        self.assertIn("PermissionError", said)
        environments = {errno.errorcode[error]: {"preexec_fn": refusing(CALLS.values(), error)} for error in (errno.EPERM, errno.ENOSYS)}
        # The C library does without clone3 only if it does not exist.
        environments["no clone3"] = {"preexec_fn": refusing([435], errno.ENOSYS)}
        self.compare(environments)

    def test_code_that_must_not_be_made(self):
        """As under MemoryDenyWriteExecute of systemd: memory that was written never becomes executable."""
        def deny():
            if libc.prctl(65, 1, 0, 0, 0) != 0:  # PR_SET_MDWE, since Linux 6.3
                os._exit(99)

        def refused(*words):
            done = subprocess.run([GRADLOOM, *words], cwd=self.folder, env=PLAIN, preexec_fn=deny, capture_output=True, text=True, timeout=PATIENCE)
            if done.returncode == 99:
                self.skipTest("this kernel cannot deny it")
            return done

        done = refused(*TRAIN, "--name", "denied")
        self.assertEqual(done.returncode, 8, done.stderr)
        self.assertRegex(done.stderr, r"error\[E-RESOURCE\]: the system does not let this process run code.* \(.+\)(.|\n)*help: .*MemoryDenyWriteExecute")
        done = refused("doctor")
        self.assertEqual(done.returncode, 11, done.stdout)
        self.assertRegex(done.stdout, "(?m)^failed +training +the system does not let this process run code.*MemoryDenyWriteExecute")

    def test_paths(self):
        folders = {"spaces": "a  b ", "UTF-8": "gr\N{LATIN SMALL LETTER U WITH DIAERESIS}\N{SNOWMAN}", "a newline": "a\nb", "a dash": "-rf",
                   "quotes": "a'b\"c\\d$e`f", "brackets": "a[b]{c}*?", "a long name": "x" * 255, "not UTF-8": "caf\udce9"}
        environments = {}
        for name, folder in folders.items():
            path = os.path.join(self.folder, folder)
            os.mkdir(path)
            for file in ("digits_cnn.onnx", "digits.csv.gz"):
                shutil.copy(f"{self.folder}/{file}", os.path.join(path, file))
            environments[name] = {"cwd": path}
        # The file from which a run resumes could not hold such a path.
        with self.assertRaisesRegex(AssertionError, r"(?s)exit 4.*error\[E-CONFIG\]: model.path '.*/caf\\xe9/digits_cnn.onnx' is not UTF-8"):
            self.results(**environments.pop("not UTF-8"))
        self.compare(environments)


if __name__ == "__main__":
    unittest.main()
