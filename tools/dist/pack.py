"""Packs the build output: pack.py dist|wheel|deb --out FILE ...; see BUILD for the arguments.

dist: a tar archive that works wherever it is unpacked. wheel: the Python package with the library. deb: a Debian package, which depends on
the system's libraries instead of including them. The same files give the same bytes.
"""
import argparse
import base64
import gzip
import hashlib
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from tree import Tree, version_of  # noqa: E402

DEB_LIB = "usr/lib/x86_64-linux-gnu"
LICENSES = "share/doc/gradloom/licenses"
# Libraries that are opened at run time if the machine has their dependencies, and where these may lie besides the system's folders.
PLUGINS = {"libgradloom_cuda.so": ":/usr/local/cuda/lib64", "libgradloom_mpi.so": ""}


def base(path):
    return pathlib.Path(path).name


def system_libraries(args):
    """Soname -> Debian package."""
    return dict(line.split() for line in pathlib.Path(args.packages).read_text().splitlines())


def put_libraries(tree, args, folder, names=None):
    """Our libraries, and next to them the foreign libraries that they use."""
    for library in args.library:
        if names is None or base(library) in names:
            tree.put_elf(library, f"{folder}/{base(library)}", "$ORIGIN" + PLUGINS.get(base(library), ""))
    renamed = tree.take_along(args.beside + args.system, folder)
    tree.set_symbols_apart()
    packages = {**system_libraries(args), **{base(file): "" for file in args.beside}}
    return renamed, packages


def put_headers(tree, args, folder):
    for header in args.header:
        tree.put(header, f"{folder}/gradloom/{base(header)}")


def put_packages(tree, args, libdir, up):
    """Files for CMake and pkg-config. `up` leads from libdir/cmake/Gradloom to the prefix."""
    words = {"@VERSION@": args.version, "@MAJOR@": args.version.split(".")[0], "@MINOR@": args.version.split(".")[1], "@UP@": up,
             "@LIBDIR@": libdir, "@PC_UP@": up[:-3]}
    for template in args.template:
        text = pathlib.Path(template).read_text()
        for word, value in words.items():
            text = text.replace(word, value)
        name = base(template)[:-len(".in")]
        yield (f"{libdir}/pkgconfig/{name}" if name.endswith(".pc") else f"{libdir}/cmake/Gradloom/{name}"), text


def write_tar(folder, name, out):
    """`folder` as `name`/, without owners and times."""
    def plain(info):
        info.uid = info.gid = info.mtime = 0
        info.uname = info.gname = "root"
        return info

    with open(out, "wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed, \
            tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
        archive.add(folder, name, recursive=False, filter=plain)
        for path in sorted(folder.rglob("*")):
            relative = path.relative_to(folder)
            archive.add(path, str(pathlib.Path(name) / relative), recursive=False, filter=plain)


def dist(args, tree):
    tree.put_elf(args.program, "bin/gradloom", "$ORIGIN/../lib")
    renamed, packages = put_libraries(tree, args, "lib")
    tree.set_runpaths()
    put_headers(tree, args, "include")
    for path, text in put_packages(tree, args, "lib", "../../.."):
        tree.write(text, path)
    for file in args.example:
        tree.put(file, f"share/gradloom/example/{base(file)}")
    tree.put_licenses(LICENSES, args.license, args.licenses, packages, renamed)
    write_tar(tree.folder, base(args.out)[:-len(".tar.gz")], args.out)


def wheel(args, tree):
    for source in args.python:
        tree.put(source, f"gradloom/{base(source)}")
    put_headers(tree, args, "gradloom/include")
    renamed, packages = put_libraries(tree, args, "gradloom/lib", {"libgradloom.so", "libgradloom_cuda.so"})
    tree.set_runpaths()
    info = f"gradloom-{args.version}.dist-info"
    tree.put_licenses(f"{info}/licenses", args.license, args.licenses, packages, renamed)
    tree.write(metadata(args.version, pathlib.Path(args.readme).read_text()), f"{info}/METADATA")
    tag = "-".join(base(args.out)[:-len(".whl")].split("-")[2:])
    tree.write(f"Wheel-Version: 1.0\nGenerator: gradloom\nRoot-Is-Purelib: false\nTag: {tag}\n", f"{info}/WHEEL")
    record = ""
    with zipfile.ZipFile(args.out, "w", zipfile.ZIP_DEFLATED) as archive:
        def add(name, data, mode):
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100000 | mode) << 16
            archive.writestr(entry, data)

        for path in sorted(path for path in tree.folder.rglob("*") if path.is_file()):
            name, data = str(path.relative_to(tree.folder)), path.read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record += f"{name},sha256={digest},{len(data)}\n"
            add(name, data, path.stat().st_mode & 0o777)
        add(f"{info}/RECORD", record + f"{info}/RECORD,,\n", 0o644)


