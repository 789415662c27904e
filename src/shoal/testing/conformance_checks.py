"""The checks of the conformance run.

A further one is a function from a subject to its cases, and an entry in `CHECKS`: its name becomes
a column, and the next run on a file of rows adds it to those that lack it.
"""

from collections.abc import Callable
from functools import partial

import torch

from shoal.engine.selfcheck import choose_runner
from shoal.models.batch import TokenBatch
from shoal.models.load import load_dense
from shoal.models.masked import muted, skipped
from shoal.models.replay import Replay
from shoal.surgery.memory import shallow_model
from shoal.surgery.skipping import pruned_model
from shoal.testing.conformance_oracle import DEPTH, Drop
from shoal.testing.conformance_prompts import ONE, Prompts, logits_of
from shoal.testing.conformance_row import OK, Cases, Outcome, Status, none, refused, wrong
from shoal.testing.conformance_subject import REFUSALS, Subject, mask_of, settle

DROPS: dict[str, Drop] = {"A": (1, 3), "B": (0, 5), "C": (2, 3)}
"""Sets of blocks that are left out together."""

SINGLES: dict[str, Drop] = {str(i): (i,) for i in range(DEPTH)}

HALF_STEPS: dict[str, Drop] = {
    "first": ("0.mlp", "1.attn"),
    "middle": ("2.mlp", "3.attn"),
    "last": ("4.mlp", "5.attn"),
    "two": ("0.mlp", "1.attn", "3.mlp", "4.attn"),
}
"""Half steps: what is left fuses into ordinary blocks."""

PARTS: dict[str, Drop] = {
    "attn": ("2.attn",),
    "mlp": ("2.mlp",),
    "several": ("0.attn", "3.mlp", "4.mlp"),
}
"""Sub-layers that are left out alone."""

Check = Callable[[Subject], Cases]


def sets(subject: Subject) -> Cases:
    """Each set of blocks is exported, loaded and judged by logits and by what is written."""
    return _settled(DROPS, subject.export_and_judge)


def singles(subject: Subject) -> Cases:
    """Each single block is left out in memory."""

    def one(drop: Drop) -> Outcome:
        model = shallow_model(subject.dense, mask_of(drop))
        return subject.oracle.judge_quickly(model, drop)

    return _settled(SINGLES, one)


def old_config(subject: Subject) -> Cases:
    """The sets again from a config.json without the lists that transformers derives itself."""
    folder = subject.old_checkpoint()
    if folder is None:
        return {"A": none()}

    def one(drop: Drop) -> Outcome:
        dense = load_dense(str(folder), device="cpu")
        return subject.export_and_judge(drop, dense, check=False, tokens=False)

    return _settled(DROPS, one)


def whole(subject: Subject) -> Cases:
    """The model's own forward with blocks taken out, the way the engine does it."""

    def one(drop: Drop) -> Outcome:
        dense, mask = subject.dense, mask_of(drop)
        plain = Replay(dense).returns_tensors(_batch(ONE))
        with (skipped if plain else muted)(dense.blocks, mask):
            gap = subject.oracle.gap(logits_of(dense.module, ONE), drop, ONE)
        return wrong(gap) if gap else OK

    return _where_allowed(subject, one)


def replay(subject: Subject) -> Cases:
    """Blocks run singly, if the engine's own check chooses to; whether it chooses well."""

    @torch.inference_mode()
    def one(drop: Drop) -> Outcome:
        batch = _batch(ONE)
        choice = choose_runner(subject.dense, batch)
        if choice.runner.name != "replay":
            return none(choice.reason)
        mask = mask_of(drop)
        ((_, scorer),) = choice.runner.run(None, batch, [mask])
        expected = subject.oracle.logits(drop, ONE).log_softmax(-1)
        wanted = expected[:-1].gather(-1, ONE.tokens[0, 1:, None])[:, 0]
        found = scorer.token_logprobs(batch.pick, batch.targets)
        gap = (found - wanted).abs().max().item()
        return OK if gap <= 1e-3 else wrong(f"log-probabilities differ by {gap:.2g}")

    return _settled({"dense": ()}, one) | _where_allowed(subject, one)


def fuse(subject: Subject) -> Cases:
    """Half steps are removed by fusing blocks; the one in the middle is exported and loaded."""

    def one(drop: Drop) -> Outcome:
        if drop == HALF_STEPS["middle"]:
            found = subject.export_and_judge(drop, format="fuse")
        else:
            model = shallow_model(subject.dense, mask_of(drop))
            found = subject.oracle.judge_quickly(model, drop)
        return found if subject.oracle.knows(drop) else _unknown(found)

    return _settled(HALF_STEPS, one)


def sublayers(subject: Subject) -> Cases:
    """Attentions and MLPs are left out in memory, as `shoal.load` does."""

    def one(drop: Drop) -> Outcome:
        model = pruned_model(subject.dense, mask_of(drop))
        found = subject.oracle.judge(model, drop)
        return found if subject.oracle.knows(drop) else _unknown(found)

    return _settled(PARTS, one)


def _unknown(found: Outcome) -> Outcome:
    """What a comparison is worth where the oracle does not know the sub-layers by name."""
    told = found.status in (Status.OK, Status.REFUSED)
    return found if told else none("the weights of the sub-layers cannot be told by name")


CHECKS: list[Check] = [sets, singles, old_config, whole, replay, fuse, sublayers]
"""What is checked of every model, in the order of the table."""


def _settled(drops: dict[str, Drop], one: Callable[[Drop], Outcome]) -> Cases:
    return {name: settle(partial(one, drop)) for name, drop in drops.items()}


def _where_allowed(subject: Subject, one: Callable[[Drop], Outcome]) -> Cases:
    """Run a case for each set of blocks that the model type can lose."""

    def case(drop: Drop) -> Outcome:
        try:
            shallow_model(subject.dense, mask_of(drop))
        except REFUSALS as error:
            return refused(error)
        return one(drop)

    return _settled(DROPS, case)


def _batch(prompts: Prompts) -> TokenBatch:
    """The first row of the prompts, every next token scored."""
    tokens = prompts.tokens[:1]
    length = tokens.shape[1] - 1
    places = torch.arange(length)
    return TokenBatch(
        input_ids=tokens,
        rows=places,
        pick=places,
        targets=tokens[0, 1:],
        segment=torch.zeros(length, dtype=torch.long),
        num_segments=1,
    )
