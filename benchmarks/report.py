"""BENCHMARKS.md from the raw results: no number in it is typed. `make bench` runs this last."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fewlabels.evaluation.leaderboard import FEWER, N_TRIED, SLOW, describe_kind

HERE = Path(__file__).parent
EARLIER_WEIGHTS = (
    "Measured with the weights that the network had before its last fit, "
    "which had seen none of these classes."
)
TITLES = {
    "ncm": "PT+NCM",
    "kmeans": "PT+K-Means",
    "soft-kmeans": "PT+soft K-Means",
    "map": "PT+MAP",
    "map-auto": "PT+MAP, sizes estimated (map-auto)",
    "map-estimated": "map-auto without its network (map, prior=estimate)",
}


def spread(timing: dict[str, float], scale: float = 1.0, digits: int = 2) -> str:
    """Median and, in brackets, best to worst."""
    median, best, worst = (scale * timing[key] for key in ("median_s", "min_s", "max_s"))
    return f"{median:.{digits}f} ({best:.{digits}f}–{worst:.{digits}f})"


def cpu_part(report: dict[str, Any]) -> list[str]:
    """Tables of benchmarks/results/cpu.json."""
    lines = [
        "## CPU",
        "",
        f"{report['machine']}; "
        + ", ".join(f"{name} {number}" for name, number in report["versions"].items())
        + ". "
        f"Features: CIFAR-FS novel classes, {report['features']['rows']:,} × "
        f"{report['features']['dim']}. 5-way, 15 queries per class, the paper's settings. The "
        "machine is shared: look at ratios first.",
        "",
        "10,000 episodes end to end from a FeatureSet in memory (with draws, preprocessing and "
        "hash; without compilation), "
        "seconds, median (best–worst) of 5:",
        "",
        "| method | shots | seconds | accuracy |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {TITLES[c['method']]} | {c['n_shot']} | {spread(c)} | {c['accuracy']:.2f} % |"
        for c in report["end_to_end"]["found"]
    ]
    lines += ["", "PT+MAP beside other ways to the same answer, one run, the same episodes:", ""]
    lines += [
        "| what | shots | ms an episode | times numba | labels as float64 |",
        "|---|---|---|---|---|",
    ]
    cells = report["baselines"]["found"]
    for cell in cells:
        ours = next(c for c in cells if c["what"] == "numba" and c["n_shot"] == cell["n_shot"])
        ratio = cell["ms_per_episode"] / ours["ms_per_episode"]
        lines.append(
            f"| {cell['what']} | {cell['n_shot']} | {cell['ms_per_episode']:.3g} | {ratio:,.0f} "
            f"| {100 * cell['agreement']:.2f} % |"
        )
    lines += [
        "",
        "The plain transcription is `benchmarks/plain.py` (dense distances, Sinkhorn to 1e-6, "
        "batches of 100); easyfsl's PTMAP takes one episode at a time, three of them here, with "
        "torchvision replaced by an empty module so that it imports.",
        "",
        "Cost against one size at a time (PT+MAP, ms an episode):",
        "",
        "| what | sizes | ms an episode | exponent |",
        "|---|---|---|---|",
    ]
    for title, cell in report["scaling"]["found"].items():
        sizes, costs = (
            ", ".join(map(str, cell["sizes"])),
            ", ".join(f"{ms:.3g}" for ms in cell["ms_per_episode"]),
        )
        lines.append(f"| {title} | {sizes} | {costs} | {cell['exponent']:.2f} |")
    lines += [
        "",
        "The exponent is of the whole time against the size. Below about 400 rows an episode is "
        "solved in Gram space, whose n² is so cheap that small episodes cost less than the "
        "straight line through the large ones; above, in feature space, cost is linear "
        "in the queries. More ways also mean more queries here (15 each).",
        "",
        "| feature dim | end to end, 10,000 episodes, s | solver alone, s |",
        "|---|---|---|",
    ]
    lines += [f"| {c['dim']} | {spread(c)} | {c['solver_s']:.2f} |" for c in report["dim"]["found"]]
    lines += [
        "",
        "Peak memory of `fewlabels evaluate --episodes 10000`: "
        f"{report['peak_memory_mb']['found']:.0f} MB.",
    ]
    return lines


def gpu_part(report: dict[str, Any]) -> list[str]:
    """Table of benchmarks/results/h200.json."""
    lines = [
        "## GPU",
        "",
        f"One {report['gpu']}; torch {report['torch']}, triton {report['triton']}, "
        f"Python {report['python']}. {report['n_episodes']:,} episodes, milliseconds, median "
        "(best–worst). Kernel: the fused Triton kernel on Gram matrices; end to end: `evaluate` "
        "from a FeatureSet, with draws, float64 for close decisions and hash, everything compiled.",
        "",
        "| method | shots | dim | kernel | gather and Gram | end to end | labels unlike float64 |",
        "|---|---|---|---|---|---|---|",
    ]
    for c in report["cells"]:
        unlike = f"{c['labels_unlike_float64']} of {c['labels']:,}" if "labels" in c else "–"
        times = " | ".join(
            spread(c[key], 1000, 1) for key in ("kernel", "gather_and_gram", "end_to_end")
        )
        lines.append(f"| {TITLES[c['method']]} | {c['n_shot']} | {c['dim']} | {times} | {unlike} |")
    return [*lines, *(["", report["note"]] if "note" in report else [])]


def folder_part(report: dict[str, Any]) -> list[str]:
    """Table of benchmarks/results/folders.json: means over folders by labels per class."""
    methods = list(report["cells"][0]["accuracy"])
    lines = [
        "## Whole folders",
        "",
        "`benchmarks/folders.py`: all classes at once, k random labels per class, accuracy "
        f"on the unlabelled images in %, means over folders and {report['draws']} draws. `folder` "
        "is what `fewlabels label` runs, `map-folder` what it ran before. Kept out of all choices: "
        "butterflies, CUB novel, CIFAR-FS novel. Calibration error: of `folder`, mean over the "
        "folders, the largest, and the mean that a perfect calibration shows with as few rows.",
        "",
        f"| class sizes | k | {' | '.join(methods)} | calibration error | largest | perfect | "
        "folders where another is better by over 0.3 |",
        "|---|--:|" + "--:|" * (len(methods) + 4),
    ]
    for uneven in (False, True):
        for k in sorted({cell["k"] for cell in report["cells"]}):
            cells = [c for c in report["cells"] if c["k"] == k and c["uneven"] == uneven]
            means = [sum(c["accuracy"][m] for c in cells) / len(cells) for m in methods]
            errors = [c["calibration_error"] for c in cells]
            perfect = sum(c["calibration_floor"] for c in cells) / len(cells)
            error = f"{sum(errors) / len(cells):.1f} | {max(errors):.1f} | {perfect:.1f}"
            behind = sum(
                max(v for m, v in c["accuracy"].items() if m != "folder")
                > c["accuracy"]["folder"] + 0.3
                for c in cells
            )
            row = " | ".join(f"{mean:.1f}" for mean in means)
            sizes = "uneven" if uneven else "as they are"
            lines.append(f"| {sizes} | {k} | {row} | {error} | {behind} of {len(cells)} |")
    closer = [
        f"{each['folder']} {'uneven' if each['uneven'] else 'as it is'} k={each['k']}: "
        f"{each['difference']:+.2f} ± {each['standard_error']:.2f} against {each['other']} "
        f"(first {report['draws']} draws: {each['difference_of_first_draws']:+.2f})"
        for each in report.get("close", [])
    ]
    if closer:
        lines += [
            "",
            "Cells where a method of scikit-learn was better by over 0.3 points, with "
            f"{report['close'][0]['draws']} draws and the standard error of the difference: "
            + "; ".join(closer)
            + ".",
        ]
    return [*lines, "", "![Accuracy by labels per class](benchmarks/results/folders.png)"]


def small_part(report: list[dict[str, Any]]) -> list[str]:
    """Table of benchmarks/results/folders_small.json."""
    methods = list(report[0]["accuracy"])
    lines = [
        "### Small folders",
        "",
        "`benchmarks/folders.py --small`: random classes of the same folders, as many images of "
        "each class or uneven, 1, 2 and 5 labels per class; accuracy on the unlabelled images in "
        "%, mean of all draws. The numbers of the method were chosen with the validation folders.",
        "",
        f"| classes | images per class | folders | draws | {' | '.join(methods)} |",
        "|--:|--:|---|--:|" + "--:|" * len(methods),
    ]
    for row in report:
        kind = "kept out" if row["kept_out"] else "validation"
        accuracies = " | ".join(f"{row['accuracy'][method]:.1f}" for method in methods)
        lines.append(
            f"| {row['classes']} | {row['per_class']} | {kind} | {row['folders']} | {accuracies} |"
        )
    return lines


def speed_part(report: dict[str, Any]) -> list[str]:
    """Table of benchmarks/results/folder_speed.json."""
    lines = [
        "### Time and memory",
        "",
        "`benchmarks/folder_speed.py`: 20 classes, 5 labels per class, features of 1,280 columns, "
        f"{report['processors']} processors. The rows are prepared once; other labels need the "
        "answer alone, which includes the estimate of accuracy.",
        "",
        "| images | prepare, s | answer, s | memory, GB |",
        "|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {cell['images']:,} | {cell['prepare']} | {cell['answer']} | {cell['gigabytes']} |"
        for cell in report["cells"]
    ]
    return lines


def class_sizes_part(report: list[dict[str, Any]]) -> list[str]:
    """Table of benchmarks/results/folder_sizes.json."""
    kinds = [name for name in report[0] if name != "k"]
    return [
        "### Class sizes",
        "",
        "`benchmarks/folders.py --sizes`, validation folders: class sizes that lie in the interval "
        "that `label` gives. One rare class: all images of one class but three and the labelled "
        "ones were left out, and its size is asked for.",
        "",
        f"| labels per class | {' | '.join(kinds)} |",
        "|--:|" + "--:|" * len(kinds),
        *(f"| {row['k']} | {' | '.join(row[kind] for kind in kinds)} |" for row in report),
    ]


def slips_part(report: dict[str, Any]) -> list[str]:
    """Table of benchmarks/results/folder_slips.json."""
    columns = list(next(iter(report.values())))
    return [
        "### Labels that look wrong",
        "",
        "`benchmarks/folders.py --slips`, validation folders: one of twenty labels was exchanged. "
        "How many labels were named as looking wrong, how many of these were, and how many were "
        "exchanged in all.",
        "",
        f"| folder | {' | '.join(columns)} |",
        "|---|" + "--:|" * len(columns),
        *(
            f"| {folder} | {' | '.join(str(row[name]) for name in columns)} |"
            for folder, row in report.items()
        ),
    ]


def encoder_tables(report: dict[str, Any], kind: str) -> list[str]:
    """Tables of benchmarks/results/encoders.json, of images or of texts."""
    cells = [cell for cell in report["cells"] if cell["kind"] == kind]
    folders = list(dict.fromkeys(cell["folder"] for cell in cells))
    encoders = list(dict.fromkeys(cell["encoder"] for cell in cells))
    heads = " | ".join(f"{folder}, {n}" for folder in folders for n in (1, 5))
    lines = []
    for method in ("nearest class mean", "logistic regression", "folder"):
        lines += [
            f"| {method} | {heads} | CPU ms per item |",
            "|---|" + "--:|" * (2 * len(folders) + 1),
        ]
        for encoder in encoders:
            row = []
            for folder in folders:
                for n_shot in (1, 5):
                    where = (folder, encoder, method, n_shot)
                    cell = next(
                        each
                        for each in cells
                        if tuple(each[k] for k in ("folder", "encoder", "method", "n_shot"))
                        == where
                    )
                    gain = f" ({cell['gain']:+.1f} ± {cell['interval']:.1f})"
                    row.append(f"{cell['accuracy']:.1f}" + (gain if encoder != encoders[0] else ""))
            lines.append(f"| {encoder} | {' | '.join(row)} | {report['cpu_ms'][encoder]:.3g} |")
        lines.append("")
    return lines


def names_table(report: dict[str, Any]) -> list[str]:
    """Table of benchmarks/results/encoders.json: from class names."""
    lines = ["| texts | labels per class | names alone | labels alone | names and labels |"]
    lines.append("|---|--:|--:|--:|--:|")
    for cell in report["names"]:
        alone, without = (
            f"{cell[key]:.1f}" if key in cell else "" for key in ("names alone", "without")
        )
        lines.append(
            f"| {cell['folder']} | {cell['n_shot']} | {alone} | {without} "
            f"| {cell['with names']:.1f} |"
        )
    return lines


def tables_part(report: dict[str, Any]) -> list[str]:
    """Table of benchmarks/results/tables.json."""
    cells = {(cell["table"], cell["k"]): cell for cell in report["cells"]}
    shots = sorted({k for _, k in cells})
    lines = [
        "## Tables",
        "",
        "`benchmarks/tables.py`: tables of few columns, k random labels per class; accuracy on the "
        f"other rows in %, mean of {report['draws']} draws. Folder method with the preprocessing "
        'for features of networks ("features") and with that for measurements; the one that it '
        "takes by itself is in bold. Logistic regression of scikit-learn has standardized columns.",
        "",
        f"| table | columns | way | {' | '.join(f'k = {k}' for k in shots)} |",
        f"|---|--:|---|{'--:|' * len(shots)}",
    ]
    for table in dict.fromkeys(name for name, _ in cells):
        found = [cells[table, k] for k in shots]
        for way in found[0]["accuracy"]:
            values = " | ".join(f"{cell['accuracy'][way]:.1f}" for cell in found)
            name = f"**{way}**" if way == found[0]["decided"] else way
            lines.append(f"| {table} | {found[0]['n_columns']} | {name} | {values} |")
    return lines


def encoders_part(report: dict[str, Any]) -> list[str]:
    """Encoders of images and of texts, and class names."""
    return [
        "## Encoders",
        "",
        "`benchmarks/encoders.py`: all classes at once, 1 or 5 random labels per class, accuracy "
        f"on the rest in %, means of {report['draws']} draws; in brackets the mean difference to "
        "the first line with its 95 % interval. `folder` is what `fewlabels label` runs. CPU time "
        "on one thread of a shared machine: look at ratios. Groceries 20 classes × 35 photographs; "
        "CUB 50 novel classes × 20, 96 px.",
        "",
        *encoder_tables(report, "images"),
        "Texts: 20 newsgroups × 60; 22 subjects of Reuters, 25 to 60 each.",
        "",
        *encoder_tables(report, "texts"),
        "From class names (`--classes`), with minilm:",
        "",
        *names_table(report),
    ]


def fill_docs(report: dict[str, Any]) -> None:
    """Write the tables into docs/rows.md, between their marks."""
    path = HERE.parent / "docs" / "rows.md"
    text = path.read_text()
    parts = {
        "texts": encoder_tables(report, "texts"),
        "images": encoder_tables(report, "images"),
        "names": names_table(report),
    }
    for mark, lines in parts.items():
        begin, end = f"<!-- {mark} -->\n", "<!-- end -->"
        head, found, rest = text.partition(begin)
        table = "\n".join(lines).strip()
        text = f"{head}{found}{table}\n{end}{rest.partition(end)[2]}"
    path.write_text(text)


def next_part(report: dict[str, Any]) -> list[str]:
    """Table of benchmarks/results/next_labels.json: labels needed by each rule."""
    rules = [rule for rule in next(iter(report["folders"].values())) if rule != "one more label"]
    lines = [
        "## What to label next",
        "",
        "`benchmarks/next_labels.py`: labels until 90 / 95 % of a folder are right, labelled ones "
        f"included; one random label per class to begin with, mean of {report['draws']} draws. "
        "`suggest` is what `fewlabels next` and the page do. Last column: points that one more "
        "suggested label changes, on average and at worst, of twenty after two per class.",
        "",
        f"| folder | {' | '.join(rules)} | one more label |",
        "|---|" + "--:|" * (len(rules) + 1),
    ]
    for name, cell in report["folders"].items():
        needed = " | ".join(
            " / ".join(map(str, cell[rule].values())) if cell[rule] else "–" for rule in rules
        )
        change = cell["one more label"]
        lines.append(f"| {name} | {needed} | {change['mean']:+.2f}, {change['worst']:+.2f} |")
    return lines


def sensitivity_part(report: dict[str, Any]) -> list[str]:
    """Table of benchmarks/results/sensitivity.json."""
    lines = [
        "## What each number is worth",
        "",
        "`benchmarks/sensitivity.py`, validation folders and classes: points gained where one "
        "number is changed. Above zero by more than 0.3 would call for another value; a change of "
        "nearly zero either way means that any value near this one does. The group estimation was "
        "measured with the centering that `map-auto` had before, `center(support)`.",
        "",
        "| group | number | from | to | points |",
        "|---|---|--:|--:|--:|",
    ]
    for group, found in report.items():
        for each in found["changes"]:
            before, after = (_short(each[key]) for key in ("from", "to"))
            lines.append(
                f"| {group} | {each['number']} | {before} | {after} | {each['gain']:+.2f} |"
            )
    return lines


def _short(value: Any) -> str:
    """A number, or some, with two digits."""
    values = value if isinstance(value, list) else [value]
    return ", ".join(f"{each:.2g}" if each < 100 else str(each) for each in values)


def serve_part(report: dict[str, Any]) -> list[str]:
    """Table of benchmarks/results/serve.json: the labelling page."""
    folders = report["folders"]
    kinds = list(folders[0]["answers"])
    lines = [
        "## The page",
        "",
        f"`benchmarks/serve.py` ({report['machine']}): `fewlabels serve` on a hard folder of "
        f"{folders[0]['classes']} made-up classes, {folders[0]['dim']} features per image, opened "
        "from features that are known. Answers over HTTP: milliseconds, median (most), and the "
        "largest in bytes as sent. `click`: to a label; `confirmed`: to 1,000 labels at once; "
        "`thorough` and `outliers`: what the page fetches a moment later, a change of more than "
        "10,000 images in several answers; `start`: all images. Load average while it ran: "
        f"{' and '.join(str(each['load_average'][0]) for each in folders)}.",
        "",
        f"| images | ready, s | {' | '.join(kinds)} |",
        "|--:|--:|" + "--:|" * len(kinds),
    ]
    for each in folders:
        answers = (
            f"{cell['median_ms']:.0f} ({cell['max_ms']:.0f}) ms, {cell['largest_bytes']:,} B"
            for cell in each["answers"].values()
        )
        lines.append(f"| {each['items']:,} | {each['ready_s']:.0f} | {' | '.join(answers)} |")
    return lines


def page_part(report: dict[str, Any]) -> list[str]:
    """Text of benchmarks/results/page.json: keys until all labels are right."""
    return [
        "## Keys on the page",
        "",
        "`benchmarks/page.py`: a person who knows every label finishes the demo in a real browser "
        f"by keyboard alone: {report['images']} photographs, {report['without_label']} without a "
        f"label. {report['wrong_at_first']} of these are wrong at first, "
        f"{report['wrong_at_last']} at the end, after {report['keys']} keys. A page with one image "
        f"at a time takes at least {report['without_label']}. The count depends a little on when "
        "answers arrive.",
    ]


def drills_part(report: dict[str, Any]) -> list[str]:
    """Table of benchmarks/results/drills.json."""
    lines = ["## Drills", ""]
    about, drills = report["about"], report["drills"]
    lines += [
        f"`make drills` on commit {about['commit']}, {about['machine']}, "
        f"Python {about['python']}. Lost: a try that did not end as SECURITY.md promises. One of "
        "them: `FEWLABELS_DRILLS=many pytest tests/drills/TEST`.",
        "",
    ]
    lines += ["| drill | test | tries | survived | lost |", "|:--|:--|--:|--:|--:|"]
    for name, found in drills.items():
        counts = " | ".join(f"{found[key]:,}" for key in ("tries", "survived", "lost"))
        lines.append(f"| {name} | `{found['test']}` | {counts} |")
    total = [sum(found[key] for found in drills.values()) for key in ("tries", "survived", "lost")]
    return [*lines, f"| all | | {' | '.join(f'{number:,}' for number in total)} |"]


def oracle_part(report: dict[str, Any]) -> list[str]:
    """Table of benchmarks/results/oracles.json."""
    lines = [
        "## Methods of the literature beside literal loops",
        "",
        "`benchmarks/oracles.py`: every label of a method beside that of a slow loop written from "
        "the formulas (tests/methods/test_rivals.py), both in float64; validation classes of "
        "CIFAR-FS, own WRN, 1 and 5 shots, balanced and Dirichlet(2). Margin: difference of the "
        "two largest probabilities of a query whose labels differ, smallest and largest. Last "
        "columns: labels of the method in float32 that differ from the loop's, and seconds of one "
        "processor for all episodes.",
        "",
        "| method | episodes | all labels equal | labels | differ | margin | differ in float32 | "
        "method, s | loop, s |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name, row in report["results"].items():
        margins = [row.get(f"{which}_margin_of_these") for which in ("least", "largest")]
        margin = "–" if margins[0] is None else "–".join(f"{each:.1g}" for each in margins)
        seconds = row.get("seconds")
        times = f"{seconds['method']:.1f} | {seconds['oracle']:.0f}" if seconds else "– | –"
        lines.append(
            f"| {name} | {row['episodes']} | {row['equal']} | {row.get('labels', '–')} | "
            f"{row['labels_that_differ']} | {margin} | "
            f"{row.get('labels_that_differ_in_float32', '–')} | {times} |"
        )
    return lines


BOARD = ("balanced", "Dirichlet(2)", "2 of 5")  # the regimes of the leaderboard
N_BOARD = 200  # its episodes per cell
LEAST = 5  # episodes of a cell that is shown
SAME = 0.5  # points; two accuracies that are nearer count as equal in the order of methods


def order(difference: float) -> str:
    """Above, below or about equal."""
    return "≈" if abs(difference) < SAME else ">" if difference > 0 else "<"


def order_part(report: dict[str, Any]) -> list[str]:
    """Table of the orders in benchmarks/results/rivals.json."""
    lines = [
        "## Methods of the literature: published order and ours",
        "",
        "`benchmarks/rivals.py orders`: novel classes of CIFAR-FS (own WRN) and CUB (own "
        "ResNet18), 5-way, 75 queries, the same 10,000 episodes for all methods. "
        f"Differences in points at 1 / 5 shots; nearer than {SAME} is ≈. An order holds (yes) or "
        "is the opposite (no); where only one of both is ≈, ours is shown. Published figures are "
        "from the data named, where a paper has none on ours. Milliseconds of one processor.",
        "",
        "| method | episodes | published | ours on | accuracy | to PT+NCM: published | ours | "
        "holds | to PT+MAP: published | ours | holds | ms |",
        "|---|---|---|---|--:|--:|--:|---|--:|--:|---|--:|",
    ]
    rows, broken = report["orders"], []
    for one, five in zip(rows[::2], rows[1::2], strict=True):
        cells = []
        for baseline in ("ncm", "map"):
            told = [
                pair[0] - pair[1]
                for pair in zip(one["published"]["method"], one["published"][baseline], strict=True)
            ]
            found = [row[f"difference_to_{baseline}"][0] for row in (one, five)]
            signs = [(order(a), order(b)) for a, b in zip(told, found, strict=True)]
            holds = ["yes" if a == b else "no" if "≈" not in (a, b) else f"{b}" for a, b in signs]
            broken += [one["method"]] * (set(holds) != {"yes"})
            cells += [" / ".join(f"{each:+.1f}" for each in told)]
            cells += [" / ".join(f"{each:+.2f}" for each in found), " / ".join(holds)]
        kind = "balanced" if one["queries"] == "15" else "Dirichlet(2)"
        numbers = " / ".join(f"{row['accuracy']:.2f}" for row in (one, five))
        lines.append(
            f"| {one['method']} | {kind} | {one['published']['source']} | {one['family']} | "
            f"{numbers} | {' | '.join(cells)} | "
            f"{(one['ms_per_episode'] + five['ms_per_episode']) / 2:.1f} |"
        )
    why = report["why_not"]
    lines += ["", "Where an order is not the published one, how ours differs:", ""]
    lines += [f"- {name}: {why[name]}" for name in dict.fromkeys(broken)]
    return [*lines, *reason_table(report.get("reasons", []))]


def reason_table(rows: list[dict[str, Any]]) -> list[str]:
    """What changes where one thing of a method is changed, from benchmarks/results/rivals.json."""
    lines = [
        "",
        "`benchmarks/rivals.py reasons`: methods whose order is the opposite in some cell, with "
        "one thing changed. Differences to PT+NCM in points on the same 1,000 episodes, with the "
        "95 % interval.",
        "",
        "| method | what | episodes | backbone | 1 shot | 5 shots |",
        "|---|---|---|---|--:|--:|",
    ]
    for key in dict.fromkeys((row["method"], row["backbone"]) for row in rows):
        found = [row for row in rows if (row["method"], row["backbone"]) == key]
        cells = [
            next((row["difference_to_ncm"] for row in found if row["n_shot"] == shots), None)
            for shots in (1, 5)
        ]
        texts = ["–" if cell is None else f"{cell[0]:+.2f} ± {cell[1]:.2f}" for cell in cells]
        kind = "balanced" if found[0]["queries"] == "15" else "Dirichlet(2)"
        lines.append(
            f"| {found[0]['name']} | {found[0]['what']} | {kind} | {key[1]} | {' | '.join(texts)} |"
        )
    return lines


def presence_part(report: dict[str, Any]) -> list[str]:
    """Table of the presence of classes in benchmarks/results/rivals.json."""
    rows = report["presence"]
    regimes = list(dict.fromkeys(row["regime"] for row in rows))
    lines = [
        "## Methods of the literature where classes are absent",
        "",
        "`benchmarks/rivals.py presence`: accuracy in % at 1 / 5 shots. The first four columns: "
        "novel classes of CIFAR-FS, own WRN, 75 queries in 5 ways and 60 in 20; the last: CUB, own "
        "ResNet18, 150 queries in 50 ways. With the 95 % interval and, in brackets, the number of "
        "episodes: as many as bring the interval to ± 1 point, or as a few seconds of one "
        "processor allow (`am` and `alpha-am`: twelve). A dash: more than one second per episode.",
        "",
        f"| method | {' | '.join(regimes)} |",
        "|---|" + "--:|" * len(regimes),
    ]
    for name in dict.fromkeys(row["method"] for row in rows):
        cells = []
        for regime in regimes:
            found = [row for row in rows if (row["method"], row["regime"]) == (name, regime)]
            texts = [
                "–"
                if row["accuracy"] is None or row["n_episodes"] < LEAST
                else f"{row['accuracy']:.1f} ± {row['ci95']:.1f} ({row['n_episodes']:,})"
                for row in found
            ]
            cells.append(" / ".join(texts))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return [*lines, "", leaderboard_time(rows)]


def leaderboard_time(rows: list[dict[str, Any]]) -> str:
    """What `fewlabels leaderboard` takes, by the times of its kinds of episodes in the table."""
    times = [row["ms_per_episode"] for row in rows if row["regime"] in BOARD]
    episodes = [N_TRIED + (N_BOARD // FEWER if each > SLOW else N_BOARD) for each in times]
    total = sum(n * each for n, each in zip(episodes, times, strict=True)) / 1000
    return (
        f"`fewlabels leaderboard` runs the first three columns, {N_BOARD} episodes per cell and a "
        f"tenth of them for methods above {SLOW:g} ms, after {N_TRIED} that tell the time. By the "
        f"processor times per episode measured here (one thread, a loaded machine), "
        f"{len(times)} cells take {total:.0f} seconds of one processor; the bar is 600 seconds on "
        "two. The sum leaves out the start of Python and compilation (about two minutes, once)."
    )


def sizes_part(report: dict[str, Any]) -> list[str]:
    """Tables of benchmarks/results/unknown_sizes.json."""
    rules = ("map-auto", "equal", "free", "no prior", "told the kind", "gate", "told the sizes")
    lines = [
        "## Unknown class sizes",
        "",
        "`benchmarks/unknown_sizes.py`: accuracy in % at 1 / 5 shots. `map-auto` weights a plan "
        "with equal sizes and a free one, and a network refines it. No prior: the free fit in "
        "which a class is not preferred for its size. Told the kind: equal sizes where classes are "
        "balanced, else the better free fit: a perfect decision between them. Gate: a weight by "
        "logistic regression on ten "
        "statistics of the plans, fitted on validation classes of the other family. Told the "
        f"sizes: MAP that knows them. {EARLIER_WEIGHTS}",
    ]
    for split in [each for each in ("val", "novel") if each in report]:
        rows = report[split]["rows"]
        cells = [(family, kind) for family in ("cifar-fs", "cub") for kind in ("15", "dirichlet")]
        heads = " | ".join(f"{f}, {'balanced' if k == '15' else 'Dirichlet(2)'}" for f, k in cells)
        lines += ["", f"{split} classes, {report[split]['episodes']:,} episodes:", ""]
        lines += [f"| rule | {heads} |", "|---|" + "--:|" * len(cells)]
        for rule in rules:
            found = [
                " / ".join(
                    f"{row[rule]:.2f}"
                    for row in rows
                    if row["family"] == family and row["queries"].startswith(kind)
                )
                for family, kind in cells
            ]
            lines.append(f"| {rule} | {' | '.join(found)} |")
    return lines


def refinement_part(report: dict[str, Any]) -> list[str]:
    """Table of benchmarks/results/refinement.json."""
    cells = report["cells"]
    lines = [
        "## Unknown class sizes: the network",
        "",
        f"`benchmarks/refinement.py measure`, novel classes, {cells[0]['n_episodes']:,} episodes, "
        "5 ways, 75 queries, accuracy in %. Two plans: `map-auto` "
        "without its network. Differences: of the two columns before, paired, with 95 % intervals. "
        "`map-auto-mean` takes the mean of the validation classes.",
        "",
        "| features | queries | shots | PT+MAP | two plans | map-auto | difference | seconds "
        "| map-auto-mean | difference |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for c in cells:
        kind = describe_kind(c["queries"])
        found = " | ".join(f"{c[name]:.2f}" for name in ("map", "two_plans", "map_auto"))
        of_mean = "– | –"
        if "map_auto_mean" in c:
            gain = f"{c['mean_gain']:+.2f} ± {c['mean_half_width']:.2f}"
            of_mean = f"{c['map_auto_mean']:.2f} | {gain}"
        lines.append(
            f"| {c['features']} | {kind} | {c['n_shot']} | {found} | {c['gain']:+.2f} ± "
            f"{c['half_width']:.2f} | {c['seconds'][0]:.1f} | {of_mean} |"
        )
    return [
        *lines,
        "",
        "Seconds: of `map-auto`, all episodes, two cores, everything compiled; other work ran "
        "beside cells above 12 s. Largest difference "
        f"of a probability of the network in float32 and float64: {report['largest_error']:.1e}.",
    ]


def faint_part(report: dict[str, Any]) -> list[str]:
    """Table of benchmarks/results/faint.json."""
    chosen, cells = report["chosen"], report["cells"]
    rules = [chosen, *(rule for rule in cells[0]["gains"] if rule not in ("network", chosen))]
    lines = [
        "## Faint classes: where the network of map-auto is trusted",
        "",
        f"`benchmarks/faint.py`, {cells[0]['n_episodes']} episodes, 5 ways, means of 1, 2 and 5 "
        "shots. Signal: at 5 shots, where classes are balanced; the weight of the network rises "
        "from the first number of a rule to the second one. Difference to two plans in points, "
        f"balanced / Dirichlet(2) / 2 of 5 classes. The package's choice is {chosen}. "
        f"{EARLIER_WEIGHTS}",
        "",
        f"| features | signal | network alone | {' | '.join(rules)} |",
        f"|---|--:|--:|{'--:|' * len(rules)}",
    ]

    def gains(rows: list[dict[str, Any]], rule: str) -> str:
        of_kind: dict[str, list[float]] = {}
        for row in rows:
            of_kind.setdefault(row["queries"], []).append(row["gains"][rule])
        return " / ".join(f"{sum(each) / len(each):+.1f}" for each in of_kind.values())

    for name in dict.fromkeys(c["features"] for c in cells):
        rows = [c for c in cells if c["features"] == name]
        signal = next(c["signal"] for c in rows if c["n_shot"] == 5 and c["queries"] == "15")
        found = " | ".join(gains(rows, rule) for rule in ("network", *rules))
        lines.append(f"| {name} | {signal:.1f} | {found} |")
    found = " | ".join(gains(cells, rule) for rule in ("network", *rules))
    return [*lines, f"| mean | | {found} |"]


def centering_part(report: dict[str, Any]) -> list[str]:
    """Table of benchmarks/results/centering.json."""
    cells = report["cells"]
    lines = [
        "## Centering where class sizes are unknown",
        "",
        f"`benchmarks/centering.py`, {cells[0]['n_episodes']:,} episodes, 5 ways, 75 queries: "
        "difference in points to the centering that `map-auto` had before, `unit | "
        "center(support) | unit`, at 1 / 5 shots, balanced and Dirichlet(2). Half width: the "
        "largest of the 95 % intervals of the last rule, which is the package's choice. The "
        "network is trusted as it is now in all of them. The "
        f"package leaves rows of up to {report['unchanged_columns']} columns as they are; in the "
        "lines of random columns of two networks, which end in 'columns', they are centered too. "
        f"{EARLIER_WEIGHTS}",
        "",
        "| features | queries | center(support) | "
        f"{' | '.join(line.replace('|', '·') for line in cells[0]['gains'])} | half width |",
        f"|---|---|--:|{'--:|' * len(cells[0]['gains'])}--:|",
    ]
    kinds = dict.fromkeys((c["features"], c["queries"]) for c in cells)
    for name, queries in kinds:
        rows = [c for c in cells if (c["features"], c["queries"]) == (name, queries)]
        before = " / ".join(f"{c['support']:.2f}" for c in rows)
        gains = (" / ".join(f"{c['gains'][line]:+.2f}" for c in rows) for line in rows[0]["gains"])
        lines.append(
            f"| {name} | {describe_kind(queries)} | {before} | {' | '.join(gains)} | "
            f"{max(c['half_width'] for c in rows):.2f} |"
        )
    return lines


def outside_part(report: dict[str, Any]) -> list[str]:
    """Table of benchmarks/results/outside_mean.json."""
    cells = report["cells"]
    counts = list(cells[0]["gains"])
    heads = ["alone" if float(count) > 1e6 else count for count in counts]
    lines = [
        "## A mean from outside",
        "",
        f"`benchmarks/outside_mean.py`, validation classes and folders, {cells[0]['n_episodes']:,} "
        "episodes, 5 ways, 75 queries: difference of `map-auto-mean` to `map-auto` in points if "
        "the mean from outside counts as 1, 2, ... labelled rows. It is of the other validation "
        "classes, or that of three folders of other kinds of images. Half width: of the 95 % "
        f"interval with ten rows, the package's choice. {EARLIER_WEIGHTS}",
        "",
        f"| features | queries | shots | map-auto | {' | '.join(heads)} | half width |",
        f"|---|---|--:|--:|{'--:|' * len(heads)}--:|",
    ]
    for c in cells:
        kind = describe_kind(c["queries"])
        gains = " | ".join(f"{c['gains'][count]:+.2f}" for count in counts)
        lines.append(
            f"| {c['features']} | {kind} | {c['n_shot']} | {c['map_auto']:.2f} | {gains} "
            f"| {c['half_width']:.2f} |"
        )
    return lines


# Parts of the page in their order, and the file in benchmarks/results/ that each is made from.
PARTS: tuple[tuple[str, Callable[[dict[str, Any]], list[str]]], ...] = (
    ("cpu", cpu_part),
    ("h200", gpu_part),
    ("folders", folder_part),
    ("folders_small", small_part),
    ("folder_speed", speed_part),
    ("folder_sizes", class_sizes_part),
    ("folder_slips", slips_part),
    ("tables", tables_part),
    ("encoders", encoders_part),
    ("next_labels", next_part),
    ("sensitivity", sensitivity_part),
    ("serve", serve_part),
    ("page", page_part),
    ("drills", drills_part),
    ("oracles", oracle_part),
    ("rivals", order_part),
    ("rivals", presence_part),
    ("unknown_sizes", sizes_part),
    ("refinement", refinement_part),
    ("faint", faint_part),
    ("centering", centering_part),
    ("outside_mean", outside_part),
)


def read(name: str) -> dict[str, Any]:
    """A file of raw results."""
    found: dict[str, Any] = json.loads((HERE / "results" / f"{name}.json").read_text())
    return found


def main() -> None:
    """Write BENCHMARKS.md."""
    lines = [
        "# Benchmarks",
        "",
        "Made by `benchmarks/report.py` from the raw outputs in `benchmarks/results/`. Measure "
        "again: `make bench` (CPU); `python benchmarks/h200.py FEATURES.npy "
        "benchmarks/results/h200.json` on a machine with a GPU. Methods of the literature, and "
        "what was tried for unknown class sizes: [docs/rivals.md](docs/rivals.md).",
        "",
    ]
    for name, write in PARTS:
        lines += [*write(read(name)), ""]
    fill_docs(read("encoders"))
    (HERE.parent / "BENCHMARKS.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
