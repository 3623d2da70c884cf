#!/usr/bin/env python3
"""select_tests.py FOLDER FILE...: for each source in the joined FILEs (bazel/join_sources.py), writes FOLDER/SOURCE.flags with the flag of
GoogleTest that runs the tests of this source only."""
import pathlib
import re
import sys

SOURCE = re.compile(r'^#line 1 "(.*)"$', re.M)
# A test has the name SUITE.TEST, or, with parameters, INSTANTIATION/SUITE.TEST/PARAMETER.
TEST = re.compile(r"^TEST(_F|_P)?\((\w+),\s*(\w+)\)", re.M)
# Macros of tests whose names this does not know.
OTHER = re.compile(r"^\s*(?:TYPED_TEST\w*|TEST\w*_TEST|REGISTER_\w*|\w+_TEST_[FP]?)\(", re.M)


def selection(text):
    """The flag for the tests in this source. Throws ValueError if there are none, or some of an unknown form."""
    tests = TEST.findall(text)
    if not tests or OTHER.search(text):
        raise ValueError("no tests, or tests in a form that is not known here")
    return "--gtest_filter=" + ":".join(f"*/{suite}.{name}/*" if kind == "_P" else f"{suite}.{name}" for kind, suite, name in tests) + "\n"


def main():
    folder = pathlib.Path(sys.argv[1])
    for path in sys.argv[2:]:
        _, *parts = SOURCE.split(pathlib.Path(path).read_text(encoding="utf-8"))
        for source, text in zip(parts[::2], parts[1::2]):
            (folder / pathlib.Path(source).with_suffix(".flags").name).write_text(selection(text), encoding="utf-8")


if __name__ == "__main__":
    main()
