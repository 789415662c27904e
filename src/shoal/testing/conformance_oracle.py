"""The masked dense model, written without shoal's own masking, as what pruned models must equal.

The blocks are found by watching a forward: a list of blocks is one all of whose modules are called.
A removed block still runs, so that caches and whatever else it fills stay as they were, and a hook
replaces what it did to the residual stream.
"""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from shoal.testing.conformance_parts import zeroed
from shoal.testing.conformance_prompts import (
    ONE,
    PADDED,
    WAYS,
    Greedy,
    Prompts,
    greedy_of,
    logits_of,
)
from shoal.testing.conformance_row import OK, Outcome, wrong

DEPTH = 6

Drop = tuple[int | str, ...]
"""What is left out: blocks, and sub-layers such as `3.attn`."""

TOLERANCE = 1e-4
"""Largest difference of logits that passes, relative to the largest logit."""

LOADING = ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs")
"""What the loading report must be empty of."""


@dataclass
class Oracle:
    """A dense model and what it says with blocks left out.

    Attributes:
        module: The model, for the oracle's use alone.
        stacks: Path -> list of blocks; more than one where a block has a part in each.
    """

    module: PreTrainedModel
    stacks: dict[str, nn.ModuleList] = field(init=False)
    _said: dict[tuple[Drop, str], torch.Tensor] = field(init=False, default_factory=dict)
    _wrote: dict[tuple[Drop, str], dict[str, torch.Tensor | None]] = field(
        init=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        self.stacks = find_stacks(self.module)

    @classmethod
    def load(cls, folder: Path) -> "Oracle":
        """Load the dense model from its folder."""
        return cls(load(folder)[0])

    @contextmanager
    def without(self, drop: Drop) -> Iterator[None]:
        """Leave blocks and sub-layers out for a while."""
        with ExitStack() as taken:
            for stack in self.stacks.values():
                for site in drop:
                    if isinstance(site, int):
                        hook = stack[site].register_forward_hook(_skip, with_kwargs=True)
                        taken.callback(hook.remove)
                    else:
                        layer, _, part = site.partition(".")
                        taken.enter_context(zeroed(stack[int(layer)], part))
            yield

    def knows(self, drop: Drop) -> bool:
        """Whether the sub-layers of the blocks concerned can be told by their names.

        Zeroing both branches of such a block must be the same as leaving the block out, and
        zeroing one must not.
        """
        layers = sorted({int(site.partition(".")[0]) for site in drop if isinstance(site, str)})
        return all(map(self._knows, layers))

    def _knows(self, layer: int) -> bool:
        parts: Drop = (f"{layer}.attn", f"{layer}.mlp")
        said = [self.logits(gone, ONE) for gone in (parts, parts[:1], parts[1:], ())]
        both = not self.gap(said[0], (layer,), ONE)
        return both and not any(torch.equal(one, said[3]) for one in said[:3])

    def logits(self, drop: Drop, prompts: Prompts) -> torch.Tensor:
        """The logits with blocks left out; run once."""
        key = (drop, prompts.name)
        if key not in self._said:
            with self.without(drop):
                self._said[key] = logits_of(self.module, prompts)
        return self._said[key]

    def greedy(self, drop: Drop, prompts: Prompts, ways: tuple[str, ...] = WAYS) -> Greedy:
        """What is written with blocks left out; run once. Ways that raise are left out."""
        known = self._wrote.setdefault((drop, prompts.name), {})
        missing = tuple(way for way in ways if way not in known)
        with self.without(drop):
            found = greedy_of(self.module, prompts, ways=missing, tolerant=True).written
        known |= {way: found.get(way) for way in missing}
        written = {way: tokens for way in ways if (tokens := known[way]) is not None}
        return Greedy(written)

    @cached_property
    def cache_disagrees(self) -> bool:
        """Whether the unpruned model writes something else with a KV cache, or cannot use one."""
        if not self.module.can_generate():
            return False
        return not all(self.greedy((), prompts).agree for prompts in (ONE, PADDED))

    def judge_logits(self, model: PreTrainedModel, drop: Drop) -> Outcome:
        """Compare a model's logits with those of the dense model without some blocks."""
        for prompts in (ONE, PADDED):
            if gap := self.gap(logits_of(model, prompts), drop, prompts):
                return wrong(gap)
        return OK

    def gap(self, found: torch.Tensor, drop: Drop, prompts: Prompts) -> str:
        """How logits differ from those of the dense model without some blocks; empty if not."""
        expected = self.logits(drop, prompts)
        gap = (found - expected).abs().max() / expected.abs().max()
        close = bool(gap <= TOLERANCE)
        return "" if close else f"logits differ by {gap:.2g} of the largest ({prompts.name})"

    def judge_tokens(
        self,
        model: PreTrainedModel,
        drop: Drop,
        prompts: Sequence[Prompts] = (ONE, PADDED),
        ways: tuple[str, ...] = WAYS,
    ) -> Outcome:
        """Compare what a model writes with what the dense model writes without some blocks.

        Args:
            model: The model.
            drop: The blocks.
            prompts: What it continues.
            ways: `cached`, `uncached` or both.
        """
        if not self.module.can_generate():
            return OK
        for each in prompts:
            # Where the cache of the dense model itself is off, either way of it is right.
            strict = self.greedy((), each).agree
            expected = self.greedy(drop, each, ways if strict else WAYS)
            # A way that the dense model itself cannot go is nothing to compare with.
            possible = tuple(way for way in ways if way in expected.ways)
            found = greedy_of(model, each, ways=possible)
            if why := expected.differs(found, strict=strict):
                return wrong(f"{why} ({each.name})")
        return OK

    def judge(self, model: PreTrainedModel, drop: Drop) -> Outcome:
        """Compare logits, then all that is written."""
        logits = self.judge_logits(model, drop)
        return self.judge_tokens(model, drop) if logits == OK else logits

    def judge_quickly(self, model: PreTrainedModel, drop: Drop) -> Outcome:
        """Compare logits, then what is written with a KV cache to the padded prompts alone."""
        logits = self.judge_logits(model, drop)
        if logits != OK:
            return logits
        return self.judge_tokens(model, drop, (PADDED,), ("cached",))


def load(folder: Path) -> tuple[PreTrainedModel, dict[str, Any]]:
    """Load a folder as any user does, with the loading report."""
    auto: Any = AutoModelForCausalLM
    model, report = auto.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    return model.eval(), report


def complaints(report: dict[str, Any]) -> str:
    """What a loading report holds that it should not, in one line; empty if nothing."""
    found = {name: sorted(map(str, report.get(name) or ())) for name in LOADING}
    return "; ".join(f"{name} {', '.join(keys[:3])}" for name, keys in found.items() if keys)


def find_stacks(module: nn.Module) -> dict[str, nn.ModuleList]:
    """The lists of blocks: those as long as the zoo's models are deep, with every module called.

    Raises:
        LookupError: If there is none.
    """
    lists = {
        path: part
        for path, part in module.named_modules()
        if isinstance(part, nn.ModuleList) and len(part) == DEPTH
    }
    called: set[int] = set()
    handles = [
        block.register_forward_hook(partial(_note, called))
        for part in lists.values()
        for block in part
    ]
    try:
        with torch.inference_mode():
            module(input_ids=ONE.tokens, use_cache=False)
    finally:
        for handle in handles:
            handle.remove()
    ran = {path: part for path, part in lists.items() if all(id(b) in called for b in part)}
    outer = {
        path: part
        for path, part in ran.items()
        if not any(path.startswith(other + ".") for other in ran)
    }
    if not outer:
        raise LookupError(f"{type(module).__name__} runs no list of {DEPTH} blocks.")
    return outer


def _note(called: set[int], module: nn.Module, args: Any, output: Any) -> None:
    called.add(id(module))


def _skip(module: nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> Any:
    """What a block would return had it done nothing.

    The residual stream and every state handed from block to block come out as they went in.
    """
    given = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    if hasattr(output, "attn_output"):  # Reformer: two streams.
        return output._replace(
            attn_output=given["prev_attn_output"].clone(),
            hidden_states=given["hidden_states"].clone(),
        )
    stream = next(iter(given.values())).clone()
    if isinstance(output, torch.Tensor):
        return stream
    # XLNet writes by its second stream.
    handed = [v for name, v in given.items() if name.startswith("prev_") or name == "output_g"]
    rest = [*handed, *output[1 + len(handed) :]]
    return type(output)([stream, *rest])
