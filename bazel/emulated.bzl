"""emulated_sources: device code as source files for the host's compiler."""

def _including(out, srcs):
    native.genrule(
        name = out.replace(".", "_"),
        outs = [out],
        cmd = "; ".join(["echo '#include \"%s/%s\"'" % (native.package_name(), src) for src in srcs]).join(["(", ") > $@"]),
    )
    return out

def emulated_sources(name, srcs, together = []):
    """Generates a file emulated_X.cc for each X.cu, which includes it.

    Args:
      name: name of the file group.
      srcs: .cu files of this package.
      together: lists of srcs without common names, each of which becomes one file if sources are joined (joined_source.bzl).
    """
    each = {src: _including("emulated_" + src.replace(".cu", ".cc"), [src]) for src in srcs}
    groups = [_including("emulated_group_%d.cc" % number, group) for number, group in enumerate(together)]
    grouped = [src for group in together for src in group]
    native.filegroup(
        name = name,
        srcs = select({
            "//bazel:sources_are_joined": groups + [each[src] for src in srcs if src not in grouped],
            "//conditions:default": each.values(),
        }),
    )
