"""emulated_sources: device code as sources for the host's compiler."""

def _including(out, srcs):
    native.genrule(
        name = out.replace(".", "_"),
        outs = [out],
        cmd = "; ".join(["echo '#include \"%s/%s\"'" % (native.package_name(), src) for src in srcs]).join(["(", ") > $@"]),
    )
    return out

def emulated_sources(name, srcs, together = []):
    """For each X.cu a file emulated_X.cc that includes it.

    Args:
      name: of the file group.
      srcs: .cu files of this package.
      together: lists of srcs that have no names in common, and are one file each where sources are joined (joined_source.bzl).
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
