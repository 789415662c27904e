"""The branches of a loaded model's blocks, and which sub-layers can be removed."""

from collections.abc import Sequence

import torch
from torch import Tensor

from shoal.core.errors import UnsupportedModelError
from shoal.core.mask import Mask
from shoal.models.batch import TokenBatch
from shoal.models.branches import BlockBranches, find_branches
from shoal.models.dense import DenseModel
from shoal.models.probing import Probe
from shoal.models.replay import Replay

_ROWS, _LENGTH = 2, 12


def random_batch(dense: DenseModel, rows: int, length: int) -> TokenBatch:
    """Random tokens, every next-token prediction of which is scored."""
    embeddings = dense.module.get_input_embeddings()
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(len(embeddings.weight), (rows, length), generator=generator)
    return TokenBatch.scored_everywhere(ids).to(dense.device)


def discover(dense: DenseModel) -> tuple[BlockBranches, ...]:
    """Find the branches of every block.

    Raises:
        UnsupportedModelError: If blocks cannot be run singly, or are made otherwise.
    """
    if dense.blocks.twins:
        raise UnsupportedModelError(
            f"each block of {type(dense.module).__name__} has a part in several stacks, so its "
            "attention and MLP cannot be removed one by one"
        )
    replay = Replay(dense)
    try:
        captured = replay.capture(random_batch(dense, _ROWS, _LENGTH))

        def call(layer: int, hidden: Tensor) -> Tensor:
            return replay.run_block(layer, hidden, captured)

        return find_branches(dense.blocks.layers, Probe(dense.blocks.layers, captured.entry, call))
    except UnsupportedModelError:
        raise
    except (RuntimeError, TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise UnsupportedModelError(
            f"the blocks of {type(dense.module).__name__} cannot be run singly ({error}), so their "
            "attention and MLP cannot be told apart"
        ) from error


def needed(dense: DenseModel, mask: Mask) -> Sequence[BlockBranches]:
    """The branches of a model's blocks where a mask removes parts of blocks, else none.

    Raises:
        UnsupportedModelError: If they cannot be told.
    """
    return () if mask.whole_blocks_only else dense.branches
