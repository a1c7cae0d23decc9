//! Child processes of the demo.

use std::{
    net::TcpListener,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use tokio::{
    process::{Child, Command},
    signal::{
        ctrl_c,
        unix::{SignalKind, signal},
    },
    time::Instant,
};

const START_LIMIT: Duration = Duration::from_secs(30);

/// A child process with a log.
pub struct Process {
    what: &'static str,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts it. With `keep` it outlives this process.
    pub fn start(what: &'static str, program: &Path, arguments: &[String], log: PathBuf, keep: bool) -> Result<Self> {
        let file = std::fs::File::create(&log).with_context(|| format!("write {}", log.display()))?;
        let child = Command::new(program)
            .args(arguments)
            .env_remove("RUST_LOG")
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .process_group(0)
            .kill_on_drop(!keep)
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        Ok(Self { what, child, log })
    }

    /// Its ID, while it runs.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Waits until it answers at a URL.
    pub async fn until_it_answers(&mut self, url: &str) -> Result<()> {
        let (what, start) = (self.what, Instant::now());
        while start.elapsed() < START_LIMIT {
            if reqwest::get(url).await.is_ok_and(|answer| answer.status().is_success()) {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait().ok().flatten() {
                let said = std::fs::read_to_string(&self.log).unwrap_or_default();
                bail!("{what} ended with {status}:\n{}", said.trim_end());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        bail!("{what} does not respond at {url}; its log is {}", self.log.display())
    }

    /// Ends it.
    pub async fn stop(&mut self) {
        if let Some(pid) = self.child.id() {
            let _ = Command::new("kill").arg(pid.to_string()).status().await;
            if tokio::time::timeout(Duration::from_secs(5), self.child.wait()).await.is_err() {
                let _ = self.child.kill().await;
            }
        }
    }
}

/// Below 32768: above, an outgoing connection may hold a port.
pub fn free_port(from: u16) -> Result<u16> {
    (from..from + 1_000)
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .with_context(|| format!("no free port from {from} on"))
}

/// Runs a demo whose parts live in this process, and waits after it if they are to stay. Ctrl-C or `hack/demo stop` ends them.
///
/// # Errors
/// The demo fails, or was stopped.
pub async fn run_here(demo: impl Future<Output = Result<()>>, keep: bool) -> Result<()> {
    tokio::select! {
        result = demo => result?,
        result = until_told_to_stop() => {
            result?;
            bail!("the demo was stopped");
        }
    }
    if keep {
        eprintln!("Parts of it are in this process: Ctrl-C ends it, and all the rest.");
        until_told_to_stop().await?;
    }
    Ok(())
}

async fn until_told_to_stop() -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        result = ctrl_c() => result?,
        _ = terminate.recv() => {}
    }
    Ok(())
}
