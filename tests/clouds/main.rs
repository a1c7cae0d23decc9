//! Drivers against simulations of their clouds that others wrote.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod aws;
mod moto;
mod proxy;
