"""Compiles several source files as one, so that their headers are read only once. Headers take most of the compilation time of our files.
"""

# Also for packages of other repositories.
_JOIN = "@gradloom//bazel:join_sources.py"

def joined_source(name, srcs):
    """Writes NAME: the contents of srcs in order (join_sources.py).

    Args:
      name: name of the file. If it ends with joined_NUMBER.cc, it is compiled with the warnings of our code (.bazelrc).
      srcs: source files.
    """
    native.genrule(
        name = name.replace(".", "_"),
        srcs = srcs,
        outs = [name],
        cmd = "$(execpath %s) $(SRCS) > $@" % _JOIN,
        tools = [_JOIN],
    )

def joined(name, srcs, parts = 1):
    """The sources for a rule: srcs, or `parts` files made from them if sources are joined (--define=sources=joined, as in CI).

    Joining hides that a file needs an include of another file. tests/style:includes_test detects nearly all such cases, and builds without
    the define the rest.

    Args:
      name: name of the rule.
      srcs: its source files.
      parts: number of files.
    """
    files = []
    for number in range(parts):
        files.append("%s_joined_%d.cc" % (name, number))
        joined_source(
            name = files[-1],
            # Files that are adjacent in the alphabet are similar, so they are distributed over the parts, which then take about equal time.
            srcs = [src for index, src in enumerate(srcs) if index % parts == number],
        )
    return select({
        "//bazel:sources_are_joined": files,
        "//conditions:default": srcs,
    })
