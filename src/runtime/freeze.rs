//! Since when and why the Machines of a cell are frozen, which its Leases show, so that a reader needs no port of the manager.

use jiff::Timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// Since when and why Machines are frozen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreezeCause {
    /// The start.
    pub since: Timestamp,
    /// An error of an API server.
    pub why: String,
}

/// The value of the annotation of a Lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedFreeze {
    /// The holder that wrote it. Another program that takes the Lease over may keep the annotation.
    pub identity: String,
    /// The cause.
    #[serde(flatten)]
    pub cause: FreezeCause,
}

/// The freeze of the Machines of a cell, if they are frozen.
#[derive(Debug, Default)]
pub struct FreezeNotice(Mutex<Option<FreezeCause>>);

impl FreezeNotice {
    /// Stores the cause; `None` if Machines are not frozen.
    pub fn set(&self, cause: Option<FreezeCause>) {
        *self.0.lock() = cause;
    }

    /// The value of the annotation that `identity` writes; `None` if Machines are not frozen.
    pub fn published(&self, identity: &str) -> Option<String> {
        let cause = self.0.lock().clone()?;
        serde_json::to_string(&PublishedFreeze { identity: identity.to_owned(), cause }).ok()
    }
}
