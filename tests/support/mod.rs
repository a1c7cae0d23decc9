//! Helpers that integration tests share.
#![allow(dead_code, reason = "each test binary uses its own part")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

pub mod attach_detach;
pub mod clock;
pub mod cloud;
pub mod clouds;
pub mod console;
pub mod control_plane;
pub mod door;
pub mod fleet;
pub mod gardenlet;
pub mod guard;
pub mod hostile;
pub mod identity;
pub mod line;
pub mod logs;
pub mod objects;
pub mod parts;
pub mod plans;
pub mod pods;
pub mod program;
pub mod scene;
pub mod secrets;
pub mod wait;
pub mod world;
