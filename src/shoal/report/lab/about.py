"""The experiment in plain words."""

from collections.abc import Sequence

from shoal.lab.study import LabRun
from shoal.report.lab.reading import by_range
from shoal.report.lab.words import listed

DEGREES = {"1": "straight lines", "2": "parabolas", "3": "cubics"}


def about(run: LabRun) -> Sequence[str]:
    """Paragraphs for somebody who knows neither the paper nor in-context regression."""
    return (_task(run), _shift(), _pruning(), _judging(run), _geometry())


def _task(run: LabRun) -> str:
    degrees = sorted({str(m.trained.get("degree", 1)) for m in run.models})
    kinds = listed([DEGREES.get(d, f"polynomials of degree {d}") for d in degrees] or ["functions"])
    ranges = [f"{name} ({len(own)})" for name, own in by_range(run.models).items()]
    trained = f" Trained here, with the number of models: {listed(ranges)}." if ranges else ""
    return (
        "In-context regression: a small transformer reads points of a function that it has never "
        "seen, x and y in turn, and must tell the next y. Nothing in it is adjusted meanwhile, so "
        "it has to work out the function from the points. It was trained from scratch on nothing "
        f"else: random {kinds}, with coefficients drawn from one range.{trained} Models that were "
        "trained alike differ in their seed."
    )


def _shift() -> str:
    return (
        "Shift: the question stays, but the coefficients come from a wider or a narrower range of "
        "width σ. A wider one shows the model values that it never met, and its error grows. The "
        "range of training is called in distribution, all others out of distribution."
    )


def _pruning() -> str:
    return (
        "Pruning: some of the transformer's blocks (layers) are removed, and nothing is trained "
        "again. TALE chooses them for a task: remove the block without which the loss is least, "
        "then the next, as long as the loss stays below a limit. BEST is the mask with the least "
        "loss on the way, which may be the whole model, also called dense. BSBA is the one with "
        "the most blocks removed that is no worse than dense. The paper (TAPIOCA, arXiv "
        "2605.14738) claims that this helps under shift and only there, and that it does so by "
        "bringing the inner geometry back to that of training. This page tests that."
    )


def _judging(run: LabRun) -> str:
    skips = sorted({str(m.settings.get("skip", 0)) for m in run.models} - {"0"})
    skip = f" (all but the first {listed(skips)})" if skips else ""
    return (
        "Judging: masks are chosen on some functions and judged on others. The loss is the mean "
        f"squared error over the points of a prompt{skip}. The gain is the share of the dense "
        "model's loss that is saved: 100% is all of it, 0% none, below that it is a cost. Numbers "
        "in brackets are 95% intervals over functions, unless said otherwise. A cell is one model "
        "on one task."
    )


def _geometry() -> str:
    return (
        "Geometry: behind every block, how long the hidden states are and how far those of two "
        "positions lie apart. This, block by block, is a profile; the gap is the mean absolute log "
        "ratio of the profile of shifted inputs to that of training's."
    )
