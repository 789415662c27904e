"""Reports as tables for people."""

from shoal.cli.screen import table
from shoal.evaluation.results import Difference, Metric
from shoal.pipeline.measure import ModelReport, Report

LABELS = {
    "perplexity": "perplexity",
    "accuracy": "accuracy",
    "accuracy_norm": "accuracy, per character",
    "margin": "margin loss",
    "exact_match": "exact match, generated",
}


def print_report(report: Report) -> None:
    """Print one column per model, the dense one first."""
    models = report.models
    rows: list[list[str]] = [["removed blocks", *(_blocks(m) for m in models)]]
    rows.append(["parameters", *(f"{m.size.parameters / 1e6:.1f} M" for m in models)])
    if any(m.size.disk_bytes for m in models):
        rows.append(["weight files", *(_files(m) for m in models)])
    for place, metric in enumerate(models[0].metrics):
        label = f"{metric.task} {LABELS[metric.name]} ({metric.examples} {metric.split})"
        rows.append([label, *(_value(m.metrics[place]) for m in models)])
        gaps = [_gap(m, metric) for m in models]
        if any(gaps):
            kind = "ratio" if metric.name == "perplexity" else "difference"
            rows.append([f"  {kind} to dense, 95% interval", *gaps])
    for place, speed in enumerate(models[0].speed):
        for name in ("prefill", "decode"):
            label = f"{name}, batch {speed.batch_size} (tokens/s)"
            values = [getattr(m.speed[place], name) for m in models]
            cells = [f"{v:,.0f} ({v / values[0]:.2f}x)" for v in values]
            rows.append([label, *cells])
    title = f"measured in {report.dtype} on {report.device}"
    title += f", peak memory {report.peak_memory / 1e9:.1f} GB"
    table(title, ["", *(m.name for m in models)], rows, numbers=True)


def _blocks(model: ModelReport) -> str:
    return str(model.mask) if len(model.mask) else "none"


def _files(model: ModelReport) -> str:
    if model.size.disk_bytes is None:
        return ""
    return f"{model.size.disk_bytes / 1e6:,.1f} MB" + (" (packed GGUF)" * model.size.packed)


def _value(metric: Metric) -> str:
    value = f"{metric.value:.2f}" if metric.name == "perplexity" else f"{metric.value:.3f}"
    return value if metric.stderr is None else f"{value} ± {metric.stderr:.3f}"


def _gap(model: ModelReport, metric: Metric) -> str:
    for gap in model.differences:
        if (gap.task, gap.name) == (metric.task, metric.name):
            return _interval(gap)
    return ""


def _interval(gap: Difference) -> str:
    if gap.ratio:
        return f"{gap.value:.3f} [{gap.low:.3f}, {gap.high:.3f}]"
    return f"{gap.value:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}]"
