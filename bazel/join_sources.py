#!/usr/bin/env python3
"""join_sources.py FILE...: concatenates the files into one source whose headers are read once.

Names that a file declares in an anonymous namespace must not clash with names in another file. Where they would, the number of the file is
appended to the name. Declarations are recognized by their formatting (in a namespace they start at the beginning of a line). Whatever is
missed is a compiler error, whose message refers to the original file."""
import re
import sys

ANONYMOUS = re.compile(r"^namespace \{$.*?^\}  // namespace$", re.M | re.S)
# The text before a declared name, at the beginning of a line, and the text after it.
DECLARED = [
    re.compile(r"^(?:class|struct|union|enum class|enum) (\w+)", re.M),
    re.compile(r"^using (\w+) =", re.M),
    re.compile(r"^(?:\[\[\w+\]\] )?[A-Za-z][\w:<>,*& ]*?[ *&](\w+)\(", re.M),
    re.compile(r"^(?:constexpr|const|static|inline|thread_local)\b[^(\n]*?[ *&](\w+)(?: =|\[|\{|;)", re.M),
    re.compile(r"\b(k[A-Z]\w*)(?: = |\[\]|\{)"),
]
# Comments, strings, and names with a qualifier that makes them part of something else.
TOKEN = re.compile(r"//[^\n]*|/\*.*?\*/|R\"(\w*)\(.*?\)\1\"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])'|(?P<of>\.|->|::)?(?P<name>\b[A-Za-z_]\w*)", re.S)


def own_names(text):
    """The names that the file declares in anonymous namespaces."""
    names = set()
    for part in ANONYMOUS.finditer(text):
        for pattern in DECLARED:
            names.update(pattern.findall(part.group()))
    return names


def free_names(text):
    return {match["name"] for match in TOKEN.finditer(text) if match["name"] and not match["of"]}


def main():
    paths = sys.argv[1:]
    texts = [open(path, encoding="utf-8").read() for path in paths]
    owned, used = [own_names(text) for text in texts], [free_names(text) for text in texts]
    for number, (path, text) in enumerate(zip(paths, texts)):
        elsewhere = set().union(*(used[other] for other in range(len(paths)) if other != number))
        shared = owned[number] & elsewhere
        mine = lambda match: match.group() + f"_{number}" if match["name"] in shared and not match["of"] else match.group()
        sys.stdout.write(f'#line 1 "{path}"\n{TOKEN.sub(mine, text)}')


if __name__ == "__main__":
    main()
