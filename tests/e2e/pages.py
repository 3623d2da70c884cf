"""The blocks and commands of the documentation pages: what a test runs and compares, and whether the parts that it cannot run at least
exist."""
import os
import re
import shlex
from typing import NamedTuple

LANGUAGES = {"sh", "text", "python", "cpp", "c"}
# Foreign programs, whose flags are not checked.
OTHERS = {"apt-get", "bible", "cat", "cd", "cmake", "docker", "export", "g++", "pip", "sbatch"}
# Programs that start a command of ours, which follows their own flags.
STARTERS = {"torchrun", "srun", "mpirun"}


class Block(NamedTuple):
    page: str
    line: int
    language: str
    text: str

    def where(self):
        return f"{self.page}:{self.line}"


def pages(root):
    """Every page of the source tree by its relative path, without build and run output."""
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith((".", "bazel-")) and os.path.join(folder, name) != os.path.join(root, "runs")]
        found += [os.path.relpath(os.path.join(folder, name), root) for name in names if name.endswith(".md")]
    return sorted(found)


def blocks(page, text):
    """The fenced blocks, without the indentation of a list. Raises ValueError if a block has no language or no closing fence."""
    found, lines, i = [], text.split("\n"), 0
    while i < len(lines):
        fence = re.match(r"^( *)```(.*)$", lines[i])
        if fence:
            if fence.group(2) not in LANGUAGES:
                raise ValueError(f"{page}:{i + 1}: a block of {fence.group(2) or 'no language'}: one of {', '.join(sorted(LANGUAGES))}")
            start = i + 1
            i = next((k for k in range(start, len(lines)) if lines[k].strip() == "```"), None)
            if i is None:
                raise ValueError(f"{page}:{start}: a block without an end")
            indent = len(fence.group(1))
            found.append(Block(page, start, fence.group(2), "".join(line[indent:] + "\n" for line in lines[start:i])))
        elif re.match(r"^ {4,}\S", lines[i]) and i > 0 and not lines[i - 1].strip():
            raise ValueError(f"{page}:{i + 1}: a block without a fence")
        i += 1
    return found


