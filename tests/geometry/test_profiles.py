"""Profiles against scipy's distances of each sequence by itself."""

import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import pdist, squareform
from torch import nn

from shoal.config.lab import FamilyConfig, LabModelConfig
from shoal.core.errors import UsageError
from shoal.core.mask import Mask
from shoal.geometry import distances, profiles
from shoal.geometry.distances import pair_cosines, pair_distances
from shoal.geometry.interventions import removed
from shoal.geometry.profiles import ProfileTable, alignment_gap, profile
from shoal.geometry.records import Gaps, Profile
from shoal.geometry.stack import Batch, Stack, Texts, states
from shoal.lab.functions import draw_prompts
from shoal.lab.model import LabModel
from shoal.lab.stack import lab_stack, lab_texts
from shoal.models.discover import Blocks

KINDS = list(Gaps.model_fields)
DEPTHS = 4


class Scaled(nn.Module):
    """Multiplies by a number per coordinate, so that no state depends on its neighbours."""

    def __init__(self, seed):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.factor = nn.Parameter(1 + torch.rand(6, generator=generator), requires_grad=False)

    def forward(self, hidden):
        return hidden * self.factor


@pytest.fixture
def stack():
    layers = nn.ModuleList([Scaled(i) for i in range(DEPTHS - 1)])

    def run(hidden):
        for layer in layers:
            hidden = layer(hidden)

    return Stack(Blocks("layers", layers), run)


def sequences(count=7, seed=0):
    """Sequences of several lengths with the positions that count."""
    rng = np.random.default_rng(seed)
    found = []
    for i in range(count):
        length = int(rng.integers(3, 9))
        counted = rng.random(length) < 0.8
        counted[rng.choice(length, 2, replace=False)] = True
        states = rng.normal(0.5, 1 + i % 3, (length, 6)).astype(np.float32)
        found.append((states, counted))
    return found


def texts_of(rows, size, junk=7.0):
    """Batches of sequences, padded with junk."""
    batches = []
    for i in range(0, len(rows), size):
        part = rows[i : i + size]
        longest = max(len(s) for s, _ in part)
        inputs = np.full((len(part), longest, 6), junk, np.float32)
        positions = np.zeros((len(part), longest), bool)
        for row, (vectors, counted) in enumerate(part):
            inputs[row, : len(vectors)] = vectors
            positions[row, : len(counted)] = counted
        batches.append(Batch.of(torch.from_numpy(inputs), torch.from_numpy(positions)))
    return Texts("some", batches)


def one_by_one(stack, rows):
    """The states of each sequence at each depth that count, float64."""
    found = []
    for row in rows:
        batch = texts_of([row], 1).batches[0]
        found.append([h[0][batch.positions[0]].double().numpy() for h in states(stack, batch)])
    return found


@pytest.mark.parametrize("size", [1, 3, 7])
def test_profiles_equal_scipy(stack, size):
    rows = sequences()
    table, expected = profile(stack, texts_of(rows, size)), one_by_one(stack, rows)
    assert table.norm.shape == (7, DEPTHS)
    for i, one in enumerate(expected):
        for depth, h in enumerate(one):
            lengths = np.linalg.norm(h, axis=1)
            assert table.norm[i, depth] == pytest.approx(lengths.mean(), rel=1e-12)
            assert table.last_norm[i, depth] == pytest.approx(lengths[-1], rel=1e-12)
            assert table.distance[i, depth] == pytest.approx(pdist(h).mean(), rel=1e-12)
            cosine = pdist(h, "cosine").mean()
            assert table.cosine[i, depth] == pytest.approx(cosine, rel=1e-12)
    for depth in range(DEPTHS):
        last = np.stack([one[depth][-1] for one in expected])
        assert table.last_distance[depth] == pytest.approx(squareform(pdist(last)), rel=1e-12)
        found = table.means["last_cosine"][depth]
        assert found == pytest.approx(pdist(last, "cosine").mean(), rel=1e-12)
        assert table.means["last_distance"][depth] == pytest.approx(pdist(last).mean(), rel=1e-12)


