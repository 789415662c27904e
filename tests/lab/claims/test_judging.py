"""From evidence to an answer."""

import pytest

from shoal.lab.claims.judging import judged, shares_of
from shoal.lab.study import Evidence


def votes(**models):
    return [
        Evidence(model=model, task=str(i), value=0.0, supports=bool(vote))
        for model, given in models.items()
        for i, vote in enumerate(given)
    ]


@pytest.mark.parametrize(
    ("evidence", "answer"),
    [
        (votes(a=[1, 1, 1], b=[1, 1, 0]), "holds"),
        (votes(a=[1, 1, 1], b=[1, 0, 0]), "holds in part"),
        (votes(a=[0, 0, 1], b=[0, 0, 0]), "does not hold here"),
        (votes(a=[1, 0], b=[0, 1]), "holds in part"),
        # Many tasks of one model do not outvote another model.
        (votes(a=[1] * 50, b=[0, 0]), "holds in part"),
        ([], "not tested"),
    ],
)
def test_every_model_is_asked(evidence, answer):
    assert judged("n", "s", "d", evidence).answer == answer


def test_the_summary_counts():
    claim = judged("n", "s", "d", votes(a=[1, 0], b=[1, 1]))
    assert claim.summary == "3 of 4 cells support it; by model: a 50%, b 100%"
    assert claim.models == 2
    assert shares_of(claim.evidence) == {"a": 0.5, "b": 1.0}
