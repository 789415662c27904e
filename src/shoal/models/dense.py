"""A loaded dense model with its blocks found."""

from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from shoal.core import fingerprint
from shoal.core.errors import UsageError
from shoal.core.plan import ModelRef
from shoal.models.branches import BlockBranches
from shoal.models.discover import Blocks, check_causal, find_blocks
from shoal.models.source import Source


@dataclass
class DenseModel:
    """A causal LM in memory, ready to be pruned.

    Attributes:
        module: The transformers model, in eval mode.
        tokenizer: Its tokenizer, if one came with it.
        source: Where it came from.
        blocks: Its decoder blocks.
    """

    module: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase | None
    source: Source
    blocks: Blocks = field(init=False)

    def __post_init__(self) -> None:
        check_causal(self.module.config)
        self.module.train(False)
        self.blocks = find_blocks(self.module)

    @property
    def depth(self) -> int:
        """Number of blocks."""
        return self.blocks.depth

    @cached_property
    def branches(self) -> tuple[BlockBranches, ...]:
        """What each block is made of; found by running each a few times on a short random text.

        Raises:
            UnsupportedModelError: If a block is not made of an attention and an MLP branch.
        """
        from shoal.models.sublayers import discover

        return discover(self)

    @property
    def config(self) -> PreTrainedConfig:
        """The model's config."""
        return self.module.config

    @property
    def device(self) -> torch.device:
        """Where the input embeddings live."""
        return self.module.get_input_embeddings().weight.device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights."""
        return self.module.dtype

    @property
    def dtype_name(self) -> str:
        """The dtype's name as users write it."""
        return str(self.dtype).removeprefix("torch.")

    @cached_property
    def fingerprint(self) -> str:
        """Fingerprint of the files, or of the tensors of a model object."""
        if self.source.folder is not None:
            return self.source.fingerprint()
        return fingerprint_module(self.module)

    @property
    def ref(self) -> ModelRef:
        """How a plan names this model."""
        return ModelRef(
            id=self.source.id, revision=self.source.revision, fingerprint=self.fingerprint
        )

    def require_tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer.

        Raises:
            UsageError: If the model came without one.
        """
        if self.tokenizer is None:
            raise UsageError(
                f"{self.source.id} has no tokenizer, so text cannot be turned into tokens. "
                "Put the tokenizer's files beside the weights, or pass tokenizer=... in Python."
            )
        return self.tokenizer


def fingerprint_module(module: nn.Module) -> str:
    """Fingerprint of every tensor of a module.

    Bits are summed as integers, which is exact whatever the order of the sum, and sampled in
    place, which a sum alone would not see.
    """
    entries: list[list[object]] = []
    for name, tensor in module.state_dict().items():
        if not isinstance(tensor, torch.Tensor):
            # Packed weights of quantised modules, and their dtypes.
            entries.append([name, repr(tensor)])
            continue
        if tensor.is_quantized:
            tensor = tensor.dequantize()
        flat = tensor.detach().contiguous().view(-1)
        bits = flat.view(torch.uint8).to(torch.int64).sum().item() if flat.numel() else 0
        sample = flat[:: max(1, flat.numel() // 64)].float().tolist()
        entries.append([name, list(tensor.shape), str(tensor.dtype), bits, repr(sample)])
    return fingerprint.of_json(entries)
