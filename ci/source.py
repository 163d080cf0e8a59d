"""Rust source as `ci/layers` and `ci/size` read it: what stands in `src`, without comments, strings and tests."""
import os
import re

NOT_CODE = re.compile(
    r"""//[^\n]* | /\*.*?\*/ | \bb?r(\#*)".*?"\1 | \bb?"(?:\\.|[^"\\])*" | "(?:\\.|[^"\\])*" | b?'(?:\\[^']*|[^'\\])'""", re.S | re.X
)


def of_tests(file, text):
    """What the modules that this file declares for tests only are called on disk, without `.rs`."""
    top, name = os.path.split(file)
    home = top if name in ("mod.rs", "lib.rs", "main.rs") else file[:-3]
    names = re.findall(r"#\[cfg\((?:all\()?test\b[^\n]*\]\s*(?:#\[[^\n]*\]\s*)*(?:pub(?:\([^)]*\))? )?mod (\w+);", text)
    return {os.path.join(home, name) for name in names}


def files(root):
    """All files of Rust code below a directory, those of tests aside."""
    found = [os.path.join(top, name) for top, _, names in os.walk(root) for name in names if name.endswith(".rs")]
    tests = set().union(*(of_tests(file, open(file).read()) for file in found))
    return sorted(file for file in found if not any(file[:-3] == test or file.startswith(test + "/") for test in tests))


def block(text, start):
    """The end of the block whose brace opens at or after `start`."""
    at = text.index("{", start) + 1
    depth = 1
    while depth:
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        at += 1
    return at


def without_tests(text):
    """Drops comments, what strings say, and every item under `cfg(test)`; a string keeps its lines."""
    blank = lambda found: "" if found.group().startswith("/") else '"' + "\n".join("" for _ in found.group().split("\n")) + '"'
    text = re.sub(r"pub\(in [^)]*\)", "pub", NOT_CODE.sub(blank, text))
    while found := re.search(r"#\[cfg\((all\()?test\b[^\n]*\]\s*(#\[[^\n]*\]\s*)*", text):
        rest = text[found.end() :]
        is_use = re.match(r"(pub(\(\w+\))? )?use\b", rest)
        stop = re.search(";" if is_use else "[;{]", rest)
        end = found.end() + stop.end()
        text = text[: found.start()] + text[end if stop.group() == ";" else block(text, end - 1) :]
    return text
