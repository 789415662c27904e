import math

import numpy as np

from shoal.core.means import known_mean
from shoal.geometry.sides import Side
from shoal.geometry.stack import Texts


def test_a_loss_that_is_no_number_counts_as_infinite():
    values = np.array([1.0, 2.0, 3.0, np.nan])
    assert Side(Texts("t", []), lambda: values, "m").loss().value == math.inf
    side = Side(Texts("t", []), lambda: values[:3], "m")
    assert side.loss(5) == known_mean(values[:3], 5)
