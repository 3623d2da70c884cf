"""Finds a CUDA toolkit. Without one, a substitute lets the project build for the CPU only."""

_LIBRARIES = ["cudart", "cublasLt", "cudnn", "nccl", "nvrtc"]

_HEADER_OF = {
    "cudart": "cuda_runtime.h",
    "cublasLt": "cublasLt.h",
    "cudnn": "cudnn.h",
    "nccl": "nccl.h",
    "nvrtc": "nvrtc.h",
}

def _stub(ctx, why):
    ctx.file("defs.bzl", """\
CUDA_AVAILABLE = False
CUDA_HOME = ""
NVCC = ""
CUDA_ARCHS = []
CUDA_FAST_COMPILE = False
WHY = {why}

def if_cuda(then, otherwise = []):
    return otherwise
""".format(why = repr(why)))
    rules = ['package(default_visibility = ["//visibility:public"])']
    for name in ["headers", "cuda"] + _LIBRARIES:
        rules.append('cc_library(name = "%s")' % name)
    ctx.file("BUILD.bazel", "\n".join(rules) + "\n")

def _cuda_configure_impl(ctx):
    if ctx.os.environ.get("WITH_CUDA", "auto") == "0":
        return _stub(ctx, "WITH_CUDA=0")
    home = ctx.path(ctx.os.environ.get("CUDA_HOME", "/usr/local/cuda"))
    nvcc = home.get_child("bin").get_child("nvcc")
    lib = home.get_child("lib64")
    include = home.get_child("include")
    missing = [] if nvcc.exists else [str(nvcc)]
    for name in _LIBRARIES:
        if not include.get_child(_HEADER_OF[name]).exists:
            missing.append(_HEADER_OF[name])
        if not lib.get_child("lib%s.so" % name).exists:
            missing.append("lib%s.so" % name)
    if missing:
        if ctx.os.environ.get("WITH_CUDA") == "1":
            fail("WITH_CUDA=1, but under %s these are missing: %s" % (home, ", ".join(missing)))
        return _stub(ctx, "missing: " + ", ".join(missing))

    ctx.symlink(include, "include")
    archs = ctx.os.environ.get("CUDA_ARCHS", "80,90").split(",")

    # Only newer toolkits have this option.
    fast = ctx.os.environ.get("CUDA_FAST_COMPILE") == "1" and "--Ofast-compile" in ctx.execute([nvcc, "--help"]).stdout
    ctx.file("defs.bzl", """\
CUDA_AVAILABLE = True
CUDA_HOME = {home}
NVCC = {nvcc}
CUDA_ARCHS = {archs}
CUDA_FAST_COMPILE = {fast}
WHY = ""

def if_cuda(then, otherwise = []):
    return then
""".format(home = repr(str(home)), nvcc = repr(str(nvcc)), archs = repr(archs), fast = fast))
    rules = ["""\
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "headers",
    hdrs = glob(["include/**"]),
    includes = ["include"],
)
"""]
    for name in _LIBRARIES:
        rules.append("""\
cc_library(
    name = "{name}",
    linkopts = ["-L{lib}", "-Wl,-rpath,{lib}", "-l{name}"],
    deps = [":headers"],
)
""".format(name = name, lib = lib))
    rules.append("""\
cc_library(
    name = "cuda",
    deps = {deps},
)
""".format(deps = repr([":" + name for name in _LIBRARIES])))
    ctx.file("BUILD.bazel", "\n".join(rules))

cuda_configure = repository_rule(
    implementation = _cuda_configure_impl,
    environ = ["CUDA_HOME", "CUDA_ARCHS", "CUDA_FAST_COMPILE", "WITH_CUDA"],
    local = True,
    configure = True,
)
