//! A third-party simulation of AWS, in another process.

use std::{
    process::Stdio,
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

/// Installing it may take minutes, once.
const START_LIMIT: Duration = Duration::from_secs(600);

/// A server, which ends with this.
pub struct Server {
    pub url: String,
    _process: Child,
}

impl Server {
    /// Starts the program with this name in `hack/clouds`.
    pub async fn start(name: &str) -> Self {
        rustls::crypto::ring::default_provider().install_default().ok();
        let script = format!("{}/hack/clouds/{name}", env!("CARGO_MANIFEST_DIR"));
        let mut command = Command::new(&script);
        let mut process = command.arg("run").stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let url = tokio::time::timeout(START_LIMIT, lines.next_line()).await.unwrap().unwrap();
        let url = url.unwrap_or_else(|| panic!("{script} run printed no URL"));
        let limit = Instant::now() + START_LIMIT;
        while reqwest::get(&url).await.is_err() {
            assert!(Instant::now() < limit, "{name} does not answer at {url}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Self { url, _process: process }
    }
}
