//! Figures: large clusters, many clusters, moves in the large. Small in the usual run; `hack/cluster-api-scale` runs them in full
//! and prints their tables.

mod clusters;
mod kills;
mod large;
mod recorder;

use std::{
    env,
    time::{Duration, Instant},
};

use comfy_table::{Table, presets::UTF8_BORDERS_ONLY};

/// `full`, and `name=value` for single numbers, with commas between them. The usual run has neither.
const PARAMETERS: &str = "MCM_SCALE";
/// Longer than anything takes in full.
const LIMIT: Duration = Duration::from_secs(900);

/// A number of objects: as configured, or one of two defaults.
fn count(name: &str, full: usize, usual: usize) -> usize {
    let given = env::var(PARAMETERS).unwrap_or_default();
    let own = given.split(',').filter_map(|pair| pair.split_once('=')).find(|(other, _)| other.trim() == name);
    match own {
        Some((_, value)) => value.trim().parse().unwrap_or_else(|_| panic!("{name}={value} is no number")),
        None if is_full() => full,
        None => usual,
    }
}

fn is_full() -> bool {
    env::var(PARAMETERS).unwrap_or_default().split(',').any(|word| word.trim() == "full")
}

/// Prints figures. The usual run swallows them.
fn print(title: &str, head: &[&str], rows: Vec<Vec<String>>) {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY).set_header(head).add_rows(rows);
    println!("\n{title}\n{table}");
}

fn seconds(since: Instant) -> String {
    format!("{:.1} s", since.elapsed().as_secs_f64())
}
