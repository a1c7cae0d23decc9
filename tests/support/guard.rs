//! Children and folders that do not outlive this process, however it ends.

use std::{
    io::Write,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, OnceLock},
};

/// A shell that reads a pipe, which is closed when this is dropped or the process has ended, and then does its work. It
/// has a separate process group, so it survives an interrupt from the keyboard.
pub struct Guard(Child);

impl Guard {
    /// `script` begins with `read`; its arguments count from 0.
    pub fn start(script: &str, arguments: &[&Path]) -> Self {
        let shell = Command::new("sh")
            .args(["-c", script])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        Self(shell.unwrap())
    }
}

/// The group for children: its leader kills the group.
pub fn process_group() -> i32 {
    static LEADER: OnceLock<Guard> = OnceLock::new();
    let leader = LEADER.get_or_init(|| Guard::start("read -r _; kill -9 0", &[]));
    i32::try_from(leader.0.id()).unwrap()
}

/// A folder that is removed when this is dropped or the process has ended.
pub struct Folder {
    path: PathBuf,
    remover: Mutex<Guard>,
}

impl Folder {
    /// A new one; its name starts with the prefix.
    pub fn new(prefix: &str) -> Self {
        let path = tempfile::Builder::new().prefix(prefix).tempdir().unwrap().keep();
        let remover = Mutex::new(Guard::start(r#"read -r _ || rm -rf "$0""#, &[&path]));
        Self { path, remover }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps the folder for inspection.
    pub fn keep(&self) {
        let mut remover = self.remover.lock().unwrap();
        // Fails if it was called before.
        let _ = remover.0.stdin.as_mut().unwrap().write_all(b"keep\n");
    }
}
