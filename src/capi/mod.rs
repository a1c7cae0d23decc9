//! The Cluster API side: its kinds, the conversion between them and the kinds of `machine.sapcloud.io`, the infrastructure
//! provider, the stand-in for core, what both share, and the migration of machines between both sides.

pub(crate) mod adoption;
pub mod conversion;
pub mod crd;
mod object;
pub(crate) mod provider;
pub(crate) mod stand_in;
#[cfg(test)]
mod testing;
pub mod types;
