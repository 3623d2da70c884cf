#!/usr/bin/env python3
"""Looks that pages name what exists: tests, files, links, classes of errors.

Argument: WORKSPACE, by whose real place the source tree is read.
"""
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from pages import names_target  # noqa: E402


def missing_tests(root, text):
    """`tests/FOLDER:NAME` that no BUILD file names."""
    for folder, name in sorted(set(re.findall(r"\b(?://)?(tests/\w+):(\w+)", text))):
        if not names_target(root, folder, name):
            yield f"{folder}:{name}"


def missing_links(page, text):
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)):
        if "://" not in target and not (page.parent / target).exists():
            yield target


def missing_files(root, text):
    """Source files in backquotes, by their place in the tree."""
    rooms = "compiler|kernels|runtime|tools|tests|models|python|include|docs"
    for path in re.findall(rf"`((?:{rooms})/[a-z0-9_./-]+\.(?:cc|h|py|def|sh|proto|bzl|toml|md))`", text):
        if not (root / path).exists():
            yield path


def faults(root):
    pages = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    for page in pages:
        text = page.read_text()
        for what, names in (("test", missing_tests(root, text)), ("link", missing_links(page, text)), ("file", missing_files(root, text))):
            for name in names:
                yield f"{page.relative_to(root)}: there is no {what} {name}"
    classes = set(re.findall(r'"(E-[A-Z-]+)"', (root / "runtime/base/error.cc").read_text()))
    for name in ("errors.md", "troubleshooting.md"):
        table = "\n".join(line for line in (root / "docs" / name).read_text().splitlines() if line.startswith("| E-"))
        for missing in sorted(classes - set(re.findall(r"E-[A-Z-]+", table))):
            yield f"docs/{name}: no line for {missing}"
    if len(classes) < 20:
        yield f"only {len(classes)} classes of errors found"
    # Every promise has a test.
    for line in (root / "docs/guarantees.md").read_text().splitlines():
        if line.startswith("| ") and not line.startswith("| promise") and "tests/" not in line.split("|")[2]:
            yield f"docs/guarantees.md: no test in: {line}"


def main():
    root = pathlib.Path(sys.argv[1]).resolve().parent
    assert list(missing_tests(root, "`tests/style:no_such_test`")) == ["tests/style:no_such_test"]
    assert list(missing_links(root / "README.md", "[x](docs/no_such.md)")) == ["docs/no_such.md"]
    assert list(missing_files(root, "`runtime/base/no_such.h`")) == ["runtime/base/no_such.h"]
    found = list(faults(root))
    print("\n".join(found) or "all that the pages name is there")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