@pytest.mark.parametrize("size", [1, 2, 7])
@pytest.mark.parametrize("cells", [1, 100, 1 << 22])
def test_profiles_depend_on_no_order_and_no_batch_size(stack, monkeypatch, size, cells):
    rows = sequences()
    plain = profile(stack, texts_of(rows, 3))
    monkeypatch.setattr(profiles, "_CELLS", cells)
    order = [4, 0, 6, 2, 1, 5, 3]
    other = profile(stack, texts_of([rows[i] for i in order], size, junk=-1e3))
    assert set(other.means) == set(KINDS)
    for name in KINDS:
        assert other.means[name] == pytest.approx(plain.means[name], rel=1e-12)
    for name in ("norm", "distance", "cosine", "last_norm"):
        assert getattr(other, name) == pytest.approx(getattr(plain, name)[order], rel=1e-12)


def test_profiles_of_a_model_do_not_depend_on_the_batch():
    model = LabModel(LabModelConfig(layers=3, width=16, heads=2, points=7))
    prompts = draw_prompts(FamilyConfig(), 9, 7, 0)
    one, other = (
        profile(lab_stack(model), lab_texts(prompts, "id", batch=size)) for size in (9, 2)
    )
    for name in KINDS:
        assert one.means[name] == pytest.approx(other.means[name], rel=1e-4)


def test_a_removed_block_repeats_the_value_before(stack):
    texts = texts_of(sequences(), 3)
    plain = profile(stack, texts).means
    with removed(stack, Mask.of(DEPTHS - 1, [1])):
        found = profile(stack, texts).means
    for name in KINDS:
        assert found[name][2] == found[name][1] == plain[name][1] != plain[name][2]


@pytest.mark.parametrize("offset", [0.0, 1e3])
@pytest.mark.parametrize("apart", [1.0, 1e-3, 1e-6, 0.0])
@pytest.mark.parametrize("numbers", [5, 1 << 22])
def test_distances_of_close_vectors(monkeypatch, offset, apart, numbers):
    monkeypatch.setattr(distances, "_NUMBERS", numbers)
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(2, 5, 8, generator=generator, dtype=torch.float64) + offset
    vectors[:, 3] = vectors[:, 1] + apart * torch.randn(8, generator=generator)
    found = pair_distances(vectors).numpy()
    for mine, group in zip(found, vectors.numpy(), strict=True):
        assert mine == pytest.approx(squareform(pdist(group)), rel=1e-9, abs=0)
    cosine = pair_cosines(vectors).numpy()
    for mine, group in zip(cosine, vectors.numpy(), strict=True):
        assert mine == pytest.approx(squareform(pdist(group, "cosine")), abs=1e-15, rel=1e-12)


def test_equal_vectors_are_no_distance_apart():
    same = torch.full((1, 4, 3), 0.1, dtype=torch.float64)
    assert pair_distances(same - same.mean(1)).abs().max() == 0
    assert pair_distances(same).abs().max() == 0


def test_a_zero_vector_is_at_right_angles():
    vectors = torch.tensor([[[0.0, 0.0], [1.0, 2.0], [-1.0, -2.0]]], dtype=torch.float64)
    found = pair_cosines(vectors)[0]
    assert found == pytest.approx(np.array([[0, 1, 1], [1, 0, 2], [1, 2, 0]]), abs=1e-15)


def test_sequences_of_one_position_have_no_distances(stack):
    short = (np.ones((1, 6), np.float32), np.ones(1, bool))
    rows = [short, *sequences(3)]
    table = profile(stack, texts_of(rows, 2))
    assert np.isnan(table.distance[0]).all()
    assert np.isnan(table.cosine[0]).all()
    assert table.norm[0, 0] == pytest.approx(math.sqrt(6))
    others = profile(stack, texts_of(rows[1:], 2))
    assert table.means["distance"] == pytest.approx(others.means["distance"], rel=1e-12)
    assert table.to_record().distance[0].count == 3
    with pytest.raises(UsageError, match="single position"):
        profile(stack, texts_of([short, short], 2))


