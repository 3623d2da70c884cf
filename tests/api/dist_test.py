"""Tests the archive and the Debian package: they work wherever they are unpacked, with CMake, pkg-config and a plain compiler, and contain
the licenses of everything in them.

Arguments: the archive, the Debian package, docs/dependencies.md, docs/install.md, and the plug-ins that were built, separated by commas.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

import numpy as np
import onnxruntime

DIST, DEB, DEPENDENCIES, INSTALL = (os.path.abspath(word) for word in sys.argv[1:5])
BUILT = set(filter(None, sys.argv[5].split(",")))
sys.argv[1:6] = []
# Libraries of every Linux system. The GPU plug-in also needs NVIDIA's.
OF_THE_SYSTEM = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "libstdc++.so.6", "libz.so.1", "ld-linux-x86-64.so.2", "libpthread.so.0", "libdl.so.2"}
# Opened at run time. Their dependencies belong to the machine; the second entry is where they may lie besides the system's folders.
CUDA, MPI = "libgradloom_cuda.so", "libgradloom_mpi.so"
PLUGINS = {CUDA: ("lib(cu|nv|nccl)", ":/usr/local/cuda/lib64"), MPI: ("libmpi", "")}
# The environment of a shell that has no settings for Gradloom.
PLAIN = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "LC_ALL": "C.UTF-8"}


def run(*words, **options):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, env={**PLAIN, **options.pop("env", {})}, **options)
    if done.returncode != 0:
        raise AssertionError(f"{words}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def elf_files(folder):
    for directory, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(directory, name)
            with open(path, "rb") as file:
                if file.read(4) == b"\x7fELF":
                    yield path


def dynamic(path, tag):
    return re.findall(rf"\({tag}\).*\[(.*)\]", run("readelf", "-dW", path))


def installed(*packages):
    return all(shutil.which(package, path=PLAIN["PATH"]) for package in packages)


def train_by_mpirun(program, example, out):
    """Runs two processes over MPI and returns their output."""
    # Oversubscribes cores, permits running as root, and disables reading each other's memory, which containers forbid. Sockets lie in
    # TMPDIR, and their paths must be short.
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        told = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
                "OMPI_MCA_hwloc_base_binding_policy": "none", "OMPI_MCA_btl_vader_single_copy_mechanism": "none", "TMPDIR": short}
        done = subprocess.run(["mpirun", "-n", "2", program, "train", f"{example}/housing_mlp.onnx", "--data", f"{example}/boston.csv", "--map",
                               "features=CRIM..LSTAT", "--map", "target=MEDV", "--loss", "mse(value, target)", "--epochs", "1", "--transport",
                               "mpi", "--threads", "1", "--out", out], capture_output=True, text=True, env={**PLAIN, **told}, timeout=200)
    if done.returncode != 0:
        raise AssertionError(f"exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stderr


class DistTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, folder)
        cls.folder = folder
        with tarfile.open(DIST) as archive:
            cls.members = archive.getmembers()
            archive.extractall(folder)
        cls.root = os.path.join(folder, os.path.basename(DIST)[:-len(".tar.gz")])
        cls.example = f"{cls.root}/share/gradloom/example"

    def test_the_archive_unpacks_into_one_folder(self):
        top = os.path.basename(self.root)
        for member in self.members:
            self.assertTrue(member.name == top or member.name.startswith(top + "/"), member.name)
            self.assertTrue(member.isfile() or member.isdir(), member.name)
            self.assertEqual((member.uid, member.mtime), (0, 0), member.name)
            self.assertNotIn("..", member.name.split("/"))

    def test_the_command_trains_from_any_folder(self):
        """Also from a folder with a space in its name, to which the archive was moved."""
        moved = f"{self.folder}/moved to here"
        shutil.copytree(self.root, moved, symlinks=True)
        said = run(f"{moved}/bin/gradloom", "train", f"{self.example}/housing_mlp.onnx", "--data", f"{self.example}/boston.csv", "--map",
                   "features=CRIM..LSTAT", "--map", "target=MEDV", "--loss", "mse(value, target)", "--epochs", "2", "--out", f"{self.folder}/runs",
                   "--json")
        self.assertEqual(json.loads(said.splitlines()[-1])["epochs"], 2)
        self.assertEqual(run(f"{moved}/bin/gradloom", "--version").split()[1], re.findall(r"gradloom-([\d.]+)-", DIST)[0])

    def test_libraries_find_each_other_and_nothing_else(self):
        found = list(elf_files(self.root))
        self.assertGreater(len(found), 5)
        for path in found:
            of_the_machine, where = PLUGINS.get(os.path.basename(path), (None, ""))
            expected = "$ORIGIN/../lib" if "/bin/" in path else "$ORIGIN" + where
            self.assertEqual(dynamic(path, "(?:RUNPATH|RPATH)"), [expected], path)
            for needed in dynamic(path, "NEEDED"):
                here = os.path.exists(f"{self.root}/lib/{needed}")
                self.assertTrue(here or needed in OF_THE_SYSTEM or (of_the_machine and re.match(of_the_machine, needed)), f"{path} needs {needed}")

    def test_contains_the_plugins(self):
        self.assertEqual({os.path.basename(path) for path in elf_files(self.root)} & set(PLUGINS), BUILT)

    def test_mpi_carries_messages(self):
        """Between processes that mpirun starts from the archive, without any other Gradloom on the path."""
        if MPI not in BUILT or not installed("mpirun"):
            self.skipTest("no MPI here")
        self.assertRegex(train_by_mpirun(f"{self.root}/bin/gradloom", self.example, f"{self.folder}/mpi"), r"transport MPI \(")

    def test_everything_has_its_license(self):
        licenses = f"{self.root}/share/doc/gradloom/licenses"
        with open(f"{licenses}/index.json") as file:
            index = json.load(file)
        for paths in index.values():
            for path in paths:
                with open(f"{licenses}/{path}") as file:
                    self.assertRegex(file.read(), r"(?i)licen[cs]e|copyright|redistribut", path)
        self.assertEqual({os.path.basename(path) for path in elf_files(f"{self.root}/lib")} -
                         {"libgradloom.so", "libgradloom_runtime.so", *PLUGINS}, {name for name in index if ".so" in name})
        # The texts that Debian's license files refer to are included.
        for path in [path for paths in index.values() for path in paths if path.endswith("copyright")]:
            with open(f"{licenses}/{path}") as file:
                if "/usr/share/common-licenses/Apache-2.0" in file.read():
                    self.assertTrue(os.path.exists(f"{licenses}/common-licenses/Apache-2.0"))
        # Everything that the page of dependencies lists as part of the product is in the index. NVIDIA's libraries, MPI and zlib belong to
        # the machine.
        with open(DEPENDENCIES) as file:
            product = file.read().split("## In the product")[1].split("##")[0]
        names = [line.split("|")[1].strip() for line in product.splitlines() if line.startswith("| ") and not line.startswith("| name")]
        known = {"Protocol Buffers": "libprotobuf", "oneDNN": "libdnnl", "GNU OpenMP (libgomp)": "libgomp", "libjpeg-turbo": "libjpeg",
                 "libpng": "libpng16"}
        of_the_machine = {"zlib", "CUDA Toolkit: runtime, cuBLASLt, NVRTC, nvcc", "cuDNN", "NCCL", "Open MPI"}
        if not os.path.exists(f"{self.root}/lib/{CUDA}"):
            of_the_machine.add("cuDNN front end")
        for name in names:
            self.assertTrue(name in of_the_machine or any(entry.startswith(known.get(name, name)) for entry in index), name)

    def test_cmake_of_a_program_in_c(self):
        if not installed("cmake"):
            self.skipTest("no CMake here")
        # The C interface alone is enough for C programs, and another version is rejected.
        os.mkdir(f"{self.folder}/c")
        with open(f"{self.folder}/c/CMakeLists.txt", "w") as file:
            file.write("cmake_minimum_required(VERSION 3.16)\nproject(c C)\nfind_package(Gradloom REQUIRED)\nadd_executable(c c.c)\n"
                       "target_link_libraries(c PRIVATE Gradloom::runtime)\nfind_package(Gradloom 0.0 QUIET)\n"
                       "if(Gradloom_FOUND)\n  message(FATAL_ERROR other)\nendif()\nfind_package(Gradloom 9 QUIET)\n"
                       "if(Gradloom_FOUND)\n  message(FATAL_ERROR newer)\nendif()\n")
        with open(f"{self.folder}/c/c.c", "w") as file:
            file.write("#include <gradloom/gradloom_c.h>\nint main(void) { return GradloomGetApi(1) == 0; }\n")
        run("cmake", "-S", f"{self.folder}/c", "-B", f"{self.folder}/c/build", f"-DCMAKE_PREFIX_PATH={self.root}")
        run("cmake", "--build", f"{self.folder}/c/build")
        run(f"{self.folder}/c/build/c")

    def test_page(self):
        """Runs docs/install.md in an empty folder, from the archive to the programs built with CMake, pkg-config and g++."""
        if not installed("cmake", "pkg-config"):
            self.skipTest("no CMake or pkg-config here")
        with open(INSTALL) as file:
            page = file.read()
        blocks = re.findall(r"^```sh\n(.*?)^```$", page, re.M | re.S)
        self.assertEqual(len(blocks), 3)
        for name in (DIST, DEB):
            self.assertIn(os.path.basename(name), page)
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(DIST, folder)
            said = run("bash", "-c", "set -euo pipefail\n" + "\n".join(blocks[:2]), cwd=folder)
            # One line from each program.
            errors = [float(number) for number in re.findall(r"held back: ([\d.]+)", said)]
            self.assertEqual(len(errors), 2)
            self.assertLess(max(errors), 60)
            session = onnxruntime.InferenceSession(f"{folder}/trained.onnx", providers=["CPUExecutionProvider"])
            self.assertEqual(session.run(None, {"features": np.zeros((3, 13), np.float32)})[0].shape, (3, 1))
        self.assertEqual(blocks[2].split()[-1], f"./{os.path.basename(DEB)}")

    def test_what_a_program_contains_stays_apart(self):
        """A program that itself defines all that the libraries of others define, as one does that contains another protobuf: the loader prefers its
        symbols, and whoever runs into one ends here."""
        def defined(path):
            lines = run("nm", "-D", "--defined-only", path).splitlines()
            return {line.split()[-1].split("@")[0] for line in lines if line.split()[-2] not in "Aa"}

        foreign, system = set(), set()
        for path in elf_files(f"{self.root}/lib"):
            if not os.path.basename(path).startswith(("libgradloom", "libgomp")):
                foreign |= {name.removeprefix("gradloom_") for name in defined(path)}
        for path in set(re.findall(r"=> (/\S+)", run("ldd", f"{self.root}/lib/libgradloom.so"))):
            if not path.startswith(self.root) or "libgomp" in path:
                system |= defined(path)
        for known in ("dnnl_primitive_create", "jpeg_std_error", "png_create_read_struct", "zip_open"):
            self.assertIn(known, foreign)
        self.assertTrue(any("google8protobuf" in name for name in foreign))
        with open(f"{self.folder}/others.s", "w") as file:
            file.write(".text\n" + "".join(f'.weak "{name}"\n.type "{name}", @function\n"{name}":\n' for name in sorted(foreign - system)) + "ud2\n"
                       '.section .note.GNU-stack,"",@progbits\n')
        run("g++", "-std=c++20", "-rdynamic", f"{self.example}/housing.cc", f"{self.folder}/others.s", f"-I{self.root}/include",
            f"-L{self.root}/lib", "-lgradloom", f"-Wl,-rpath,{self.root}/lib", "-o", f"{self.folder}/others")
        self.assertIn("held back: ", run(f"{self.folder}/others", self.example, cwd=self.folder))

    def test_plain_compiler(self):
        with open(f"{self.folder}/plain.c", "w") as file:
            file.write("#include <gradloom/gradloom_c.h>\nint main(void) { return GradloomGetApi(1) == 0; }\n")
        for library in ("gradloom", "gradloom_runtime"):
            run("gcc", "-std=c99", "-Wall", "-Wextra", "-Werror", f"{self.folder}/plain.c", f"-I{self.root}/include",
                f"-L{self.root}/lib", f"-l{library}", f"-Wl,-rpath,{self.root}/lib", "-o", f"{self.folder}/plain")
            run(f"{self.folder}/plain")
        if installed("pkg-config"):
            version = run("pkg-config", "--modversion", "gradloom-runtime", env={"PKG_CONFIG_PATH": f"{self.root}/lib/pkgconfig"})
            self.assertEqual(version.strip(), re.findall(r"gradloom-([\d.]+)-", DIST)[0])


@unittest.skipUnless(installed("dpkg-deb"), "no dpkg here")
class DebTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        run("dpkg-deb", "--extract", DEB, cls.folder)
        cls.fields = dict(line.split(": ", 1) for line in run("dpkg-deb", "--field", DEB).splitlines() if ": " in line)
        cls.lib = f"{cls.folder}/usr/lib/x86_64-linux-gnu"

    def test_control(self):
        self.assertEqual(os.path.basename(DEB), "gradloom_{Version}_{Architecture}.deb".format(**self.fields))
        listed = run("dpkg-deb", "--contents", DEB).splitlines()
        for line in listed:
            self.assertRegex(line, r"^[d-]rw[x-]r-[x-]r-[x-] root/root ")
        self.assertTrue(any(line.endswith("./usr/share/doc/gradloom/copyright") for line in listed))

    def test_depends_on_the_packages_of_what_it_needs_and_no_others(self):
        needed = set()
        for path in elf_files(self.folder):
            if os.path.basename(path) not in PLUGINS:
                needed.update(dynamic(path, "NEEDED"))
        packages = set()
        for soname in needed:
            if not os.path.exists(f"{self.lib}/{soname}") and not os.path.exists(f"{self.lib}/gradloom/{soname}"):
                # /lib and /usr/lib are the same folder, whichever of them the package lists.
                place = r"^([^:\s]+):(?:amd64:)? (?:/usr)?/lib(?:/x86_64-linux-gnu|64)?/" + re.escape(soname) + "$"
                owners = re.findall(place, run("dpkg", "-S", soname), re.M)
                packages.update(owner.removesuffix(":amd64") for owner in owners)
        self.assertEqual({word.split()[0] for word in self.fields["Depends"].split(", ")}, packages)

    def test_contains_the_plugins(self):
        found = {os.path.basename(path): path for path in elf_files(self.folder)}
        self.assertEqual(set(found) & set(PLUGINS), BUILT)
        for name in BUILT:
            self.assertEqual(found[name], f"{self.lib}/gradloom/{name}")
        if MPI in BUILT and installed("mpirun"):
            with tarfile.open(DIST) as archive:
                archive.extractall(f"{self.folder}/dist", [member for member in archive.getmembers() if "/example/" in member.name])
            example = f"{self.folder}/dist/{os.path.basename(DIST)[:-len('.tar.gz')]}/share/gradloom/example"
            said = train_by_mpirun(f"{self.folder}/usr/bin/gradloom", example, f"{self.folder}/mpi")
            self.assertRegex(said, r"transport MPI \(")

    def test_what_is_extracted_runs(self):
        said = run(f"{self.folder}/usr/bin/gradloom", "--version")
        self.assertIn(self.fields["Version"], said)
        self.assertIn('"id"', run(f"{self.folder}/usr/bin/gradloom", "devices", "--json"))
        with open(f"{self.folder}/c.c", "w") as file:
            file.write("#include <gradloom/gradloom_c.h>\nint main(void) { return GradloomGetApi(1) == 0; }\n")
        found = {"PKG_CONFIG_PATH": f"{self.lib}/pkgconfig", "PKG_CONFIG_SYSROOT_DIR": ""}
        if installed("pkg-config"):
            flags = run("pkg-config", "--cflags", "--libs", "gradloom", env=found).split()
            run("gcc", f"{self.folder}/c.c", *flags, "-o", f"{self.folder}/c")
            run(f"{self.folder}/c", env={"LD_LIBRARY_PATH": self.lib})


if __name__ == "__main__":
    unittest.main()
