//! Additions of members to Octavia's pools that have no answer yet.

use std::time::Duration;

use mcm_driver::{Code, DriverError, cloud::LruCache};
use tokio::time::Instant;

/// Most additions of members that are remembered.
const MOST_ADDITIONS: usize = 10_000;

/// Additions of members without an answer, by pool and name, and since when: Octavia may carry one out after a list that lacks it.
pub(crate) struct Additions {
    /// It is carried out by then, or never.
    settles: Duration,
    open: LruCache<String, Instant>,
}

impl Additions {
    pub fn new(settles: Duration) -> Self {
        Self { settles, open: LruCache::new(MOST_ADDITIONS) }
    }

    /// Remembers an addition until there is an answer.
    pub async fn follow(
        &self,
        key: String,
        add: impl Future<Output = Result<(), DriverError>>,
    ) -> Result<(), DriverError> {
        self.open.put(key.clone(), Instant::now());
        let added = add.await;
        match &added {
            Err(error) if error.code.is_transient() && error.code != Code::Aborted => {
                self.open.put(key, Instant::now());
            }
            _ => self.open.forget(&key),
        }
        added
    }

    /// A member may still be added.
    pub fn may_come(&self, key: &String) -> bool {
        self.open.get(key).is_some_and(|since| since.elapsed() < self.settles)
    }
}
