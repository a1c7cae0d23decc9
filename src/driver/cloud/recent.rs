//! A cache of recently used values, such as accounts with their connections and tokens.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

/// A value that was used within this time is in use.
const IN_USE: Duration = Duration::from_secs(300);

/// Values by their keys. The least recently used one is evicted first.
pub struct LruCache<K, V> {
    most: usize,
    /// The name of the values in a warning.
    what: Option<&'static str>,
    /// A value in use was evicted.
    is_crowded: AtomicBool,
    all: Mutex<HashMap<K, (V, Instant)>>,
}

impl<K: Clone + Eq + Hash, V: Clone> LruCache<K, V> {
    /// No values; at most `most` are kept.
    pub fn new(most: usize) -> Self {
        Self { most, what: None, is_crowded: AtomicBool::default(), all: Mutex::default() }
    }

    /// The same, with one warning when a value in use is evicted: from then on values are made again and again.
    #[must_use]
    pub fn warning_of(self, what: &'static str) -> Self {
        Self { what: Some(what), ..self }
    }

    /// The value of a key, if there is one.
    pub fn get(&self, key: &K) -> Option<V> {
        self.get_or(key, || Err(())).ok()
    }

    /// Replaces the value of a key.
    pub fn put(&self, key: K, value: V) {
        self.forget(&key);
        let (Ok(_) | Err(())) = self.get_or(&key, || Ok(value));
    }

    /// The value of a key; a new one if it is missing.
    ///
    /// # Errors
    /// That of `make`.
    pub fn get_or<E>(&self, key: &K, make: impl FnOnce() -> Result<V, E>) -> Result<V, E> {
        let mut all = self.all.lock();
        if let Some((value, used)) = all.get_mut(key) {
            *used = Instant::now();
            return Ok(value.clone());
        }
        let value = make()?;
        if all.len() >= self.most
            && let Some(oldest) = all.iter().min_by_key(|(_, (_, used))| *used).map(|(key, _)| key.clone())
        {
            let is_in_use = all.remove(&oldest).is_some_and(|(_, used)| used.elapsed() < IN_USE);
            if is_in_use
                && !self.is_crowded.swap(true, Relaxed)
                && let Some(what) = self.what
            {
                tracing::warn!(
                    most = self.most,
                    "more {what} are in use than a driver keeps: they are made anew each time"
                );
            }
        }
        all.insert(key.clone(), (value.clone(), Instant::now()));
        Ok(value)
    }

    /// Removes the value of a key.
    pub fn forget(&self, key: &K) {
        self.all.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn a_value_is_created_once_and_the_least_recently_used_is_evicted() {
        let recent = LruCache::new(2);
        let mut made = Vec::new();
        for key in ["a", "b", "a", "c", "a", "b"] {
            tokio::time::advance(Duration::from_secs(1)).await;
            let make = || {
                made.push(key);
                Ok::<_, ()>(key)
            };
            assert_eq!(recent.get_or(&key, make), Ok(key));
        }
        assert_eq!(made, ["a", "b", "c", "b"]);
        assert_eq!((recent.get_or(&"x", || Err("no")), recent.all.lock().len()), (Err("no"), 2));
    }

    #[tokio::test(start_paused = true)]
    async fn values_that_are_evicted_while_they_are_in_use_lead_to_a_warning() {
        let recent = LruCache::new(2).warning_of("logins");
        recent.put("a", 1);
        recent.put("b", 2);
        tokio::time::advance(IN_USE).await;
        recent.put("c", 3);
        recent.put("d", 4);
        assert!(!recent.is_crowded.load(Relaxed), "rotated credentials are not used any more");
        recent.put("e", 5);
        assert!(recent.is_crowded.load(Relaxed));
    }

    #[test]
    fn a_value_is_replaced_and_forgotten() {
        let recent = LruCache::new(2);
        assert_eq!(recent.get(&"a"), None);
        recent.put("a", 1);
        recent.put("a", 2);
        assert_eq!((recent.get(&"a"), recent.all.lock().len()), (Some(2), 1));
        recent.forget(&"a");
        assert_eq!(recent.get(&"a"), None);
    }
}
