"""The page of what every file knows: `stdlib/builtins.md` describes each built-in, operator, constant and word once.

`difflang doc`, `?`, hover, signature help and `docs/library/builtins.md` show it; a test compares it with the checker.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from msgspec import Struct
from msgspec.structs import replace

from difflang.base.package_data import builtins_file
from difflang.syntax.doc_pages import DocEntry, DocPage, DocSection, examples_as_text, parse_examples, quoted

ENTRY = re.compile(r"\s*```text\n(?P<head>.*?)\n```\n(?P<body>.*?)(?:```text\n(?P<examples>.*?)\n```\s*)?", re.DOTALL)
FACT = re.compile(r"^- (\w+): (.+(?:\n  .+)*)", re.MULTILINE)
OPENING, CLOSING = "([{", ")]}"


class Parameter(Struct, frozen=True):
    """A parameter of a signature: its text, its name, and whether it may be left out."""

    text: str

    @property
    def name(self) -> str:
        return re.split(r"[:=]", self.text)[0].strip()

    @property
    def is_optional(self) -> bool:
        return " = " in self.text


class SignatureText(Struct, frozen=True):
    """One form of a call, and its parameters."""

    text: str
    parameters: tuple[Parameter, ...]


@cache
def builtin_page() -> DocPage:
    """The page, with an index of its sections after the text at its head."""
    page = parse_builtin_page(builtins_file().read_text(encoding="utf-8"))
    lines = [
        f"- [{s.title}](#{s.title.lower().replace(' ', '-')}): {quoted(n for e in s.entries for n in e.names)}"
        for s in page.sections
    ]
    return replace(page, text="\n\n".join([page.text, "\n".join(lines)]))


@cache
def builtin_entries() -> dict[str, DocEntry]:
    """The entry of each name. Of several names that share one, each has its own signatures."""
    return {name: entry_of_name(e, name) for e in builtin_page().entries for name in e.names}


def parse_builtin_page(text: str) -> DocPage:
    head, *sections = re.split(r"^## ", text, flags=re.MULTILINE)
    title, _, intro = head.partition("\n")
    return DocPage(title.removeprefix("# "), intro.strip(), tuple(map(parse_section, sections)))


def parse_section(text: str) -> DocSection:
    head, *entries = re.split(r"^### ", text, flags=re.MULTILINE)
    title, _, intro = head.partition("\n")
    return DocSection(title, list(map(parse_entry, entries)), intro.strip())


def parse_entry(text: str) -> DocEntry:
    title, _, rest = text.partition("\n")
    found = ENTRY.fullmatch(rest)
    assert found is not None, f"{title} has no signature"
    name, *others = re.findall(r"`(.+?)`", title)
    said, *_ = FACT.split(found["body"])
    facts = [(label, " ".join(words.split())) for label, words in FACT.findall(found["body"])]
    examples = parse_examples((found["examples"] or "").splitlines())
    return DocEntry(name, found["head"], said.strip(), tuple(facts), tuple(examples), tuple(others))


def entry_of_name(entry: DocEntry, name: str) -> DocEntry:
    """The entry with only the signatures of one of its names, if that name has some of its own."""
    own = [text for text in split_signatures(entry.head) if re.match(rf"(?:fn )?{name}\b", text)]
    return replace(entry, name=name, head="\n".join(own) if own else entry.head, aliases=())


def signature_texts(entry: DocEntry) -> tuple[SignatureText, ...]:
    """The forms of a call, if the entry is a function."""
    heads = [text for text in split_signatures(entry.head) if text.startswith("fn ")]
    return tuple([SignatureText(text, tuple(map(Parameter, parameter_texts(text)))) for text in heads])


def split_signatures(head: str) -> list[str]:
    """The declarations of a head; a line that is indented, or closes a bracket, continues one."""
    return re.split(r"\n(?![ )])", head)


def parameter_texts(signature: str) -> Iterator[str]:
    """The texts between the commas of the first parentheses outside of brackets."""
    depth, word = 0, ""
    inside = False
    for c in signature:
        depth += (c in OPENING) - (c in CLOSING)
        if c == "(" and depth == 1 and not inside:
            inside = True
        elif inside and (depth == 0 or (c == "," and depth == 1)):
            yield from filter(None, [" ".join(word.split())])
            word = ""
            if depth == 0:
                return
        elif inside:
            word += c


def entry_as_text(entry: DocEntry) -> str:
    """An entry without styling, its signatures first."""
    facts = "\n".join(f"{name}: {said}" for name, said in entry.facts)
    return "\n\n".join(filter(None, [entry.head, entry.text, facts, examples_as_text(entry)]))
