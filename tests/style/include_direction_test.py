#!/usr/bin/env python3
"""Checks that every #include follows the arrows of docs/architecture.md.

tools -> compiler -> runtime/plan <- runtime/exec -> kernels -> runtime/base

The table below encodes that picture: for each directory, which directories of the project its files may include."""
import pathlib
import re
import sys

ALLOWED = {
    "runtime/base": [],
    "runtime/plan": ["runtime/base", "kernels/catalog"],
    "runtime/device": ["runtime/base", "runtime/plan", "kernels/catalog"],
    "runtime/device/cuda": ["runtime/base", "runtime/device", "kernels/catalog", "kernels/cuda"],
    "runtime/comm": ["runtime/base", "runtime/plan", "runtime/device", "kernels/catalog"],
    "runtime/comm/mpi": ["runtime/base", "runtime/comm"],
    "runtime/exec": ["runtime/base", "runtime/plan", "runtime/device", "runtime/comm", "kernels/catalog", "kernels/cpu"],
    "runtime/data": ["runtime/base", "runtime/plan"],
    "runtime/session": ["runtime/base", "runtime/plan", "runtime/comm", "runtime/exec", "runtime/data"],
    "runtime/checkpoint": ["runtime/base", "runtime/plan", "runtime/comm", "runtime/session"],
    "include/gradloom": [],
    "runtime/api": ["runtime/base", "runtime/plan", "runtime/device", "runtime/exec", "runtime/data", "runtime/session", "runtime/checkpoint",
                    "include/gradloom"],
    "kernels/scalar": [],
    "kernels/catalog": ["runtime/base", "kernels/scalar"],
    "kernels/reference": ["runtime/base", "kernels/catalog", "kernels/scalar"],
    "kernels/cpu": ["runtime/base", "kernels/catalog", "kernels/reference", "kernels/scalar"],
    "kernels/cuda/rows": ["runtime/base", "kernels/catalog"],
    "kernels/cuda": ["runtime/base", "kernels/catalog", "kernels/cuda/rows", "kernels/reference", "kernels/scalar"],
    "compiler/graph": ["runtime/base"],
    "compiler/ops": ["runtime/base", "compiler/graph"],
    "compiler/cost": ["runtime/base", "runtime/plan", "compiler/graph", "compiler/ops", "kernels/catalog"],
    "compiler/onnx": ["runtime/base", "runtime/plan", "compiler/graph", "compiler/ops", "kernels/catalog", "kernels/reference"],
    "compiler/oracle": ["runtime/base", "compiler/graph", "kernels/catalog", "kernels/reference"],
    "compiler/passes": ["runtime/base", "runtime/plan", "compiler/cost", "compiler/graph", "compiler/ops", "kernels/catalog", "kernels/reference"],
    "compiler": ["runtime/base", "runtime/plan", "compiler/cost", "compiler/graph", "compiler/ops", "compiler/onnx", "compiler/oracle", "compiler/passes",
                 "kernels/catalog"],
}
# These may include everything.
FREE = ("tools", "tests", "models")
# Library headers that only one directory may include.
ONLY_IN = {
    re.compile(r"onnx/"): ["compiler/onnx", "tests"],
    re.compile(r"(oneapi/)?dnnl"): ["kernels/cpu", "tests"],
    re.compile(r"google/protobuf/"): ["compiler/onnx", "runtime/plan", "tests"],
    re.compile(r"mpi\.h"): ["runtime/comm/mpi"],
    re.compile(r"(cuda|cublas|cudnn|nccl|nvrtc|driver_types)"): ["kernels/cuda", "runtime/device/cuda", "tests"],
}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)
ROOMS = ("include/", "runtime/", "compiler/", "kernels/", "tools/", "tests/", "models/")


def room_of(path):
    """The longest directory in the table that contains the file: runtime/base, compiler, tools ..."""
    folder = str(pathlib.PurePosixPath(path).parent)
    while folder not in (".", ""):
        if folder in ALLOWED or folder in FREE:
            return folder
        folder = str(pathlib.PurePosixPath(folder).parent)
    return None


def violations(files):
    """Returns a line 'file: what' for every include that violates the table. `files` maps paths to text."""
    found = []
    for path, text in files.items():
        room = room_of(path)
        if room is None:
            found.append(f"{path}: in no room of the picture")
            continue
        for _, target in INCLUDE.findall(text):
            for pattern, rooms in ONLY_IN.items():
                if pattern.match(target) and room not in rooms:
                    found.append(f"{path}: includes {target}, which only {', '.join(rooms)} may")
            if not target.startswith(ROOMS):
                continue
            to = room_of(target)
            if room in FREE or to == room:
                continue
            if to is None or to not in ALLOWED[room]:
                found.append(f"{path}: {room} may not include {target}")
    return found


def source_files(root):
    """Maps the path of every C++ file to its text."""
    files = {}
    for room in ROOMS:
        for path in sorted((root / room).rglob("*")):
            if path.suffix in (".h", ".cc", ".cu", ".cuh"):
                files[str(path.relative_to(root))] = path.read_text(encoding="utf-8")
    assert len(files) > 50, f"only {len(files)} source files under {root}"
    return files


def main():
    root = pathlib.Path(sys.argv[1]).resolve().parent
    planted = violations({"kernels/cpu/x.cc": '#include "compiler/graph/graph.h"\n', "runtime/exec/y.h": "#include <onnx/checker.h>\n",
                          "kernels/cuda/rows/z.cc": "#include <cuda_runtime.h>\n"})
    assert len(planted) == 3, f"the check does not see planted violations: {planted}"
    files = source_files(root)
    found = violations(files)
    inhabited = {room_of(path) for path in files}
    for room in sorted({*ALLOWED, *FREE}.union(*ONLY_IN.values()) - inhabited):
        found.append(f"{room}: a room of this test without a file")
    print("\n".join(found))
    print(f"{len(files)} files, {len(found)} includes against the arrows")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
