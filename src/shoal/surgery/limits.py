"""What limits the pruning of a model: rules about which blocks may go, told from the config alone.

Each function looks for one kind of rule and returns it, or None where the model has none. A rule
says itself in one sentence, and says of a layout why it breaks it. Rules are cheap, because
searches ask about every mask.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from transformers import PreTrainedConfig

from shoal.core.layout import Layout
from shoal.models.discover import depth_of, text_config
from shoal.surgery import rules
from shoal.surgery.fields import donors, origins, read
from shoal.surgery.periodic import fit, marked


@dataclass(frozen=True)
class Limit:
    """A rule about which blocks may go.

    Attributes:
        note: The rule, in one sentence.
        broken: Why a layout breaks it; None if it does not.
    """

    note: str
    broken: Callable[[Layout], str | None]


def limits(config: PreTrainedConfig) -> list[Limit]:
    """The rules of a model; none where any block can go.

    Args:
        config: The model's config; a nested text config is found.
    """
    text, depth = text_config(config), depth_of(config)
    # Some config classes make this list anew whenever it is read.
    kinds = list(read(text, "layer_types") or read(text, "layers_block_type") or ())
    found = (
        _first_stays(text),
        _only_the_end(text),
        _only_the_last(text, depth),
        _first_is_full(text, kinds),
        _last_is_full(text, kinds),
        _donors(config) if read(text, "num_kv_shared_layers") else None,
        _indexers(text),
        _hash_tables(text),
        _attention(kinds),
        _tied(text, kinds),
        _memory_blocks(text, kinds),
        *_periods(text, depth),
    )
    return [limit for limit in found if limit is not None]


def these(blocks: Iterable[int]) -> str:
    """Blocks by name."""
    listed = sorted(blocks)
    return ("block " if len(listed) == 1 else "blocks ") + ", ".join(map(str, listed))


def _first_stays(text: PreTrainedConfig) -> Limit | None:
    why = rules.FIRST_STAYS.get(text.model_type)
    if why is None:
        return None
    note = f"block 0 must stay, because {why}"
    return Limit(note, lambda layout: None if layout.attn[0] == 0 else note)


def _only_the_end(text: PreTrainedConfig) -> Limit | None:
    why = rules.ONLY_THE_END.get(text.model_type)
    if why is None:
        return None
    note = f"only blocks at the end can go, because {why}"

    def broken(layout: Layout) -> str | None:
        return None if layout.attn == tuple(range(len(layout))) else note

    return Limit(note, broken)


def _only_the_last(text: PreTrainedConfig, depth: int) -> Limit | None:
    why = rules.ONLY_THE_LAST.get(text.model_type)
    if why is None:
        return None
    note = f"only the last block, {depth - 1}, can go, because {why}"

    def broken(layout: Layout) -> str | None:
        return None if layout.attn == tuple(range(depth - 1)) else note

    return Limit(note, broken)


def _first_is_full(text: PreTrainedConfig, kinds: Sequence[str]) -> Limit | None:
    # Where the dense model begins otherwise, it cannot generate with a cache either.
    if text.model_type not in rules.FIRST_IS_FULL or kinds[0] != "full_attention":
        return None
    full = [i for i, kind in enumerate(kinds) if kind == "full_attention"]
    note = (
        "the first kept block must have full attention, because the cache counts tokens there: it "
        f"must be one of {these(full)}"
    )
    return Limit(note, lambda layout: None if layout.attn[0] in full else note)


def _last_is_full(text: PreTrainedConfig, kinds: Sequence[str]) -> Limit | None:
    if text.model_type not in rules.LAST_IS_FULL or set(kinds) == {"full_attention"}:
        return None
    full = [i for i, kind in enumerate(kinds) if kind == "full_attention"]
    note = f"the last kept block must have full attention: it must be one of {these(full)}"

    def broken(layout: Layout) -> str | None:
        last = layout.attn[-1]
        return None if last in full else f"{note}, not {kinds[last]} as block {last}"

    return Limit(note, broken)


def _donors(config: PreTrainedConfig) -> Limit | None:
    giving = donors(config)
    needed = {d for d in giving if d is not None}
    note = f"later blocks reuse the keys and values of {these(needed)}"

    def broken(layout: Layout) -> str | None:
        kept = set(layout.attn)
        lost = {giving[i] for i in kept} - kept - {None}
        readers = [i for i in layout.attn if giving[i] in lost]
        if not lost:
            return None
        gone = these(d for d in lost if d is not None)
        return (
            f"{these(readers)} would stay, but the keys and values of {gone}, which they reuse, "
            f"would go. Keep {gone}"
        )

    return Limit(note, broken)


def _indexers(text: PreTrainedConfig) -> Limit | None:
    indexers = read(text, "indexer_types") or ()
    if "shared" not in indexers:
        return None

    def broken(layout: Layout) -> str | None:
        first = layout.attn[0]
        if indexers[first] != "shared":
            return None
        return f"block {first} would come first, but it shares the indexer of an earlier block"

    return Limit('the first kept block must have the indexer type "full"', broken)


def _hash_tables(text: PreTrainedConfig) -> Limit | None:
    hashed = [i - 1 for i in read(text, "ple_layer_ids") or ()]
    if not hashed:
        return None
    note = f"of {these(hashed)}, whose hash tables depend on their order, only the last can go"

    def broken(layout: Layout) -> str | None:
        stay = [i in layout.mlp for i in hashed]
        return None if stay == sorted(stay, reverse=True) else note

    return Limit(note, broken)


def _attention(kinds: Sequence[str]) -> Limit | None:
    attending = [i for i, kind in enumerate(kinds) if _attends(kind)]
    if not attending or len(attending) == len(kinds):
        return None

    def broken(layout: Layout) -> str | None:
        if set(attending) & set(layout.attn):
            return None
        return (
            "no block with attention would stay, and generation with a cache needs one: "
            f"keep one of {these(attending)}"
        )

    return Limit("at least one block with attention must stay", broken)


def _tied(text: PreTrainedConfig, kinds: Sequence[str]) -> Limit | None:
    least = rules.TIED_AT_LEAST.get(text.model_type)
    if least is None:
        return None
    hybrid = [i for i, kind in enumerate(kinds) if kind == "hybrid"]
    note = f"at least {least} of {these(hybrid)} must stay, because they share one transformer"

    def broken(layout: Layout) -> str | None:
        return None if len(set(hybrid) & set(layout.attn)) >= least else note

    return Limit(note, broken)


def _memory_blocks(text: PreTrainedConfig, kinds: Sequence[str]) -> Limit | None:
    turns = read(text, "num_mem_blocks")
    if not isinstance(turns, int) or turns < 2:
        return None
    hybrid = [i for i, kind in enumerate(kinds) if kind == "hybrid"]
    note = f"{turns} shared transformers take turns over {these(hybrid)}, and must still do so"

    def broken(layout: Layout) -> str | None:
        stay = [order for order, i in enumerate(hybrid) if i in layout.attn]
        moved = [hybrid[o] for new, o in enumerate(stay) if o % turns != new % turns]
        return f"{note}: the turn of {these(moved)} would change" if moved else None

    return Limit(note, broken)


def _periods(text: PreTrainedConfig, depth: int) -> list[Limit]:
    schedules = marked(text, depth)
    if not schedules or all(_period(text, names) == 1 for names in schedules):
        return []
    cycle = math.lcm(*(_period(text, names) for names in schedules))
    always = f": a run of {cycle} neighbours can always go" if cycle < depth else ""
    note = f"the kinds of blocks follow a period and must still do so{always}"

    def broken(layout: Layout) -> str | None:
        for names, marks in schedules.items():
            if fit(names, [marks[i] for i in origins(layout, names[0])]) is None:
                return f"{note}, but without these blocks no {' and '.join(names[:2])} fits"
        return None

    return [Limit(note, broken)]


def _period(text: PreTrainedConfig, names: tuple[str, ...]) -> int:
    return int(getattr(text, names[0]))


def _attends(kind: str) -> bool:
    return kind in ("attention", "hybrid") or (
        kind.endswith("_attention") and kind != "linear_attention"
    )
