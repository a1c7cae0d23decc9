//! What integration tests share.
#![allow(dead_code, reason = "each test binary uses its own part")]

pub mod control_plane;
pub mod wait;
