"""team_balance.cc reports the work that a program's threads are known to do."""
import os
import subprocess
import sys
import tempfile

program, library = (os.path.abspath(word) for word in sys.argv[1:])
with tempfile.NamedTemporaryFile("r") as out:
    subprocess.run([program], env=dict(os.environ, LD_PRELOAD=library, TEAM_BALANCE=out.name, OMP_WAIT_POLICY="passive"), check=True)
    lines = out.read().splitlines()
word, serial = lines[0].split()
assert word == "serial" and 0.045 <= float(serial) < 0.09, lines  # after each region but the last
(_, _, runs, every, longest, _, before), = (line.split() for line in lines[1:])
assert int(runs) == 10, lines
assert 0.28 <= float(every) < 0.42, lines
assert 0.07 <= float(longest) < 0.14, lines
assert 0.045 <= float(before) < 0.09, lines
print("the longest threads took", longest, "of", every, "seconds")
