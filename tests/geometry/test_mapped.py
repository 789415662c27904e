"""Maps behind blocks, and the inverse of a block that is linear."""

import pytest
import torch
from torch import nn

from shoal.core.mask import Mask
from shoal.geometry.interventions import mapped, removed, scaled
from shoal.geometry.maps import AffineMap
from shoal.geometry.stack import Batch, Stack, states
from shoal.lab.stack import CLASSES
from shoal.models.discover import Blocks


def output(stack, batch):
    return stack.run(batch.inputs)


def random_affine(width, seed, scale=0.3):
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    return AffineMap(torch.eye(width) + scale * draw(width, width), draw(width), draw(width))


def identity(width):
    centre = torch.linspace(-1, 1, width, dtype=torch.float64)
    return AffineMap(torch.eye(width, dtype=torch.float64), centre, centre)


def test_a_mapped_identity_changes_nothing(lab):
    stack, batch = lab
    plain = states(stack, batch)
    classes = [(positions, identity(16)) for positions in CLASSES.values()]
    for maps in ({1: identity(16)}, {i: classes for i in range(4)}, {}):
        with mapped(stack, maps):
            found = states(stack, batch)
        assert all(map(torch.equal, found, plain))


def test_maps_act_after_their_block(lab):
    stack, batch = lab
    plain, one = states(stack, batch), random_affine(16, 0)
    with mapped(stack, {1: one}):
        found = states(stack, batch)
    by_hand = one.after + (plain[2].double() - one.before) @ one.matrix.T
    assert torch.allclose(found[2].double(), by_hand, atol=1e-6)
    assert torch.equal(found[1], plain[1])
    assert not torch.allclose(found[3], plain[3], atol=0.1)
    with torch.no_grad():
        assert torch.equal(stack.blocks.layers[2](found[2]), found[3])


@pytest.mark.parametrize("name", CLASSES)
def test_maps_by_position_act_there_only(lab, name):
    stack, batch = lab
    plain, one = states(stack, batch), random_affine(16, 0)
    with mapped(stack, {1: [(CLASSES[name], one)]}):
        found = states(stack, batch)[2]
    other = CLASSES["y" if name == "x" else "x"]
    assert torch.equal(found[:, other], plain[2][:, other])
    assert torch.equal(found[:, CLASSES[name]], one(plain[2][:, CLASSES[name]]))
    assert not torch.allclose(found, plain[2], atol=0.1)


def test_each_class_of_positions_has_its_own_map(lab):
    stack, batch = lab
    maps = {name: random_affine(16, seed) for seed, name in enumerate(CLASSES)}
    plain = states(stack, batch)[3]
    with mapped(stack, {2: [(CLASSES[name], maps[name]) for name in CLASSES]}):
        found = states(stack, batch)[3]
    for name, positions in CLASSES.items():
        assert torch.equal(found[:, positions], maps[name](plain[:, positions]))


class LinearBlock(nn.Module):
    """h + W h + b, returned as a tuple, as older blocks do."""

    def __init__(self, seed):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.weight = nn.Parameter(0.3 * torch.randn(8, 8, generator=generator))
        self.bias = nn.Parameter(torch.randn(8, generator=generator))

    def forward(self, hidden_states, scale=1.0):
        return hidden_states + hidden_states @ self.weight.T * scale + self.bias, None

    @property
    def inverse(self):
        matrix = torch.eye(8, dtype=torch.float64) + self.weight.detach().double()
        return AffineMap(torch.linalg.inv(matrix), self.bias.detach().double(), torch.zeros(8))


def linear_stack():
    layers = nn.ModuleList([LinearBlock(i) for i in range(4)])

    @torch.no_grad()
    def run(hidden):
        for layer in layers:
            hidden, _ = layer(hidden_states=hidden.tanh())
        return hidden

    hidden = torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(9))
    stack = Stack(Blocks("layers", layers), run)
    return stack, Batch.of(hidden, torch.ones(3, 5, dtype=torch.bool))


@pytest.mark.parametrize("layers", [[1], [0, 2], [3]])
@pytest.mark.parametrize("by_position", [True, False])
def test_the_inverse_of_a_linear_block_equals_removal(layers, by_position):
    stack, batch = linear_stack()
    plain = output(stack, batch)
    with removed(stack, Mask.of(4, layers)):
        expected = output(stack, batch)
    maps = {i: stack.blocks.layers[i].inverse for i in layers}
    if by_position:
        maps = {i: [(slice(0, 2), one), (slice(2, None), one)] for i, one in maps.items()}
    with mapped(stack, maps):
        assert torch.allclose(output(stack, batch), expected, atol=1e-5)
    assert not torch.allclose(plain, expected, atol=0.1)


def test_blocks_that_return_tuples():
    stack, batch = linear_stack()
    plain = states(stack, batch)
    with scaled(stack, {1: 0.25}):
        found = states(stack, batch)
    entering = plain[1].tanh()
    assert torch.allclose(found[2], entering + 0.25 * (plain[2] - entering), atol=1e-6)
    with scaled(stack, {1: 0.0}):
        assert torch.equal(states(stack, batch)[2], entering)
