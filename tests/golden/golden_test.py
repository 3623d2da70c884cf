"""Golden tests: PASS/CASE.txt starts with '# MODEL FLAGS' and holds the graph of a training step after the pass.

golden_test.py GRADLOOM FOLDER [--update]
"""
import difflib
import os
import subprocess
import sys
import tempfile

MOST_LINES = 40


def printed(gradloom, folder, pass_name, command):
    """The step's graph after the pass, or the plan of the step for the folder 'plan'."""
    model, *flags = command.split()
    with tempfile.TemporaryDirectory() as out:
        plan = os.path.join(out, "x.plan")
        line = [gradloom, "compile", os.path.join(folder, "models", model), "-o", plan, "--threads", "1", *flags]
        if pass_name != "plan":
            line += ["--dump-after", pass_name, "--stop-after", pass_name]
        run = subprocess.run(line, capture_output=True, text=True)
        if pass_name == "plan":
            run = subprocess.run([gradloom, "inspect", plan], capture_output=True, text=True)
            text = run.stdout
            assert run.returncode == 0, run.stderr
            start = text.index("program 0:")
            end = text.find("program 1:")
            return text[start:end] if end > 0 else text[start:]
        assert run.returncode == 0 and not os.path.exists(plan), f"{' '.join(line)}\nexits with {run.returncode}:\n{run.stderr[-2000:]}"
        text = run.stdout + run.stderr
    marker = f"# after {pass_name}\n"
    assert marker in text, f"{' '.join(line)}\nprints no graph:\n{text}"
    return text.split(marker)[1].split("\n\n")[0] + "\n"


def main():
    gradloom, folder, update = os.path.abspath(sys.argv[1]), sys.argv[2], "--update" in sys.argv
    cases = failures = 0
    for pass_name in sorted(os.listdir(folder)):
        path = os.path.join(folder, pass_name)
        if pass_name == "models" or not os.path.isdir(path):
            continue
        for name in sorted(os.listdir(path)):
            file = os.path.join(path, name)
            with open(file) as f:
                head = f.readline()
                wanted = f.read()
            assert head.startswith("# "), f"{file}: the first line is '# MODEL FLAGS'"
            got = printed(gradloom, folder, pass_name, head[2:])
            cases += 1
            assert got.count("\n") <= MOST_LINES, f"{file}: {got.count(chr(10))} lines; a golden has up to {MOST_LINES}"
            if update:
                with open(file, "w") as f:
                    f.write(head + got)
            elif got != wanted:
                failures += 1
                print(f"--- {file}")
                print("\n".join(difflib.unified_diff(wanted.splitlines(), got.splitlines(), "wanted", "got", lineterm="")))
    print(f"{cases} goldens, {failures} differ")
    if failures:
        print("If that is meant: bazel run //tests/golden:update, and read what it changes.")
    # The test must not pass if the folder is not found.
    sys.exit(failures != 0 or cases < 10)


main()
