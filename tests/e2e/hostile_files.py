"""Shared code of the catalogs of malformed files (hostile_plans, hostile_checkpoints, hostile_data, hostile_config). A row creates a file
in the folder in which it is called, gives it to the command, and states the expected answer."""
import dataclasses
import os
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from typing import Callable, Optional

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from sample_files import read, write
from sanitized import SANITIZED

EXIT_CODES = {"OK": 0, "DIFFERS": 11, "E-PARSE": 2, "E-IO": 2, "E-PATH": 2, "E-SHAPE": 2, "E-UNSUPPORTED": 3, "E-CONFIG": 4, "E-DATA": 5, "E-PLAN": 6, "E-CHECKPOINT": 7,
              "E-LIMIT": 8, "E-RESOURCE": 8, "E-DEVICE": 9, "E-DIVERGED": 10}

# A malformed file of a few kilobytes must be refused within this time and memory.
MOST_SECONDS = 60 if SANITIZED else 20
MOST_RESIDENT_MB = 3000 if SANITIZED else 700
MOST_ADDRESSES_MB = 6000


@dataclasses.dataclass
class Row:
    """`says` must occur in the error message, or with `before` in the output before it, and `place` in the line with the location. For
    accepted files `says` may occur anywhere. "" means that nothing is looked for."""
    id: str
    what: str
    make: Callable[[], None]
    command: str
    wanted: str
    says: str = ""
    place: str = ""
    environment: Optional[dict] = None
    before: bool = False


@dataclasses.dataclass
class Elsewhere:
    """An id of the list without a row here. `why` says where it is tested, or why it cannot be."""
    id: str
    why: str


@dataclasses.dataclass
class Answer:
    code: int
    out: str
    err: str
    seconds: float
    resident_mb: float


def keep_only(*names):
    """Files that rows do not modify are not copied for each of them."""
    for name in set(os.listdir(".")) - set(names):
        os.remove(name)


@dataclasses.dataclass
class Tools:
    """Tools for rows: a command that must succeed, the program that corrects hashes in files, and Gradloom's messages."""
    right: Callable[[str], None]
    seal: str
    plan_proto: str
    checkpoint_proto: str

    def hash(self, path):
        """Corrects the hash in a plan or manifest; returns the hash of any other file."""
        said = subprocess.run([self.seal, path], check=True, stdout=subprocess.PIPE, text=True).stdout
        return int(said) if said else None

    def message(self, proto, name):
        """The class of a message in a .proto file."""
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["protoc", "-I" + os.path.dirname(proto), f"--descriptor_set_out={folder}/set", proto], check=True)
            pool = descriptor_pool.DescriptorPool()
            for described in descriptor_pb2.FileDescriptorSet.FromString(read(f"{folder}/set")).file:
                pool.Add(described)
        return message_factory.GetMessageClass(pool.FindMessageTypeByName("gradloom.file." + name))


def ask(gradloom, command, folder, environment=None):
    """Runs the command in the folder. Output goes to files, so that a process that waits for its child cannot block."""
    # By a program instead of a function that Python calls in between, for which it would have to copy its own memory map.
    limited = ["prlimit", "--core=0", *([] if SANITIZED else [f"--as={MOST_ADDRESSES_MB << 20}"])]
    start = time.monotonic()
    with open(folder + ".out", "w+b") as out, open(folder + ".err", "w+b") as err:
        child = subprocess.Popen([*limited, gradloom, *shlex.split(command)], cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                 env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})})
        late = threading.Timer(3 * MOST_SECONDS, lambda: os.kill(child.pid, signal.SIGKILL))
        late.start()
        _, status, usage = os.wait4(child.pid, 0)
        late.cancel()
        child.returncode = os.waitstatus_to_exitcode(status)
        said = []
        for file in (out, err):
            file.seek(0)
            said.append(file.read().decode(errors="backslashreplace"))
    return Answer(child.returncode, said[0], said[1], time.monotonic() - start, usage.ru_maxrss / 1024)
