"""LALR parser tables, generated from `difflang.lark` by lark once, then cached as JSON in the user's cache folder.

Lark is imported only to generate them. `parse` drives them, and `tree_builder` builds the tree.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
import warnings
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from difflang.base import package_data, private_cache

CACHE_FORMAT = 3
START_RULES = ("start", "expr")
END_OF_TEXT = "$END"
ACCEPT = 1 << 30


class Production(Struct, frozen=True):
    """A production. `keep` selects the callback's arguments: (index, whether that list is spliced in, Nones before)."""

    origin: str
    size: int
    callback: str
    keep: tuple[tuple[int, bool, int], ...]
    missing: int  # the number of Nones at the end
    single: bool  # a single child stands for the whole

    @property
    def is_unit(self) -> bool:
        return self.single and self.size == 1 and len(self.keep) == 1

    @property
    def takes_symbols_only(self) -> bool:
        """Whether the children are a subset of the symbols: nothing is spliced in or added."""
        return not self.missing and not any(spread or nones for _, spread, nones in self.keep)


class TerminalSet(Struct, frozen=True):
    """The terminals: reserved words, symbols, and regular expressions in the order in which they are tried."""

    words: Mapping[str, str]
    symbols: Mapping[str, str]
    patterns: tuple[tuple[str, str], ...]
    contextual: tuple[tuple[str, str], ...]
    join: str
    space: str


class ParserTables(Struct, frozen=True):
    """`rows[state][symbol]` is the next state, the complement of a rule's number, or ACCEPT."""

    rows: tuple[Mapping[str, int], ...]
    rules: tuple[Production, ...]
    starts: Mapping[str, int]
    lexis: TerminalSet
    chains: dict[tuple[int, int, str], int] = field(default_factory=dict[tuple[int, int, str], int])


@cache
def load_tables() -> ParserTables:
    """The tables of the language, from the cache if possible."""
    grammar = package_data.grammar_text()
    key = _cache_key(grammar)
    if (kept := read_cached(key)) is not None:
        return kept
    data = build_tables(grammar)
    write_cached(key, data)
    return decode_tables(data)


def _cache_key(grammar: str) -> str:
    """A hash of everything the tables depend on."""
    parts = (str(CACHE_FORMAT), lark_version(), sys.version, grammar)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def lark_version() -> str:
    """Lark's version by the name of its metadata folder: reading the metadata takes longer."""
    spec = find_spec("lark")
    home = Path(spec.origin).parents[1] if spec is not None and spec.origin else None
    found = sorted(home.glob("lark-*.dist-info")) if home is not None else []
    if len(found) == 1:
        return found[0].name.removeprefix("lark-").removesuffix(".dist-info")
    from importlib import metadata

    return metadata.version("lark")


# ---- The cache


def read_cached(key: str) -> ParserTables | None:
    """The tables that `write_cached` stored; None for any damage, since they can be generated again."""
    try:
        data = private_cache.read_entry(private_cache.private_subfolder() / _entry_name(key), key)
        return None if data is None else decode_tables(json.loads(data))
    except private_cache.UnsafeFolderError:
        warnings.warn(private_cache.unsafe_folder_text(), private_cache.CacheWarning, stacklevel=2)
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        pass
    return None


def write_cached(key: str, data: dict[str, Any]) -> None:
    """Cache the tables. If the folder cannot be used, the next start only takes longer."""
    with contextlib.suppress(OSError):
        place = private_cache.private_subfolder() / _entry_name(key)
        private_cache.write_entry(place, key, json.dumps(data, separators=(",", ":")).encode())


def _entry_name(key: str) -> str:
    return f"grammar-{key}.json"


def decode_tables(data: dict[str, Any]) -> ParserTables:
    """Tables from their JSON form."""
    lexis = data["lexis"]
    return ParserTables(
        rows=tuple(data["rows"]),
        rules=tuple(
            Production(
                origin, size, callback, tuple((i, bool(spread), nones) for i, spread, nones in keep), missing, single
            )
            for origin, size, callback, keep, missing, single in data["rules"]
        ),
        starts=data["starts"],
        lexis=TerminalSet(
            words=lexis["words"],
            symbols=lexis["symbols"],
            patterns=tuple((name, pattern) for name, pattern in lexis["patterns"]),
            contextual=tuple((name, pattern) for name, pattern in lexis["contextual"]),
            join=lexis["join"],
            space=lexis["space"],
        ),
    )


# ---- Generating the tables