def test_states_out_of_range_are_infinite(stack):
    rows = sequences(4)
    rows[1][0][0, 0], rows[1][1][0] = np.nan, True
    rows[2][0][-1, 0], rows[2][1][-1] = np.inf, True
    table = profile(stack, texts_of(rows, 2))
    for name in ("norm", "distance", "cosine"):
        assert np.isinf(getattr(table, name)).all(1).tolist() == [False, True, True, False]
        assert np.isinf(table.means[name]).all()
    assert np.isinf(table.last_norm).all(1).tolist() == [False, False, True, False]
    assert np.isinf(table.last_distance[0]).sum(1).tolist() == [1, 1, 3, 1]
    fine = profile(stack, texts_of(sequences(4), 2))
    assert table.gaps(fine).norm == math.inf


def test_junk_at_positions_that_do_not_count(stack):
    rows = sequences()
    plain = profile(stack, texts_of(rows, 4))
    other = profile(stack, texts_of(rows, 4, junk=np.nan))
    for name in KINDS:
        assert np.array_equal(other.means[name], plain.means[name])


@pytest.fixture
def table(stack):
    return profile(stack, texts_of(sequences(), 3))


def scaled_by(table, factor):
    return ProfileTable(
        table.norm * factor,
        table.distance * factor,
        table.cosine * factor,
        table.last_norm * factor,
        table.last * np.float32(factor),
    )


def test_gaps(table, stack):
    other = profile(stack, texts_of(sequences(5, seed=1), 3))
    assert table.gaps(table) == Gaps(**dict.fromkeys(KINDS, 0.0))
    there, back = table.gaps(other), other.gaps(table)
    assert there == back
    for name in KINDS:
        one, two = table.means[name], other.means[name]
        by_hand = np.mean([abs(math.log(a / b)) for a, b in zip(one[1:], two[1:], strict=True)])
        assert getattr(there, name) == pytest.approx(by_hand, rel=1e-12)
        assert by_hand > 0
    larger = scaled_by(table, 4.0).gaps(table)
    for name in KINDS:
        # Cosines of last states do not change with their lengths.
        expected = 0.0 if name == "last_cosine" else math.log(4)
        assert getattr(larger, name) == pytest.approx(expected, abs=1e-12)


def test_the_gap_leaves_out_depth_0_and_broadcasts():
    base = np.array([1.0, 2.0, 3.0])
    other = np.array([[50.0, 2.0, 3.0], [1.0, 2.0 * math.e, 3.0 / math.e**2]])
    assert alignment_gap(other, base) == pytest.approx([0.0, 1.5])
    assert alignment_gap(base, other) == pytest.approx([0.0, 1.5])


def test_the_gap_of_zeros():
    assert alignment_gap(np.array([1.0, 0.0, 2.0]), np.array([1.0, 0.0, 2.0])) == 0
    assert alignment_gap(np.array([1.0, 0.0, 2.0]), np.array([1.0, 1.0, 2.0])) == math.inf


def test_profiles_of_different_models_are_not_compared(table):
    with pytest.raises(UsageError, match="4 and 3 depths"):
        alignment_gap(table.means["norm"], table.means["norm"][:-1])
    with pytest.raises(UsageError, match="at least one block"):
        alignment_gap(np.ones(1), np.ones(1))


def test_the_record_holds_means_and_intervals(table):
    record = table.to_record(seed=2)
    for name in ("norm", "distance", "cosine", "last_norm"):
        means = getattr(record, name)
        assert [m.value for m in means] == pytest.approx(table.means[name].tolist())
        assert all(m.low < m.value < m.high and m.count == 7 for m in means)
    assert record.last_distance == tuple(table.means["last_distance"])
    assert record.last_cosine == tuple(table.means["last_cosine"])
    assert record == table.to_record(seed=2) != table.to_record(seed=3)
    assert Profile.model_validate_json(record.model_dump_json()) == record


def test_a_single_sequence_has_no_pairs_of_last_states(stack, table):
    alone = profile(stack, texts_of(sequences(1), 1))
    assert alone.to_record().last_distance == ()
    assert alone.to_record().norm[0].low is None
    for gaps in (alone.gaps(table), table.gaps(alone)):
        assert gaps.last_distance is None
        assert gaps.last_cosine is None
        assert gaps.norm > 0


def test_no_texts_are_refused(stack):
    with pytest.raises(UsageError, match="texts nothing are empty"):
        profile(stack, Texts("nothing", ()))
