//! What controllers run on: clients, leader election, events, metrics, endpoints, signals. No decision about machines is made here.

pub mod client;
pub mod clock;
pub mod events;
pub mod http;
pub mod leader;
pub mod limiter;
pub mod metrics;
pub mod shutdown;
pub mod telemetry;