def inline_commands(text):
    """Text in backquotes that begins like a command of ours."""
    prose = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.M | re.S)
    ours = re.compile(r"(gradloom [a-z]|bazel [a-z]|python3? \S|tools/\w+\.sh)")
    return [span for span in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", prose) if ours.match(span)]


def commands(script):
    """The words of each command of a script."""
    lines = [re.sub(r"(^|\s)#.*$", "", line) for line in re.sub(r"\\\n", " ", script).split("\n")]
    lexer = shlex.shlex(" ; ".join(lines), posix=True, punctuation_chars=";&|<>()")
    lexer.commenters, lexer.whitespace_split = "", True
    found, words, target = [], [], False
    for word in lexer:
        if word and set(word) <= set(";&|()"):
            found.append(words)
            words = []
        elif word and set(word) <= set("<>"):
            target = True
        elif target:
            target = False
        else:
            words.append(word)
    return [words for words in [*found, words] if words]


def names_target(root, folder, name):
    """Also if a list of names generates it, with _test or _fuzz appended."""
    try:
        with open(os.path.join(root, folder, "BUILD")) as file:
            quoted = set(re.findall(r'"([A-Za-z0-9_.-]+)"', file.read()))
    except FileNotFoundError:
        return False
    return name in quoted or re.sub("_(test|fuzz)$", "", name) in quoted


class Checker:
    """Reports what does not exist in a command: verbs, flags, targets, scripts."""

    def __init__(self, root, flags):
        """`flags` maps a verb to its flags, or to None if there is no such verb."""
        self.root, self.flags = root, flags

    def faults(self, page, words):
        words = list(words)
        while words and re.match(r"^\w+=", words[0]):  # variables before a command
            words.pop(0)
        if not words or words[0] in OTHERS or words[0] == "...":
            return
        program = words[0]
        if program in STARTERS:
            if "gradloom" not in words:
                yield f"{program} starts nothing of ours"
            else:
                yield from self.faults(page, words[words.index("gradloom"):])
        elif program == "gradloom":
            yield from self.verb(page, words[1:])
        elif program == "bazel":
            yield from self.bazel(words[1:])
        else:
            # python3 SCRIPT, PATH/python SCRIPT, or the script itself.
            script = words[1] if re.fullmatch(r"(\S*/)?python3?", program) else program
            yield from self.script(page, script, words)

    def verb(self, page, words):
        verb, rest = words[0], words[1:]
        if verb.startswith("--"):
            verb, rest = "", words
        known = self.flags(verb)
        if known is None:
            yield f"there is no gradloom {verb}"
            return
        own = rest[:rest.index("--")] if "--" in rest else rest
        for word in own:
            if re.match(r"^--[a-z]", word) and word.split("=")[0] not in known:
                yield f"gradloom {verb} has no {word}"
        behind = rest[len(own) + 1:]
        if verb == "launch" and behind:
            yield from self.verb(page, behind) if self.flags(behind[0]) is not None else self.faults(page, behind)

    def bazel(self, words):
        if words[0] not in ("build", "run", "test"):
            yield f"bazel {words[0]}"
        own = words[:words.index("--")] if "--" in words else words
        for target in [word for word in own[1:] if not word.startswith("-") and not word.isupper()]:
            folder, _, name = target.removeprefix("//").partition(":")
            if folder.endswith("..."):
                there = os.path.isdir(os.path.join(self.root, folder[:-3]))
            else:
                there = names_target(self.root, folder, name or os.path.basename(folder))
            if not there:
                yield f"there is no target {target}"

    def script(self, page, script, words):
        """Relative to the root, or to the page."""
        for folder in (self.root, os.path.join(self.root, os.path.dirname(page))):
            path = os.path.join(folder, script)
            if os.path.isfile(path):
                with open(path) as file:
                    text = file.read()
                # Shared flags come from a module next to the script.
                for name in re.findall(r"^(?:import|from) (\w+)", text, re.M):
                    module = os.path.join(os.path.dirname(path), name + ".py")
                    if os.path.isfile(module):
                        with open(module) as file:
                            text += file.read()
                for word in words:
                    if re.match(r"^--[a-z]", word) and not re.search(rf"""["']{word.split("=")[0]}["']""", text):
                        yield f"{script} has no {word}"
                return
        yield f"there is no {script}"


def loosely(words):
    pattern = re.escape(" ".join(words.split()))
    for loose, by in ((r"\\\.\\\.\\\.", r".*?"), (r"\b[0-9a-f]{8}\b", "[0-9a-f]{8}"), (r"\d[\d,]*\\\.\d[\d.]*", r"\\d[\\d,.]*"),
                      (r"\b\d+(?=\\ (?:ms|s)\b)", r"[\\d.]+"), (r"(?<=pid\\ )\d+", r"\\d+"), (r"(?<=:)\d{4,5}\b", r"\\d+"),
                      (r"(?<=host\\ )\w+", r"\\S+"), (r"gradloom_launch_\w+", r"gradloom_launch_\\w+")):
        pattern = re.sub(loose, by, pattern)
    return pattern


def shown(text):
    """A pattern for the output of a block. Numbers that differ between runs match any number: those with a decimal point, times, processes,
    ports, hashes, and names of hosts and temporary files. `...` matches anything, and text after three spaces at the end of a line may be
    the page's own."""
    patterns = []
    for line in filter(str.strip, text.splitlines()):
        said, *comment = re.split(r"(?<=\S) {3,}(?=\S)", line, maxsplit=1)
        patterns.append(loosely(said) + "".join(f"(?: {loosely(words)})?" for words in comment))
    return " ".join(patterns)


def says(output, text):
    return re.search(shown(text), " ".join(output.split())) is not None
