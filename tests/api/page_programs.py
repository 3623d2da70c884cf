"""Compiles and runs the C and C++ programs of documentation pages against the unpacked archive."""
import os
import re
import subprocess
import tarfile


def unpacked(archive, folder):
    """Unpacks the archive into the folder and returns its own folder there."""
    with tarfile.open(archive) as file:
        file.extractall(folder)
    return os.path.join(folder, os.path.basename(archive)[:-len(".tar.gz")])


def programs(text):
    """(language, program) of each program of a page."""
    return re.findall(r"^```(cpp|c)\n(.*?)^```", text, re.M | re.S)


def run(programs_of_page, sdk, folder):
    """Runs the programs in order in the folder, which gets them as p1.cpp and so on. Each must succeed and say something."""
    for number, (language, text) in enumerate(programs_of_page, 1):
        source, binary = os.path.join(folder, f"p{number}.{language}"), os.path.join(folder, f"p{number}")
        with open(source, "w") as file:
            file.write(text)
        compiler = ["g++", "-std=c++20"] if language == "cpp" else ["gcc", "-std=c99", "-pedantic"]
        flags = ["-Wall", "-Wextra", "-Werror", f"-I{sdk}/include", f"-L{sdk}/lib", f"-Wl,-rpath,{sdk}/lib"]
        subprocess.run(compiler + flags + [source, "-lgradloom", "-lm", "-o", binary], check=True)
        ran = subprocess.run([binary], cwd=folder, capture_output=True, text=True)
        print(f"program {number}: exit {ran.returncode}\n{ran.stdout}{ran.stderr}")
        assert ran.returncode == 0, f"program {number} of the page fails"
        assert ran.stdout, f"program {number} of the page says nothing"
