"""Tests the Python package with threads, interrupts, forks and other processes.

Arguments: the wheel, a folder of models and data.
"""
import os
import signal
import subprocess
import sys
import threading
import time
import unittest

import numpy as np
import PIL.Image

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import installed_package  # noqa: E402

WHEEL, MODELS = (os.path.abspath(word) for word in sys.argv[1:3])
sys.argv[1:3] = []


def setUpModule():
    global FOLDER
    FOLDER = installed_package.install(WHEEL, MODELS)


class SessionTest(installed_package.HousingTest):
    def script(self, text, within=60):
        """Runs a program that has a session on the given devices, and inputs. Returns its output and exit code."""
        begin = f"""
import os, signal, sys, threading, time
import gradloom, numpy as np
x, y = np.ones((16, 13), np.float32), np.ones((16, 1), np.float32)
def session(devices="cpu"):
    return gradloom.Session(gradloom.compile("{FOLDER}/housing_mlp.onnx", loss="mse(value, target)", batch=16, devices=devices))
"""
        done = subprocess.run([sys.executable, "-c", begin + text], capture_output=True, text=True, timeout=within,
                              env={**os.environ, "PYTHONPATH": f"{FOLDER}/site"})
        self.assertEqual(done.stderr, "")
        return done.stdout, done.returncode

    def train(self):
        session = self.gradloom.Session(self.plan, seed=3)
        for _ in range(20):
            session.step(features=self.x, target=self.y)
        return session.flat_parameters()

    def test_an_interrupt_ends_a_fit(self):
        """Ends at the next step, with or without callbacks, and interrupts that arrive between steps are not lost."""
        for callbacks in ("", "on_step=lambda step: None", "on_step=lambda step: time.sleep(1e-3)", "on_epoch=lambda epoch: None"):
            with self.subTest(callbacks=callbacks):
                said = self.script(f"""
data = gradloom.Dataset.from_arrays(features=np.tile(x, (100, 1)), target=np.tile(y, (100, 1)))
trained = session()
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    trained.fit(data, epochs=10**9, batch=16, {callbacks})
except KeyboardInterrupt:
    print("interrupted", trained.num_updates > 0, signal.getsignal(signal.SIGINT) is signal.default_int_handler)
""")
                self.assertEqual(said, ("interrupted True True\n", 0))

    def test_an_interrupt_ends_an_evaluation(self):
        """Python would handle it after the evaluation, which takes minutes. A handler of one's own decides itself."""
        begin = """
data, large = (gradloom.Dataset.from_arrays(features=np.zeros((n, 13), np.float32), target=np.zeros((n, 1), np.float32)) for n in (16, 1 << 24))
trained = session()
began = []
def interrupt():
    began.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)
threading.Timer(1, interrupt).start()
"""
        said = self.script(begin + """
try:
    trained.fit(data, large, epochs=1, batch=16)
except KeyboardInterrupt:
    print("interrupted", trained.num_updates, time.monotonic() - began[0] < 1, threading.active_count(), signal.set_wakeup_fd(-1))
""")
        self.assertEqual(said, ("interrupted 1 True 1 -1\n", 0))
        said, code = self.script(begin.replace("1 << 24", "1 << 22") + """
signal.signal(signal.SIGINT, lambda number, frame: print("handled"))
print(trained.fit(data, large, epochs=1, batch=16).stopped)
time.sleep(1)
""")
        self.assertEqual((sorted(said.split()), code), (["done", "handled"], 0))

    def test_a_fork_leaves_sessions_to_the_parent(self):
        """A child has none of the session's threads: when it exits it leaves the sessions alone, and when it uses one it gets an error."""
        for devices in ("cpu", "cpu:2"):
            said = self.script(f"""
trained = session("{devices}")
trained.step(features=x, target=y)
child = os.fork()
if child == 0:
    try:
        trained.step(features=x, target=y)
    except gradloom.Error as error:
        print(error.code, error.message, flush=True)
    sys.exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), trained.step(features=x, target=y).step)
""")
            self.assertEqual(said, ("E-CONFIG the session was created before a fork, and the child process does not have its threads\n7 2\n", 0))

    def test_a_fork_leaves_batches_to_the_parent(self):
        """Threads read images, and a child has none of them. Batches of arrays need no threads."""
        for label in range(2):
            os.makedirs(f"{FOLDER}/images/{label}", exist_ok=True)
            for i in range(6):
                PIL.Image.fromarray(np.full((8, 8), 20 * i, np.uint8)).save(f"{FOLDER}/images/{label}/{i}.png")
        said = self.script(f"""
plan = gradloom.compile("{FOLDER}/digits_cnn.onnx", loss="cross_entropy(logits, label)", batch=4)
images = gradloom.Dataset("{FOLDER}/images", plan).batches(4)
arrays = gradloom.Dataset.from_arrays(features=x, target=y).batches(4)
next(images), next(arrays)
child = os.fork()
if child == 0:
    signal.alarm(60)
    print(next(arrays)["features"].shape)
    try:
        next(images)
    except gradloom.Error as error:
        print(error.code, error.message, flush=True)
    del images
    sys.exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), next(images)["label"].shape)
""")
        self.assertEqual(said, ("(4, 13)\nE-CONFIG the batches were created before a fork, and the child process does not have their threads\n"
                                "7 (4,)\n", 0))

    def test_another_thread_stops_a_fit(self):
        said = self.script("""
data = gradloom.Dataset.from_arrays(features=np.tile(x, (100, 1)), target=np.tile(y, (100, 1)))
trained, begun = session(), threading.Event()
def stop():
    begun.wait()
    trained.stop_fit()
stops = threading.Thread(target=stop)
stops.start()
print(trained.fit(data, epochs=10**9, batch=16, on_step=lambda step: begun.set()).stopped)
stops.join()
trained.stop_fit()
print(trained.fit(data, updates=trained.num_updates + 2, batch=16).stopped)
trained.close()
try:
    trained.stop_fit()
except gradloom.Error as error:
    print(error.message)
""")
        self.assertEqual(said, ("callback\ndone\nthe session is closed\n", 0))

    def test_close_waits_for_calls_of_other_threads(self):
        said = self.script("""
trained, ended = session(), []
def run():
    try:
        while True:
            trained.step(features=x, target=y)
    except gradloom.Error as error:
        ended.append(error.message)
threads = [threading.Thread(target=run) for _ in range(3)]
for thread in threads: thread.start()
time.sleep(0.3)
trained.close()
for thread in threads: thread.join()
print(ended)
data = gradloom.Dataset.from_arrays(features=x, target=y)
other = session()
try:
    other.fit(data, on_step=lambda step: other.close())
except gradloom.Error as error:
    print(error.message)
""")
        self.assertEqual(said, ("['the session is closed', 'the session is closed', 'the session is closed']\n"
                                "a callback of fit cannot close its session\n", 0))

    def test_ends_while_a_daemon_thread_trains(self):
        """The end of the interpreter leaves a session to the thread that is in a step."""
        for devices in ("cpu", "cpu:2"):
            said = self.script(f"""
trained = session("{devices}")
def run():
    while True:
        trained.step(features=x, target=y)
threading.Thread(target=run, daemon=True).start()
time.sleep(0.2)
print("end")
""")
            self.assertEqual(said, ("end\n", 0))

    def test_predictions_of_threads_are_their_own(self):
        """Several threads use one session."""
        session = self.gradloom.Session(self.plan)
        inputs = [np.full((16, 13), value, np.float32) for value in range(4)]
        expected = [session.predict(features=x)["value"] for x in inputs]
        wrong = []

        def run(index):
            for _ in range(200):
                if not np.array_equal(session.predict(features=inputs[index])["value"], expected[index]):
                    wrong.append(index)

        threads = [threading.Thread(target=run, args=(index,)) for index in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_sessions_run_in_threads(self):
        """With the same bits as one after the other."""
        expected = self.train()
        results = [None] * 4

        def run(index):
            results[index] = self.train()

        threads = [threading.Thread(target=run, args=(index,)) for index in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for result in results:
            np.testing.assert_array_equal(result, expected)

    def test_another_process_sees_the_parameters_change(self):
        session, name = self.gradloom.Session(self.plan), f"package_test-{os.getpid()}"
        session.share(name)
        other = subprocess.Popen([sys.executable, "-c", "import sys, gradloom\nattached = gradloom.AttachedParameters(sys.argv[1])\n"
                                  "for _ in sys.stdin:\n    print(attached['layer3.bias'].tobytes().hex(), len(attached), flush=True)", name],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": f"{FOLDER}/site"})
        self.addCleanup(other.communicate, timeout=60)
        seen = set()
        for _ in range(3):
            session.step(features=self.x, target=self.y)
            other.stdin.write("\n")
            other.stdin.flush()
            seen.add(other.stdout.readline())
            self.assertIn(f"{session.parameter('layer3.bias').tobytes().hex()} 6\n", seen)
        self.assertEqual(len(seen), 3)
        attached = self.gradloom.AttachedParameters(name)
        session.share(None)
        with self.assertRaises(self.gradloom.Error):
            self.gradloom.AttachedParameters(name)
        last = session.parameters()
        session.close()
        self.assertEqual(sorted(attached), sorted(last))
        for known, value in last.items():
            np.testing.assert_array_equal(attached[known], value)
        with self.assertRaises(KeyError):
            attached["no such parameter"]


if __name__ == "__main__":
    unittest.main()
