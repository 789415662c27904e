"""What a diagnosis reads: prompts, answer tokens, tasks and texts, as tokens."""

from collections.abc import Iterator
from dataclasses import dataclass

from shoal.core.errors import UnsupportedModelError, UsageError
from shoal.data import ChoiceSet, Tokenisation
from shoal.diagnosis.choice.candidates import candidate_tokens, letter_tokens
from shoal.diagnosis.freerun.writing import Tokens
from shoal.diagnosis.passages import Passage, passage_batches
from shoal.diagnosis.retrieval import check_texts, retrieval_texts
from shoal.models.batch import TokenBatch
from shoal.models.dense import DenseModel
from shoal.objectives.continuations import check_room
from shoal.objectives.decoding import Decoding
from shoal.objectives.prompt_batches import padding_agrees
from shoal.objectives.prompting import prompts_of
from shoal.pipeline.diagnosis.request import Request

LETTERS = 4
"""Options whose letters are the answer tokens, where no others are named."""

CHECKED = 4
"""Texts in the micro-batch on which the ways to run a model are compared."""


@dataclass(frozen=True)
class Texts:
    """What is read.

    Attributes:
        prompts: Tokens of each prompt; empty where no probe needs them.
        candidates: Answer tokens.
        padded: Whether prompts of different lengths may share a batch.
        choices: Multiple-choice tasks.
        embedded: Tokens of each text to embed.
        tokenisation: The policy for special tokens.
        batch: A few of these texts, for checks.
        notes: What the user should know of them.
    """

    prompts: list[Tokens]
    candidates: tuple[int, ...]
    padded: bool
    choices: tuple[ChoiceSet, ...]
    embedded: list[Tokens]
    tokenisation: Tokenisation
    batch: TokenBatch
    notes: tuple[str, ...]

    def batches(self, batch_tokens: int) -> Iterator[TokenBatch]:
        """All prompts and texts, every token of them scored."""
        passages = [Passage(t[:1], t[1:]) for t in (*self.prompts, *self.embedded) if len(t) > 1]
        if passages:
            yield from (b.tokens for b in passage_batches(passages, batch_tokens))


def read_texts(request: Request, dense: DenseModel) -> Texts:
    """Turn the data of a request into tokens.

    Raises:
        UsageError: If they do not fit the model, or an answer is no single token.
        UnsupportedModelError: If text is to be written and the model cannot.
    """
    config, tokenizer = request.config, dense.require_tokenizer()
    tokenisation = Tokenisation(bos=config.bos)
    prompts: list[Tokens] = []
    candidates, notes = _candidates(request, dense)
    padded = False
    if request.prompts is not None:
        if not dense.module.can_generate():
            raise UnsupportedModelError(
                f"{dense.source.id} cannot generate text, and all probes but choice and retrieval "
                "look along text that it writes. Use --probes choice,retrieval."
            )
        prompts = prompts_of(
            request.prompts,
            dense,
            tokenisation,
            limit=config.num_prompts,
            length=config.prompt_tokens,
            new_tokens=config.steps,
            chat=config.chat,
            skip_long=True,
        )
        if not prompts:
            raise UsageError(
                f"{config.prompts} holds no prompt that, with {config.steps} steps after it, fits "
                f"{dense.source.id}. Use shorter prompts or fewer --steps."
            )
        check_room(dense, prompts, config.steps)
        padded = padding_agrees(dense, prompts, Decoding(config.steps))
        if len(prompts) < config.num_prompts:
            notes.append(f"{config.prompts} holds {len(prompts)} prompts that fit the model")
    embedded: list[Tokens] = []
    if request.texts is not None:
        embedded = retrieval_texts(request.texts, tokenizer, tokenisation, limit=config.num_texts)
        check_texts(embedded, config.neighbours)
        if len(embedded) < config.num_texts:
            notes.append(f"{config.texts} holds {len(embedded)} texts that are long enough")
    known = prompts or embedded
    if not known:
        known = prompts_of(
            request.choices[0],
            dense,
            tokenisation,
            limit=CHECKED,
            length=config.prompt_tokens,
            new_tokens=1,
            chat=False,
        )
    return Texts(
        prompts=prompts,
        candidates=candidates,
        padded=padded,
        choices=request.choices,
        embedded=embedded,
        tokenisation=tokenisation,
        batch=_batch(known),
        notes=tuple(notes),
    )


def _candidates(request: Request, dense: DenseModel) -> tuple[tuple[int, ...], list[str]]:
    """The answer tokens asked for, or the letters of options where they are tokens."""
    tokenizer, answers = dense.require_tokenizer(), request.config.answers
    if answers:
        return candidate_tokens(tokenizer, answers), []
    try:
        return letter_tokens(tokenizer, LETTERS, spaced=not request.config.chat), []
    except UsageError as error:
        return (), [f"no answer subspace along text: {error}"]


def _batch(texts: list[Tokens]) -> TokenBatch:
    longest = sorted(texts, key=len)[-CHECKED:]
    cut = [max(1, len(text) // 2) for text in longest]
    passages = [Passage(t[:c], t[c:] or t[-1:]) for t, c in zip(longest, cut, strict=True)]
    return passage_batches(passages, sum(map(len, longest)))[0].tokens
