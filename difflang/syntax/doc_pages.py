"""Documentation pages of a program: its doc comments as sections, entries, facts and examples, without styling.

A page has the comment at the head of the file and its declarations: the `pub` ones, or if there are none, those with
a doc comment. `# ---- Title` begins a section.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath

from msgspec import Struct, field

from difflang.base.source import Source
from difflang.syntax import tree

SECTION_HEADING = re.compile(r"^# -{3,} *(.+?)[ -]*$", re.MULTILINE)
FACT_LABEL = re.compile(r"(?:^|(?<=[.;:)] ))(Errors|Cost|Source|Kinks|Units|Shapes): ", re.MULTILINE)
DocumentedItem = tree.Fn | tree.Record | tree.Enum
DECLARATION_KEYWORDS: dict[type, str] = {tree.Fn: "fn", tree.Record: "record", tree.Enum: "enum"}


class DocExample(Struct, frozen=True):
    """The code after `>`, and the output shown below it, empty for a line that binds a name."""

    code: str
    output: str


class DocEntry(Struct, frozen=True):
    """A declaration: its signature, its doc text, and facts such as `Errors` and `Source`."""

    name: str
    head: str
    text: str
    facts: tuple[tuple[str, str], ...]
    examples: tuple[DocExample, ...]
    aliases: tuple[str, ...] = ()  # other names with the same entry

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)

    @property
    def summary(self) -> str:
        """The first sentence."""
        return first_sentence(self.text)


class DocSection(Struct):
    """A section of a page; the first may have no title."""

    title: str
    entries: list[DocEntry] = field(default_factory=list[DocEntry])
    text: str = ""


class DocPage(Struct, frozen=True):
    """The page of a module: its name, the text at its head, and its sections."""

    name: str
    text: str
    sections: tuple[DocSection, ...]

    @property
    def summary(self) -> str:
        return first_sentence(self.text)

    @property
    def entries(self) -> tuple[DocEntry, ...]:
        return tuple([e for section in self.sections for e in section.entries])


def build_page(source: Source, items: Sequence[tree.Item]) -> DocPage:
    """The page of a program that parsed without errors."""
    # A program without `pub` is documented by its comments.
    public = [item for item in items if isinstance(item, DocumentedItem) and item.pub]
    shown = public or [item for item in items if isinstance(item, DocumentedItem) and item.doc]
    rules = {item.name: item for item in items if isinstance(item, tree.Rule)}
    titles = [(m.start(), m[1]) for m in SECTION_HEADING.finditer(source.text)]
    sections = [DocSection("")]
    for item in shown:
        while titles and titles[0][0] < item.span.start:
            sections.append(DocSection(titles.pop(0)[1]))
        sections[-1].entries.append(build_entry(source, item, rules.get(item.name)))
    return DocPage(PurePath(source.name).stem, module_comment(source), tuple([s for s in sections if s.entries]))


def build_entry(source: Source, item: DocumentedItem, rule: tree.Rule | None) -> DocEntry:
    lines = (item.doc or "").strip().splitlines()
    text, facts = split_facts("\n".join(text_lines(lines)).strip())
    if rule is not None:
        facts.append(("Derivative", f"by a rule{f', `by {rule.by}`' if rule.by else ''}"))
    return DocEntry(item.name, declaration_head(source, item), text, tuple(facts), tuple(parse_examples(lines)))


def declaration_head(source: Source, item: DocumentedItem) -> str:
    """The source of a function up to its body; all of a record, an enum or what is outside the program."""
    if isinstance(item, tree.Fn) and isinstance(item.body, tree.Foreign):
        return " ".join(item.span.text.split()).removeprefix("pub ")
    end = item.body.span.start if isinstance(item, tree.Fn) else item.span.end
    text = source.text[item.name_span.start : end].rstrip().removesuffix("=").rstrip()
    return f"{'host ' if isinstance(item, tree.Fn) and item.host else ''}{DECLARATION_KEYWORDS[type(item)]} {text}"


def module_comment(source: Source) -> str:
    """The comment at the top of a file; a line with only `#` separates paragraphs."""
    lines: list[str] = []
    for line in source.text.splitlines():
        found = re.fullmatch(r"##? ?(.*)", line)
        if found is None or SECTION_HEADING.match(line):
            break
        lines.append(found[1].rstrip())
    return "\n".join(text_lines(lines)).strip()


def text_lines(lines: Sequence[str]) -> Iterator[str]:
    """The lines that are text, without the examples."""
    inside = False
    for line in lines:
        # An example includes its output, up to a blank line.
        inside = line.startswith("> ") or (inside and bool(line))
        if not inside:
            yield line


def parse_examples(lines: Sequence[str]) -> Iterator[DocExample]:
    below: list[str] = []
    code: str | None = None
    for line in [*lines, ""]:
        if code is not None and (not line or line.startswith("> ")):
            yield DocExample(code, "\n".join(below))
            code = None
        if line.startswith("> "):
            code, below = line[2:], []
        else:
            below.append(line)


def split_facts(text: str) -> tuple[str, list[tuple[str, str]]]:
    """The text, and the facts after it: `Errors:` and the like, each up to the end of its paragraph."""
    # The pattern has one group, so that labels and texts alternate.
    first, *rest = FACT_LABEL.split(text)
    found = [(name, *said.strip().partition("\n\n")) for name, said in zip(rest[::2], rest[1::2], strict=True)]
    after = [more.strip() for _, _, _, more in found if more.strip()]
    return "\n\n".join([first.strip(), *after]).strip(), [(name, said) for name, said, _, _ in found]


def first_sentence(text: str) -> str:
    found = re.match(r".+?(?:\.(?=\s)|\.$|$)", " ".join(text.partition("\n\n")[0].split()))
    return found[0] if found else ""


def page_as_markdown(page: DocPage) -> str:
    """A page as Markdown; examples look as they do in the comments."""
    parts = [f"# {page.name}", *([page.text] if page.text else [])]
    for section in page.sections:
        parts += [part for part in (f"## {section.title}" if section.title else "", section.text) if part]
        for one in section.entries:
            parts += [f"### {quoted(one.names)}", *entry_as_markdown(one)]
    return "\n\n".join(parts) + "\n"


def entry_as_markdown(one: DocEntry, language: str = "text") -> Iterator[str]:
    """A declaration as paragraphs of Markdown; `language` is that of its code blocks."""
    yield code_block(one.head, language)
    if one.text:
        yield one.text
    if one.facts:
        yield "\n".join(f"- {name}: {' '.join(said.split())}" for name, said in one.facts)
    if one.examples:
        yield code_block(examples_as_text(one), language)


def examples_as_text(one: DocEntry) -> str:
    return "\n".join(f"> {e.code}" + (f"\n{e.output}" if e.output else "") for e in one.examples)


def quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def code_block(text: str, language: str = "text") -> str:
    return f"```{language}\n{text}\n```"


def index_as_markdown(pages: Sequence[DocPage], link: str = "") -> str:
    """Each page's first sentence and names, as Markdown; `link` is the suffix of the linked files, if any."""
    parts = ["# Modules"]
    for page in pages:
        title = f"[{page.name}]({page.name}{link})" if link else page.name
        names = quoted(name for e in page.entries for name in e.names)
        parts += [f"## {title}", page.summary, names] if page.summary else [f"## {title}", names]
    return "\n\n".join(parts)
