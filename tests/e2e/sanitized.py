"""Whether what is tested is compiled for a sanitizer (bazel test --config=asan or tsan): it is slow, keeps what was freed, takes terabytes of
addresses, and is built without MPI, whose own leaks and races are not ours."""
import os

SANITIZED = "ASAN_OPTIONS" in os.environ or "TSAN_OPTIONS" in os.environ
