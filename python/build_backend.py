"""The PEP 517 build backend: builds the wheel with bazel build //:wheel, which needs no other package."""
import glob
import os
import shutil
import subprocess


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    subprocess.run(["bazel", "build", "//:wheel"], check=True)
    folder = subprocess.run(["bazel", "info", "bazel-bin"], check=True, capture_output=True, text=True).stdout.strip()
    wheels = glob.glob(os.path.join(folder, "tools", "dist", "gradloom-*.whl"))
    if len(wheels) != 1:
        raise RuntimeError(f"bazel build //:wheel left {len(wheels)} wheels in {folder}/tools/dist")
    shutil.copy(wheels[0], wheel_directory)
    return os.path.basename(wheels[0])


def build_sdist(sdist_directory, config_settings=None):
    raise NotImplementedError("source distributions are not supported; use the repository")
