"""Runs commands for a test and measures them: one JSON object per line, in and out.

The peak resident memory of a child includes that of its parent at the time of the fork. So this is a small separate process, started before
the test imports anything large.
"""
import json
import os
import signal
import subprocess
import sys
import threading
import time


def run(words, cwd, seconds):
    start = time.monotonic()
    child = subprocess.Popen(words, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    late = threading.Timer(seconds, lambda: os.kill(child.pid, signal.SIGKILL))
    late.start()
    said = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    late.cancel()
    child.returncode = os.waitstatus_to_exitcode(status)
    return {"code": child.returncode, "seconds": time.monotonic() - start, "cpu": usage.ru_utime + usage.ru_stime, "kib": usage.ru_maxrss,
            "said": said.decode("utf-8", "backslashreplace")}


for line in sys.stdin:
    print(json.dumps(run(**json.loads(line))), flush=True)
