//! The programs of a control plane, which tests stop, pause and start again.

use std::{
    fs::{self, OpenOptions},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use kube::{Client, Config};

use super::wait;

/// One program of a control plane.
pub struct Part {
    folder: PathBuf,
    name: &'static str,
    config: Config,
    /// The command line of the killed process.
    command: Vec<String>,
    /// The processes that were started here.
    children: Vec<Child>,
}

impl Part {
    pub(super) fn of(folder: &Path, name: &'static str, config: Config) -> Self {
        Self { folder: folder.to_owned(), name, config, command: Vec::new(), children: Vec::new() }
    }

    /// Its process ID.
    pub fn id(&self) -> u32 {
        let pids = self.pids();
        let line = pids.lines().find_map(|line| line.strip_prefix(self.name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{} is not one of {pids}", self.name)).parse().unwrap()
    }

    /// Stops it with SIGSTOP, until the returned guard is dropped.
    pub fn pause(&self) -> Paused {
        let id = self.id();
        signal("STOP", id);
        Paused(id)
    }

    /// SIGKILL.
    pub async fn kill(&mut self) {
        let id = self.id();
        let line = fs::read(format!("/proc/{id}/cmdline")).unwrap();
        let words = line.split(|byte| *byte == 0).map(|word| String::from_utf8(word.to_vec()).unwrap());
        self.command = words.collect();
        assert_eq!(self.command.pop().as_deref(), Some(""), "a command line ends with a zero");
        signal("KILL", id);
        wait::until("a killed program to end", async || {
            self.children.retain_mut(|child| child.try_wait().unwrap().is_none());
            (!Path::new(&format!("/proc/{id}/exe")).exists()).then_some(())
        })
        .await;
    }

    /// The same again, after it was killed, while the API server does not run.
    pub fn start_alone(&mut self) {
        let child = self.spawn();
        self.children.push(child);
    }

    /// The same again, after it was killed. Waits until the API server responds. A process that ends by itself is started again,
    /// as a kubelet would: the port of a killed program is free only when the kernel has closed all its sockets.
    pub async fn start(&mut self) {
        let mut child = self.spawn();
        let client = Client::try_from(self.config.clone()).unwrap();
        wait::until("the API server to be ready", async || {
            if child.try_wait().unwrap().is_some() {
                child = self.spawn();
            }
            let request = http::Request::get("/readyz").body(Vec::new()).unwrap();
            let answer = tokio::time::timeout(Duration::from_secs(5), client.request_text(request)).await;
            answer.ok()?.ok().map(drop)
        })
        .await;
        self.children.push(child);
    }

    fn spawn(&self) -> Child {
        let (program, arguments) = self.command.split_first().unwrap();
        let log = self.folder.join("logs").join(format!("{}.log", self.name));
        let log = OpenOptions::new().append(true).create(true).open(log).unwrap();
        let child = Command::new(program)
            .args(arguments)
            .env("GOGC", "400")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .process_group(0)
            .spawn()
            .unwrap();
        let others = self.pids();
        let others = others.lines().filter(|line| !line.starts_with(&format!("{} ", self.name)));
        let mut pids: String = others.map(|line| format!("{line}\n")).collect();
        pids.push_str(&format!("{} {}\n", self.name, child.id()));
        fs::write(self.folder.join("pids"), pids).unwrap();
        child
    }

    fn pids(&self) -> String {
        fs::read_to_string(self.folder.join("pids")).unwrap()
    }
}

/// A program that does not run on.
pub struct Paused(u32);

impl Drop for Paused {
    fn drop(&mut self) {
        signal("CONT", self.0);
    }
}

fn signal(name: &str, id: u32) {
    let sent = Command::new("kill").args(["-s", name, &id.to_string()]).status().unwrap();
    assert!(sent.success(), "SIG{name} does not reach process {id}");
}
