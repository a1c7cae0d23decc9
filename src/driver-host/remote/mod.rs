//! Drivers in other processes, over gRPC: the client, which is a [`Driver`](mcm_driver::interface::Driver), and the server,
//! which serves any driver. `proto/` has the protocol, `docs/drivers.md` its rules.

mod address;
mod check;
mod client;
mod goaway;
mod io;
mod line;
mod listen;
mod proto;
mod server;
#[cfg(feature = "testing")]
pub mod testing;
mod tls;
mod verdicts;
mod wire;

#[cfg(test)]
mod tests;

pub use address::{DriverAddress, DriverEndpoint, InvalidDriverAddress, ListenAddress};
pub use tls::TlsFiles;

pub use client::{RemoteDriver, TextTreatment};
pub use listen::{ListenOptions, serve};
