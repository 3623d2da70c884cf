#!/usr/bin/env python3
"""Converts text to token files, one token per character: 0 is the end of a line, 1 to 95 are the printable ASCII characters.

python3 make_tokens.py TEXT FOLDER

writes FOLDER/train.bin (the first 90 %) and FOLDER/val.bin (the rest) in llm.c's token format, and prints the conditional entropy of a
character given the previous one in the training text, which is the best loss that a bigram table could reach there. Other characters are
dropped. Needs only Python."""
import array
import collections
import math
import pathlib
import struct
import sys


def tokens_of(text):
    return [0 if c == "\n" else ord(c) - 31 for c in text if c == "\n" or " " <= c <= "~"]


def bigram_entropy(tokens):
    pairs, first = collections.Counter(zip(tokens, tokens[1:])), collections.Counter(tokens[:-1])
    n = len(tokens) - 1
    return -sum(count / n * math.log(count / first[a]) for (a, _), count in pairs.items())


def write(path, tokens):
    header = struct.pack("<256i", 20240520, 1, len(tokens), *[0] * 253)
    body = array.array("H", tokens)
    if sys.byteorder == "big":
        body.byteswap()
    path.write_bytes(header + body.tobytes())


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    tokens = tokens_of(pathlib.Path(sys.argv[1]).read_text(errors="ignore"))
    folder = pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    cut = len(tokens) * 9 // 10
    write(folder / "train.bin", tokens[:cut])
    write(folder / "val.bin", tokens[cut:])
    print(f"{cut} + {len(tokens) - cut} tokens in {folder}; entropy of a character given the one before: "
          f"{bigram_entropy(tokens[:cut]):.3f} nats")


main()
