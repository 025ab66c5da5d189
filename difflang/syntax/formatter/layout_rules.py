"""The formatter's layout rules: for each grammar rule, where its lines may break.

Between braces a newline ends an item; in parentheses and brackets a comma ends each line. An operator begins a line
where it can, which is in parentheses and brackets; between braces it must end one. A list that the author broke
between braces stays broken, as does one with a trailing comma. The text of comments is never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct, field

from difflang.syntax.formatter.concrete_tree import ConcreteLeaf, ConcreteNode, ConcretePart, ConcreteTree
from difflang.syntax.formatter.pretty_printer import (
    BLANK_LINE,
    HARD_BREAK,
    SOFT_BREAK,
    SOFT_SPACE,
    BreakGroup,
    Doc,
    FilledDoc,
    IfBroken,
    IndentedDoc,
    OwnLineComment,
    TrailingComment,
)

LINE_STARTERS = ("AND", "OR", "PIPE")  # these may begin a line between braces too
NUMBER_KINDS = ("int_", "float_", "negative")
# Alone between parentheses these break inside, not after the parenthesis.
HUGGED_KINDS = ("string", "array", "array_comprehension", "block", "if_", "match_")
NAME_KINDS = (
    *("name", "name_pattern", "path_pattern", "type_name", "any_shape"),
    *("attribute_name", "path", "member", "prime"),
)
WORD_KINDS = ("int_", "float_", "string", "true", "false", "type_int", "literal_pattern", "break_", "continue_")
# Written without spaces between their parts.
TIGHT_KINDS = frozenset((*NAME_KINDS, *WORD_KINDS, "dots", "unit", "attributes"))
SIMPLE_KINDS = ("name", "member", "index", *NUMBER_KINDS)
# The grammar allows no comma at the end of these lists.
NO_TRAILING_COMMA = ("index", "variant_pattern", "tuple_case", "type_atom", "type_call", "array_comprehension")
TRANSPARENT_KINDS = ("arg",)  # laid out as the part they hold


class LaidOutPart(Struct, eq=False):
    """A laid-out part. `kind` decides how its surroundings break: an argument has the kind of its value."""

    doc: Doc
    kind: str = ""
    broken: bool = False  # takes several lines at any width
    # A chain of operators of one precedence: whether all its lines break at any width, its document without
    # indentation, its first operand, and the operators with their right operands.
    breaks_all: bool = False
    chain: Doc = ""
    start: Doc = ""
    chain_links: list[Doc] = field(default_factory=list[Doc])
    block_docs: Doc = ""  # as `doc`, for one break group with the parts beside it


def layout_program(program: ConcreteTree, pause: Callable[[], None] = lambda: None) -> Doc:
    """The document of a whole program. `pause` is called at each node.

    Cost: linear in the program.
    """
    maker = _LayoutBuilder()
    for node in program.nodes:
        pause()
        maker.layouts[node] = maker.layout_node(node)
    below = [OwnLineComment(comment.text, comment.blank_before) for comment in program.end_of_file.leading_comments]
    return (maker.layouts[program.nodes[-1]].doc, HARD_BREAK, *below)


def leaf_doc(leaf: ConcreteLeaf) -> Doc:
    """A token with the comments attached to it."""
    above: list[Doc] = [OwnLineComment(c.text, c.blank_before and i > 0) for i, c in enumerate(leaf.leading_comments)]
    if above and leaf.blank:
        above.append(BLANK_LINE)
    return (*above, *leaf_and_trailing(leaf))


def leaf_and_trailing(leaf: ConcreteLeaf) -> tuple[Doc, ...]:
    """A token and the comment after it."""
    text = " ".join(leaf.text.split()) if leaf.kind == "EXTERN" else leaf.text
    return (text, TrailingComment(leaf.trailing_comment)) if leaf.trailing_comment else (text,)


def blank_line_before(part: ConcretePart) -> bool:
    """Whether an empty line stands above a part and its comments."""
    while isinstance(part, ConcreteNode):
        part = next(child for child in part.children if is_visible(child))
    return part.leading_comments[0].blank_before if part.leading_comments else part.blank


class _LayoutBuilder:
    def __init__(self) -> None:
        self.layouts: dict[ConcreteNode, LaidOutPart] = {}

    def layout_node(self, node: ConcreteNode) -> LaidOutPart:
        parts = [part for part in node.children if is_visible(part)]
        if node.kind in TRANSPARENT_KINDS and len(parts) == 1:
            return self.layout_of(parts[0])
        make = getattr(self, f"lay_{node.kind}", None)
        found: Doc | LaidOutPart = (
            make(node, parts) if make else self.join_parts(parts, "" if node.kind in TIGHT_KINDS else " ")
        )
        laid = found if isinstance(found, LaidOutPart) else LaidOutPart(found, node.kind)
        laid.broken = laid.broken or node.comments > 0 or any(self.layout_of(part).broken for part in parts)
        return laid

    def layout_of(self, part: ConcretePart) -> LaidOutPart:
        return self.layouts[part] if isinstance(part, ConcreteNode) else LaidOutPart(leaf_doc(part))

    def doc(self, part: ConcretePart) -> Doc:
        return self.layouts[part].doc if isinstance(part, ConcreteNode) else leaf_doc(part)

    # ---- Layouts that many rules share

    def join_parts(self, parts: Sequence[ConcretePart], space: str = " ") -> Doc:
        """Parts side by side; commas and colons follow without a space."""
        docs: list[Doc] = []
        for i, part in enumerate(parts):
            docs.append(space if i and part.kind not in ("COMMA", "COLON") else "")
            docs.append(self.doc(part))
        return docs

    def head_and_value(
        self, before: Sequence[ConcretePart], part: ConcretePart, *, commented: bool = False, space: str = " "
    ) -> LaidOutPart:
        """Words and the value after them: a chain of operators that is too long starts on the next line."""
        laid = self.layout_of(part)
        head = self.join_parts(before)
        if laid.kind == "chain":
            return LaidOutPart(
                (head, BreakGroup((IndentedDoc((SOFT_SPACE, laid.chain)),), commented or laid.breaks_all)), "value"
            )
        if commented:
            return LaidOutPart((head, IndentedDoc((HARD_BREAK, laid.doc))), laid.kind)
        return LaidOutPart((head, space, laid.doc), laid.kind)

    def bracketed_list(self, node: ConcreteNode, parts: Sequence[ConcretePart]) -> LaidOutPart:
        """A list with its parentheses or brackets: one item a line if they do not fit."""
        opener, *inner, closer = parts
        assert isinstance(closer, ConcreteLeaf)
        lists = [p for p in inner if isinstance(p, ConcreteNode) and p.kind in ("args", "names", "lambda_params")]
        inner = [part for p in inner for part in ([c for c in p.children if is_visible(c)] if p in lists else [p])]
        items = [self.layout_of(part) for part in inner if part.kind != "COMMA"]
        trailing = bool(inner) and inner[-1].kind == "COMMA"
        commented = node.has_inner_comments or any(p.has_inner_comments for p in lists)
        if not items and not closer.leading_comments:
            return LaidOutPart((self.doc(opener), *leaf_and_trailing(closer)), node.kind)
        last = items[-1] if items else LaidOutPart("")
        broken = commented or trailing or any(item.broken for item in items[:-1])
        # `f([` and `f({`: a single hugged argument shares its brackets' lines.
        if len(items) == 1 and last.kind in HUGGED_KINDS and not broken:
            return LaidOutPart((self.doc(opener), last.doc, self.doc(closer)), node.kind)
        comma = node.kind not in NO_TRAILING_COMMA and last.kind != "comprehension"
        broken = broken or (last.broken and (not comma or last.kind not in HUGGED_KINDS))
        end: Doc = IfBroken(",") if comma and items and not trailing else ""
        rows = [*self.separated_items(inner, ","), end]
        # Numbers fill their lines, since one a line wastes the page.
        if all(item.kind in NUMBER_KINDS for item in items) and not commented:
            rows = [FilledDoc(self.filled(inner, "," if trailing else end))]
        below = [OwnLineComment(c.text) for c in closer.leading_comments]
        group = BreakGroup(
            (self.doc(opener), IndentedDoc((SOFT_BREAK, *rows, *below)), SOFT_BREAK, *leaf_and_trailing(closer)), broken
        )
        return LaidOutPart(group, node.kind, broken)

    def filled(self, inner: Sequence[ConcretePart], end: Doc) -> list[Doc]:
        """Numbers, each with its comma, the last with `end`."""
        items = [part for part in inner if part.kind != "COMMA"]
        ends: list[Doc] = [*[","] * (len(items) - 1), end]
        return [(self.doc(item), end) for item, end in zip(items, ends, strict=True)]

    def separated_items(self, inner: Sequence[ConcretePart], comma: Doc, *, blanks: bool = False) -> list[Doc]:
        """Items separated by `comma` and a line break, with the comments attached to the existing commas."""
        rows: list[Doc] = []
        pending: list[Doc] = []
        last = max((i for i, part in enumerate(inner) if part.kind != "COMMA"), default=0)
        for i, part in enumerate(inner):
            if part.kind == "COMMA":
                assert isinstance(part, ConcreteLeaf)
                rows += [comma] if i < last or comma == "," else []
                rows += [TrailingComment(part.trailing_comment)] if part.trailing_comment else []
                pending += [OwnLineComment(c.text) for c in part.leading_comments]
                continue
            if rows:
                if inner[i - 1].kind != "COMMA":
                    rows.append(comma)
                rows.append(BLANK_LINE if blanks and blank_line_before(part) else SOFT_SPACE)
            rows += [*pending, self.doc(part)]
            pending = []
        return [*rows, *pending]

    def braced_body(self, opener: ConcreteLeaf, rows: Sequence[Doc], closer: ConcreteLeaf) -> Doc:
        """The content of braces, with the braces."""
        below = [
            OwnLineComment(c.text, c.blank_before and (i > 0 or bool(rows)))
            for i, c in enumerate(closer.leading_comments)
        ]
        if not rows and not below:
            return (leaf_doc(opener), *leaf_and_trailing(closer))
        return (leaf_doc(opener), IndentedDoc((SOFT_SPACE, *rows, *below)), SOFT_SPACE, *leaf_and_trailing(closer))

    def statements(self, parts: Sequence[ConcretePart]) -> list[Doc]:
        rows: list[Doc] = []
        for i, part in enumerate(parts):
            rows += [BLANK_LINE if blank_line_before(part) else HARD_BREAK] if i else []
            rows.append(self.doc(part))
        return rows

    # ---- Files and declarations

    def lay_start(self, node: ConcreteNode, parts: list[ConcretePart]) -> Doc:
        return self.statements(parts)

    def name_and_brackets(self, node: ConcreteNode, parts: list[ConcretePart], space: str = "") -> LaidOutPart:
        """A name, then a `space`, then a list in parentheses or brackets."""
        at = opening_bracket_index(parts)
        if at is None:
            return LaidOutPart(self.join_parts(parts, space), node.kind)
        laid = self.bracketed_list(node, parts[at:])
        return LaidOutPart((self.join_parts(parts[:at], space), space if at else "", laid.doc), node.kind, laid.broken)

    def lay_import_(self, node: ConcreteNode, parts: list[ConcretePart]) -> LaidOutPart:
        return self.name_and_brackets(node, parts, " ")

    lay_generics = lay_parameters = lay_variant = lay_variant_pattern = lay_tuple_pattern = lay_tuple_case = (
        name_and_brackets
    )
    lay_tuple_ = lay_array = lay_array_comprehension = lay_call = lay_index = name_and_brackets

    def lay_type_apply(self, node: ConcreteNode, parts: list[ConcretePart]) -> Doc | LaidOutPart:
        """A type breaks only at a comment or if it has a trailing comma: its surroundings break first."""
        if node.has_inner_comments or parts[-2].kind == "COMMA":
            return self.name_and_brackets(node, parts)
        at = opening_bracket_index(parts)
        assert at is not None
        return (self.join_parts(parts[: at + 1], ""), self.join_parts(parts[at + 1 : -1]), self.doc(parts[-1]))

    def lay_split(self, node: ConcreteNode, parts: list[ConcretePart]) -> Doc:
        """The axes of a mesh: `@data`, `@(data, model)`."""
        return (self.join_parts(parts[:2], ""), self.join_parts(parts[2:-1]), self.doc(parts[-1]) if parts[2:] else "")

    lay_type_atom = lay_type_call = lay_type_array = lay_type_tuple = lay_type_apply

    def lay_bare_fn(self, node: ConcreteNode, parts: list[ConcretePart]) -> Doc | LaidOutPart:
        if parts[-1].kind == "block":
            return self.join_parts(parts)
        return self.head_and_value(parts[:-1], parts[-1], commented=node.has_inner_comments)

    def lay_signature(self, node: ConcreteNode, parts: list[ConcretePart]) -> Doc:
        close = [i for i, part in enumerate(parts) if i and part.kind not in ("generics", "parameters")]
        at = close[0] if close else len(parts)
        head = self.join_parts(parts[:at], "")
        return (head, " ", self.join_parts(parts[at:])) if close else head

    def lay_where(self, node: ConcreteNode, parts: list[ConcretePart]) -> Doc:
        broken = node.has_inner_comments or any(self.layout_of(part).broken for part in parts)
        return (
            self.doc(parts[0]),
            BreakGroup((IndentedDoc((SOFT_SPACE, *self.separated_items(parts[1:], ","))),), broken),
        )

    def lay_extern(self, node: ConcreteNode, parts: list[ConcretePart]) -> Doc:
        return (self.doc(parts[0]), " ", self.join_parts(parts[1:-2], ""), " ", self.join_parts(parts[-2:]))

    def lay_rule(self, node: ConcreteNode, parts: list[ConcretePart]) -> Doc:
        at = 3 if parts[2].kind == "parameters" else 2
        return (self.doc(parts[0]), " ", self.join_parts(parts[1:at], ""), " ", self.join_parts(parts[at:]))

    def lay_record(self, node: ConcreteNode, parts: list[ConcretePart]) -> LaidOutPart:
        at = next(i for i, part in enumerate(parts) if part.kind == "LBRACE")
        opener, closer = parts[at], parts[-1]
        assert isinstance(opener, ConcreteLeaf) and isinstance(closer, ConcreteLeaf)
        head = (self.doc(parts[0]), " ", self.join_parts(parts[1:at], ""), " ")
        return self.braced_members(node, head, opener, parts[at + 1 : -1], closer)

    lay_enum = lay_record

    def lay_match_(self, node: ConcreteNode, parts: list[ConcretePart]) -> LaidOutPart:
        word, subject, opener, *inside, closer = parts
        assert isinstance(opener, ConcreteLeaf) and isinstance(closer, ConcreteLeaf)
        return self.braced_members(node, (self.join_parts((word, subject)), " "), opener, inside, closer)

    def braced_members(
        self, node: ConcreteNode, head: Doc, opener: ConcreteLeaf, inside: Sequence[ConcretePart], closer: ConcreteLeaf
    ) -> LaidOutPart:
        """Fields, variants or cases between braces: newlines separate them if the author used several lines."""
        holder = inside[0] if inside else None
        inner = [p for p in holder.children if is_visible(p)] if isinstance(holder, ConcreteNode) else []
        items = [part for part in inner if part.kind != "COMMA"]
        broken = (
            opener.newline_after
            or node.has_inner_comments
            or (isinstance(holder, ConcreteNode) and holder.has_inner_comments)
        )
        broken = broken or any(self.layout_of(part).broken for part in items)
        rows = self.separated_items(inner, IfBroken("", ","), blanks=broken)
        return LaidOutPart((head, BreakGroup((self.braced_body(opener, rows, closer),), broken)), node.kind, broken)

    def lay_case(self, node: ConcreteNode, parts: list[ConcretePart]) -> LaidOutPart:
        return self.head_and_value(parts[:-1], parts[-1], commented=node.has_inner_comments)

    def lay_attribute(self, node: ConcreteNode, parts: list[ConcretePart]) -> Doc:
        end = HARD_BREAK if node.children[-1].kind == "_NL" else " "
        return (self.doc(parts[0]), self.name_and_brackets(node, parts[1:]).doc, end)

    def lay_attributed(self, node: ConcreteNode, parts: list[ConcretePart]) -> Doc:
        return (self.doc(parts[0]), self.join_parts(parts[1:]))

    lay_public_attributed = lay_attributed

    # ---- Statements

    def lay_let(self, node: ConcreteNode, parts: list[ConcretePart]) -> LaidOutPart:
        return self.head_and_value(parts[:-1], parts[-1], commented=node.has_inner_comments)

    lay_var = lay_assign = lay_update = lay_named = lay_let

    def lay_param(self, node: ConcreteNode, parts: list[ConcretePart]) -> Doc | LaidOutPart:
        return self.join_parts(parts)

    def lay_assert_(self, node: ConcreteNode, parts: list[ConcretePart]) -> Doc:
        if len(parts) == 2:
            return self.join_parts(parts)
        more = (SOFT_SPACE, self.doc(parts[3]))
        return BreakGroup(
            (self.join_parts(parts[:2]), self.doc(parts[2]), IndentedDoc(more)),
            node.has_inner_comments or self.layout_of(parts[1]).broken,
        )

    def lay_block(self, node: ConcreteNode, parts: list[ConcretePart]) -> LaidOutPart:
        opener, *stmts, closer = parts
        assert isinstance(opener, ConcreteLeaf) and isinstance(closer, ConcreteLeaf)
        broken = (
            opener.newline_after
            or node.has_inner_comments
            or len(stmts) > 1
            or any(self.layout_of(part).broken for part in stmts)
        )
        broken = broken and bool(stmts or closer.leading_comments or opener.trailing_comment)
        blocks = self.braced_body(opener, self.statements(stmts), closer)
        return LaidOutPart(BreakGroup((blocks,), broken), "block", broken, block_docs=blocks)

    def lay_if_(self, node: ConcreteNode, parts: list[ConcretePart]) -> LaidOutPart:
        laid = [self.layout_of(part) for part in parts]
        docs = [part.block_docs or part.doc for part in laid]
        blocks = [docs[0], *[doc for d in docs[1:] for doc in (" ", d)]]
        broken = any(part.broken for part in laid[2:])
        return LaidOutPart(BreakGroup((blocks,), broken), "if_", broken, block_docs=blocks)

    def lay_with_key(self, node: ConcreteNode, parts: list[ConcretePart]) -> Doc:
        return (self.join_parts(parts[:-1], ""), " ", self.doc(parts[-1]))

    # ---- Expressions

    def lay_binary(self, node: ConcreteNode, parts: list[ConcretePart]) -> LaidOutPart:
        if node.origin in ("power", "dim_power"):
            return LaidOutPart(
                self.join_parts(parts, "" if self.layout_of(parts[2]).kind in SIMPLE_KINDS else " "), "power"
            )
        first, rest = parts[0], parts[1:]
        left = self.layout_of(first)
        if (
            not isinstance(first, ConcreteNode)
            or first.origin != node.origin
            or left.kind not in ("chain", "hug", "pipe")
        ):
            left = LaidOutPart("", start=self.doc(first))
            if (
                len(rest) == 2
                and not node.has_inner_comments
                and self.hugs_brackets(node, self.layout_of(first), self.layout_of(rest[1]))
            ):
                return LaidOutPart(self.join_parts(parts), "hug", start=left.start, chain_links=self.links(rest))
        left.chain_links += self.links(rest)
        broken = (
            node.has_inner_comments
            or left.breaks_all
            or any(self.layout_of(part).broken for part in (first, *rest[1::2]))
        )
        chain = BreakGroup((left.start, left.chain_links), broken)
        whole = BreakGroup((left.start, IndentedDoc((left.chain_links,))), broken)
        return LaidOutPart(
            whole, "chain", chain=chain, start=left.start, chain_links=left.chain_links, breaks_all=broken
        )

    def links(self, rest: Sequence[ConcretePart]) -> list[Doc]:
        """Operators and their right operands, each with the line that may break there."""
        links: list[Doc] = []
        for op, operand in zip(rest[::2], rest[1::2], strict=True):
            assert isinstance(op, ConcreteLeaf)
            # Between braces a newline ends a statement, so that an operator must end its line there.
            before = not op.in_braces or op.kind in LINE_STARTERS
            sign, right = self.doc(op), self.doc(operand)
            gap = HARD_BREAK if op.trailing_comment else " "
            links.append((SOFT_SPACE, sign, gap, right) if before else (" ", sign, SOFT_SPACE, right))
        return links

    def hugs_brackets(self, node: ConcreteNode, first: LaidOutPart, last: LaidOutPart) -> bool:
        """Whether the brackets at the end break before the operator does: `h * (`, `x + h * sum(`."""
        simple = node.origin == "product" or first.kind in SIMPLE_KINDS
        return simple and last.kind in ("atom", "call", "hug", *HUGGED_KINDS) and last.kind != "string"

    lay_compare = lay_dim = lay_binary

    def lay_pipe(self, node: ConcreteNode, parts: list[ConcretePart]) -> LaidOutPart:
        laid = self.lay_binary(node, parts)
        laid.kind = "pipe"
        return laid

    def lay_unary(self, node: ConcreteNode, parts: list[ConcretePart]) -> LaidOutPart:
        word = parts[0].kind == "NOT"
        number = not word and parts[1].kind in NUMBER_KINDS
        return LaidOutPart(self.join_parts(parts, " " if word else ""), "negative" if number else "unary")

    def lay_range_(self, node: ConcreteNode, parts: list[ConcretePart]) -> Doc:
        at = next((i for i, part in enumerate(parts) if part.kind == "_BY"), len(parts))
        head = self.join_parts(parts[:at], "")
        return (head, " ", self.join_parts(parts[at:])) if at < len(parts) else head

    lay_slice_from = lay_slice_to = lay_range_

    def lay_atom(self, node: ConcreteNode, parts: list[ConcretePart]) -> Doc:
        opener, inner, closer = parts
        assert isinstance(closer, ConcreteLeaf)
        laid = self.layout_of(inner)
        below = [OwnLineComment(c.text) for c in closer.leading_comments]
        if laid.kind in HUGGED_KINDS and not node.has_inner_comments:
            return (self.doc(opener), laid.doc, self.doc(closer))
        inside = IndentedDoc((SOFT_BREAK, laid.chain or laid.doc, *below))
        return BreakGroup(
            (self.doc(opener), inside, SOFT_BREAK, *leaf_and_trailing(closer)), node.has_inner_comments or laid.broken
        )

    lay_with_ = lay_import_

    def lay_lambda_(self, node: ConcreteNode, parts: list[ConcretePart]) -> LaidOutPart:
        body = parts[-1]
        head = [part for part in parts[:-1] if part.kind != "_LINEAR"]
        word: Doc = (self.doc(parts[0]), " ") if parts[0].kind == "_LINEAR" else ""
        laid = self.layout_of(body)
        if laid.kind == "chain":
            rest: Doc = BreakGroup((IndentedDoc((SOFT_SPACE, laid.chain)),), node.has_inner_comments or laid.breaks_all)
        else:
            rest = (" ", laid.doc)
        return LaidOutPart((word, self.join_parts(head, ""), rest), "block" if laid.kind == "block" else "lambda_")

    lay_linear_lambda = lay_lambda_

    def lay_comprehension(self, node: ConcreteNode, parts: list[ConcretePart]) -> Doc:
        return self.head_and_value(parts[:-1], parts[-1], commented=node.has_inner_comments).doc


def is_visible(part: ConcretePart) -> bool:
    """Whether a part has any token other than a newline."""
    return part.end >= 0 and part.kind != "_NL"


def opening_bracket_index(parts: Sequence[ConcretePart]) -> int | None:
    """The index of the opening parenthesis or bracket."""
    return next((i for i, part in enumerate(parts) if part.kind in ("LPAR", "LSQB")), None)
