"""Tests that read with Python's packages what Gradloom writes, and the other way."""

def python_test(name, main, args = [], data = [], **kwargs):
    """Runs `main` with the interpreter of @test_python; it passes if the script exits with 0.

    Args:
      name: name of the test.
      main: the script; Python's unittest is at hand.
      args: arguments of the script; $(location LABEL) for those in data.
      data: programs and files that it uses.
      **kwargs: passed on to sh_test.
    """
    native.sh_test(
        name = name,
        srcs = ["//bazel:python_test.sh"],
        args = ["$(location @test_python//:python)", "$(location %s)" % main] + args,
        data = [main, "@test_python//:python"] + data,
        **kwargs
    )
