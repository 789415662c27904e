"""Divergence along what the dense model itself writes.

The dense model continues each prompt greedily; the loss is KL(dense || pruned) at every token of
the continuation, given the prompt and the dense model's own tokens before it. So the pruned model
is compared where the dense model goes when it is used, not on text that others wrote, and needs no
generation itself.
"""

import json
from statistics import mean

from shoal.core import fingerprint
from shoal.data.encode import EncodedText
from shoal.data.items import ChoiceSet, Corpus, PromptSet
from shoal.models.dense import DenseModel
from shoal.objectives.base import Described
from shoal.objectives.continuations import check_room, continue_greedily
from shoal.objectives.decoding import end_tokens
from shoal.objectives.kl import Divergence
from shoal.objectives.options import BuildOptions
from shoal.objectives.prompting import prompts_of


class Trajectory(Divergence):
    """Mean KL over the tokens of each continuation, weighted by their number.

    Attributes:
        new_tokens: Most tokens that the dense model writes per prompt.
        prompt_tokens: Tokens of a text that make a prompt.
        chat: Whether prompts are wrapped in the chat template.
    """

    new_tokens: int = 64
    prompt_tokens: int = 64
    chat: bool = False

    def prepare(
        self, data: Corpus | ChoiceSet | PromptSet, dense: DenseModel, options: BuildOptions
    ) -> Described:
        """Let the dense model continue the prompts."""
        prompts = prompts_of(
            data,
            dense,
            options.tokenisation,
            limit=options.limit,
            length=self.prompt_tokens,
            new_tokens=self.new_tokens,
            chat=self.chat,
        )
        check_room(dense, prompts, self.new_tokens)
        continuations = self._continuations(prompts, dense, options)
        texts = tuple(
            EncodedText((*prompt, *written), len(written))
            for prompt, written in zip(prompts, continuations, strict=True)
        )
        self.take(texts, options)
        return Described(
            [[t.tokens, t.scored] for t in texts],
            {
                "prompts": len(texts),
                "new_tokens": self.new_tokens,
                "mean_continuation": mean(t.scored for t in texts),
                "chat": self.chat,
            },
        )

    def _continuations(
        self, prompts: list[tuple[int, ...]], dense: DenseModel, options: BuildOptions
    ) -> list[list[int]]:
        """The dense model's continuations; kept, since a resumed search must find the same."""
        stops = end_tokens(dense)
        key = fingerprint.of_json(
            ["trajectory", dense.fingerprint, dense.dtype_name, prompts, self.new_tokens, stops]
        )
        if key not in options.artifacts:
            found = continue_greedily(dense, prompts, self.new_tokens, options.batch_tokens)
            options.artifacts[key] = json.dumps(found).encode()
        kept: list[list[int]] = json.loads(options.artifacts[key])
        return kept
