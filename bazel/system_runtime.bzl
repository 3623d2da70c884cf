"""Files that our packages take from the system: shared libraries, and the licenses of the Debian packages they come from."""

_COMMON = "/usr/share/common-licenses"

def _system_runtime_impl(ctx):
    taken = {"/usr/lib/x86_64-linux-gnu/" + soname: "lib/" + soname for soname in ctx.attr.libraries}
    for package in ctx.attr.libraries.values() + ctx.attr.packages:
        taken["/usr/share/doc/%s/copyright" % package] = "licenses/%s/copyright" % package

    # The license texts that Debian's files refer to.
    for license in ctx.attr.common_licenses:
        taken[_COMMON + "/" + license] = "licenses/common/" + license
    missing = [path for path in taken if not ctx.path(path).exists]
    for path, name in taken.items():
        if path not in missing:
            ctx.symlink(ctx.path(path).realpath, name)
    if missing:
        fail("%s: not installed: %s. Run tools/install_deps.sh first." % (ctx.name, ", ".join(missing)))
    ctx.file("packages.txt", "".join(["%s %s\n" % (soname, package) for soname, package in ctx.attr.libraries.items()]))
    ctx.file("BUILD.bazel", """package(default_visibility = ["//visibility:public"])

exports_files(["packages.txt"])

filegroup(
    name = "libraries",
    srcs = glob(["lib/*"]),
)

filegroup(
    name = "licenses",
    srcs = glob(["licenses/**"]),
)
""", executable = False)

system_runtime = repository_rule(
    implementation = _system_runtime_impl,
    attrs = {
        "libraries": attr.string_dict(doc = "Soname -> the Debian package that has it."),
        "packages": attr.string_list(doc = "Packages whose code is compiled into ours."),
        "common_licenses": attr.string_list(doc = "Under /usr/share/common-licenses."),
    },
    local = True,
    configure = True,
)
