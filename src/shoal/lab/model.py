"""The in-context regression transformer (Garg et al. 2022): GPT-2 over x_1, y_1, x_2, ..., x_n.

Each number is one token: a linear read-in makes a hidden state of it, GPT-2's blocks work on it,
and a linear read-out at x_i predicts y_i from the i - 1 points before it. Which tokens are x and
which are y shows in their position alone.
"""

from functools import cached_property

import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2Model

from shoal.config.lab import LabModelConfig
from shoal.core.errors import UsageError
from shoal.models.discover import Blocks


class LabModel(nn.Module):
    """GPT-2 between a linear read-in and a linear read-out.

    Args:
        config: Its size.
        seed: Seed of the weights.
    """

    def __init__(self, config: LabModelConfig, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.read_in = nn.Linear(1, config.width)
            self.backbone = GPT2Model(_gpt2(config))
            self.read_out = nn.Linear(config.width, 1)
        # Tokens are numbers, so nothing is looked up.
        del self.backbone.wte

    @cached_property
    def blocks(self) -> Blocks:
        """Its blocks."""
        return Blocks("backbone.h", self.backbone.h)

    @property
    def depth(self) -> int:
        """Number of blocks."""
        return self.config.layers

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Predict each y from the points before it.

        Args:
            x: Inputs [B, n].
            y: Values [B, n]; the last is not read.

        Returns:
            Predictions [B, n].

        Raises:
            UsageError: If there are more points than the model has positions for.
        """
        states = self.backbone(inputs_embeds=self._tokens(x, y), use_cache=False)
        return self._predictions(states.last_hidden_state)

    def entry(self, x: Tensor, y: Tensor) -> Tensor:
        """The hidden states [B, 2 n - 1, d] that enter block 0."""
        tokens = self._tokens(x, y)
        return tokens + self.backbone.wpe.weight[: tokens.shape[1]]

    def run_block(self, layer: int, hidden: Tensor) -> Tensor:
        """Apply one block to hidden states [B, T, d]."""
        out: Tensor = self.backbone.h[layer](hidden)
        return out

    def read(self, hidden: Tensor) -> Tensor:
        """Predictions [B, n] from the hidden states that leave the last block."""
        return self._predictions(self.backbone.ln_f(hidden))

    def _tokens(self, x: Tensor, y: Tensor) -> Tensor:
        if x.shape[1] > self.config.points:
            raise UsageError(
                f"prompts of {x.shape[1]} points are longer than the {self.config.points} points "
                "that this lab model was made for."
            )
        numbers = torch.stack([x, y], dim=2).flatten(1)[:, :-1]
        embedded: Tensor = self.read_in(numbers[..., None])
        return embedded

    def _predictions(self, hidden: Tensor) -> Tensor:
        found: Tensor = self.read_out(hidden[:, ::2])[..., 0]
        return found


def _gpt2(config: LabModelConfig) -> GPT2Config:
    return GPT2Config(
        n_embd=config.width,
        n_layer=config.layers,
        n_head=config.heads,
        n_positions=2 * config.points,
        vocab_size=1,
        # The same function as gelu_new, in one kernel.
        activation_function="gelu_pytorch_tanh",
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
        use_cache=False,
    )
