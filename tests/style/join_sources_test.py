#!/usr/bin/env python3
"""Tests that files that are joined for the compiler keep their private names separate: bazel/join_sources.py."""
import pathlib
import subprocess
import sys
import tempfile

FIRST = """#include "header.h"

namespace gradloom {
namespace {

constexpr int kRows[] = {1, 2}, kAlone = 3;

// Of rows: Rejects.
int Rejects(const Rows& rows) { return rows.Rejects() + kRows[0] + Table::kRows; }

struct Lines {
  int count = kAlone;
};

}  // namespace

int First(const Lines& lines) { return Rejects({}) + Length("Rejects kRows", 'k', lines.count); }

}  // namespace gradloom
"""
SECOND = """namespace gradloom {
namespace {

constexpr int kRows[] = {4};

template <typename T>
std::vector<T> Rejects(T x) {
  return {x, kRows[0]};
}

using Lines = std::vector<int>;

}  // namespace
}  // namespace gradloom
"""
# Uses a name from a header that another file declares for itself.
THIRD = """namespace gradloom {

int Third() { return Lines(); }

}  // namespace gradloom
"""


def main():
    with tempfile.TemporaryDirectory() as folder:
        paths = [pathlib.Path(folder, name) for name in ("first.cc", "second.cc", "third.cc")]
        for path, text in zip(paths, (FIRST, SECOND, THIRD)):
            path.write_text(text)
        joined = subprocess.run([sys.executable, sys.argv[1], *map(str, paths)], check=True, capture_output=True, text=True).stdout
    expected = [
        FIRST.replace("constexpr int kRows[]", "constexpr int kRows_0[]")
        .replace("int Rejects(const", "int Rejects_0(const")
        .replace("+ kRows[0]", "+ kRows_0[0]")
        .replace("return Rejects(", "return Rejects_0(")
        .replace("Lines", "Lines_0"),
        SECOND.replace("kRows", "kRows_1").replace("Rejects", "Rejects_1").replace("Lines", "Lines_1"),
        THIRD,
    ]
    wanted = "".join(f'#line 1 "{path}"\n{text}' for path, text in zip(paths, expected))
    if joined != wanted:
        print(joined, "is not", wanted, sep="\n")
        sys.exit(1)


main()
