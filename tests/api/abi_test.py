"""Checks the binary interface: what the libraries export, and that structs, constants and the function table only grow at their ends.

Arguments: the header, the recorded description that it must still fit (abi_v1.txt), and the libraries. With --update as the first argument
the description is rewritten, provided that it only grows.
"""
import ctypes
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from header import Header  # noqa: E402


def describe(header):
    lines = [f"constant {name} {value}" for name, value in header.constants.items()]
    for name, struct in header.structs.items():
        for fields in header.fields[name]:
            for field, _, signature in fields:
                at = getattr(struct, field)
                spelled = "" if signature is None else f" {signature[0]} ({', '.join(kind for _, _, kind in signature[1])})"
                lines.append(f"field {name}.{field} at {at.offset} size {at.size}{spelled}")
        lines.append(f"struct {name} size {ctypes.sizeof(struct)}")
    return lines


def breaks(old, new):
    """Changes that would break a program compiled against the old description."""
    found = [line for line in old if not line.startswith("struct") and line not in new]
    for line in old:
        match = re.fullmatch(r"struct (\w+) size (\d+)", line)
        if not match:
            continue
        name, size = match.group(1), int(match.group(2))
        now = [int(other.split()[-1]) for other in new if other.startswith(f"struct {name} ")]
        # A struct that carries its size, and the table, may grow.
        grows = f"field {name}.size at 0 size 8" in old or name == "GradloomApi"
        if not now or now[0] < size or (now[0] != size and not grows):
            found.append(line)
        for other in new:
            field = re.match(rf"field {name}\.\w+ at (\d+) ", other)
            if field and other not in old and int(field.group(1)) < size:
                found.append(f"{other} is not behind the end of what there was")
    return found


def exported(library):
    output = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    # "A" marks the name of the symbol version itself.
    return sorted(line.split()[-1].split("@")[0] for line in output.splitlines() if line.split()[-2] != "A")


def main():
    update = "--update" in sys.argv
    header_path, golden, *libraries = [word for word in sys.argv[1:] if word != "--update"]
    with open(header_path) as file:
        new = describe(Header(file.read()))
    old = open(golden).read().splitlines() if os.path.exists(golden) else []
    planted = [re.sub("at 8 ", "at 16 ", line) for line in new]
    assert breaks(new, planted), "a moved field is not seen"
    assert breaks(new, new[1:]), "a constant that is gone is not seen"
    assert not breaks(new, new + ["field GradloomApi.New at 99999 size 8"]), "a table may grow"
    failures = breaks(old, new)
    for failure in failures:
        print(f"breaks programs that were compiled before: {failure}")
    if update and not failures:
        with open(golden, "w") as file:
            file.write("\n".join(new) + "\n")
    elif old != new:
        failures.append("stale")
        print(f"{golden} is not what the header says: run abi_test.py --update")
    for library in libraries:
        symbols = exported(library)
        print(f"{os.path.basename(library)}: {os.path.getsize(library) / 1e6:.1f} MB, exports {', '.join(symbols)}")
        if symbols != ["GradloomGetApi"]:
            failures.append(library)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
