r"""Error of generated answers: 0 where the answer that the model writes is right, else 1.

Decoding is greedy, with a KV cache, up to the EOS token, the first stop text or `new_tokens`. Plain
prompts end at "\n\n" and "\nQuestion:" unless stop texts are given; in a chat only EOS ends.

Multiple choice is asked for by letter, as TALE (2510.22767) does: the choices are listed below the
question, few tokens are written, and they must begin with the letter. TALE also takes a letter
further on, and asks through the chat template, which here is an option.
"""

from math import nan
from typing import Any, Literal

from transformers import PreTrainedModel

from shoal.core.errors import UnsupportedModelError, UsageError
from shoal.data.items import ChoiceSet, PromptItem, PromptSet
from shoal.models.dense import DenseModel
from shoal.objectives.base import Described, GenerationObjective
from shoal.objectives.decoding import Decoding, end_tokens, write
from shoal.objectives.matching import Match, all_numbers, is_right, plain_number
from shoal.objectives.options import BuildOptions, in_parts
from shoal.objectives.prompt_batches import PromptBatch, padding_agrees, prompt_batches
from shoal.objectives.prompts import encode_prompts, lettered
from shoal.objectives.stops import DEFAULT_STOPS, text_of

LETTER_TOKENS = 4
"""Most tokens that are written for a letter: it may stand in brackets or on the next line."""


class ExactMatch(GenerationObjective):
    """Share of generated answers that are wrong; accuracy is one minus the mean.

    Attributes:
        new_tokens: Most tokens that are written.
        match: How answers are compared; "auto" takes numeric for answers that are
            numbers and text for others.
        stop: Texts that end an answer, besides EOS.
        chat: Whether prompts go through the model's chat template.
    """

    new_tokens: int = 128
    match: Literal["auto", "numeric", "text", "prefix"] = "auto"
    stop: tuple[str, ...] = ()
    chat: bool = False
    batches: list[PromptBatch]

    def prepare(
        self, data: PromptSet | ChoiceSet, dense: DenseModel, options: BuildOptions
    ) -> Described:
        """Tokenise the prompts; they share left-padded batches where the model allows it."""
        if not dense.module.can_generate():
            raise UnsupportedModelError(
                f"{dense.source.id} cannot generate text. Use an objective on given text."
            )
        letters = isinstance(data, ChoiceSet)
        if isinstance(data, ChoiceSet):
            items = tuple(map(lettered, data.items))
            self._rule = self._letter_rule()
        else:
            items = data.items
            self._rule = self._prompt_rule(items)
        self._answers = [item.answers for item in items]
        self._tokenizer = dense.require_tokenizer()
        self._decoding = self._how(dense, LETTER_TOKENS if letters else self.new_tokens)
        how = self._decoding
        prompts = encode_prompts(
            items, dense, options.tokenisation, new_tokens=how.new_tokens, chat=self.chat
        )
        padded = padding_agrees(dense, prompts, how)
        self.batches, self.parts = in_parts(
            len(prompts),
            options,
            lambda some: prompt_batches(
                [prompts[i] for i in some],
                options.batch_tokens,
                how.new_tokens,
                how.pad,
                padded=padded,
            ),
        )
        self.num_examples = len(items)
        settings: dict[str, Any] = {
            "match": self._rule,
            "stop": list(how.stops),
            "new_tokens": how.new_tokens,
            "chat": self.chat,
        }
        content = [
            [[p, a] for p, a in zip(prompts, self._answers, strict=True)],
            settings,
            how.eos,
        ]
        described = {"items": len(items), "lettered": letters, "left_padded": padded, **settings}
        return Described(content, described)

    @property
    def num_tokens(self) -> int:
        """Positions that run through the blocks for one mask at most, padding included."""
        new = self._decoding.new_tokens
        return sum(b.input_ids.numel() + len(b.examples) * new for b in self.batches)

    def losses(self, model: PreTrainedModel, batch: PromptBatch) -> list[float]:
        """Error of each item in the batch; NaN where the model's logits are not finite."""
        return [
            nan if text is None else float(not is_right(self._rule, self._answers[example], text))
            for example, text in zip(batch.examples, self.texts(model, batch), strict=True)
        ]

    def texts(self, model: PreTrainedModel, batch: PromptBatch) -> list[str | None]:
        """What a model answers to each prompt of a batch; None where its logits are not finite."""
        written = write(
            model, batch.input_ids, batch.attention_mask, self._decoding, self._tokenizer
        )
        return [
            text_of(tokens, self._decoding.stops, self._tokenizer) if finite else None
            for tokens, finite in zip(written.tokens, written.finite, strict=True)
        ]

    def _letter_rule(self) -> Match:
        if self.match in ("auto", "prefix"):
            return "letter"
        raise UsageError(
            f'multiple choice is answered by a letter, so match "{self.match}" does not fit. '
            "Use auto or prefix."
        )

    def _prompt_rule(self, items: tuple[PromptItem, ...]) -> Match:
        for item in items:
            if not item.answers:
                raise UsageError(
                    f'item "{item.id}" has no answer to compare with. Give every row an "answer".'
                )
            if self.match == "numeric" and not any(
                plain_number(a) is not None for a in item.answers
            ):
                raise UsageError(
                    f'the answer {item.answers[0]!r} of item "{item.id}" is no number, so match '
                    '"numeric" cannot be right. Use text or prefix.'
                )
        if self.match != "auto":
            return self.match
        return "numeric" if all_numbers(item.answers for item in items) else "auto"

    def _how(self, dense: DenseModel, most: int) -> Decoding:
        if not all(self.stop):
            raise UsageError("a stop text is empty, which would end every answer at once.")
        eos = end_tokens(dense)
        stops = self.stop or (() if self.chat else DEFAULT_STOPS)
        # Padding is masked, so any token will do that the model has.
        return Decoding(min(self.new_tokens, most), eos, eos[0] if eos else 0, tuple(stops))
