//! The Cluster API side: its kinds.

pub mod types;