def metadata(version, description):
    return f"""Metadata-Version: 2.1
Name: gradloom
Version: {version}
Summary: Trains ONNX models: compiles them with a loss and an optimizer into one verified plan
License: Apache-2.0
Requires-Python: >=3.9
Requires-Dist: numpy>=1.22
Classifier: License :: OSI Approved :: Apache Software License
Classifier: Operating System :: POSIX :: Linux
Classifier: Typing :: Typed
Description-Content-Type: text/markdown

{description}"""


def deb(args, tree):
    tree.put_elf(args.program, "usr/bin/gradloom", "$ORIGIN/../lib/x86_64-linux-gnu/gradloom")
    for library in args.library:
        private = base(library) in PLUGINS
        tree.put_elf(library, f"{DEB_LIB}/{'gradloom/' if private else ''}{base(library)}",
                     "$ORIGIN" + PLUGINS[base(library)] if private else "$ORIGIN/gradloom")
    for library in args.beside:
        tree.put_foreign(library, f"{DEB_LIB}/gradloom/{base(library)}")
    tree.set_symbols_apart()
    tree.set_runpaths()
    put_headers(tree, args, "usr/include")
    for path, text in put_packages(tree, args, "lib/x86_64-linux-gnu", "../../../.."):
        tree.write(text, f"usr/{path}")
    packages = {base(file): "" for file in args.beside}
    tree.put_licenses("usr/share/doc/gradloom/licenses", args.license, args.licenses, packages, {name: name for name in packages})
    tree.put(args.license, "usr/share/doc/gradloom/copyright")
    sizes = sum(path.stat().st_size for path in tree.folder.rglob("*") if path.is_file())
    control = pathlib.Path(args.control).read_text().replace("@VERSION@", args.version).replace("@SIZE@", str(sizes // 1024))
    tree.write(control, "DEBIAN/control")
    for path in [tree.folder, *tree.folder.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755)
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Zxz", "-z3", "--build", str(tree.folder), args.out], check=True, stdout=subprocess.DEVNULL,
                   env={"SOURCE_DATE_EPOCH": "0", "PATH": "/usr/bin:/bin"})


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["dist", "wheel", "deb"])
    for one in ("out", "program", "version-header", "patchelf", "packages", "license", "readme", "control"):
        parser.add_argument("--" + one)
    for many in ("library", "beside", "system", "header", "template", "example", "licenses", "python"):
        parser.add_argument("--" + many, nargs="*", default=[])
    args = parser.parse_args()
    args.version = version_of(args.version_header)
    if args.version not in base(args.out):
        raise SystemExit(f"{base(args.out)} is not of version {args.version}: see VERSION in BUILD")
    with tempfile.TemporaryDirectory() as folder:
        tree = Tree(pathlib.Path(folder) / "tree", args.patchelf)
        tree.folder.mkdir()
        {"dist": dist, "wheel": wheel, "deb": deb}[args.what](args, tree)


if __name__ == "__main__":
    main()
