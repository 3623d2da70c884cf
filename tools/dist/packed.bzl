"""packed: runs pack.py on files."""

def packed(name, out, files):
    """Runs pack.py.

    Args:
      name: dist, wheel or deb, as in pack.py.
      out: the output file.
      files: dictionaries from a flag of pack.py to labels.
    """
    srcs = ["pack.py", "tree.py"]
    cmd = "python3 $(location pack.py) %s --out $@" % name
    for some in files:
        for flag, labels in some.items():
            srcs = srcs + labels
            cmd += " --%s %s" % (flag, " ".join(["$(locations %s)" % label for label in labels]))
    native.genrule(name = name, srcs = srcs, outs = [out], cmd = cmd)
