"""One card per node, and everything about one node."""

from __future__ import annotations

from distmon.core.events import GpuReading, NodeSampled
from distmon.core.fold import node_power_w
from distmon.core.measures import node_means, node_status
from distmon.core.printable import clean
from distmon.core.readings import (
    cores_on,
    gpu_power_w,
    gpu_utilization_percent,
    memory_in_use,
    memory_percent,
    network_total,
    reading_age_s,
)
from distmon.core.state import NodeState
from distmon.core.verdicts import Verdict
from distmon.tui.format import MISSING, age, compact, fit, fit_ends, joules, percent, size, watts
from distmon.tui.theme import Palette
from distmon.tui.view.facts import Facts
from distmon.tui.view.gpu_readings import SHOWN_ELSEWHERE, gpu_lines, gpu_name
from distmon.tui.view.node_readings import field_line, gpu_provenance, provenance, reading_lines
from distmon.tui.view.words import node_state
from distmon.tui.view.wrap import wrapped
from distmon.tui.widgets.line import Line, spread
from distmon.tui.widgets.meter import cores, load_role, meter, sparkline

NARROW = 60
"""With fewer cells the lines of a node have shorter labels."""
HEIGHTS = (9, 6, 5, 4, 3, 2, 1)
"""A card is one line, two, or a block with a meter per line and a blank below; the tallest has the last minutes too."""
HISTORY_HEIGHT = 9
_STATUS_WIDTH = len("stale")
"""Kept free in a card of one line, so that the readings stay where they are when the word comes; a longer one is cut."""
_UTILIZATION_MEANS = "the share of time in which any kernel ran, however small"
SORTS = ("node", "cpu", "memory", "power", "gpu")


def name_of(node: NodeState) -> str:
    return clean(node.host or node.node)


def label_of(facts: Facts, node: NodeState) -> str:
    """Its name where room is scarce."""
    return facts.host_label(node.host or node.node)


def state_of(facts: Facts, node: NodeState) -> str:
    """The one word for how a node is, on every screen: live, starting, stale (also at a recording's cut-off end), lost or left;
    of a live one `trouble` where a GPU reports one, and `slow` where a verdict names the node."""
    status = node_status(facts.state, node)
    if facts.cut_off and status == "live":
        return "stale"
    if status == "live" and node.sample is not None and any(is_troubled(gpu) for gpu in node.sample.gpus):
        return "trouble"
    return "slow" if status == "live" and named_by(facts, node) else status


def named_by(facts: Facts, node: NodeState) -> list[Verdict]:
    """The verdicts that name the node, or a rank on it."""
    return [verdict for verdict in facts.verdicts if verdict.host and verdict.host == node.host]


def is_troubled(gpu: GpuReading) -> bool:
    return gpu.state != "ok" or bool(gpu.throttle)


def card(facts: Facts, key: str, palette: Palette, width: int, height: int, selected: bool) -> list[Line]:
    node = facts.state.nodes[key]
    write = _dense if height == 1 else _pair_of_lines if height < 3 else _block
    lines = write(facts, node, palette, width)
    if height >= HISTORY_HEIGHT and node.sample is not None:
        lines[1:] = [*lines[1:], *_history(node, palette, width)]
    if not selected:
        return lines
    return [Line([(text, palette.marked(style)) for text, style in line.pieces]) for line in lines]


def card_stamp(facts: Facts, key: str) -> object:
    """What a card's looks depend on: while it is the same the card need not be written again."""
    node = facts.state.nodes[key]
    sampled_at = node.sample.at if node.sample is not None else None
    return (sampled_at, state_of(facts, node), age(reading_age_s(facts.state, node)), label_of(facts, node))


def _name(facts: Facts, node: NodeState, palette: Palette, width: int) -> Line:
    glyph, role = node_state(state_of(facts, node))
    name = fit_ends(label_of(facts, node), width)
    return Line([(glyph + " ", palette.style(role)), (name, palette.style("text", bold=True))])


