"""joined_source: several source files as one, whose headers are then read once."""

def joined_source(name, srcs):
    """Writes NAME: all of srcs in their order. No two of them may have a name for themselves in common.

    Args:
      name: of the file.
      srcs: source files.
    """
    native.genrule(
        name = name.replace(".", "_"),
        srcs = srcs,
        outs = [name],
        # Messages of the compiler name the file that is meant.
        cmd = "for f in $(SRCS); do echo \"#line 1 \\\"$$f\\\"\"; cat $$f; done > $@",
    )
