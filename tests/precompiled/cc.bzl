"""cc_test and cc_library with headers that many tests include, parsed once (headers.cc). Parsing them takes a third of the compilation of
a test. Programs written like those of users take the native rules, so that they see no header that a user would not see.
"""

_COPTS = ["-include", "tests/precompiled/headers.h"]
_DEPS = ["//tests/precompiled"]

def cc_test(name, copts = [], deps = [], **kwargs):
    native.cc_test(name = name, copts = _COPTS + copts, deps = deps + _DEPS, **kwargs)

def cc_library(name, copts = [], deps = [], **kwargs):
    native.cc_library(name = name, copts = _COPTS + copts, deps = deps + _DEPS, **kwargs)
