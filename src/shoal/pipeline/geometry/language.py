"""A causal language model with two tasks of `shoal ls tasks`, or files."""

from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from shoal.config.geometry import GeometryConfig
from shoal.core import fingerprint
from shoal.core.errors import UnsupportedModelError, UsageError
from shoal.core.mask import Mask
from shoal.core.plan import Plan
from shoal.data import Tokenisation
from shoal.geometry.sides import Side
from shoal.geometry.stack import Batch, Stack, Texts, llm_stack, states
from shoal.geometry.surrogates import ENOUGH
from shoal.models.batch import TokenBatch
from shoal.models.dense import DenseModel
from shoal.models.discover import depth_of
from shoal.models.load import load_dense
from shoal.models.source import Source
from shoal.models.sublayers import random_batch
from shoal.objectives.build import Data, kind_of
from shoal.pipeline.geometry.losses import METRICS, losses_on, metric_for
from shoal.pipeline.geometry.subject import Subject, Task, counted_of, fitting_tokens
from shoal.pipeline.geometry.texts import Tokens, batches_of, read_sequences, sequences_key
from shoal.pipeline.listener import Listener
from shoal.pipeline.naming import model_name
from shoal.pipeline.plans import check_plan
from shoal.pipeline.prepare import Model, load_report, locate

MOST = 16_384
"""Items of a task that are read for the surrogates."""

PROBE_TOKENS = 256
"""Positions on which passes are timed, about."""


@dataclass(frozen=True)
class LanguageSource:
    """A model's files and the data of its tasks.

    Attributes:
        model: The model as an object, or the source of its files.
        hf_config: Its config.
        name: What it is called.
        id: Data of the task that it is adapted to.
        ood: Data of the shifted one.
    """

    model: PreTrainedModel | DenseModel | Source
    hf_config: PreTrainedConfig
    name: str
    id: Data
    ood: Data

    @property
    def depth(self) -> int:
        """Number of blocks."""
        return depth_of(self.hf_config)


def check_language(config: GeometryConfig, model: Model) -> LanguageSource:
    """Find a model's files and load the data of both tasks.

    Raises:
        UsageError: If either cannot be found, the tasks are the same, or no task has the metric.
    """
    found, hf_config = locate(model)
    fitted = {"surrogates", "interventions"} & set(config.parts)
    limit = MOST if fitted else max(config.items, config.loss_items)
    data = [load_report(str(name), config.data_dir, limit) for name in (config.id, config.ood)]
    if data[0].fingerprint == data[1].fingerprint:
        raise UsageError(
            f"{config.id} and {config.ood} hold the same, and a task has no shift from itself."
        )
    kinds = [kind_of(one) for one in data]
    for metric in config.metric:
        if not any(metric in METRICS[kind] for kind in kinds):
            fits = ", ".join(dict.fromkeys(m for kind in kinds for m in METRICS[kind]))
            raise UsageError(
                f"--metric {metric} fits neither {config.id} nor {config.ood}. For these: {fits}."
            )
    return LanguageSource(found, hf_config, model_name(model, hf_config), *data)


