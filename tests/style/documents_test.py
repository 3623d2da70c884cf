#!/usr/bin/env python3
"""Checks that what pages mention exists: tests, files, links, headings, error classes; that page sections mentioned in code exist; and that
docs/architecture.md lists the compiler's passes in their order, and that pages name all kinds of planted faults.

Argument: WORKSPACE, whose real path leads to the source tree.
"""
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e")]
from include_direction_test import source_files  # noqa: E402
from pages import names_target, pages  # noqa: E402


FENCED = re.compile(r"^```.*?^```$", re.M | re.S)


def missing_tests(root, text):
    """Targets `tests/FOLDER:NAME` that no BUILD file defines."""
    for folder, name in sorted(set(re.findall(r"\b(?://)?(tests/\w+):(\w+)", text))):
        if not names_target(root, folder, name):
            yield f"{folder}:{name}"


def missing_links(page, text):
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", FENCED.sub("", text)):
        if "://" not in target and not (page.parent / target).exists():
            yield target


def anchors(text):
    """The anchors of a page: its headings in the form that Markdown renderers use."""
    headings = re.findall(r"^#+ +(.+?) *$", FENCED.sub("", text), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def missing_anchors(page, text):
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)]+)\)", FENCED.sub("", text)):
        if "://" in target:
            continue
        named = page.parent / target if target else page
        if named.exists() and anchor not in anchors(named.read_text() if target else text):
            yield f"{target}#{anchor}"


def missing_sections(root, text):
    """References from code to pages: `docs/PAGE.md, "HEADING"`."""
    for page, heading in re.findall(r'\b(docs/[\w-]+\.md), "([^"\n]+)"', text):
        if not (root / page).exists() or not re.search(rf"^#+ {re.escape(heading)}$", (root / page).read_text(), re.M):
            yield f'{page}, "{heading}"'


def missing_files(root, text):
    """Source files in backquotes, by their path in the tree."""
    rooms = "compiler|kernels|runtime|tools|tests|models|python|include|docs"
    for path in re.findall(rf"`((?:{rooms})/[a-z0-9_./-]+\.(?:cc|h|py|def|sh|proto|bzl|toml|md))`", text):
        if not (root / path).exists():
            yield path


def pass_order(pipeline, page):
    """The passes of the compiler, and those that the page lists."""
    in_code = re.findall(r'^    \{"(\w+)", Run', pipeline, re.M)
    section = page.partition("### The passes, in order\n")[2].partition("\n### ")[0]
    rows = "\n".join(re.findall(r"^\| (`.*?) \|", section, re.M))
    return in_code, re.findall(r"`(\w+)`", rows)


def missing_kinds(sources, page):
    """Kinds of faults that tests plant in plans and that the page does not name."""
    words = " ".join(page.split())
    for name in re.findall(r'^    \{"([^"]+)",', sources, re.M):
        if not re.search(rf"(?:^|[ (|]){re.escape(name)}(?:$|[ ,.:)])", words, re.I):
            yield name


def faults(root):
    for page in map(root.joinpath, pages(root)):
        text = page.read_text()
        for what, names in (("test", missing_tests(root, text)), ("link", missing_links(page, text)), ("heading", missing_anchors(page, text)),
                            ("file", missing_files(root, text))):
            for name in names:
                yield f"{page.relative_to(root)}: there is no {what} {name}"
    for path, text in source_files(root).items():
        for name in missing_sections(root, text):
            yield f"{path}: there is no section {name}"
    classes = set(re.findall(r'"(E-[A-Z-]+)"', (root / "runtime/base/error.cc").read_text()))
    for name in ("errors.md", "troubleshooting.md"):
        table = "\n".join(line for line in (root / "docs" / name).read_text().splitlines() if line.startswith("| E-"))
        for missing in sorted(classes - set(re.findall(r"E-[A-Z-]+", table))):
            yield f"docs/{name}: no line for {missing}"
    in_code, on_page = pass_order((root / "compiler/passes/pipeline.cc").read_text(), (root / "docs/architecture.md").read_text())
    if len(in_code) < 20 or in_code != on_page:
        yield f"docs/architecture.md: the passes are {', '.join(in_code)}, the page lists {', '.join(on_page)}"
    if len(classes) < 20:
        yield f"only {len(classes)} classes of errors found"
    kinds = "".join((root / "tests/verify" / name).read_text() for name in ("mutations.cc", "rank_mutations.cc"))
    for name in ("verification.md", "plan-format.md"):
        for missing in missing_kinds(kinds, (root / "docs" / name).read_text()):
            yield f"docs/{name}: no planted fault '{missing}'"
    # Every promise has a test.
    for line in (root / "docs/guarantees.md").read_text().splitlines():
        if line.startswith("| ") and not line.startswith("| promise") and "tests/" not in line.split("|")[2]:
            yield f"docs/guarantees.md: no test in: {line}"


def main():
    root = pathlib.Path(sys.argv[1]).resolve().parent
    assert list(missing_tests(root, "`tests/style:no_such_test`")) == ["tests/style:no_such_test"]
    assert list(missing_links(root / "README.md", "[x](docs/no_such.md)")) == ["docs/no_such.md"]
    planted = "## One, and two\n[x](#one-and-two) [y](#three) [z](docs/data.md#no-such)"
    assert list(missing_anchors(root / "README.md", planted)) == ["#three", "docs/data.md#no-such"]
    assert list(missing_sections(root, '// (docs/benchmarks.md, "No such").')) == ['docs/benchmarks.md, "No such"']
    assert list(missing_files(root, "`runtime/base/no_such.h`")) == ["runtime/base/no_such.h"]
    planted = '    {"one", RunOne},\n    {"two", RunTwo, true},', "### The passes, in order\n| `one`, `two` | `three` |\n\n### More\n| `four` |"
    assert pass_order(*planted) == (["one", "two"], ["one", "two"])
    assert list(missing_kinds('    {"lost word",\n    {"word", [](', "| lost\nword | 1 |")) == []
    assert list(missing_kinds('    {"lost word",\n    {"other word", [](', "Lost words, another word")) == ["lost word", "other word"]
    found = list(faults(root))
    print("\n".join(found) or "all that the pages name is there")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
