//! Since when and why the Machines of a cell are frozen, which its Leases show, so that a reader needs no port of the manager.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// Longest text of a cause in a Lease, in characters: an API server may send any text.
const LONGEST_CAUSE: usize = 500;

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
#[derive(Debug)]
pub struct FreezeNotice(watch::Sender<Option<FreezeCause>>);

impl Default for FreezeNotice {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl FreezeNotice {
    /// Stores the cause; `None` if Machines are not frozen.
    pub fn set(&self, cause: Option<FreezeCause>) {
        self.0.send_if_modified(|known| {
            let is_other = *known != cause;
            *known = cause;
            is_other
        });
    }

    /// Receives later changes.
    pub fn subscribe(&self) -> watch::Receiver<Option<FreezeCause>> {
        self.0.subscribe()
    }

    /// The value of the annotation that `identity` writes; `None` if Machines are not frozen.
    pub fn published(&self, identity: &str) -> Option<String> {
        let FreezeCause { since, why } = self.0.borrow().clone()?;
        let cause = FreezeCause { since, why: why.chars().take(LONGEST_CAUSE).collect() };
        serde_json::to_string(&PublishedFreeze { identity: identity.to_owned(), cause }).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_an_api_server_is_bounded() {
        let notice = FreezeNotice::default();
        notice.set(Some(FreezeCause { since: Timestamp::UNIX_EPOCH, why: "é".repeat(10 * LONGEST_CAUSE) }));
        let published: PublishedFreeze = serde_json::from_str(&notice.published("host_1").unwrap()).unwrap();
        assert_eq!(published.cause.why, "é".repeat(LONGEST_CAUSE));
    }
}
