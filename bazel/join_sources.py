#!/usr/bin/env python3
"""join_sources.py FILE...: the files one behind the other, as one source whose headers are read once.

What a file has for itself, in an anonymous namespace, must not meet what another file calls so: where that is so, it gets the number of its
file behind its name. It is found as our style writes it (declarations of a namespace begin their lines); what is missed is an error of the
compiler, whose messages name the file that is meant.
"""
import re
import sys

ANONYMOUS = re.compile(r"^namespace \{$.*?^\}  // namespace$", re.M | re.S)
# What stands in front of a name that is declared, at the beginning of a line, and what behind it.
DECLARED = [
    re.compile(r"^(?:class|struct|union|enum class|enum) (\w+)", re.M),
    re.compile(r"^using (\w+) =", re.M),
    re.compile(r"^(?:\[\[\w+\]\] )?[A-Za-z][\w:<>,*& ]*?[ *&](\w+)\(", re.M),
    re.compile(r"^(?:constexpr|const|static|inline|thread_local)\b[^(\n]*?[ *&](\w+)(?: =|\[|\{|;)", re.M),
    re.compile(r"\b(k[A-Z]\w*)(?: = |\[\]|\{)"),
]
# Comments, texts, and names with what makes them a part of something else.
TOKEN = re.compile(r"//[^\n]*|/\*.*?\*/|R\"(\w*)\(.*?\)\1\"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])'|(?P<of>\.|->|::)?(?P<name>\b[A-Za-z_]\w*)", re.S)


def own_names(text):
    """What the file has in anonymous namespaces."""
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
