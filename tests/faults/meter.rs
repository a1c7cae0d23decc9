//! Meters: CPU and memory of processes as the kernel counts them, and the request counters of the API server.

use std::{
    collections::BTreeMap,
    fs,
    time::{Duration, Instant},
};

use kube::Client;
use tokio::time::sleep;

use crate::{
    run::{Bound, Run, number},
    support::world::Manager,
};

/// Kinds that a manager writes.
const KINDS: [&str; 7] =
    ["machines", "machinesets", "machinedeployments", "machineclasses", "secrets", "nodes", "events"];

/// Ticks a second in `/proc`, on every architecture that matters here.
const TICKS: f64 = 100.0;
/// How long nothing may be written before all is quiet.
const QUIET: Duration = Duration::from_secs(10);
/// The wait for quiet ends after this time in any case: some programs never rest.
const LONGEST_REST: Duration = Duration::from_secs(180);

/// CPU seconds that a process has used.
pub fn cpu_seconds(process: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split_whitespace().collect();
    let ticks = |at: usize| fields[at].parse::<f64>().unwrap();
    (ticks(11) + ticks(12)) / TICKS
}

/// Memory of a process in MiB, by its name in `/proc`, such as `RssAnon`.
pub fn memory(process: u32, name: &str) -> f64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    line.split_whitespace().next().unwrap().parse::<f64>().unwrap() / 1024.0
}

/// Open files of a process.
pub fn descriptors(process: u32) -> usize {
    fs::read_dir(format!("/proc/{process}/fd")).unwrap().count()
}

/// Writes by verb and kind, of kinds that managers write, since the start of the API server.
pub async fn writes(client: &Client) -> BTreeMap<String, f64> {
    let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
    let text = client.request_text(request).await.unwrap();
    let mut writes = BTreeMap::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("apiserver_request_total{")) {
        let Some((labels, value)) = line.rsplit_once("} ") else { continue };
        let label = |name: &str| label_value(labels, name);
        let (verb, kind) = (label("verb").unwrap_or_default(), label("resource").unwrap_or_default());
        if ["POST", "PUT", "PATCH", "DELETE"].contains(&verb) && KINDS.contains(&kind) {
            let part = label("subresource").filter(|part| !part.is_empty()).map(|part| format!("/{part}"));
            let name = format!("{verb} {kind}{}", part.unwrap_or_default());
            *writes.entry(name).or_default() += value.trim().parse::<f64>().unwrap_or_default();
        }
    }
    writes
}

/// The requests of a process but watches since its start, by verb and path, from its metrics.
pub fn calls(metrics: &str) -> BTreeMap<String, f64> {
    let mut calls = BTreeMap::new();
    // A watch has no latency.
    for line in metrics.lines().filter_map(|line| line.strip_prefix("rest_client_request_latency_seconds_count{")) {
        let Some((labels, value)) = line.rsplit_once("} ") else { continue };
        let label = |name: &str| label_value(labels, name).unwrap_or_default();
        let path = label("url").splitn(4, '/').nth(3).unwrap_or_default();
        *calls.entry(format!("{} /{path}", label("verb"))).or_default() += value.parse::<f64>().unwrap_or_default();
    }
    calls
}

/// The value of a label in the labels of a sample.
fn label_value<'a>(labels: &'a str, name: &str) -> Option<&'a str> {
    labels.split(&format!("{name}=\"")).nth(1).and_then(|rest| rest.split('"').next())
}

/// Differences between two readings.
pub fn difference(before: &BTreeMap<String, f64>, after: &BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    let more = after.iter().map(|(name, value)| (name.clone(), value - before.get(name).copied().unwrap_or_default()));
    more.filter(|(_, value)| *value > 0.0).collect()
}

/// Waits until nothing was written for a while.
pub async fn until_quiet(run: &Run, client: &Client) {
    run.say("waits until all is quiet");
    let start = Instant::now();
    let mut last = writes(client).await;
    let mut quiet_since = Instant::now();
    while quiet_since.elapsed() < QUIET && start.elapsed() < LONGEST_REST {
        sleep(Duration::from_secs(1)).await;
        let mut now = writes(client).await;
        now.retain(|name, _| !is_of_kubelets(name));
        if now != last {
            quiet_since = Instant::now();
        }
        last = now;
    }
    run.measured("time until all was quiet", number(start.elapsed().as_secs() as usize), "s");
}

/// The simulated kubelets refresh the status of each Node every five minutes.
pub fn is_of_kubelets(write: &str) -> bool {
    write.ends_with(" nodes/status")
}

/// Checks that the clock of a manager is so many seconds from ours. That of a program without shared libraries never is.
pub async fn check_clock(run: &Run, manager: &Manager, offset: i64) {
    let (_, metrics) = manager.get("/metrics").await;
    let skews = metrics.lines().filter_map(|line| line.strip_prefix("mcm_clock_skew_seconds{")?.rsplit_once(' '));
    let errors = skews.filter_map(|(_, skew)| Some((skew.parse::<f64>().ok()? + offset as f64).abs()));
    let error = errors.fold(f64::INFINITY, f64::min);
    run.check("clock: error of the shown skew", error, "s", Bound::AtMost(60.0));
}

/// The metrics of a process; `None` while it does not serve them.
pub async fn metrics_of(manager: &Manager) -> Option<String> {
    reqwest::get(format!("{}/metrics", manager.url)).await.ok()?.text().await.ok()
}

/// The sum of a family of a manager's metrics, of those samples that have a text in their labels.
pub async fn metric(manager: &Manager, family: &str, with: &str) -> f64 {
    let (_, text) = manager.get("/metrics").await;
    sum_of(&text, family, with)
}

/// The same in metrics that were read before.
pub fn sum_of(metrics: &str, family: &str, with: &str) -> f64 {
    let is_of =
        |line: &&str| line.strip_prefix(family).is_some_and(|rest| rest.starts_with([' ', '{'])) && line.contains(with);
    metrics.lines().filter(is_of).filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
}
