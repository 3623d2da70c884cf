"""Several source files compiled as one, whose headers are then read once: most of the time of a file of ours is that of headers."""

# Also for packages of other repositories.
_JOIN = "@gradloom//bazel:join_sources.py"

def joined_source(name, srcs):
    """Writes NAME: all of srcs in their order (join_sources.py).

    Args:
      name: of the file. One that ends with joined_NUMBER.cc is compiled with the warnings of our code (.bazelrc).
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
    """What a rule has as its sources: these, or where sources are joined (--define=sources=joined, as in CI) as many files made of them.

    A joined file hides that one of its files needs what another one includes. tests/style:includes_test sees nearly all of it, builds
    without the define see the rest.

    Args:
      name: of the rule.
      srcs: its source files.
      parts: how many files.
    """
    files = []
    for number in range(parts):
        files.append("%s_joined_%d.cc" % (name, number))
        joined_source(
            name = files[-1],
            # Neighbours in the alphabet are alike: they are apart, and the parts take as long as each other.
            srcs = [src for index, src in enumerate(srcs) if index % parts == number],
        )
    return select({
        "//bazel:sources_are_joined": files,
        "//conditions:default": srcs,
    })
