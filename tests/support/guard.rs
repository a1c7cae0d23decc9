//! Children that do not outlive this process, however it ends.

use std::{
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    sync::OnceLock,
};

/// The group for children: its leader reads a pipe that is closed when this process is gone, and then kills the group.
pub fn process_group() -> i32 {
    static LEADER: OnceLock<Child> = OnceLock::new();
    let leader = LEADER.get_or_init(|| {
        Command::new("sh")
            .args(["-c", "read -r _; kill -9 0"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap()
    });
    i32::try_from(leader.id()).unwrap()
}
