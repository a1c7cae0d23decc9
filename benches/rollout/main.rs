//! Creates, rolls and deletes machines with any implementation on a real API server and the simulated cloud, and says
//! what it cost: time, requests, CPU, memory, and how far that is from what the API server can do.
//!
//! `make bench` runs it against the Go reference; `cargo bench --bench rollout -- --help` lists what can be varied.

mod control_plane;
mod measure;
mod report;
mod scenario;

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Parser;

use scenario::Implementation;

/// Measures implementations side by side.
#[derive(Parser, Debug)]
#[command(name = "rollout")]
struct Arguments {
    /// How many machines; several sizes are measured one after the other
    #[arg(short, long = "machines", value_delimiter = ',', default_value = "200")]
    n: Vec<u32>,
    /// Latency of creating a VM
    #[arg(long, default_value = "100ms")]
    create: String,
    /// Time from a created VM to its ready Node
    #[arg(long, default_value = "1s")]
    boot: String,
    /// Latency of deleting a VM
    #[arg(long, default_value = "100ms")]
    delete: String,
    /// An implementation: NAME=COMMAND[;COMMAND…], repeatable; the first one is what others are compared with.
    /// {kubeconfig}, {namespace} and {cloud} are replaced; SIMULATED_CLOUD is set to the cloud's address
    #[arg(long = "with", required = true)]
    implementations: Vec<Implementation>,
    /// Also scale from a number down to another: FROM:TO, repeatable
    #[arg(long = "scale-down", value_delimiter = ',')]
    scale_downs: Vec<scenario::ScaleDown>,
    /// The mcm binary whose `simulated-cloud` and `crd` are used
    #[arg(long, default_value = "target/release/mcm")]
    mcm: PathBuf,
    /// Folder for report.json and report.svg
    #[arg(long, default_value = "target/bench")]
    output: PathBuf,
    /// No bootstrap-token placeholder in the Secret: two writes per machine less, for both
    #[arg(long)]
    without_tokens: bool,
    /// Seconds without work before the idle memory is read, once without machines and once with all of them
    #[arg(long, default_value_t = 30)]
    idle: u64,
    /// Seconds after which a phase is given up
    #[arg(long, default_value_t = 900)]
    timeout: u64,
    /// Set by `cargo bench`; has no effect
    #[arg(long, hide = true)]
    bench: bool,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    std::fs::create_dir_all(&arguments.output).context("make the output folder")?;
    let mut runs = Vec::new();
    for n in &arguments.n {
        for implementation in &arguments.implementations {
            eprintln!("── {} with {n} machines", implementation.name);
            let run = scenario::run(&arguments, implementation, *n).await;
            let run = run.with_context(|| format!("measure {} with {n} machines", implementation.name))?;
            runs.push(run);
        }
    }
    let text = report::table(&runs);
    println!("{text}");
    let json = serde_json::to_string_pretty(&runs)?;
    std::fs::write(arguments.output.join("report.json"), json).context("write report.json")?;
    std::fs::write(arguments.output.join("report.svg"), report::plot(&runs)).context("write report.svg")?;
    println!("wrote {}/report.json and report.svg", arguments.output.display());
    Ok(())
}
