"""The innermost loops for one instruction set."""

def isa_library(name, flags):
    """Compiles the same sources with an instruction set's flags into a namespace of its own.

    Args:
      name: name of the library and of the namespace.
      flags: compiler flags that enable the instruction set.
    """
    native.cc_library(
        name = name,
        srcs = [
            "convert_loops.cc",
            "depthwise_loops.cc",
            "few_rows_loops.cc",
            "fourier_loops.cc",
            "grid_loops.cc",
            "local_response_loops.cc",
            "matrix_loops.cc",
            "normalization_loops.cc",
            "optimizer_loops.cc",
            "outer_loops.cc",
            "pair_loops.cc",
            "panel_tile.h",
            "pointwise_loops.cc",
            "pooling_loops.cc",
            "quantize_loops.cc",
            "random_loops.cc",
            "recurrent_loops.cc",
            "reduce_loops.cc",
            "ring_loops.cc",
            "softmax_loops.cc",
            "table.cc",
            "tables.h",
            "vector.h",
            "winograd_loops.cc",
        ],
        hdrs = ["loops.h"],
        copts = [
            "-O3",
            "-fno-math-errno",
            "-fno-trapping-math",
            # Interpreted and fused programs, and all machines with fused multiply-add, give the same bits.
            "-ffp-contract=off",
            "-fopenmp-simd",
            # Where a loop begins decides how many cache lines it takes: up to 15 % of its time, by chance at each change of other code.
            "-falign-functions=64",
            "-falign-loops=64",
            "-DGRADLOOM_ISA=" + name,
        ] + flags,
        deps = ["//kernels/scalar"],
    )
