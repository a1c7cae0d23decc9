//! The Cluster API side: its kinds, and the conversion between them and the kinds of `machine.sapcloud.io`.

pub mod conversion;
pub mod types;
