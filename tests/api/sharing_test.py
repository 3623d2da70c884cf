"""Parameters that a session shares with other processes: readers see them change, they exist as long as anybody has them attached, and
readers do not trust their contents.

Arguments: the header, the library, the model, which has convolutions.
"""
import array
import ctypes
import fcntl
import json
import os
import random
import secrets
import socket
import struct
import subprocess
import sys
import threading
import unittest

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from header import Gradloom  # noqa: E402

BATCH = 8
HEADER = struct.Struct("<8sqqq")
# linux/fcntl.h
F_ADD_SEALS, F_SEAL_SHRINK = 1033, 2


class Owner:
    """Runs in a separate process: trains, shares, and executes commands that it reads line by line."""

    @staticmethod
    def run(arguments, name):
        g = Gradloom(*arguments[:2])
        model, plan, session = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        g.LoadModel(arguments[2].encode(), None, ctypes.byref(model))
        settings = g.array("GradloomSetting", [(b"loss.name", b"cross_entropy(logits, label)"), (b"optimizer.name", b"momentum")])
        batches = (ctypes.c_int64 * 1)(BATCH)
        options = g.struct("GradloomCompileOptions", settings=ctypes.addressof(settings), num_settings=2, batches=ctypes.addressof(batches),
                           num_batches=1)
        g.Compile(model, ctypes.byref(options), ctypes.byref(plan))
        g.CreateTrainingSession(plan, None, None, ctypes.byref(session))
        images, labels = np.random.default_rng(1).random((BATCH, 1, 8, 8), np.float32), np.arange(BATCH, dtype=np.int64)
        shapes = [(ctypes.c_int64 * a.ndim)(*a.shape) for a in (images, labels)]
        inputs = g.array("GradloomTensor", [
            g.struct("GradloomTensor", data=a.ctypes.data, shape=ctypes.addressof(shape), rank=a.ndim, dtype=code)
            for a, shape, code in zip((images, labels), shapes, (1, 7))])
        names = (ctypes.c_char_p * 2)(b"image", b"label")
        # Kernels prepared before the state moves still work afterwards.
        g.Step(session, names, inputs, 2, None)
        g.ShareParameters(session, name)
        print("ready", flush=True)
        for line in sys.stdin:
            if line == "step\n":
                g.Step(session, names, inputs, 2, None)
            values = {}
            count = ctypes.c_size_t()
            g.GetParameterCount(session, 0, ctypes.byref(count))
            for i in range(count.value):
                text, info = ctypes.c_char_p(), g.struct("GradloomTensorInfo")
                g.GetParameterName(session, i, ctypes.byref(text))
                g.GetParameterTypeAndShape(session, text, ctypes.byref(info))
                shape = list(ctypes.cast(info.shape, ctypes.POINTER(ctypes.c_int64))[:info.rank])
                value = np.zeros(shape, np.float32)
                g.GetParameter(session, text, value.ctypes.data_as(ctypes.c_void_p), value.nbytes)
                values[text.value.decode()] = [shape, value.tobytes().hex()]
            print(json.dumps(values), flush=True)
        g.ReleaseTrainingSession(session)

    def __init__(self, name):
        self.process = subprocess.Popen([sys.executable, __file__, *ARGUMENTS, "--owner", name.decode()], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.said = self.process.stdout.readline()

    def tell(self, what):
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end(self, kill=False):
        if kill:
            self.process.kill()
        self.process.stdin.close()
        self.process.wait(timeout=60)
        self.process.stdout.close()


class SharingTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.g = Gradloom(*ARGUMENTS[:2])

    def setUp(self):
        self.name = f"sharing_test-{secrets.token_hex(8)}".encode()
        self.assertEqual([name for name in os.listdir("/dev/shm") if "gradloom" in name], [])

    def attach(self):
        attached = ctypes.c_void_p()
        self.g.AttachParameters(self.name, ctypes.byref(attached))
        self.addCleanup(self.g.ReleaseAttached, attached)
        return attached

    def values(self, attached):
        """The values as the owner reports them, and how many are available without a copy."""
        count, values, direct = ctypes.c_size_t(), {}, 0
        self.g.GetAttachedCount(attached, ctypes.byref(count))
        for i in range(count.value):
            name, tensor = ctypes.c_char_p(), self.g.struct("GradloomTensor")
            self.g.GetAttached(attached, i, ctypes.byref(name), ctypes.byref(tensor))
            shape = list(ctypes.cast(tensor.shape, ctypes.POINTER(ctypes.c_int64))[:tensor.rank])
            value = np.zeros(shape, np.float32)
            self.g.CopyAttached(attached, i, value.ctypes.data_as(ctypes.c_void_p), value.nbytes)
            if tensor.data:
                direct += 1
                self.assertEqual(ctypes.string_at(tensor.data, value.nbytes), value.tobytes())
            values[name.value.decode()] = [shape, value.tobytes().hex()]
        return values, direct

    def test_readers_see_changes(self):
        owner = Owner(self.name)
        try:
            self.assertEqual(owner.said, "ready\n")
            attached = self.attach()
            before, direct = self.values(attached)
            self.assertEqual(before, owner.tell("look"))
            self.assertGreater(direct, len(before) // 2)
            after = owner.tell("step")
            self.assertNotEqual(before, after)
            self.assertEqual(self.values(attached)[0], after)
            with self.assertRaisesRegex(Gradloom.Error, "already"):
                self.share_again()
        finally:
            owner.end()
        # The session has ended, but attached memory stays valid.
        self.assertEqual(self.values(attached)[0], after)
        with self.assertRaisesRegex(Gradloom.Error, "no parameters are shared"):
            self.attach()

    def share_again(self):
        second = Owner(self.name)
        try:
            if second.said != "ready\n":
                raise Gradloom.Error("E-CONFIG", "already")
        finally:
            second.process.kill()
            second.process.wait()
            second.process.stdin.close()
            second.process.stdout.close()

    def test_a_killed_owner(self):
        owner = Owner(self.name)
        attached = self.attach()
        after = owner.tell("step")
        owner.end(kill=True)
        self.assertEqual(self.values(attached)[0], after)
        # The name is free again, and nothing is left behind.
        again = Owner(self.name)
        self.assertEqual(again.said, "ready\n")
        again.end()

    def test_a_killed_reader(self):
        owner = Owner(self.name)
        try:
            reader = subprocess.Popen([sys.executable, __file__, *ARGUMENTS, "--reader", self.name.decode()], stdout=subprocess.PIPE, text=True)
            self.assertEqual(reader.stdout.readline(), "attached\n")
            reader.kill()
            reader.wait()
            reader.stdout.close()
            first, second = owner.tell("step"), owner.tell("step")
            self.assertNotEqual(first, second)
            self.assertEqual(self.values(self.attach())[0], second)
        finally:
            owner.end()

    def serve(self, give):
        """Attaches once to what `give` returns. Returns the error message, or what was attached."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(b"\0gradloom/parameters/" + self.name)
            listener.listen()

            def answer():
                client, _ = listener.accept()
                with client:
                    give(client)
            thread = threading.Thread(target=answer)
            thread.start()
            attached = ctypes.c_void_p()
            try:
                self.g.AttachParameters(self.name, ctypes.byref(attached))
            except Gradloom.Error as error:
                return str(error)
            finally:
                thread.join()
            try:
                return self.values(attached)
            finally:
                self.g.ReleaseAttached(attached)

    def memory(self, content, sealed=True):
        fd = os.memfd_create("hostile", os.MFD_ALLOW_SEALING)
        os.write(fd, content)
        if sealed:
            fcntl.fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK)

        def give(client):
            client.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
            os.close(fd)
        return give

    @staticmethod
    def content(rows, begin=4096, state=4096, **fields):
        text = rows if isinstance(rows, bytes) else json.dumps(rows).encode()
        head = HEADER.pack(fields.get("magic", b"GLSHARE1"), fields.get("table", len(text)), begin, state)
        return (head + text).ljust(4096, b"\0") + b"\x01" * 4096

    def test_shared_memory_is_not_trusted(self):
        row = {"name": "w", "dtype": 1, "shape": [2, 3], "layout": "plain", "offset": 64}
        self.assertEqual(self.serve(self.memory(self.content([row])))[0]["w"][0], [2, 3])

        def refused(give):
            said = self.serve(give)
            self.assertIsInstance(said, str, said)
            self.assertIn("E-DATA", said)

        refused(lambda client: None)
        refused(lambda client: client.send(b"x"))
        refused(self.memory(self.content([row]), sealed=False))
        refused(self.memory(b""))
        refused(self.memory(b"GLSHARE1"))
        big = 2**63 - 1
        for fields in ({"magic": b"GLSHARE2"}, {"table": -1}, {"table": big}, {"table": 1 << 20}, {"begin": 0}, {"begin": 100}, {"begin": big},
                       {"begin": 1 << 40}, {"state": -1}, {"state": big}, {"state": 4097}):
            with self.subTest(**{key: str(value) for key, value in fields.items()}):
                refused(self.memory(self.content([row], **fields)))
        for change in ({"offset": -64}, {"offset": 4096}, {"offset": 4080}, {"offset": big}, {"offset": 65}, {"offset": "a"}, {"shape": [1 << 40]},
                       {"shape": [-1]}, {"shape": [1 << 32, 1 << 32]}, {"shape": [1] * 40}, {"shape": 3}, {"dtype": 0}, {"dtype": 200},
                       {"dtype": 8}, {"layout": "00"}, {"layout": "01234"}, {"layout": "01:9x8"}, {"layout": "01:1x1000000"}, {"layout": "x"},
                       {"name": 5}):
            with self.subTest(**{key: str(value) for key, value in change.items()}):
                refused(self.memory(self.content([{**row, **change}])))
        refused(self.memory(self.content(b"[{")))
        refused(self.memory(self.content([5])))

    def test_damaged_tables(self):
        """Whatever the table contains, the result is an error or readable tensors."""
        seed = random.SystemRandom().randrange(10**6)
        print("seed", seed, flush=True)
        rng = random.Random(seed)
        rows = [{"name": f"w{i}", "dtype": 1, "shape": [4, 3], "layout": "10", "offset": 64 * i} for i in range(3)]
        for _ in range(300):
            content = bytearray(self.content(rows))
            for _ in range(rng.randrange(1, 4)):
                content[rng.randrange(HEADER.size + 200)] = rng.randrange(256)
            try:
                self.serve(self.memory(bytes(content)))
            except (Gradloom.Error, ValueError, OverflowError, MemoryError):
                pass  # another type, or a shape that numpy does not support


if __name__ == "__main__":
    ARGUMENTS = sys.argv[1:4]
    if "--owner" in sys.argv:
        Owner.run(ARGUMENTS, sys.argv[-1].encode())
    elif "--reader" in sys.argv:
        library, handle = Gradloom(*ARGUMENTS[:2]), ctypes.c_void_p()
        library.AttachParameters(sys.argv[-1].encode(), ctypes.byref(handle))
        print("attached", flush=True)
        sys.stdin.read()
        threading.Event().wait()
    else:
        unittest.main(argv=sys.argv[:1], verbosity=2)
