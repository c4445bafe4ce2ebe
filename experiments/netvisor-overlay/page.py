"""What was measured, as rows of result.json, as a table and as pictures beside the paper's."""

import math
import statistics

WRITES = [64, 512, 1450]
# Section 6 of the paper. VM to VM, Gbit/s.
PAPER = {
    "none": {64: 4.45, 512: 8.88, 1450: 9.24},
    "server": {64: 3.46, 512: 5.31, 1450: 5.56},
    "switch": {64: 4.35, 512: 8.71, 1450: 8.93},
}
# The receiving server's CPU at 10 Gbit/s, of the server overlay by that of the switch overlay.
PAPER_CPU = {64: 77 / 60, 512: 30 / 18, 1450: 19 / 17}
COLOURS = {"server/linux": "#c44e52", "server/ovs": "#dd8452", "switch/software": "#4c72b0",
           "switch/kernel": "#55a868"}


class Sample:
    """One run of one net."""

    def __init__(self, rate, servers, network, frame):
        self.rate, self.servers, self.network, self.frame = rate, servers, network, frame

    def limit(self):
        return "servers" if self.servers >= self.network else "network"

    def cost(self):
        """Cores of the servers for a bit per second."""
        return self.servers / self.rate


def ratios(samples, other, of):
    """Returns a figure of one net by that of another one, round by round."""
    return [of(sample) / of(beside) for sample, beside in zip(samples, other)]


def interval(values):
    """Returns the mean, and half of its 95 % interval by Student's t."""
    count = len(values)
    if count < 5:
        return statistics.mean(values), math.inf
    z, free = 1.959964, count - 1
    quantile = z + (z**3 + z) / (4 * free) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)
    return statistics.mean(values), quantile * statistics.stdev(values) / math.sqrt(count)


def rows(nets, samples):
    for net in nets:
        for write in WRITES:
            seen = samples[(net.name, write)]
            context = {
                "write_bytes": write,
                "overlay": net.overlay,
                "limited_by": statistics.mode(sample.limit() for sample in seen),
                "network_cpu": statistics.median(sample.network for sample in seen),
                "frame_bytes": statistics.median(sample.frame for sample in seen),
            }
            if net.overlay == "switch":
                context["chip"] = net.datapath
            elif net.datapath:
                context["datapath"] = net.datapath
            for measure, unit, values in [
                ("throughput", "bit/s", [sample.rate for sample in seen]),
                ("server_cpu", "cores", [sample.servers for sample in seen]),
            ]:
                yield {"measure": measure, "subject": net.subject, "unit": unit,
                       "context": context, "values": values, "median": statistics.median(values)}


def table(nets, samples):
    lines = ["| bytes | overlay | Gbit/s | of `none` | paper | servers' cores per Gbit/s, of `none` "
             "| network's cores | bytes in a frame | limit |", "|---|---|---|---|---|---|---|---|---|"]
    for write in WRITES:
        none = samples[("none", write)]
        for net in nets:
            seen = samples[(net.name, write)]
            rate = interval(ratios(seen, none, lambda sample: sample.rate))
            cpu = interval(ratios(seen, none, Sample.cost))
            paper = PAPER[net.overlay][write] / PAPER["none"][write]
            lines.append(
                f"| {write} | {net.name} | {statistics.median(s.rate for s in seen) / 1e9:.2f} "
                f"| {rate[0]:.2f} ± {rate[1]:.2f} | {paper:.2f} | {cpu[0]:.2f} ± {cpu[1]:.2f} "
                f"| {statistics.median(s.network for s in seen):.2f} "
                f"| {statistics.median(s.frame for s in seen):.0f} "
                f"| {statistics.mode(s.limit() for s in seen)} |")
    return "\n".join(lines) + "\n"


def throughput(samples):
    """Draws the throughput of each overlay as a part of that without one, beside the paper's."""
    def group(name, write):
        seen = ratios(samples[(name, write)], samples[("none", write)], lambda s: s.rate)
        return interval(seen), PAPER[name.split("/")[0]][write] / PAPER["none"][write]
    return chart(list(COLOURS), group, 1.6, "throughput, of that without an overlay")


def cpu(samples):
    """Draws the servers' CPU of each overlay at the servers by that of the kernel as chip, beside
    the paper's."""
    def group(name, write):
        seen = ratios(samples[(name, write)], samples[("switch/kernel", write)], Sample.cost)
        return interval(seen), PAPER_CPU[write]
    names = ["server/linux", "server/ovs"]
    top = max(2.0, *(sum(group(name, write)[0]) for name in names for write in WRITES))
    top = top if math.isfinite(top) else 8.0
    return chart(names, group, top,
                 "servers' cores per Gbit/s, of those with switch/kernel (paper: of the receiver)")


def chart(names, group, top, title):
    """Draws a bar with its interval for each name, and a pale one of the paper; 1 is dashed."""
    left, base, height, step = 60, 270, 200, 58
    width = step * len(names) + 30
    parts, scale = [], height / top
    for at, write in enumerate(WRITES):
        for nth, name in enumerate(names):
            (mean, half), paper = group(name, write)
            x = left + at * width + nth * step
            for value, offset, opacity in ((mean, 0, 1), (paper, 25, 0.35)):
                size = min(value, top) * scale
                parts.append(f'<rect x="{x + offset}" y="{base - size:.1f}" width="23" '
                             f'height="{size:.1f}" fill="{COLOURS[name]}" opacity="{opacity}"/>')
                parts.append(f'<text x="{x + offset + 11}" y="{base + 12}" font-size="9" '
                             f'text-anchor="middle">{value:.2f}</text>')
            if math.isfinite(half):
                low, high = (base - min(mean + sign * half, top) * scale for sign in (-1, 1))
                parts.append(f'<line x1="{x + 11}" x2="{x + 11}" y1="{low:.1f}" y2="{high:.1f}" '
                             'stroke="black"/>')
        parts.append(f'<text x="{left + at * width + step * len(names) / 2}" y="{base + 30}" '
                     f'font-size="12" text-anchor="middle">{write} bytes a write</text>')
    right = left + width * len(WRITES)
    parts.append(f'<line x1="{left - 10}" x2="{right}" y1="{base - scale:.1f}" '
                 f'y2="{base - scale:.1f}" stroke="#555" stroke-dasharray="4"/>')
    parts.append(f'<text x="{left - 14}" y="{base - scale + 4:.1f}" font-size="11" '
                 'text-anchor="end">1</text>')
    for nth, name in enumerate(names):
        parts.append(f'<rect x="{left + nth * 140}" y="34" width="12" height="12" '
                     f'fill="{COLOURS[name]}"/><text x="{left + 18 + nth * 140}" y="44" '
                     f'font-size="12">{name}</text>')
    parts.append(f'<text x="{left}" y="20" font-size="12">{title}; pale: the paper</text>')
    body = "\n".join(parts)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{max(right + 20, 700)}" height="320" '
            f'font-family="sans-serif">\n<rect width="100%" height="100%" fill="white"/>\n'
            f"{body}\n</svg>\n")
