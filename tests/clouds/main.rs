//! Drivers against simulations of their clouds, and these against programs that others wrote.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod aws;
mod gcp;
mod moto;
mod proxy;
