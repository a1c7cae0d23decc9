//! All commands that read, asked about one state of a cluster: each of them gives the same verdict.

mod parked;
mod reachable;
mod readers;
mod rights;
mod situations;
mod stage;
