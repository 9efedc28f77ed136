"""Learned caches as one self-contained page: all explored variants, the chosen ones, and why."""

from gearshift.caches.store.manifest import Manifest, Variant
from gearshift.reporting.drawing import colours, scales
from gearshift.reporting.drawing.charts import Blocks, Chart, Label, Line, Panel, dots
from gearshift.reporting.drawing.page import Section, Table, html_page, of_chart
from gearshift.support.numbers import digits, milliseconds, percent

CHOICES = ("method", "caches", "latency", "accuracy", "memory", "may be lower by", "in use")
VARIANTS = ("block", "variant", "level", "hits", "accuracy", "lookup", "memory", "chosen", "why")


def caches_page(manifest: Manifest, *, title: str) -> str:
    note = (
        f"{milliseconds(manifest.latency_s)} instead of {milliseconds(manifest.base_s)} a row, by segments and lookups "
        f"as timed, agreeing with the base model on {percent(manifest.accuracy)} of {manifest.samples} samples; "
        f"{percent(manifest.target)} was asked for."
    )
    if (measured := manifest.measured) is not None:
        note += (
            f" Run one by one, {measured.rows} of them took {milliseconds(measured.cached_s)} each, the module "
            f"{milliseconds(measured.module_s)}, and {milliseconds(measured.folded_s)} with batch norms folded."
        )
    choices = [
        (
            choice.method,
            ", ".join(f"{manifest.variants[v].variant} after {manifest.variants[v].block}" for v in choice.chosen),
            milliseconds(choice.latency_s),
            percent(choice.accuracy),
            f"{choice.memory_bytes / 2**20:.2f} MiB",
            milliseconds(choice.gap_s),
            "yes" if choice is manifest.choices[-1] else "",
        )
        for choice in manifest.choices
    ]
    variants = [
        (
            entry.block,
            entry.variant,
            percent(entry.level),
            percent(entry.hit_rate),
            percent(entry.accuracy),
            milliseconds(entry.lookup_s),
            f"{entry.memory_bytes / 2**20:.2f} MiB",
            "yes" if entry.chosen else "",
            entry.why,
        )
        for entry in manifest.variants
    ]
    return html_page(
        title,
        note,
        [
            of_chart(hits_chart(manifest)),
            of_chart(exits_chart(manifest)),
            Section(
                "Compositions",
                "What each method chooses, and its figures on the validation samples.",
                [Table(CHOICES, choices, text=("caches", "in use"))],
            ),
            Section(
                "Variants",
                "Each is judged on samples that it was not trained on.",
                [Table(VARIANTS, variants, text=("variant", "why"))],
            ),
        ],
    )


def hits_chart(manifest: Manifest) -> Chart:
    reached = [sum(manifest.segment_s[: k + 1]) for k in range(len(manifest.blocks))]

    def answered_ms(entry: Variant) -> float:
        return 1e3 * (reached[entry.layer] + entry.lookup_s)

    def drawn(name: str, entries: list[Variant], colour: str, size: float, *, ringed: bool = False) -> Line:
        hits = [100 * entry.hit_rate for entry in entries]
        texts = [
            f"{entry.variant} after {entry.block}\n{percent(entry.hit_rate)} hit, {percent(entry.accuracy)} right"
            f"\nanswered after {digits(answered_ms(entry))} ms"
            for entry in entries
        ]
        return dots(name, list(map(answered_ms, entries)), hits, colour, size, texts, ringed=ringed)

    kinds = colours.of_names([_kind(entry) for entry in manifest.variants])
    marks = [
        drawn(kind, [entry for entry in manifest.variants if _kind(entry) == kind], colour, 6)
        for kind, (colour, _) in kinds.items()
    ]
    chosen = list(manifest.chosen)
    marks += [drawn("chosen", chosen, "--ink", 9, ringed=True)] if chosen else []
    x = scales.scaled([1e3 * manifest.base_s, *(ms for mark in marks for ms in mark.x)])
    y = scales.linear([hit for mark in marks for hit in mark.y])
    labels = tuple(Label(answered_ms(entry), 100 * entry.hit_rate, entry.block) for entry in chosen)
    return Chart(
        "hits",
        "Variants: how much they hit, and how soon",
        "Each dot is a variant after a block at one strictness; the base model answers everything after "
        f"{milliseconds(manifest.base_s)}.",
        "answered after (ms)",
        (Panel("hits (%)", x, y, tuple(mark for mark in marks if len(mark.x)), labels=labels, height=300),),
    )


def _kind(entry: Variant) -> str:
    return entry.variant.partition("(")[0]


def exits_chart(manifest: Manifest) -> Chart:
    names, shares = list(manifest.blocks), [100 * share for share in manifest.exits]
    at = [float(n) for n in range(len(names))]
    bars = Blocks(
        "",
        [n - 0.35 for n in at],
        [n + 0.35 for n in at],
        [0.0] * len(at),
        shares,
        colours.PLAN,
        [f"{percent(share / 100)} leave after {name}" for name, share in zip(names, shares, strict=True)],
    )
    return Chart(
        "exits",
        "Where samples leave",
        "The last block is the model's end.",
        "block",
        (Panel("samples (%)", scales.named(names), scales.linear(shares), (bars,)),),
    )
