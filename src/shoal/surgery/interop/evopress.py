"""EvoPress's depth file: one line per block that says what is dropped from it.

The format is defined by IST-DASLab/EvoPress: `get_layer_drop_config` in `evo_drop_search.py` writes
it as `layer_drop_config.txt`, `drop_layers_from_config` in `src/model_utils.py` reads it. The words
name what is **removed**: `none` leaves the block whole, `attn+mlp` makes it the identity. There is
no header and no comment; the number of lines is the depth.
"""

from shoal.core.errors import UsageError
from shoal.core.mask import Mask, Part, Site
from shoal.surgery.interop.text import shown

FILE_NAME = "layer_drop_config.txt"
"""The name that EvoPress gives the file."""

WORDS: dict[str, tuple[Part, ...]] = {
    "none": (),
    "attn": (Part.ATTN,),
    "mlp": (Part.MLP,),
    "attn+mlp": (Part.ATTN, Part.MLP),
}
"""What each word drops."""

_NAMES = {frozenset(parts): word for word, parts in WORDS.items()}


def to_evopress(mask: Mask) -> str:
    r"""Write a mask as EvoPress's depth file.

    Example:
        >>> from shoal.core.mask import Mask
        >>> to_evopress(Mask.parse("-[1,2.mlp]", depth=3))
        'none\nattn+mlp\nmlp\n'
    """
    gone: list[set[Part]] = [set() for _ in range(mask.depth)]
    for site in mask.sublayers:
        gone[site.layer].add(site.part)
    return "".join(_NAMES[frozenset(parts)] + "\n" for parts in gone)


def from_evopress(text: str, depth: int | None = None) -> Mask:
    """Read EvoPress's depth file.

    Args:
        text: The file's content.
        depth: Number of blocks of the dense model, if known: a file of another length is refused.

    Raises:
        UsageError: If a line is none of the four words, or the number of lines is not the depth.
    """
    lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
    if lines == [""]:
        raise UsageError(
            "the EvoPress file is empty. It has one line per block of the dense model, each "
            f"{_allowed()}."
        )
    removed = set()
    for layer, word in enumerate(lines):
        if word not in WORDS:
            # EvoPress itself would pass over the line and drop nothing, without a message.
            raise UsageError(
                f"line {layer + 1} of the EvoPress file is {shown(word)}; allowed is {_allowed()}, "
                "the sub-layers that are dropped, without spaces and without blank lines."
            )
        removed |= {Site(layer, part) for part in WORDS[word]}
    if depth is not None and len(lines) != depth:
        pairs = (
            " EvoPress's --drop_two_consecutive writes one line per pair of blocks: repeat every "
            "line once."
            if 2 * len(lines) == depth
            else ""
        )
        raise UsageError(
            f"the EvoPress file has {len(lines)} lines, but the model has {depth} blocks; it needs "
            f"one line per block.{pairs}"
        )
    return Mask(len(lines), frozenset(removed))


def _allowed() -> str:
    return "one of " + ", ".join(WORDS)
