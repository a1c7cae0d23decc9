//! A value that is made from files, and made again when they change.

use std::{
    fmt::Display,
    hash::{DefaultHasher, Hash, Hasher},
    path::PathBuf,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{task::spawn_blocking, time::Instant};

use crate::files;

/// A hash of each file. Contents are not kept, because they are secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileFingerprints(Vec<(PathBuf, Option<u64>)>);

impl FileFingerprints {
    pub fn read(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        let hash = |path: &PathBuf| {
            let mut hasher = DefaultHasher::new();
            files::read(path, files::CONFIG).ok()?.hash(&mut hasher);
            Some(hasher.finish())
        };
        Self(paths.into_iter().map(|path| (path.clone(), hash(&path))).collect())
    }

    /// The fingerprints of the same files today; `None` if they are the same.
    pub async fn changed(&self) -> Option<Self> {
        let paths: Vec<PathBuf> = self.0.iter().map(|(path, _)| path.clone()).collect();
        let current = spawn_blocking(|| Self::read(paths)).await.ok()?;
        (current != *self).then_some(current)
    }
}

/// A value that is checked from time to time, when it is used. Files that cannot be used, perhaps because they are being
/// written, leave the last value in use.
pub struct WatchedValue<T> {
    every: Duration,
    state: Mutex<WatchedState<T>>,
    checking: tokio::sync::Mutex<()>,
}

struct WatchedState<T> {
    value: T,
    /// `None`: the next use checks it.
    checked_at: Option<Instant>,
    /// The last problem that was logged.
    problem: Option<String>,
}

impl<T: Clone> WatchedValue<T> {
    pub fn new(value: T, every: Duration) -> Self {
        let state = WatchedState { value, checked_at: Some(Instant::now()), problem: None };
        Self { every, state: Mutex::new(state), checking: tokio::sync::Mutex::default() }
    }

    /// The value, without a check.
    pub fn last(&self) -> T {
        self.state.lock().value.clone()
    }

    pub fn change(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.state.lock().value);
    }

    /// Makes the next use check it.
    pub fn expire(&self) {
        self.state.lock().checked_at = None;
    }

    /// A check is due, and none runs.
    pub fn is_due(&self) -> bool {
        self.checking.try_lock().is_ok() && self.state.lock().is_due(self.every)
    }

    /// The value, after a check if one is due. `load` returns a new value, or `None` if its files are the same. `what` names
    /// the files in the log.
    pub async fn current<E: Display>(&self, what: &str, load: impl AsyncFnOnce(T) -> Result<Option<T>, E>) -> T {
        if !self.state.lock().is_due(self.every) {
            return self.last();
        }
        let _one = self.checking.lock().await;
        let last = {
            let mut state = self.state.lock();
            state.checked_at = Some(Instant::now());
            state.value.clone()
        };
        let loaded = load(last).await.map_err(|error| error.to_string());
        let mut state = self.state.lock();
        match loaded {
            Ok(None) => state.problem = None,
            Ok(Some(value)) => {
                tracing::info!("{what} reloaded");
                (state.value, state.problem) = (value, None);
            }
            Err(problem) => {
                if state.problem.as_ref() != Some(&problem) {
                    tracing::warn!(problem, "cannot reload {what}, keeping the previous ones");
                }
                state.problem = Some(problem);
            }
        }
        state.value.clone()
    }
}

impl<T> WatchedState<T> {
    fn is_due(&self, every: Duration) -> bool {
        self.checked_at.is_none_or(|checked| checked.elapsed() >= every)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const EVERY: Duration = Duration::from_secs(10);

    async fn load(_: u32) -> Result<Option<u32>, &'static str> {
        Ok(Some(2))
    }

    #[tokio::test(start_paused = true)]
    async fn a_value_is_loaded_again_when_a_check_is_due_and_kept_while_its_files_cannot_be_used() {
        let watched = WatchedValue::new(1, EVERY);
        assert_eq!((watched.current("files", load).await, watched.is_due()), (1, false));
        tokio::time::advance(EVERY).await;
        assert!(watched.is_due());
        assert_eq!(watched.current("files", async |_| Err("half a file")).await, 1);
        assert_eq!(watched.current("files", load).await, 1, "it was checked");
        watched.expire();
        assert_eq!(watched.current("files", load).await, 2);
        tokio::time::advance(EVERY).await;
        assert_eq!(watched.current("files", async |_| Ok::<_, &str>(None)).await, 2);
        watched.change(|value| *value += 1);
        assert_eq!((watched.last(), watched.is_due()), (3, false));
    }

    #[tokio::test]
    async fn checks_run_one_after_the_other() {
        let watched = WatchedValue::new(1, Duration::ZERO);
        let first = watched.current("files", async |last| {
            assert!(!watched.is_due(), "one runs");
            tokio::task::yield_now().await;
            load(last).await
        });
        let second = watched.current("files", async |last| Ok::<_, &str>(Some(last + 1)));
        assert_eq!(tokio::join!(first, second), (2, 3), "the second begins with the value of the first");
    }

    #[tokio::test]
    async fn fingerprints_change_with_the_content_of_a_file() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("tls.crt");
        let absent = FileFingerprints::read([path.clone()]);
        assert_eq!(absent.changed().await, None);
        fs::write(&path, "one").unwrap();
        let one = absent.changed().await.unwrap();
        assert_eq!(one.changed().await, None);
        fs::write(&path, "two").unwrap();
        assert!(one.changed().await.is_some());
    }
}
