//! A table, and a plot, of runs side by side.

use std::fmt::Write as _;

use comfy_table::{Cell, CellAlignment, Table, presets::UTF8_FULL_CONDENSED};

use crate::{
    measure::Memory,
    scenario::{Phase, Run},
};

pub fn table(runs: &[Run]) -> String {
    let mut text = String::new();
    let mut sizes: Vec<u32> = runs.iter().map(|run| run.n).collect();
    sizes.dedup();
    for n in sizes {
        let of_size: Vec<&Run> = runs.iter().filter(|run| run.n == n).collect();
        let Some(first) = of_size.first() else { continue };
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED).set_header([
            "phase",
            "who",
            "time s",
            "ratio",
            "own writes/machine",
            "without tokens",
            "reads/machine",
            "node writes/machine",
            "CPU s",
            "ratio",
            "too many",
            "of the floor",
        ]);
        for phase in &first.phases {
            for run in &of_size {
                let Some(theirs) = run.phases.iter().find(|other| other.name == phase.name) else { continue };
                table.add_row(row(run, theirs, phase, run.name == first.name));
            }
        }
        let _ = writeln!(text, "\n{n} machines");
        let _ = writeln!(text, "{table}");
        let _ = writeln!(text, "{}", memory(&of_size));
        for run in &of_size {
            let _ = writeln!(
                text,
                "{:<12} the API server alone writes {:.0} objects a second",
                run.name, run.floor_writes_per_second
            );
        }
    }
    text
}

/// Memory in MB: of all processes together, and where there are several, of each.
fn memory(runs: &[&Run]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header([
        "memory MB",
        "peak",
        "ratio",
        "idle without machines",
        "of it written",
        "idle with all",
        "of it written",
    ]);
    let number = |value: f64, digits: usize| Cell::new(format!("{value:.digits$}")).set_alignment(CellAlignment::Right);
    let sum = |of: &[Memory], what: fn(&Memory) -> f64| of.iter().map(what).sum::<f64>();
    let first = runs.first().map_or(f64::NAN, |run| sum(&run.memory, |memory| memory.peak));
    let mut add = |name: String, end: &[Memory], [without, with]: [&[Memory]; 2]| {
        let peak = sum(end, |memory| memory.peak);
        table.add_row([
            Cell::new(name),
            number(peak, 1),
            number(peak / first, 2),
            number(sum(without, |memory| memory.resident), 1),
            number(sum(without, |memory| memory.anonymous), 1),
            number(sum(with, |memory| memory.resident), 1),
            number(sum(with, |memory| memory.anonymous), 1),
        ]);
    };
    for run in runs {
        let [without, with] = &run.idle;
        add(run.name.clone(), &run.memory, [without, with]);
        let each = run.memory.chunks(1).zip(without.chunks(1).zip(with.chunks(1))).enumerate();
        for (at, (end, (without, with))) in each.filter(|_| run.memory.len() > 1) {
            add(format!("{}, process {}", run.name, at + 1), end, [without, with]);
        }
    }
    table
}

fn row(run: &Run, phase: &Phase, first: &Phase, is_first: bool) -> Vec<Cell> {
    let number = |value: f64, digits: usize| Cell::new(format!("{value:.digits$}")).set_alignment(CellAlignment::Right);
    let ratio = |value: f64, of: f64| {
        let text = if is_first || of == 0.0 { String::new() } else { format!("{:.2}", value / of) };
        Cell::new(text).set_alignment(CellAlignment::Right)
    };
    let per_machine = |value: f64| value / f64::from(phase.machines.max(1));
    let floor = phase.all_writes / run.floor_writes_per_second + run.latency_floor(&phase.name);
    vec![
        Cell::new(&phase.name),
        Cell::new(&run.name),
        number(phase.seconds, 2),
        ratio(phase.seconds, first.seconds),
        number(per_machine(phase.own_writes), 1),
        number(per_machine(phase.own_writes - phase.token_writes), 1),
        number(per_machine(phase.reads), 1),
        number(per_machine(phase.node_writes), 1),
        number(phase.cpu_seconds, 2),
        ratio(phase.cpu_seconds, first.cpu_seconds),
        number(phase.too_many as f64, 0),
        Cell::new(format!("×{:.1}", phase.seconds / floor)).set_alignment(CellAlignment::Right),
    ]
}

const WIDTH: f64 = 760.0;
const BAR: f64 = 16.0;
const COLOURS: [&str; 4] = ["#9aa5b1", "#2f6fdf", "#d9822b", "#3d9970"];

/// Horizontal bars of time by size, phase and implementation.
pub fn plot(runs: &[Run]) -> String {
    let longest = runs.iter().flat_map(|run| &run.phases).map(|phase| phase.seconds).fold(0.1, f64::max);
    let mut names: Vec<&str> = Vec::new();
    for run in runs {
        if !names.contains(&run.name.as_str()) {
            names.push(&run.name);
        }
    }
    let mut bars = String::new();
    let mut y = 40.0;
    let mut last = String::new();
    for (run, phase) in ordered(runs) {
        let title = format!("{} {}", run.n, phase.name);
        if title != last {
            y += 10.0;
            let _ = writeln!(bars, r#"<text x="8" y="{:.0}" class="t">{title}</text>"#, y + BAR - 3.0);
            last = title;
        }
        let width = (phase.seconds / longest * (WIDTH - 260.0)).max(1.0);
        let colour = names.iter().position(|name| *name == run.name).and_then(|at| COLOURS.get(at)).unwrap_or(&"#555");
        let _ = writeln!(bars, r#"<rect x="150" y="{y:.0}" width="{width:.1}" height="{BAR}" fill="{colour}"/>"#);
        let label = format!("{:.1} s · {}", phase.seconds, run.name);
        let _ = writeln!(bars, r#"<text x="{:.0}" y="{:.0}">{label}</text>"#, 156.0 + width, y + BAR - 3.0);
        y += BAR + 3.0;
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{:.0}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <style>.t{{font-weight:bold}}</style><rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"8\" y=\"24\" font-size=\"15\">Seconds per phase, same API server and simulated cloud</text>\n{bars}</svg>\n",
        y + 16.0
    )
}

fn ordered(runs: &[Run]) -> Vec<(&Run, &Phase)> {
    let mut all: Vec<(&Run, &Phase)> =
        runs.iter().flat_map(|run| run.phases.iter().map(move |phase| (run, phase))).collect();
    let order = |run: &Run, phase: &Phase| {
        let at = run.phases.iter().position(|other| other.name == phase.name);
        (run.n, at)
    };
    all.sort_by_key(|(run, phase)| order(run, phase));
    all
}
