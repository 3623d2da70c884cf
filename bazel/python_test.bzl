"""Tests in which Python packages read what Gradloom writes, and the reverse."""

def python_test(name, main, args = [], data = [], **kwargs):
    """Runs `main` with the interpreter of @test_python. The test passes if the script exits with 0.

    Args:
      name: name of the test.
      main: the script, usually using Python's unittest.
      args: arguments of the script; $(location LABEL) for files in data.
      data: programs and files that it uses.
      **kwargs: passed to sh_test.
    """
    native.sh_test(
        name = name,
        srcs = ["//bazel:python_test.sh"],
        args = ["$(location @test_python//:python)", "$(location %s)" % main] + args,
        data = [main, "@test_python//:python"] + data,
        **kwargs
    )
