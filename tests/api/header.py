"""The Python package's view of gradloom_c.h, and the library through its function table alone, for tests of that table."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
from gradloom._c_interface import Header  # noqa: E402, F401
from gradloom._c_interface import Library as Gradloom  # noqa: E402, F401
