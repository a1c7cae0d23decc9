//! Faults outside of the process, large and lasting minutes, with real processes. `hack/faults` runs these tests one by
//! one and prints their figures; `cargo test` does not run them.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

#[path = "../support/mod.rs"]
mod support;

// Shared by all runs.
mod meter;
mod miscounts;
mod pools;
mod recorder;
mod run;
mod stage;

// The runs.
mod clock_jump;
mod cloud_errors;
mod control_restarts;
mod disruption_budget;
mod etcd_paused;
mod fleet_soak;
mod forced_drain;
mod go_plans;
mod grace_period;
mod hostile_fleet;
mod idle_fleet;
mod lost_replies;
mod many_cells;
mod orphans;
mod rolling_while_scaling;
mod secrets;
mod seed;
mod steady_state;
mod stuck_drains;
mod take_over;
mod target_stopped;
mod volumes;
