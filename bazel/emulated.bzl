"""emulated_sources: device code as sources for the host's compiler."""

def emulated_sources(name, srcs):
    """For each X.cu a file emulated_X.cc that includes it.

    Args:
      name: of the file group.
      srcs: .cu files of this package.
    """
    outs = []
    for src in srcs:
        out = "emulated_" + src.replace(".cu", ".cc")
        native.genrule(
            name = out.replace(".", "_"),
            outs = [out],
            cmd = "echo '#include \"%s/%s\"' > $@" % (native.package_name(), src),
        )
        outs.append(out)
    native.filegroup(name = name, srcs = outs)
