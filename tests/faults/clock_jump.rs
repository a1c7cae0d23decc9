//! The clock of the machine jumps, as it does when a suspended host wakes up or NTP corrects it.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use mcm::api::machine::MachinePhase;
use serde_json::json;
use tokio::time::sleep;

use crate::{run::Run, stage::Stage, support::control_plane::ControlPlane};

/// Path of `libfaketime.so.1`; by default where Debian installs it.
const LIBRARY: &str = "LIBFAKETIME";

/// Only the clock of the manager jumps: an hour forth, and back. Its monotonic clock does not, as in reality. While
/// machines serve, and while some boot.
#[tokio::test]
async fn nothing_is_deleted_when_the_clock_jumps_an_hour() {
    let run = Run::start("clock_jump");
    let machines = run.count("machines", 20, 6);
    let jump = run.parameter("jump", 3600_i64, 3600);
    let settle = run.seconds("watched", 60.0, 20.0);
    let library = library().unwrap_or_else(|| {
        panic!("there is no libfaketime.so.1: install libfaketime, or set {LIBRARY} to the path of the library")
    });
    let control = ControlPlane::shared().await;
    let mut stage = Stage::set(run, control, control, &[]).await;
    let clock = stage.world.folder().join("clock");
    set(&clock, 0);
    let variables = [
        ("LD_PRELOAD", library.display().to_string()),
        ("FAKETIME_TIMESTAMP_FILE", clock.display().to_string()),
        ("FAKETIME_NO_CACHE", "1".to_owned()),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
    ];
    stage.world.environment = variables.map(|(name, value)| (name.to_owned(), value)).to_vec();
    let manager = stage.world.run(&[]).await;
    let mut count = machines;
    stage.pool(count, json!({})).await;
    stage.settled(count, "small").await;
    stage.classes(json!({"providerSpec": {"bootLatency": "10s"}})).await;

    for seconds in [jump, -jump] {
        count += 2;
        stage.scale(count).await;
        stage.until("VMs that boot", |scene| scene.count(MachinePhase::Pending) == 2).await;
        stage.world.scene.always("every machine is kept", move |scene| {
            scene.live().count() == count && scene.count(MachinePhase::Failed) == 0
        });
        // There, and back again. No machine is created in between: it would seem to be an hour old.
        for (offset, what) in [(seconds, "away from"), (0, "back to")] {
            stage.run.say(format!("the clock of the manager jumps {what} ours: {offset:+} s"));
            set(&clock, offset);
            // Not a wait for a state: it is watched that nothing happens in a time.
            sleep(settle).await;
            stage.settled(count, "small").await;
        }
        stage.world.scene.forget_rules();
    }
    stage.close(Some(count), &[&manager]).await;
}

fn set(file: &Path, seconds: i64) {
    let new = file.with_extension("new");
    fs::write(&new, format!("{seconds:+}\n")).unwrap();
    fs::rename(new, file).unwrap();
}

fn library() -> Option<PathBuf> {
    if let Some(given) = env::var_os(LIBRARY) {
        return Some(PathBuf::from(given));
    }
    let arch = env::consts::ARCH;
    let folders = [
        format!("/usr/lib/{arch}-linux-gnu/faketime"),
        "/usr/lib/faketime".to_owned(),
        "/usr/lib64/faketime".to_owned(),
    ];
    folders.into_iter().map(|folder| PathBuf::from(folder).join("libfaketime.so.1")).find(|path| path.exists())
}
