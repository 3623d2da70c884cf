"""Installs the wheel for a test."""
import shutil
import subprocess
import sys
import tempfile
import unittest

import numpy as np


def install(wheel, models):
    """Into a folder, which it returns, as `site`, with models and data beside it. Removed after the module's tests."""
    global FOLDER
    FOLDER = folder = tempfile.mkdtemp()
    unittest.addModuleCleanup(shutil.rmtree, folder)
    subprocess.run([sys.executable, "-I", "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile", "--disable-pip-version-check",
                    "--target", f"{folder}/site", wheel], check=True)
    sys.path.insert(0, f"{folder}/site")
    for name in ("digits_cnn.onnx", "housing_mlp.onnx", "data/digits.csv.gz", "data/boston.csv"):
        shutil.copy(f"{models}/{name}", folder)
    return folder


class HousingTest(unittest.TestCase):
    """A plan for the housing model, and a batch for it."""

    @classmethod
    def setUpClass(cls):
        import gradloom
        cls.gradloom = gradloom
        cls.plan = gradloom.compile(f"{FOLDER}/housing_mlp.onnx", loss="mse(value, target)", optimizer="adam", lr=0.01, batch=16, gradients=True)
        random = np.random.default_rng(5)
        cls.x, cls.y = random.normal(size=(16, 13)).astype(np.float32), random.normal(size=(16, 1)).astype(np.float32)