def build_tables(grammar: str) -> dict[str, Any]:
    """The tables of a grammar, in JSON form.

    Errors: lark's GrammarError for a grammar that is not LALR(1).
    Cost:   half a second.
    """
    from lark import Lark
    from lark.grammar import Rule as LarkRule
    from lark.lexer import Lexer, TerminalDef

    class NoLexer(Lexer):
        """Spares lark its own lexers, one for each set of accepted terminals."""

        def __init__(self, lexer_conf: object) -> None:
            pass

        def lex(self, lexer_state: object, parser_state: object) -> Any:
            return iter(())

    lark = Lark(grammar, parser="lalr", lexer=NoLexer, start=list(START_RULES), maybe_placeholders=True)
    data, memo = lark.memo_serialize([TerminalDef, LarkRule])
    table = data["parser"]["parser"]
    names: dict[int, str] = {int(number): name for number, name in table["tokens"].items()}
    # Sorted, since lark's order depends on hashing: the cached tables must not differ between runs.
    keys = sorted((key for key in memo if memo[key]["__type__"] == "Rule"), key=lambda key: _production_key(memo[key]))
    numbers = {int(key): number for number, key in enumerate(keys)}
    rows: list[dict[str, int]] = [{} for _ in table["states"]]
    for state, actions in table["states"].items():
        for token, (reduces, target) in actions.items():
            rows[int(state)][names[int(token)]] = ~numbers[target["@"]] if reduces else target
    for state in table["end_states"].values():
        rows[state][END_OF_TEXT] = ACCEPT
    rows, starts = _renumber_states(rows, table["start_states"])
    return {
        "rows": rows,
        "rules": [_encode_production(memo[key]) for key in keys],
        "starts": starts,
        "lexis": _encode_terminals([memo[key] for key in memo if memo[key]["__type__"] == "TerminalDef"]),
    }


def _production_key(rule: dict[str, Any]) -> tuple[str, list[str]]:
    return str(rule["origin"]["name"]), [symbol["name"] for symbol in rule["expansion"]]


def _renumber_states(rows: list[dict[str, int]], starts: dict[str, int]) -> tuple[list[dict[str, int]], dict[str, int]]:
    """Number the states in order of discovery: lark's numbers depend on set order and differ on each run."""
    # Breadth first from the start states.
    met = {state: number for number, state in enumerate(starts[start] for start in START_RULES)}
    queue = list(met)
    for state in queue:
        for _, target in sorted(rows[state].items()):
            if 0 <= target < ACCEPT and target not in met:
                met[target] = len(met)
                queue.append(target)
    ordered = [
        {symbol: met[target] if 0 <= target < ACCEPT else target for symbol, target in sorted(rows[state].items())}
        for state in queue
    ]
    return ordered, {start: met[starts[start]] for start in START_RULES}


def _encode_production(data: dict[str, Any]) -> list[Any]:
    """The JSON form of `Production`, with lark's rules for a callback's arguments worked out beforehand."""
    origin, symbols, options = str(data["origin"]["name"]), data["expansion"], data["options"]
    nones = [0] * (len(symbols) + 1)
    at = 0
    for missing in options["empty_indices"] or [False] * len(symbols):
        nones[at] += missing
        at += not missing
    keep: list[list[int]] = []
    pending = 0
    for index, symbol in enumerate(symbols):
        pending += nones[index]
        terminal = symbol["__type__"] == "Terminal"
        if not (terminal and symbol["filter_out"]):
            keep.append([index, int(not terminal and symbol["name"].startswith("_")), pending])
            pending = 0
    callback = str(data["alias"] or origin)
    single = bool(options["expand1"]) and not data["alias"]
    return [origin, len(symbols), callback, keep, pending + nones[-1], single]


def _encode_terminals(terminals: list[dict[str, Any]]) -> dict[str, Any]:
    """The JSON form of `TerminalSet`. Longer fixed texts first, then lark's order for regular expressions."""
    fixed = {t["pattern"]["value"]: t["name"] for t in terminals if t["pattern"]["__type__"] == "PatternStr"}
    regular = {t["name"]: t for t in terminals if t["pattern"]["__type__"] == "PatternRE"}
    texts = {name: t["pattern"]["value"] for name, t in regular.items()}
    own = ("NAME", "JOIN", "SPACE")
    # FLOAT before INT, or `1.5` would be read as `1`.
    ranked = sorted((n for n in texts if n not in own), key=lambda n: (n != "FLOAT", n))
    return {
        "words": {text: name for text, name in fixed.items() if text.isidentifier()},
        "symbols": {t: fixed[t] for t in sorted(fixed, key=lambda t: (-len(t), t)) if not t.isidentifier()},
        "patterns": [["NAME", texts["NAME"]]] + [[n, texts[n]] for n in ranked if not regular[n]["priority"]],
        "contextual": [[n, texts[n]] for n in ranked if regular[n]["priority"]],
        "join": texts["JOIN"],
        "space": texts["SPACE"],
    }