def open_language(
    source: LanguageSource,
    config: GeometryConfig,
    plan: Plan | Mask | None,
    listener: Listener,
    *,
    any_model: bool,
) -> Subject:
    """Load the model and turn its tasks into tokens.

    Raises:
        UsageError: If the plan is another model's, there is no tokenizer, or a task is too short.
        UnsupportedModelError: If the model has no single state per depth and position.
    """
    listener.stage("Loading the model")
    dense = load_dense(
        source.model, config=source.hf_config, device=config.device, dtype=config.dtype
    )
    dense.require_tokenizer()
    mask = None
    if plan is not None:
        mask = check_plan(
            plan,
            dense.depth,
            dense.source.id,
            lambda: dense.fingerprint,
            any_model=any_model,
        )
    listener.stage("Preparing both tasks")
    stack = llm_stack(dense, branches=mask is not None)
    _check_parts(mask, stack, source.name)
    notes: list[str] = []
    making = _Making(config, dense, stack, _width(dense, stack), notes)
    names = [data.name for data in (source.id, source.ood)]
    if names[0] == names[1]:
        # Two files of one name, in different folders.
        names = [str(config.id), str(config.ood)]
    id, ood = making.task(source.id, names[0]), making.task(source.ood, names[1])
    return Subject(
        ref=dense.ref,
        key=f"{dense.fingerprint}:{dense.dtype_name}",
        stack=stack,
        width=making.width,
        weight_bytes=sum(p.numel() * p.element_size() for p in dense.module.parameters()),
        id=id,
        ood=ood,
        probe=_probe(id.side.texts.batches[0]),
        mask=mask,
        notes=(*_first(config), *notes),
        settings={"dtype": dense.dtype_name, "device": str(dense.device)},
    )


@dataclass(frozen=True)
class _Making:
    """What tasks are made of."""

    config: GeometryConfig
    dense: DenseModel
    stack: Stack
    width: int
    notes: list[str]

    def task(self, data: Data, name: str) -> Task:
        """Sequences and losses of one task."""
        config, skip = self.config, self.config.skip_first
        fitted = bool({"surrogates", "interventions"} & set(config.parts))
        wanted = config.surrogate_tokens or ENOUGH * self.width
        states = fitting_tokens(wanted) if fitted else 0
        sequences = read_sequences(data, self.dense, config, states, self.notes)
        losses = losses_on(
            data,
            self.dense,
            self.stack,
            metric_for(kind_of(data), config.metric),
            limit=config.loss_items,
            length=sequences.length,
            tokenisation=Tokenisation(bos=config.bos),
            batch_tokens=config.batch_tokens,
        )
        texts = self._texts(name, sequences.profile)
        more = sequences.with_states(states, skip) if fitted else sequences.profile
        surrogate = self._texts(name, more)
        described: dict[str, Any] = {
            "task": name,
            "data": f"{data.origin} ({data.split})",
            "sequences": len(sequences.profile),
            "states": counted_of(texts),
            "loss_items": losses.num_examples,
        }
        if fitted:
            described |= {
                "surrogate_sequences": len(more),
                "surrogate_states": counted_of(surrogate),
            }
        return Task(
            side=Side(texts, losses, losses.metric, more=surrogate),
            surrogate=surrogate,
            key=fingerprint.of_json([sequences_key(sequences.profile, skip), losses.fingerprint]),
            surrogate_key=sequences_key(more, skip),
            loss_tokens=losses.num_tokens,
            described=described,
        )

    def _texts(self, name: str, sequences: list[Tokens]) -> Texts:
        config = self.config
        return Texts(name, batches_of(sequences, config.batch_tokens, config.skip_first))


def _width(dense: DenseModel, stack: Stack) -> int:
    tokens = random_batch(dense, 2, 3)
    return states(stack, Batch.of(tokens, torch.ones(2, 3, dtype=torch.bool)))[0].shape[-1]


def _probe(batch: Batch) -> Batch:
    """The first sequences of a batch."""
    few: TokenBatch = batch.inputs.first(PROBE_TOKENS)
    return Batch.of(few, batch.positions[: len(few.input_ids)])


def _first(config: GeometryConfig) -> tuple[str, ...]:
    if not config.skip_first:
        return ()
    first = "position" if config.skip_first == 1 else f"{config.skip_first} positions"
    return (
        f"the first {first} of each sequence is left out of all states, since many models keep an "
        "attention sink of extreme norm there (--skip-first)",
    )


def _check_parts(mask: Mask | None, stack: Stack, name: str) -> None:
    if mask is not None and not mask.whole_blocks_only and not stack.branches:
        raise UnsupportedModelError(
            f"{mask} removes parts of blocks, and those of {name} cannot be told apart. Remove "
            "whole blocks."
        )
