//! Meters: the API server's own request counters, and the kernel's counters of processes.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use kube::Client;
use serde::Serialize;

/// Kinds whose writes are the implementation's own work.
const OWN: [&str; 5] = ["machines", "machinesets", "machinedeployments", "machineclasses", "secrets"];

/// Requests by verb and resource, since the start of the API server.
pub type Requests = BTreeMap<(String, String), f64>;

pub async fn requests(client: &Client) -> Result<Requests> {
    let request = http::Request::get("/metrics").body(Vec::new())?;
    let text = client.request_text(request).await.context("read the API server's metrics")?;
    let mut requests = Requests::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("apiserver_request_total{")) {
        let Some((labels, value)) = line.rsplit_once("} ") else { continue };
        let label = |name: &str| {
            let from = labels.split(&format!("{name}=\"")).nth(1)?;
            from.split('"').next().map(str::to_owned)
        };
        let key = (label("verb").unwrap_or_default(), label("resource").unwrap_or_default());
        *requests.entry(key).or_default() += value.trim().parse::<f64>().unwrap_or_default();
    }
    Ok(requests)
}

pub fn difference(before: &Requests, after: &Requests) -> Requests {
    let change = |(key, value): (&(String, String), &f64)| (key.clone(), value - before.get(key).unwrap_or(&0.0));
    after.iter().map(change).filter(|(_, value)| *value > 0.0).collect()
}

fn is_write(verb: &str) -> bool {
    matches!(verb, "POST" | "PUT" | "PATCH" | "DELETE")
}

/// Writes on machines, sets, deployments, classes and secrets.
pub fn own_writes(requests: &Requests) -> f64 {
    sum(requests, |verb, resource| is_write(verb) && OWN.contains(&resource))
}

/// Writes of Secrets, which are bootstrap tokens: each is created and deleted once.
pub fn token_writes(requests: &Requests) -> f64 {
    sum(requests, |verb, resource| is_write(verb) && resource == "secrets")
}

/// Own writes, and those of Nodes.
pub fn rollout_writes(requests: &Requests) -> f64 {
    own_writes(requests) + sum(requests, |verb, resource| is_write(verb) && resource == "nodes")
}

/// All writes, those of the simulated cloud included.
pub fn all_writes(requests: &Requests) -> f64 {
    sum(requests, |verb, _| is_write(verb))
}

/// Reads of single objects and lists of a resource.
pub fn reads(requests: &Requests) -> f64 {
    sum(requests, |verb, _| matches!(verb, "GET" | "LIST"))
}

fn sum(requests: &Requests, counts: impl Fn(&str, &str) -> bool) -> f64 {
    requests.iter().filter(|((verb, resource), _)| counts(verb, resource)).map(|(_, value)| value).sum()
}

/// CPU seconds that processes have used.
pub fn cpu_seconds(pids: &[u32]) -> f64 {
    // Linux reports in ticks of 1/100 s on every architecture that matters here.
    let of = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split_whitespace().collect();
        let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
        Some((ticks(11)? + ticks(12)?) / 100.0)
    };
    pids.iter().filter_map(of).sum()
}

/// Memory of one process in MB, as the kernel counts it.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Memory {
    /// The most that was resident at any time.
    pub peak: f64,
    /// The resident memory now.
    pub resident: f64,
    /// The part of it that the process wrote: heap and stacks. The rest is the program itself.
    pub anonymous: f64,
}

/// Memory of each process.
pub fn memory(pids: &[u32]) -> Vec<Memory> {
    let of = |pid: &u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let megabytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            line.trim().trim_end_matches("kB").trim().parse::<f64>().ok().map(|kilobytes| kilobytes / 1024.0)
        };
        Some(Memory { peak: megabytes("VmHWM")?, resident: megabytes("VmRSS")?, anonymous: megabytes("RssAnon")? })
    };
    pids.iter().filter_map(of).collect()
}
