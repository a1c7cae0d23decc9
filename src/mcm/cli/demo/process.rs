//! Child processes of the demo.

use std::{
    fmt,
    io::{Read, Seek, SeekFrom},
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
pub struct ChildProcess {
    what: &'static str,
    child: Child,
    log: PathBuf,
}

impl fmt::Display for ChildProcess {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} (its log is {})", self.what, self.log.display())
    }
}

impl ChildProcess {
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

    /// Waits until a URL responds.
    pub async fn until_it_answers(&mut self, url: &str) -> Result<()> {
        let (what, start) = (self.what, Instant::now());
        while start.elapsed() < START_LIMIT {
            if reqwest::get(url).await.is_ok_and(|answer| answer.status().is_success()) {
                return Ok(());
            }
            self.check()?;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        bail!("{what} does not respond at {url}; its log is {}", self.log.display())
    }

    /// Fails with its log if it has ended.
    pub fn check(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait().ok().flatten() {
            bail!("{} ended with {status}:\n{}", self.what, last_lines(&self.log));
        }
        Ok(())
    }

    /// Ends it at once.
    pub async fn kill(&mut self) {
        let _ = self.child.kill().await;
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

/// The last lines of a log, which has the reason of an end.
fn last_lines(log: &Path) -> String {
    const LINES: usize = 3;
    const BYTES: u64 = 4096;
    let mut end = Vec::new();
    if let Ok(mut file) = std::fs::File::open(log) {
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        let _ = file.seek(SeekFrom::Start(length.saturating_sub(BYTES)));
        let _ = file.take(BYTES).read_to_end(&mut end);
    }
    let text = String::from_utf8_lossy(&end);
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

/// Below 32768: above, an outgoing connection may hold a port. Each process begins with another one, because a port is taken only
/// when its server starts.
pub fn free_port(from: u16) -> Result<u16> {
    const PORTS: u16 = 1_000;
    const APART: u32 = 13;
    let first = u16::try_from(std::process::id().wrapping_mul(APART) % u32::from(PORTS))?;
    (0..PORTS)
        .map(|number| from + (first + number) % PORTS)
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
