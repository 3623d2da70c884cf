"""The Python environment of the tests (tools/python_env.sh) as @test_python//:python, a program."""

def _python_env_impl(ctx):
    # Declares the pinned requirements as a dependency, so that a change of them rebuilds the environment.
    pins = ctx.path(Label("//tools/python:requirements.txt"))
    script = pins.dirname.dirname.get_child("python_env.sh")
    result = ctx.execute(["bash", script], timeout = 900)
    if result.return_code != 0:
        fail("the Python environment of the tests could not be made:\n" + result.stderr)
    ctx.file("python.sh", """#!/bin/bash
python="%s"
if [ ! -x "$python" ]; then
  echo "the Python environment of the tests is gone: $python; run tools/python_env.sh" >&2
  exit 1
fi
exec "$python" -I "$@"
""" % result.stdout.strip())
    ctx.file("BUILD.bazel", """package(default_visibility = ["//visibility:public"])

sh_binary(
    name = "python",
    srcs = ["python.sh"],
)
""", executable = False)

python_env = repository_rule(
    implementation = _python_env_impl,
    environ = ["GRADLOOM_PYTHON_CACHE", "HOME"],
    local = True,
)
