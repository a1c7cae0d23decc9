//! Joined look-ups of VMs: each is for one VM, and one request is for all of them.

use std::{collections::BTreeSet, sync::Arc};

use super::coalesce::LookupCoalescer;
use crate::DriverError;

/// The VM of a look-up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum VmQuery {
    /// By the name of its Machine.
    Name(String),
    /// By the cloud's own ID.
    Id(String),
}

impl VmQuery {
    /// The query, if it is the only one.
    pub fn only(asked: &BTreeSet<Self>) -> Option<&Self> {
        asked.first().filter(|_| asked.len() == 1)
    }
}

/// Look-ups of VMs in a place `P` that wait at the same time share a request with the answer `A`.
pub type VmLookups<P, A> = LookupCoalescer<P, Result<Arc<A>, DriverError>, VmQuery>;
