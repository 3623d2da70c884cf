"""Whether the tested binaries are compiled with a sanitizer (bazel test --config=asan or tsan). They are slow, keep freed memory, reserve
terabytes of address space, and are built without MPI, whose own leaks and races are not ours."""
import os

SANITIZED = "ASAN_OPTIONS" in os.environ or "TSAN_OPTIONS" in os.environ
