//! A program under test: started, signalled, killed when dropped, with its output kept in a file.

use std::{
    env,
    fs::{self, File, OpenOptions},
    net::TcpListener,
    os::unix::process::{CommandExt, ExitStatusExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicU16, Ordering},
    },
    time::{Duration, Instant},
};

use super::{guard, wait};

/// The binary under test. Cargo names none to an example, which needs `MCM_BINARY`.
pub const MCM: &str = match option_env!("CARGO_BIN_EXE_mcm") {
    Some(path) => path,
    None => "",
};

/// The binary of programs under test: `MCM_BINARY`, or the binary that cargo built with the tests.
pub fn mcm() -> PathBuf {
    env::var_os("MCM_BINARY").map_or_else(|| MCM.into(), PathBuf::from)
}

/// The folder with the Go programs and their driver for the simulated cloud: `MCM_REFERENCE`, or built once. `None` without Go.
pub fn reference() -> Option<PathBuf> {
    if let Some(folder) = env::var_os("MCM_REFERENCE") {
        return Some(folder.into());
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/hack/bench/build-reference");
    Command::new("go").arg("version").output().ok()?;
    let built = Command::new(script).stderr(Stdio::inherit()).output().unwrap();
    assert!(built.status.success(), "{script} failed: {}", built.status);
    Some(String::from_utf8(built.stdout).unwrap().trim().into())
}

/// Longer than an end in good order takes on a busy machine.
const END_LIMIT: Duration = Duration::from_secs(60);
const PORTS: u16 = 9_000;

/// A program that runs, or ran.
pub struct Program {
    path: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    log: PathBuf,
    child: Child,
}

impl Program {
    /// Starts it. Its output is appended to the log.
    pub fn start(path: impl Into<PathBuf>, arguments: Vec<String>, log: PathBuf) -> Self {
        Self::start_in(Vec::new(), path, arguments, log)
    }

    /// Starts it with more variables in its environment.
    pub fn start_in(
        environment: Vec<(String, String)>,
        path: impl Into<PathBuf>,
        arguments: Vec<String>,
        log: PathBuf,
    ) -> Self {
        // For clients of what it serves.
        rustls::crypto::ring::default_provider().install_default().ok();
        let path = path.into();
        let child = spawn(&path, &arguments, &environment, &log);
        Self { path, arguments, environment, log, child }
    }

    /// SIGKILL, then the same again from the start.
    pub fn restart_after_kill(&mut self) {
        self.kill();
        self.start_again();
    }

    /// The same again, after it ended.
    pub fn start_again(&mut self) {
        assert!(self.child.try_wait().unwrap().is_some(), "it still runs");
        self.child = spawn(&self.path, &self.arguments, &self.environment, &self.log);
    }

    /// SIGKILL. It must be running: a program that ended before has failed.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        let status = self.child.wait().unwrap();
        assert_eq!(
            status.signal(),
            Some(9),
            "it ended by itself before it was killed: {status}; see {}",
            self.log.display()
        );
    }

    /// SIGTERM.
    pub fn terminate(&self) {
        self.signal("TERM");
    }

    /// A signal by name.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success(), "it does not run any more; see {}", self.log.display());
    }

    /// Waits for the end and returns its status.
    pub async fn ended(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(start.elapsed() < END_LIMIT, "it does not end; see {}", self.log.display());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// It has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Its process ID.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Panics if it has ended.
    pub fn assert_runs(&mut self) {
        let status = self.child.try_wait().unwrap();
        assert!(status.is_none(), "it ended: {status:?}; see {}", self.log.display());
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Both fail only if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Ports at which commands ask a manager.
const ASKED: [u16; 2] = [10_258, 10_259];

/// One of the ports at which commands ask a manager, until the file is dropped. One test at a time has it.
pub async fn asked_port(port: u16) -> File {
    assert!(ASKED.contains(&port), "{port} may be given to another program");
    wait::until_within(Duration::from_secs(600), &format!("port {port}"), async || claim(port)).await
}

/// A free port that no other call was given, in this process or another. Below 20000: `hack/control-plane` uses higher ones, and
/// from 32768 on an outgoing connection may hold one.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Ports that belong to this process until it ends.
    static CLAIMS: Mutex<Vec<File>> = Mutex::new(Vec::new());
    let (port, claim) = (0..PORTS)
        .map(|_| 10_000 + NEXT.fetch_add(1, Ordering::Relaxed) % PORTS)
        .filter(|port| !ASKED.contains(port))
        .find_map(|port| Some((port, claim(port)?)))
        .unwrap();
    CLAIMS.lock().unwrap().push(claim);
    port
}

/// A port is taken only when its program listens, so test binaries that run at the same time lock a file for each.
fn claim(port: u16) -> Option<File> {
    let folder = env::temp_dir().join(format!("mcm-test-ports-{}", rustix::process::getuid().as_raw()));
    fs::create_dir_all(&folder).unwrap();
    let file = File::create(folder.join(port.to_string())).unwrap();
    file.try_lock().ok()?;
    TcpListener::bind(("127.0.0.1", port)).is_ok().then_some(file)
}

fn spawn(path: &Path, arguments: &[String], environment: &[(String, String)], log: &Path) -> Child {
    let log: File = OpenOptions::new().create(true).append(true).open(log).unwrap();
    Command::new(path)
        .args(arguments)
        .env_remove("RUST_LOG")
        .env_remove("KUBECONFIG")
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .process_group(guard::process_group())
        .spawn()
        .unwrap_or_else(|error| panic!("start {}: {error}", path.display()))
}
