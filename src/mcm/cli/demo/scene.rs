//! Current objects of a demo.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use parking_lot::Mutex;
use tokio::{sync::Notify, task::JoinHandle, time::Instant};

/// Time between two reads of objects that cannot be watched.
pub const PERIOD: Duration = Duration::from_millis(500);

/// Current objects, and the tasks that update them.
pub struct LiveObjects<P> {
    props: Arc<Mutex<P>>,
    changed: Arc<Notify>,
    tasks: Vec<JoinHandle<()>>,
}

impl<P: Clone + Default + Send + 'static> LiveObjects<P> {
    /// Starts the tasks. They change the props and notify.
    pub(super) fn with(tasks: impl FnOnce(&Arc<Mutex<P>>, &Arc<Notify>) -> Vec<JoinHandle<()>>) -> Self {
        let (props, changed) = (Arc::<Mutex<P>>::default(), Arc::<Notify>::default());
        let tasks = tasks(&props, &changed);
        Self { props, changed, tasks }
    }

    /// Polls. A failed poll keeps the previous objects.
    #[must_use]
    pub fn looking<F>(look: impl Fn() -> F + Send + 'static) -> Self
    where
        F: Future<Output = Result<P>> + Send + 'static,
    {
        Self::with(|props, changed| {
            let (props, changed) = (Arc::clone(props), Arc::clone(changed));
            vec![tokio::spawn(async move {
                loop {
                    if let Ok(seen) = look().await {
                        *props.lock() = seen;
                        changed.notify_waiters();
                    }
                    tokio::time::sleep(PERIOD).await;
                }
            })]
        })
    }

    /// The current objects.
    pub fn props(&self) -> P {
        self.props.lock().clone()
    }

    /// Waits until a condition holds and shows each change; false if it does not hold in time.
    pub async fn until(&self, limit: Duration, mut show: impl FnMut(&P), reached: impl Fn(&P) -> bool) -> bool {
        let start = Instant::now();
        loop {
            let changed = self.changed.notified();
            let props = self.props();
            show(&props);
            if reached(&props) {
                return true;
            }
            if start.elapsed() > limit {
                return false;
            }
            // Redraw periodically, too, because ages change.
            let _ = tokio::time::timeout(Duration::from_millis(200), changed).await;
        }
    }
}

impl<P> Drop for LiveObjects<P> {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}
