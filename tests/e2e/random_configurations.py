"""Random configurations over all keys, valid ones and ones with something odd, and how Python's tomllib reads each."""
import math
import re
import tomllib

# Messages for values that are valid TOML but not valid for the key.
LEFT_OUT = re.compile("|".join(["must be at (least|most)", "cannot be '", "is out of range: '", "are not expanded here", "not representable in 64 bits", "numeric value too long"]))
NAMES = ["x", "label", "a-b", "ünï", "a.b", "", " ", "0", "\"", "a b", "x" * 80]
TEXTS = ["", "model.onnx", "a b", "ünï", "\t", "\n", "\"", "\\", "\x7f", "#", "[a]", "=", "true", "1", "'", "'''", "*", "x/*", "\U0001f600", "~", "$HOME", "\x00", "."]
INTEGERS = [0, 1, 2, 7, 10, 64, 1000, -1, -7, 2**31, 2**53 + 1, 2**63 - 1, -2**63]
FLOATS = [0.0, -0.0, 0.1, 1e-3, 1e300, 5e-324, 1e-320, 123456789012345678901.0, 1e22, -2.5, 1.0, 3.0000000000000004, 0.30000000000000004]


class Drawn:
    """`text` of a file; `keys` as listed by `gradloom config --keys --json`."""

    def __init__(self, rng, keys):
        self.rng, self.keys = rng, keys
        sections = {}
        for key in rng.sample(keys, rng.randint(0, 6)):
            sections.setdefault(key["key"].split(".")[0], []).append(key)
        lines = [] if rng.random() < 0.3 else [f"version = {rng.choice(['1'] * 20 + ['2', '1.0', 'true', '0x1', '0b1', chr(34) + '1' + chr(34)])}"]
        for section, chosen in sections.items():
            form = rng.random()
            if form < 0.7:
                lines.append(self.spaced(f"[{self.name(section)}]"))
                lines += [self.pair(self.name(key["key"].split(".")[1]), key) for key in chosen]
            elif form < 0.85:
                lines[:0] = [self.pair(self.dotted(key["key"].split(".")), key) for key in chosen]
            else:
                pairs = ", ".join(self.pair(self.name(key["key"].split(".")[1]), key, inline=True) for key in chosen)
                lines.insert(0, f"{self.name(section)} = {{ {pairs} }}")
        for _ in range(rng.choice([0, 0, 0, 1])):
            lines.insert(rng.randrange(len(lines) + 1), self.stray())
        self.text = rng.choice(["\n", "\n", "\n", "\r\n"]).join(lines) + rng.choice(["\n", ""])
        self.data = rng.choice([b""] * 20 + [b"\xef\xbb\xbf"]) + self.text.encode("utf-8", "surrogatepass")
        if rng.random() < 0.12:
            made = bytearray(self.data)
            for _ in range(rng.randint(1, 3)):
                at = rng.randrange(len(made) + 1)
                rng.choice([lambda: made.__setitem__(slice(at, at + 1), bytes([rng.randrange(256)])), lambda: made.__delitem__(slice(at, at + rng.randint(1, 6))),
                            lambda: made.insert(at, rng.choice(b"\"'[]{}=.,#\n\\ +-_e\r")), lambda: made.extend(made[at:at + 30])])()
            self.data = bytes(made)

    def spaced(self, text):
        return self.rng.choice([text] * 6 + ["  " + text, text + " # a comment", text + "\t", text + " # [x] = \"y\""])

    def name(self, text):
        return self.rng.choice([text] * 10 + [f'"{text}"', f"'{text}'", f" {text} "])

    def dotted(self, parts):
        return self.rng.choice([".", ".", " . "]).join(self.name(part) for part in parts)

    def pair(self, name, key, inline=False):
        text = f"{name}{self.rng.choice([' = ', '=', chr(9) + '= '])}{self.value(key)}"
        return text if inline else self.spaced(text)

    def stray(self):
        rng = self.rng
        return rng.choice(["", "# only a comment", "x = 1", "[nothing]", "[[train]]", "[train.more]", "train = 1", "[a.b.c]", "= 1", "[]", "key", "a = 'b", "\x0b",
                           "[\"run\"]\nname = 'b'", f"[{rng.choice(self.keys)['key']}]\nx = 'y'", "data.map.x = 'a'", "[data.map]\nx = 'a'\n'y' = \"b\"", "[optimizer]\nlr = 1"])

    def text_of(self, text):
        rng = self.rng
        escaped = "".join(f"\\u{ord(c):04x}" if c < " " or c == "\x7f" else "\\" + c if c in "\"\\" else c for c in text)
        forms = [f'"{escaped}"'] * 5 + [f'"""{escaped}"""', f'"""\n{escaped}"""', f'"""\\\n   {escaped}"""']
        if not re.search(r"['\x00-\x08\x0a-\x1f\x7f]", text):
            forms += [f"'{text}'"] * 2 + [f"'''{text}'''", f"'''\n{text}'''"]
        if rng.random() < 0.05:
            forms = [f'"{text}"', f"'{text}'", '"\\x41"', '"\\e"', '"\\ud800"', '"\\U00110000"', '"\\uD83D\\uDE00"', '"\\U0001F600"', '"\\/"', '"\\ "', "\"\"\"\"\"\"\"\"", "''''a''''"]
        return rng.choice(forms)

    def integer(self):
        value = self.rng.choice(INTEGERS)
        forms = [str(value)] * 6 + [f"+{abs(value)}", f"{value:_}"]
        if value >= 0:
            forms += [f"0x{value:X}", f"0o{value:o}", f"0b{value:b}", f"0x{value:x}"]
        if self.rng.random() < 0.06:
            forms = ["00", "01", "-0", "+0", "1__0", "_1", "1_", "0X1", "0x", "0x_1", "-0x1", "9223372036854775808", "0b2", "1e3", "٣", "0x8000000000000000", "1 000"]
        return self.rng.choice(forms)

    def number(self):
        value = self.rng.choice(FLOATS)
        forms = [repr(value)] * 6 + [f"{value:e}", f"{value:.20e}", f"{value:+.3f}"]
        if self.rng.random() < 0.08:
            forms = ["nan", "-nan", "inf", "+inf", "1.", ".5", "1.e3", "1e400", "1e-400", "1_0.0_1", "1._0", "1E5", "1e+05", "-0e0", "0.1e", "1e0.5", "NaN", "1e1_0", "0x1p3", "1,5"]
        return self.rng.choice(forms)

    def table(self, element):
        names = self.rng.sample(NAMES, self.rng.randint(0, 3))
        quoted = [name if re.fullmatch(r"[A-Za-z0-9_-]+", name) and self.rng.random() < 0.7 else '"' + name.replace('"', '\\"') + '"' for name in names]
        return "{" + ", ".join(f"{name} = {element()}" for name in quoted) + self.rng.choice(["}"] * 20 + [",}"])

    def list_of(self, element):
        gap = self.rng.choice([", "] * 4 + [",\n  ", " , # more\n"])
        return "[" + gap.join(element() for _ in range(self.rng.randint(0, 3))) + self.rng.choice(["]"] * 4 + [",]", "\n]"])

    def value(self, key):
        """Usually of the key's type."""
        rng = self.rng
        word = lambda: self.text_of(rng.choice(key["words"] or TEXTS) if rng.random() < 0.8 else rng.choice(TEXTS))  # noqa: E731
        text = lambda: self.text_of(rng.choice(TEXTS))  # noqa: E731
        forms = {"text": word, "path": text, "whole number": self.integer, "number": lambda: rng.choice([self.number, self.number, self.integer])(),
                 "true, false": lambda: rng.choice(["true", "false"] * 5 + ["True", "1", "yes"]), "text or list": lambda: rng.choice([text, lambda: self.list_of(text)])(),
                 "table of texts": lambda: self.table(rng.choice([text, text, self.integer])), "table of texts or lists": lambda: self.table(lambda: rng.choice([text, lambda: self.list_of(text)])()),
                 "table of whole numbers": lambda: self.table(self.integer), "table of numbers": lambda: self.table(lambda: rng.choice([self.number, self.integer])())}
        odd = [text, self.integer, self.number, lambda: "true", lambda: self.list_of(self.integer), lambda: self.table(text), lambda: "1979-05-27",
               lambda: "1979-05-27T07:32:00.123456789Z", lambda: "07:32:00", lambda: "", lambda: "[" * 40 + "]" * 40]
        return forms[key["type"]]() if rng.random() < 0.93 else rng.choice(odd)()


