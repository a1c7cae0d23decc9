//! A runtime with a thread for work that must not wait for the controllers: the renewals of Leases and the responses to probes.
//! Controllers decode what target API servers send, and their owners may send too much.

use std::{io, panic::resume_unwind};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio_util::task::AbortOnDropHandle;

use crate::panics;

/// A runtime with one thread, until it is dropped.
#[derive(Debug)]
pub struct SeparateRuntime {
    /// `None` while it is dropped.
    runtime: Option<Runtime>,
    handle: Handle,
}

impl SeparateRuntime {
    /// # Errors
    /// The operating system has no thread or no file descriptors left.
    pub fn start(name: &'static str) -> io::Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name(name).enable_all().build()?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }

    /// For tasks in it.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Calls a function whose tasks and connections belong to this runtime.
    pub fn within<T>(&self, work: impl FnOnce() -> T) -> T {
        let _entered = self.handle.enter();
        work()
    }
}

impl Drop for SeparateRuntime {
    fn drop(&mut self) {
        // Dropping it in another way waits for its thread.
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

/// Does work of the current cell in another runtime. It ends when this future is dropped, and its panics are passed on.
pub async fn run_in<T: Send + 'static>(runtime: &Handle, work: impl Future<Output = T> + Send + 'static) -> T {
    match AbortOnDropHandle::new(runtime.spawn(panics::of_current_cell(work))).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            // The runtime has ended, and the process ends with it.
            Err(_) => std::future::pending().await,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use super::*;

    /// The first thread is busy until it gets an answer from work in the other runtime.
    #[tokio::test]
    async fn work_in_another_runtime_needs_no_thread_of_this_one() {
        let separate = SeparateRuntime::start("test").unwrap();
        let (send, receive) = mpsc::channel();
        let work = tokio::spawn({
            let handle = separate.handle().clone();
            async move { run_in(&handle, async move { send.send(thread::current().name().map(str::to_owned)) }).await }
        });
        tokio::task::yield_now().await;
        assert_eq!(receive.recv().unwrap().as_deref(), Some("test"));
        work.await.unwrap().unwrap();
        let name = separate.within(|| tokio::spawn(async { thread::current().name().map(str::to_owned) }));
        assert_eq!(name.await.unwrap().as_deref(), Some("test"));
    }

    #[tokio::test]
    async fn work_in_another_runtime_is_that_of_the_same_cell() {
        let separate = SeparateRuntime::start("test").unwrap();
        let work = run_in(separate.handle(), async {
            (panics::cell(), tokio::spawn(panics::of_current_cell(async { panics::cell() })))
        });
        let (cell, spawned) = panics::of_cell("a".into(), work).await;
        assert_eq!((&*cell, &*spawned.await.unwrap()), ("a", "a"));
        assert_eq!(&*run_in(separate.handle(), async { panics::cell() }).await, "");
    }

    #[tokio::test]
    async fn a_panic_is_passed_on() {
        let separate = SeparateRuntime::start("test").unwrap();
        let handle = separate.handle().clone();
        let work = tokio::spawn(async move { run_in(&handle, async { panic!("a bug") }).await });
        assert!(work.await.unwrap_err().is_panic());
    }
}
