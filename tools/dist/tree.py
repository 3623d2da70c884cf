"""A folder of files to be packed: its contents, how its libraries find each other, and their licenses."""
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess

# Libraries of every Linux system with a C library that is new enough. They are never included.
OF_THE_SYSTEM = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "libstdc++.so.6", "libz.so.1", "ld-linux-x86-64.so.2", "libpthread.so.0", "libdl.so.2"}

# A process should have one OpenMP, whose threads all of its libraries share. Its interface has versions, and only grows.
SHARED = "libgomp.so.1"

# The versions of what the libraries of every system define.
SYSTEM_VERSIONS = ("GLIBC_", "GLIBCXX_", "CXXABI_", "GCC_", "ZLIB_")

# What is compiled into our own files: component -> where its license comes from (the last folders of its path).
COMPILED_IN = {
    "onnx": ".dist-info/licenses/LICENSE",
    "nlohmann-json": "nlohmann-json3-dev/copyright",
    "CLI11": "libcli11-dev/copyright",
    "toml++": "libtomlplusplus-dev/copyright",
    "xxHash": "libxxhash-dev/copyright",
}


def version_of(header):
    """The version in runtime/base/version.h."""
    return re.findall(r'kVersion = "([^"]+)"', pathlib.Path(header).read_text())[0]


def needed(file):
    """The sonames that an ELF file needs."""
    text = subprocess.run(["readelf", "-dW", file], check=True, capture_output=True, text=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.+)\]", text)


def symbols(file, defined):
    """The names that an ELF file defines for others, or those that it uses of others, with their versions ("" without)."""
    text = subprocess.run(["readelf", "--dyn-syms", "-W", file], check=True, capture_output=True, text=True).stdout
    for line in text.splitlines():
        words = line.split()
        # ABS: the name of a version.
        if len(words) < 8 or not words[0].rstrip(":").isdigit() or words[4] == "LOCAL" or words[6] == "ABS" or (words[6] != "UND") != defined:
            continue
        name, _, version = words[7].partition("@")
        yield name, version.lstrip("@")


class Tree:
    def __init__(self, folder, patchelf):
        self.folder = pathlib.Path(folder)
        # A copy of our own, whatever the mode of the fetched file is.
        self.patchelf = self.folder.parent / "patchelf"
        shutil.copyfile(patchelf, self.patchelf)
        self.patchelf.chmod(0o755)
        self.elf = {}  # path -> its RUNPATH
        self.foreign = []  # paths of the libraries of others

    def put(self, source, to, mode=0o644):
        path = self.folder / to
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, path)
        path.chmod(mode)
        return path

    def write(self, text, to):
        path = self.folder / to
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def put_elf(self, source, to, runpath):
        """Adds a program or library, which finds others by RUNPATH and not elsewhere."""
        self.elf[self.put(source, to, 0o755)] = runpath

    def put_foreign(self, library, to):
        self.put_elf(library, to, "$ORIGIN")
        if os.path.basename(library) != SHARED:
            self.foreign.append(self.folder / to)

    def take_along(self, libraries, folder):
        """Adds foreign libraries. Each is renamed with a hash, since a process may also load the system's libcrypto.so.3."""
        renamed = {}
        for library in libraries:
            soname = pathlib.Path(library).name
            digest = hashlib.sha256(pathlib.Path(library).read_bytes()).hexdigest()[:8]
            renamed[soname] = soname.replace(".so", f"-{digest}.so", 1)
            self.put_foreign(library, f"{folder}/{renamed[soname]}")
            self._patch("--set-soname", renamed[soname], self.folder / folder / renamed[soname])
        for file in self.elf:
            for soname in needed(file):
                if soname in renamed:
                    self._patch("--replace-needed", soname, renamed[soname], file)
        return renamed

    def set_symbols_apart(self):
        """Gives what the foreign libraries define names of our own. The loader takes the first symbol of a name in the whole program, so that of
        another version which the program itself contains, such as its own protobuf, would otherwise be called in their place."""
        used_of_system = {name for file in self.elf for name, version in symbols(file, False) if version.startswith(SYSTEM_VERSIONS)}
        names = {name for file in self.foreign for name, _ in symbols(file, True)} - used_of_system
        table = self.folder.parent / "symbols"
        table.write_text("".join(f"{name} gradloom_{name}\n" for name in sorted(names)))
        for file in self.elf:
            self._patch("--rename-dynamic-symbols", table, file)

    def set_runpaths(self):
        for file, runpath in self.elf.items():
            self._patch("--set-rpath", runpath, file)

    def _patch(self, *arguments):
        subprocess.run([self.patchelf, *arguments], check=True)

    def put_licenses(self, folder, ours, files, packages, libraries):
        """Adds the licenses of everything in the tree, and index.json: file or component -> its license.

        `ours`: LICENSE; `files`: licenses as they lie in the packages; `packages`: soname -> Debian package; `libraries`: soname -> name
        here.
"""
        def found(ending):
            matches = [file for file in files if file.endswith(ending)]
            if len(matches) != 1:
                raise SystemExit(f"{len(matches)} licenses end in {ending}")
            return matches[0]

        index = {}

        def put(name, component, sources):
            paths = []
            for source in sources:
                paths.append(f"{component}/{os.path.basename(source)}")
                self.put(source, f"{folder}/{paths[-1]}")
            index[name] = paths

        put("gradloom", "gradloom", [ours])
        # For the GPU plug-in, if it is present.
        front_end = [file for file in files if "/cudnn_frontend/" in file]
        if front_end:
            put("cuDNN front end", "cudnn-frontend", front_end)
        for component, ending in COMPILED_IN.items():
            put(component, component, [found(ending)])
        for soname, name in libraries.items():
            if soname.startswith("libdnnl"):
                put(name, "onednn", [file for file in files if "/onednn/" in file])
            else:
                put(name, packages[soname], [found(f"{packages[soname]}/copyright")])
        # The texts to which Debian's license files refer.
        for file in files:
            if "/common/" in file:
                self.put(file, f"{folder}/common-licenses/{os.path.basename(file)}")
        self.write(json.dumps(index, indent=1, sort_keys=True) + "\n", f"{folder}/index.json")
