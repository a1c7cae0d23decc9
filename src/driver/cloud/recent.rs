//! A cache of recently used values, such as accounts with their connections and tokens.

use std::{collections::HashMap, hash::Hash};

use parking_lot::Mutex;
use tokio::time::Instant;

/// Values by their keys. The least recently used one is evicted first.
pub struct LruCache<K, V> {
    most: usize,
    all: Mutex<HashMap<K, (V, Instant)>>,
}

impl<K: Clone + Eq + Hash, V: Clone> LruCache<K, V> {
    /// No values; at most `most` are kept.
    pub fn new(most: usize) -> Self {
        Self { most, all: Mutex::default() }
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
            all.remove(&oldest);
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
