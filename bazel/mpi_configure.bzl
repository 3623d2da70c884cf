"""Finds the system's MPI. Without one, a substitute lets the project build without MPI between processes."""

# Debian's paths. Its alternatives system points both at the selected MPI; the multiarch folder comes from the compiler.
_INCLUDE = "/usr/include/{triple}/mpi"
_LIBRARY = "/usr/lib/{triple}/libmpi.so"

def _mpi_configure_impl(ctx):
    triple = ctx.execute(["gcc", "-print-multiarch"]).stdout.strip()
    include = ctx.path(_INCLUDE.format(triple = triple))
    library = ctx.path(_LIBRARY.format(triple = triple))
    there = ctx.os.environ.get("WITH_MPI", "auto") != "0" and include.get_child("mpi.h").exists and library.exists
    ctx.file("defs.bzl", "MPI_AVAILABLE = %s\n" % there)
    if there:
        ctx.symlink(include, "include")
    ctx.file("BUILD.bazel", """\
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "mpi",
    hdrs = glob(["include/**"], allow_empty = True),
    # The C++ bindings are gone from the standard, and from most of the libraries.
    defines = ["OMPI_SKIP_MPICXX", "MPICH_SKIP_MPICXX"],
    includes = ["include"],
    linkopts = {linkopts},
)
""".format(linkopts = ["-lmpi"] if there else []))

mpi_configure = repository_rule(
    implementation = _mpi_configure_impl,
    environ = ["WITH_MPI"],
    local = True,
    configure = True,
)