def read(data, sections):
    """The version and {key: value}, as tomllib reads them. Raises ValueError."""
    # TOML 1.1 permits a byte order mark at the start.
    parsed = tomllib.loads(data.removeprefix(b"\xef\xbb\xbf").decode("utf-8").replace("\r\n", "\n"))
    version = parsed.pop("version", 1)
    found = {}
    for section, table in parsed.items():
        if section not in sections or not isinstance(table, dict):
            raise ValueError(f"{section} is no section")
        found.update({f"{section}.{name}": value for name, value in table.items()})
    return version, found


def as_printed(value, key):
    """What the command prints, with tables of numbers as numbers."""
    return {name: [float(one) for one in texts] for name, texts in value.items()} if value and key["type"] == "table of numbers" else value


def as_held(value, key):
    """The value in the form of as_printed. Raises ValueError if the key has another type."""
    kind = key["type"]
    whole = isinstance(value, int) and not isinstance(value, bool)

    def texts(one):
        listed = [one] if isinstance(one, str) else one
        if not isinstance(listed, list) or not all(isinstance(text, str) for text in listed):
            raise ValueError("no texts")
        return listed

    if kind in ("text", "path"):
        if whole and kind == "text" and not key["words"]:
            return str(value)
        if isinstance(value, str):
            return value
    elif kind == "whole number" and whole:
        return value
    elif kind == "number" and (whole or isinstance(value, float)) and math.isfinite(value):
        return float(value)
    elif kind == "true, false" and isinstance(value, bool):
        return value
    elif kind == "text or list":
        return texts(value)
    elif isinstance(value, dict) and kind == "table of texts or lists":
        made = {name: texts(one) for name, one in value.items()}
        if all(made.values()):
            return made
    elif isinstance(value, dict) and kind == "table of numbers":
        if all(isinstance(one, (int, float)) and not isinstance(one, bool) and math.isfinite(one) for one in value.values()):
            return {name: [float(one)] for name, one in value.items()}
    elif isinstance(value, dict) and kind.startswith("table"):
        if all(isinstance(one, int) and not isinstance(one, bool) or isinstance(one, str) and kind == "table of texts" for one in value.values()):
            return {name: [str(one)] for name, one in value.items()}
    raise ValueError(f"{value!r} is no {kind}")
