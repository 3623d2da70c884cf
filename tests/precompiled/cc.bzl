"""Rules for tests whose compilation takes little time. Most of it goes to headers, and to templates that every file instantiates again.

cc_test and cc_library begin with headers that many tests include, parsed once (headers.cc). Programs written like those of users take the
native rules, so that they see no header that a user would not see.
"""

load("//bazel:joined_source.bzl", "joined_source")

_COPTS = ["-include", "tests/precompiled/headers.h"]
_DEPS = ["//tests/precompiled"]

def cc_test(name, copts = [], deps = [], **kwargs):
    native.cc_test(name = name, copts = _COPTS + copts, deps = deps + _DEPS, **kwargs)

def cc_library(name, copts = [], deps = [], precompiled = True, **kwargs):
    """As the native rule. precompiled: False if a file defines macros before it includes a header."""
    native.cc_library(name = name, copts = (_COPTS if precompiled else []) + copts, deps = deps + (_DEPS if precompiled else []), **kwargs)

def joined_tests(name, srcs, deps, parts):
    """The tests of several files, for joined_test. They are compiled as `parts` files if sources are joined (joined_source.bzl).

    Args:
      name: name of the library.
      srcs: files with tests, each without main and without other files that it needs.
      deps: what they all need.
      parts: number of files that are made of them.
    """
    files = []
    for number in range(parts):
        files.append("%s_joined_%d.cc" % (name, number))
        joined_source(name = files[-1], srcs = [src for index, src in enumerate(srcs) if index % parts == number])
    cc_library(
        name = name,
        testonly = True,
        srcs = files,
        # Nothing refers to the tests.
        alwayslink = True,
        tags = ["manual"],
        deps = deps,
    )

    # For each file, the flag that selects its tests.
    native.genrule(
        name = name + "_flags",
        testonly = True,
        srcs = files,
        outs = [_flags(src) for src in srcs],
        cmd = "$(execpath //tests/precompiled:select_tests.py) $(RULEDIR) $(SRCS)",
        tags = ["manual"],
        tools = ["//tests/precompiled:select_tests.py"],
    )

def joined_test(name, src, tests, deps, args = [], data = [], **kwargs):
    """A test of one file, which is among those of joined_tests.

    Args:
      name: name of the test.
      src: its file.
      tests: the joined_tests of its file, in the same package.
      deps: what the file needs.
      args: arguments for the test.
      data: files that the test reads.
      **kwargs: passed to cc_test.
    """
    cc_test(
        name = name,
        srcs = select({
            "//bazel:sources_are_joined": [],
            "//conditions:default": [src],
        }),
        args = args + select({
            "//bazel:sources_are_joined": ["--gtest_flagfile=$(location %s)" % _flags(src)],
            "//conditions:default": [],
        }),
        data = data + select({
            "//bazel:sources_are_joined": [_flags(src)],
            "//conditions:default": [],
        }),
        deps = select({
            "//bazel:sources_are_joined": [tests],
            "//conditions:default": deps,
        }),
        **kwargs
    )

def _flags(src):
    return src.replace(".cc", ".flags")
