//! Panics are bugs. Each is caught where the work for one object, one watch or one cell begins, so that it ends nothing
//! else, and is counted. The panic hook of the process logs its place in the source.

#[cfg(not(panic = "unwind"))]
compile_error!("panics are caught at run time, so every profile needs panic = \"unwind\"");

use std::{
    collections::BTreeMap,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use futures::FutureExt;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;

use mcm_api::backoff::Backoff;

/// First and longest pause before work that panicked is started again.
const RESTART: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(60));

/// The kind of work that panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PanicPlace {
    /// The run of a cell.
    Cell,
    /// A handler of changes.
    Handler,
    /// The reconcile of an object, with its driver calls.
    Reconcile,
    /// A task that runs as long as its cell.
    Task,
    /// The watch of a kind.
    Watch,
}

impl PanicPlace {
    const ALL: [Self; 5] = [Self::Cell, Self::Handler, Self::Reconcile, Self::Task, Self::Watch];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Cell => "cell",
            Self::Handler => "handler",
            Self::Reconcile => "reconcile",
            Self::Task => "task",
            Self::Watch => "watch",
        }
    }
}

/// The work panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "it panicked, which is a bug in mcm: please report it with the line of the log that names its place in the source"
)]
pub struct CaughtPanic;

/// Panics of this process, by place and cell.
static CAUGHT: Mutex<BTreeMap<(PanicPlace, Arc<str>), u32>> = Mutex::new(BTreeMap::new());

tokio::task_local! {
    static CELL: Arc<str>;
}

/// Does work for a cell. Tasks that [`keep`] spawns in it belong to the same cell.
pub async fn of_cell<F: Future>(cell: Arc<str>, work: F) -> F::Output {
    CELL.scope(cell, work).await
}

/// Does work for the cell of the current task, in a task that is spawned for it.
pub fn of_current_cell<F: Future>(work: F) -> impl Future<Output = F::Output> {
    of_cell(cell(), work)
}

/// The cell for which the current task works; empty without a name. Each line of the log has it.
pub fn cell() -> Arc<str> {
    CELL.try_with(Arc::clone).unwrap_or_default()
}

/// Runs work and catches its panic. `what` names the object or task in the log.
pub async fn caught<F: Future>(
    place: PanicPlace,
    what: impl FnOnce() -> String,
    work: F,
) -> Result<F::Output, CaughtPanic> {
    AssertUnwindSafe(work).catch_unwind().await.map_err(|_| count(place, &what()))
}

/// Calls a function and catches its panic.
pub(crate) fn caught_in(place: PanicPlace, what: impl FnOnce() -> String, work: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(work)).is_err() {
        count(place, &what());
    }
}

/// Spawns a task for the current cell, and starts it again after a panic.
pub fn keep<F>(place: PanicPlace, what: String, make: impl Fn() -> F + Send + Sync + 'static) -> AbortOnDropHandle<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    AbortOnDropHandle::new(tokio::spawn(of_current_cell(kept(place, what, make))))
}

/// Does work again, after growing pauses, for as long as it panics.
pub(crate) async fn kept<F: Future<Output = ()>>(place: PanicPlace, what: String, make: impl Fn() -> F) {
    let mut pauses = RESTART.pauses();
    loop {
        let began = Instant::now();
        if caught(place, || what.clone(), async { make().await }).await.is_ok() {
            return;
        }
        pauses.reset_after(began.elapsed());
        sleep(pauses.advance()).await;
    }
}

fn count(place: PanicPlace, what: &str) -> CaughtPanic {
    let cell = cell();
    tracing::error!(cell = &*cell, "the {} of {what} panicked; this is a bug in mcm, please report it", place.as_str());
    let mut all = CAUGHT.lock();
    let count = all.entry((place, cell)).or_default();
    *count = count.saturating_add(1);
    CaughtPanic
}

/// The counts by kind of work and cell; zero for every kind without a panic.
pub(super) fn counts() -> Vec<(&'static str, Arc<str>, u32)> {
    let all = CAUGHT.lock();
    let none = PanicPlace::ALL.into_iter().filter(|place| !all.keys().any(|(at, _)| at == place));
    let none = none.map(|place| (place.as_str(), Arc::default(), 0));
    none.chain(all.iter().map(|((place, cell), count)| (place.as_str(), Arc::clone(cell), *count))).collect()
}

/// Drops the counts of a cell that ended.
pub fn forget(cell: &str) {
    CAUGHT.lock().retain(|(_, of), _| &**of != cell);
}

#[cfg(any(test, feature = "testing"))]
pub fn counted(place: PanicPlace, cell: &str) -> u32 {
    CAUGHT.lock().get(&(place, Arc::from(cell))).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::metrics::MetricsRegistry;

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_is_started_again_with_growing_pauses_and_counted_for_its_cell() {
        let runs = Arc::new(AtomicU32::new(0));
        let began = Instant::now();
        let task = of_cell("kept".into(), async {
            let runs = Arc::clone(&runs);
            let task = keep(PanicPlace::Watch, "nodes".to_owned(), move || {
                let run = runs.fetch_add(1, Ordering::Relaxed);
                async move { assert!(run >= 3, "a bug") }
            });
            task.await
        });
        task.await.unwrap();
        assert_eq!(runs.load(Ordering::Relaxed), 4);
        assert_eq!(began.elapsed(), Duration::from_millis(200 + 400 + 800));
        assert_eq!(counted(PanicPlace::Watch, "kept"), 3);
        let text = MetricsRegistry::new().render();
        assert!(text.contains("\nmcm_panics_total{where=\"watch\",cell=\"kept\"} 3\n"), "{text}");
        forget("kept");
        assert_eq!(counted(PanicPlace::Watch, "kept"), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_whose_start_panics_is_started_again() {
        let runs = AtomicU32::new(0);
        let make = || {
            assert!(runs.fetch_add(1, Ordering::Relaxed) > 0, "a bug before the first await");
            std::future::ready(())
        };
        kept(PanicPlace::Task, "start".to_owned(), make).await;
        assert_eq!(runs.load(Ordering::Relaxed), 2);
    }
}
