import numpy as np
import pytest
import torch

from shoal.core.errors import UsageError
from shoal.geometry.collecting import collected, held_out, moments_bytes, sequences
from shoal.geometry.moments import Moments
from shoal.geometry.stack import states
from shoal.testing.linear_stacks import WIDTH, linear_side, linear_stack, plain_update

CLASSES = {"x": slice(0, None, 2), "y": slice(1, None, 2)}


@pytest.fixture(scope="module")
def stack():
    return linear_stack(plain_update(i) for i in range(3))


@pytest.fixture(scope="module")
def texts(stack):
    return linear_side(stack, "id", 1.0, sequences=20).texts


def test_a_third_is_held_out_and_always_the_same():
    held = held_out(30, seed=1)
    assert held.sum() == 10
    assert np.array_equal(held, held_out(30, seed=1))
    assert not np.array_equal(held, held_out(30, seed=2))
    assert held_out(2).sum() == 1
    with pytest.raises(UsageError, match="got 1"):
        held_out(1)


def test_sums_are_those_of_the_counted_positions_with_each_sequence_on_one_side(stack, texts):
    found = collected(stack, texts, [0, 2], CLASSES, seed=3)
    held = held_out(sequences(texts), seed=3)
    assert list(found) == [(0, "x"), (0, "y"), (2, "x"), (2, "y")]
    hidden = [states(stack, batch) for batch in texts.batches]
    for (layer, name), pair in found.items():
        wanted = Moments(WIDTH), Moments(WIDTH)
        row = 0
        for batch, depths in zip(texts.batches, hidden, strict=True):
            for i, counts in enumerate(batch.positions):
                for t in range(0 if name == "x" else 1, len(counts), 2):
                    if counts[t]:
                        side = wanted[int(held[row])]
                        side.add(depths[layer][i, t][None], depths[layer + 1][i, t][None])
                row += 1
        for one, other in zip(pair, wanted, strict=True):
            assert one.count == other.count
            torch.testing.assert_close(one.xu, other.xu)
            torch.testing.assert_close(one.input_mean, other.input_mean)


def test_the_estimate_of_memory_is_what_is_kept(stack, texts):
    found = collected(stack, texts, range(3), CLASSES)
    kept = [
        tensor.numel() * tensor.element_size()
        for pair in found.values()
        for moments in pair
        for tensor in (moments.xx, moments.xu)
    ]
    samples = 2 * 512 * WIDTH * 4 * 2 * len(found)
    assert moments_bytes(3, WIDTH, 2) == sum(kept) + samples