def _title(facts: Facts, node: NodeState, palette: Palette, name_width: int) -> Line:
    line, status = _name(facts, node, palette, name_width), state_of(facts, node)
    return line.add(f" {status}", palette.style(node_state(status)[1])) if status != "live" else line


def _age(facts: Facts, node: NodeState, palette: Palette) -> Line:
    status = state_of(facts, node)
    role = node_state(status)[1] if status != "live" else "muted"
    return Line([(fit(age(reading_age_s(facts.state, node)), 3, "right"), palette.style(role))])


def _dense(facts: Facts, node: NodeState, palette: Palette, width: int) -> list[Line]:
    """One line: name and age always, then as many readings as fit, the most telling first."""
    style = palette.style
    name_width = min(max(len(label_of(facts, node)), 8), 16, width - 6)
    if node.sample is None:
        return [_title(facts, node, palette, name_width).add("  no reading yet", style("muted"))]
    line, status, gap = _name(facts, node, palette, name_width), state_of(facts, node), " "
    line.add(f" {fit(status if status != 'live' else '', _STATUS_WIDTH)}", style(node_state(status)[1]))
    for field in _readings(node.sample, palette):
        if line.width + len(gap) + field.width + 4 <= width:
            line.add(gap, style("text")).extend(field)
            gap = "  "
    return [spread(line, _age(facts, node, palette), width, style("text"))]


def _pair_of_lines(facts: Facts, node: NodeState, palette: Palette, width: int) -> list[Line]:
    """Two lines for a narrow panel: who and how old, then as many readings as fit."""
    style = palette.style
    title = spread(_title(facts, node, palette, min(24, width - 12)), _age(facts, node, palette), width, style("text"))
    line = Line()
    for field in _readings(node.sample, palette) if node.sample is not None else [Line([("no reading yet", style("muted"))])]:
        if line.width + field.width + 2 <= width:
            line.add("  ", style("text")).extend(field)
    return [title, line]


def _readings(sample: NodeSampled, palette: Palette) -> list[Line]:
    """CPU, GPUs, memory, power, network and cores as fields of fixed width, in order of importance."""
    style = palette.style
    net = network_total(sample)
    rates = f"↓{fit(size(net.received_bytes_per_s), 5, 'right')} ↑{fit(size(net.sent_bytes_per_s), 5, 'right')}"
    cpu = (
        Line([("cpu ", style("muted"))])
        .extend(meter(palette, sample.cpu_percent, 6))
        .add(percent(sample.cpu_percent, 5), style("text"))
    )
    gpu = Line([("gpu", style("muted")), (percent(gpu_utilization_percent(sample), 5), style("text"))])
    return [
        cpu,
        *([gpu] if sample.gpus else []),
        Line([("mem", style("muted")), (percent(memory_percent(sample), 5), style("text"))]),
        Line([(fit(watts(node_power_w(sample)), 5, "right"), style("text"))]),
        Line([(rates, style("text"))]),
        cores(palette, sample.cores_percent, 8),
    ]


