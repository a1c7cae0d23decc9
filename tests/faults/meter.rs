//! Meters: CPU of processes as the kernel counts it, and the request counters of the API server.

use std::{collections::BTreeMap, fs};

use kube::Client;

use crate::{
    run::{Bound, Run},
    support::world::Manager,
};

/// Kinds that a manager writes.
const KINDS: [&str; 7] =
    ["machines", "machinesets", "machinedeployments", "machineclasses", "secrets", "nodes", "events"];

/// Ticks a second in `/proc`, on every architecture that matters here.
const TICKS: f64 = 100.0;

/// CPU seconds that a process has used.
pub fn cpu_seconds(process: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split_whitespace().collect();
    let ticks = |at: usize| fields[at].parse::<f64>().unwrap();
    (ticks(11) + ticks(12)) / TICKS
}

/// Writes by verb and kind, of kinds that managers write, since the start of the API server.
pub async fn writes(client: &Client) -> BTreeMap<String, f64> {
    let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
    let text = client.request_text(request).await.unwrap();
    let mut writes = BTreeMap::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("apiserver_request_total{")) {
        let Some((labels, value)) = line.rsplit_once("} ") else { continue };
        let label = |name: &str| labels.split(&format!("{name}=\"")).nth(1).and_then(|rest| rest.split('"').next());
        let (verb, kind) = (label("verb").unwrap_or_default(), label("resource").unwrap_or_default());
        if ["POST", "PUT", "PATCH", "DELETE"].contains(&verb) && KINDS.contains(&kind) {
            let part = label("subresource").filter(|part| !part.is_empty()).map(|part| format!("/{part}"));
            let name = format!("{verb} {kind}{}", part.unwrap_or_default());
            *writes.entry(name).or_default() += value.trim().parse::<f64>().unwrap_or_default();
        }
    }
    writes
}

/// Writes between two readings.
pub fn difference(before: &BTreeMap<String, f64>, after: &BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    let more = after.iter().map(|(name, value)| (name.clone(), value - before.get(name).copied().unwrap_or_default()));
    more.filter(|(_, value)| *value > 0.0).collect()
}

/// Checks that the clock of a manager is so many seconds from ours. That of a program without shared libraries never is.
pub async fn check_clock(run: &Run, manager: &Manager, offset: i64) {
    let (_, metrics) = manager.get("/metrics").await;
    let skews = metrics.lines().filter_map(|line| line.strip_prefix("mcm_clock_skew_seconds{")?.rsplit_once(' '));
    let errors = skews.filter_map(|(_, skew)| Some((skew.parse::<f64>().ok()? + offset as f64).abs()));
    let error = errors.fold(f64::INFINITY, f64::min);
    run.check("clock: error of the shown skew", error, "s", Bound::AtMost(60.0));
}

/// The sum of a family of a manager's metrics, of those samples that have a text in their labels.
pub async fn metric(manager: &Manager, family: &str, with: &str) -> f64 {
    let (_, text) = manager.get("/metrics").await;
    let is_of =
        |line: &&str| line.strip_prefix(family).is_some_and(|rest| rest.starts_with([' ', '{'])) && line.contains(with);
    text.lines().filter(is_of).filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
}
