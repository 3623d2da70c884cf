"""Installs the wheel for a test."""
import shutil
import subprocess
import sys
import tempfile
import unittest


def install(wheel, models):
    """Into a folder, which it returns, as `site`, with models and data beside it. Removed after the module's tests."""
    folder = tempfile.mkdtemp()
    unittest.addModuleCleanup(shutil.rmtree, folder)
    subprocess.run([sys.executable, "-I", "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile", "--disable-pip-version-check",
                    "--target", f"{folder}/site", wheel], check=True)
    sys.path.insert(0, f"{folder}/site")
    for name in ("digits_cnn.onnx", "housing_mlp.onnx", "data/digits.csv.gz", "data/boston.csv"):
        shutil.copy(f"{models}/{name}", folder)
    return folder