def _block(facts: Facts, node: NodeState, palette: Palette, width: int) -> list[Line]:
    """Title, then one line each for CPU, memory and GPUs, network and power."""
    style, sample = palette.style, node.sample
    title = spread(_title(facts, node, palette, min(24, width - 12)), _age(facts, node, palette), width, style("text"))
    if sample is None:
        return [title, Line([("  no reading yet", style("muted"))])]
    bar = max(6, min(24, (width - 24) // 2))
    memory = memory_percent(sample)
    cpu_line = Line([("  cpu ", style("muted"))]).extend(meter(palette, sample.cpu_percent, bar))
    cpu_line.add(percent(sample.cpu_percent, 5) + "  ", style("text")).extend(
        cores(palette, sample.cores_percent, width - cpu_line.width)
    )
    mem_line = (
        Line([("  mem ", style("muted"))]).extend(meter(palette, memory, bar)).add(percent(memory, 5) + "  ", style("text"))
    )
    mem_line.add(_memory(sample), style("muted"))
    net = network_total(sample)
    rates = f"↓{fit(size(net.received_bytes_per_s), 5, 'right')} ↑{fit(size(net.sent_bytes_per_s), 5, 'right')}/s"
    power = Line([("power", style("muted")), (fit(watts(node_power_w(sample)), 6, "right"), style("text"))])
    last = spread(Line([("  net ", style("muted")), (rates, style("text"))]), power, width, style("text"))
    lines = [title, cpu_line, mem_line]
    return [*lines, _gpu_line(sample, palette, bar, width), last] if sample.gpus else [*lines, last]


def _gpu_line(sample: NodeSampled, palette: Palette, bar: int, width: int) -> Line:
    style, value = palette.style, gpu_utilization_percent(sample)
    line = Line([("  gpu ", style("muted"))]).extend(meter(palette, value, bar)).add(percent(value, 5) + "  ", style("text"))
    line.extend(cores(palette, [gpu.utilization_percent for gpu in sample.gpus], max(width - line.width - 8, 1)))
    return line.add(" " + watts(gpu_power_w(sample)), style("text"))


def _history(node: NodeState, palette: Palette, width: int) -> list[Line]:
    """CPU and power of the last minutes, newest at the right."""
    style = palette.style
    cpu = [value for _, value in node.cpu_history]
    power = [value for _, value in node.power_history]
    lines = [Line([("  cpu ", style("muted")), (sparkline(cpu, width - 6, 100.0), style("series0"))])]
    known = [value for value in power if value is not None]
    if known:
        lines.append(Line([("  pwr ", style("muted")), (sparkline(power, width - 6, max(known)), style("series2"))]))
    return lines


def detail(facts: Facts, key: str, palette: Palette, width: int) -> list[Line]:
    """Every reading of a node; what has no value has its reason beside it."""
    style, node = palette.style, facts.state.nodes.get(key)
    if node is None:
        return [Line([("this node is gone", style("muted"))])]
    status = state_of(facts, node)
    glyph, role = node_state(status)
    read = age(reading_age_s(facts.state, node))
    lines = [Line([(f"{glyph} {status}", style(role, bold=True)), (f"  read {read} ago  {_machine(node)}", style("muted"))])]
    if status == "slow":
        lines += _why_slow(facts, node, palette, width)
    sample = node.sample
    if sample is None:
        return [*lines, Line([("no reading yet", style("muted"))])]
    lines += _cpu_lines(node, sample, palette, width)
    lines += [_gpu_detail(sample, gpu, palette, width) for gpu in sample.gpus]
    if any(gpu.utilization_percent is not None for gpu in sample.gpus):
        lines.append(field_line(palette, "gpu %", _UTILIZATION_MEANS, "muted"))
    lines += reading_lines(sample, palette)
    lines += _means(node, palette)
    return lines + [line for gpu in sample.gpus for line in gpu_lines(gpu, palette)]


def _why_slow(facts: Facts, node: NodeState, palette: Palette, width: int) -> list[Line]:
    """What the verdicts say that name it."""
    lines = []
    for verdict in named_by(facts, node):
        lines += wrapped(f"slow: {clean(verdict.text)}", width, palette.style("warn"))
    return lines


def _machine(node: NodeState) -> str:
    return clean(f"{node.joined.machine} {node.joined.system}") if node.joined else ""


def _cpu_lines(node: NodeState, sample: NodeSampled, palette: Palette, width: int) -> list[Line]:
    style = palette.style
    label, bar = _label_and_bar(width, 20, "  6.0G/16.0G")
    line = Line([(fit("cpu", label), style("muted"))]).extend(meter(palette, sample.cpu_percent, bar))
    told = [provenance(sample, "cpu_percent"), f"load {compact(sample.load_1m)}", provenance(sample, "load_1m")]
    line.add(percent(sample.cpu_percent, 5), style("text"))
    line.add("".join(f"  {clean(text)}" for text in told if text), style("muted"))
    lines = [line]
    if sample.cores_percent:
        on = f"{cores_on(sample)} of {len(sample.cores_percent)} on  "
        lines.append(
            Line([(fit("cores", label), style("muted")), (on, style("text"))]).extend(
                cores(palette, sample.cores_percent, width - label - 14)
            )
        )
    memory = Line([(fit("memory", label), style("muted"))]).extend(meter(palette, memory_percent(sample), bar))
    memory.add(percent(memory_percent(sample), 5), style("text")).add("  " + _memory(sample), style("muted"))
    if sample.swap_total_bytes:
        memory.add(f"  swap {size(sample.swap_used_bytes)}/{size(sample.swap_total_bytes)}", style("muted"))
    return [*lines, memory]


def _label_and_bar(width: int, longest: int, figures: str) -> tuple[int, int]:
    """The widths of a line's label and of its bar before a percentage and figures as long as these: the figures come first."""
    label = 16 if width >= NARROW else 8
    return label, max(min(width - label - len("  43%") - len(figures), longest), 0)


def _memory(sample: NodeSampled) -> str:
    memory = memory_in_use(sample)
    if memory is None:
        return f"{MISSING}/{size(sample.memory_total_bytes)}"
    return f"{size(memory.used_bytes)}/{size(memory.total_bytes)}" + ("" if memory.of == "node" else f" of the {memory.of}")


def _gpu_detail(sample: NodeSampled, gpu: GpuReading, palette: Palette, width: int) -> Line:
    style = palette.style
    value = gpu.utilization_percent
    label, bar = _label_and_bar(width, 10, "  60.0G/80.0G  363W")
    line = Line([(fit(gpu_name(gpu), label), style("muted"))]).extend(meter(palette, value, bar))
    line.add(percent(value, 5), style(load_role(value) if value is not None else "muted"))
    line.add(f"  {size(gpu.memory_used_bytes)}/{size(gpu.memory_total_bytes)}  {watts(gpu.power_w)}", style("text"))
    temperature = MISSING if gpu.temperature_c is None else f"{gpu.temperature_c:.0f}°C"
    line.add(f"  {temperature}  {clean(gpu.name)}", style("text"))
    if gpu.state != "ok":
        line.add(f"  {clean(gpu.state)}", style("bad", bold=True))
    if told := gpu_provenance(sample, gpu):
        line.add("  " + clean(told), style("muted"))
    if gpu.ranks:
        line.add("  rank " + ",".join(map(str, gpu.ranks)), style("text"))
    reasons = [f"{name} {MISSING} {reason}" for name, reason in gpu.unavailable.items() if name in SHOWN_ELSEWHERE]
    reasons += [f"{name}: {note}" for name, note in gpu.notes.items()] + gpu.throttle
    return line.add("  " + clean(", ".join(reasons)), style("warn")) if reasons else line


def _means(node: NodeState, palette: Palette) -> list[Line]:
    means = node_means(node)
    text = f"cpu {percent(means.cpu_percent).strip()}  power {watts(means.power_w)}  energy {joules(means.energy_j)}"
    return [field_line(palette, "session mean", text + (f" ({means.energy_covers})" if means.energy_covers else ""))]


def listed(facts: Facts) -> list[NodeState]:
    """Nodes that have not said goodbye; once the job has ended all of them, with their last readings."""
    ended = facts.state.job.status == "ended"
    return [node for node in facts.state.nodes.values() if ended or node.left_at is None]


def present(facts: Facts) -> int:
    """How many nodes are listed."""
    return len(listed(facts))


def name_of_key(facts: Facts, key: str) -> str:
    node = facts.state.nodes.get(key)
    return name_of(node) if node is not None else clean(key)
