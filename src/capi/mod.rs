//! The Cluster API side: its kinds, the conversion between them and the kinds of `machine.sapcloud.io`, and the
//! infrastructure provider.

pub mod conversion;
pub mod crd;
pub(crate) mod provider;
pub mod types;
