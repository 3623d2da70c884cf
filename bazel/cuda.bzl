"""cuda_library: device code compiled by nvcc, linked like any C++ library."""

load("@local_cuda//:defs.bzl", "CUDA_ARCHS", "CUDA_AVAILABLE", "CUDA_FAST_COMPILE", "NVCC")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")
load(":joined_source.bzl", "joined_source")

def _gencode_flags():
    flags = ["-gencode=arch=compute_%s,code=sm_%s" % (a, a) for a in CUDA_ARCHS]
    if not CUDA_FAST_COMPILE:
        # For future GPUs. Compressing this takes a quarter of the compilation time of a file.
        newest = CUDA_ARCHS[-1]
        flags.append("-gencode=arch=compute_%s,code=compute_%s" % (newest, newest))
    return flags

def _optimize_flags():
    """If nothing runs on a GPU, code that is only compiled and linked need not be fast, which saves half of the time."""
    fast = ["--Ofast-compile=max", "-Xcompiler=-O0"]
    return ["-DNDEBUG"] + (fast if CUDA_FAST_COMPILE else ["-O3"])

def _cuda_library_impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    below = cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in ctx.attr.deps])
    context = below.compilation_context
    debug = ctx.var["COMPILATION_MODE"] == "dbg"

    objects = []
    for src in ctx.files.srcs:
        if src.extension != "cu":
            continue
        obj = ctx.actions.declare_file("_cuda/%s/%s.pic.o" % (ctx.label.name, src.basename[:-3]))

        # Not the other sources, so that a change in one of them recompiles only that one.
        depfile_inputs = [f for f in ctx.files.srcs if f.extension != "cu"] + ctx.files.hdrs
        args = ctx.actions.args()
        args.add("-c", src)
        args.add("-o", obj)
        args.add_all(["-std=c++20", "-ccbin", toolchain.compiler_executable])
        args.add_all(["-O0", "-g", "-lineinfo"] if debug else _optimize_flags())
        args.add_all(["-Xcompiler=-fPIC", "-Xcompiler=-Wall", "--expt-relaxed-constexpr", "--extended-lambda", "--threads=2"])

        # Such as that it knows no limit for a kernel's stack, which would then have CUDA's default size and might overflow.
        args.add("-Xptxas=--warning-as-error")

        # For few bytes, a tenth of the size; modules are unpacked on first use. It takes a sixth of the time of a fast compilation.
        args.add("-compress-mode=" + ("speed" if CUDA_FAST_COMPILE else "size"))
        args.add("--objdir-as-tempdir")  # in /tmp, compilers in different sandboxes would use the same names
        args.add_all(_gencode_flags())
        args.add("-I.")
        args.add("-I" + ctx.bin_dir.path)
        args.add_all(context.defines, before_each = "-D")
        args.add_all(context.local_defines, before_each = "-D")
        args.add_all(ctx.attr.defines, before_each = "-D")
        args.add_all(context.includes, before_each = "-I")
        args.add_all(context.quote_includes, before_each = "-I")
        args.add_all(context.system_includes, before_each = "-isystem")
        args.add_all(ctx.attr.nvccopts)
        ctx.actions.run(
            executable = NVCC,
            arguments = [args],
            inputs = depset([src] + depfile_inputs, transitive = [context.headers, toolchain.all_files]),
            outputs = [obj],
            mnemonic = "Nvcc",
            progress_message = "Compiling device code %s" % src.short_path,
            env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "TMPDIR": "/tmp"},
        )
        objects.append(obj)

    own_context = cc_common.create_compilation_context(
        headers = depset(ctx.files.hdrs),
        defines = depset(ctx.attr.defines),
        includes = depset(),
    )
    outputs = cc_common.create_compilation_outputs(
        objects = depset(objects),
        pic_objects = depset(objects),
    )
    linking, _ = cc_common.create_linking_context_from_compilation_outputs(
        actions = ctx.actions,
        name = ctx.label.name,
        cc_toolchain = toolchain,
        feature_configuration = features,
        compilation_outputs = outputs,
        linking_contexts = [below.linking_context],
        # Device code calls the CUDA runtime; targets that link it get cudart from deps.
        disallow_dynamic_library = True,
        # Kernels are found through lists that refer to them, in libraries that these depend on.
        alwayslink = True,
    )
    return [
        DefaultInfo(files = depset(objects)),
        cc_common.merge_cc_infos(
            direct_cc_infos = [CcInfo(compilation_context = own_context, linking_context = linking)],
            cc_infos = [below],
        ),
    ]

_cuda_library = rule(
    implementation = _cuda_library_impl,
    attrs = {
        "srcs": attr.label_list(allow_files = [".cu", ".cuh", ".h", ".inc"]),
        "hdrs": attr.label_list(allow_files = [".cuh", ".h", ".inc"]),
        "deps": attr.label_list(providers = [CcInfo]),
        "defines": attr.string_list(),
        "nvccopts": attr.string_list(),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)

def cuda_library(name, srcs = [], hdrs = [], deps = [], together = [], visibility = None, **kwargs):
    """Device code. Without a CUDA toolkit it is an empty library with the same headers.

    Args:
      name: name of the library.
      srcs: .cu files and private headers.
      hdrs: public headers.
      deps: C++ libraries; @local_cuda//:cudart is added.
      together: lists of srcs that are compiled as one file each if CUDA_FAST_COMPILE is set, because headers take half of the time.
      visibility: as usual.
      **kwargs: defines, nvccopts, tags.
    """
    if CUDA_AVAILABLE:
        joined = []
        for number, group in enumerate(together if CUDA_FAST_COMPILE else []):
            joined.append("%s_joined_%d.cu" % (name, number))
            joined_source(name = joined[-1], srcs = group)
            srcs = [src for src in srcs if src not in group]
        _cuda_library(
            name = name,
            srcs = srcs + joined,
            hdrs = hdrs,
            deps = deps + ["@local_cuda//:cudart"],
            visibility = visibility,
            **kwargs
        )
    else:
        native.cc_library(name = name, hdrs = hdrs, deps = deps, visibility = visibility)
