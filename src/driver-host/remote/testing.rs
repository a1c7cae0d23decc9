//! Drivers of a fake cloud behind gRPC, for the suite of all drivers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::Duration,
};

use async_trait::async_trait;
use mcm_driver::{
    guard::DriverGuards,
    interface::{Driver, MachineRequest},
    testing::{
        matrix::Case,
        server::{FaultSwitch, Reply},
        suite::{CallNames, DeletionView, World},
    },
};
use tempfile::TempDir;
use tokio::runtime;
use tokio_util::sync::CancellationToken;

use super::{
    DriverAddress, DriverEndpoint, ListenAddress, ListenOptions, RemoteDriver, TextTreatment, TlsFiles, serve,
};
use crate::catalogue::DriverCatalogue;

/// A world whose drivers serve gRPC on Unix sockets, each on a thread with its runtime, as in another process.
pub struct RemoteWorld<W> {
    inner: W,
    sockets: TempDir,
    drivers: AtomicUsize,
    stop: CancellationToken,
}

impl<W> Drop for RemoteWorld<W> {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl<W> RemoteWorld<W> {
    /// Serves a driver, and returns the address once it listens.
    fn serve(&self, driver: Arc<dyn Driver>) -> DriverAddress {
        let path = self.sockets.path().join(format!("{}.sock", self.drivers.fetch_add(1, Relaxed)));
        let catalogue = DriverCatalogue::from_drivers([driver], &DriverGuards::unobserved());
        let listen = ListenAddress::Unix(path.clone());
        let options = ListenOptions { listen, tls: TlsFiles::default(), is_insecure: false, has_group_access: false };
        let (started, listening) = mpsc::channel();
        let stop = self.stop.clone();
        thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(serve(&options, catalogue, |_| started.send(()).unwrap(), &stop)).unwrap();
        });
        listening.recv().unwrap();
        DriverAddress::Unix(path)
    }
}

#[async_trait]
impl<W: World> World for RemoteWorld<W> {
    const CALLS: CallNames = W::CALLS;
    const SECRETS: &[&str] = W::SECRETS;
    const SHORT: Duration = W::SHORT;
    const MOST_CREATIONS: usize = W::MOST_CREATIONS;
    const MOST_LOOKS: usize = W::MOST_LOOKS;
    const DELETIONS: DeletionView = W::DELETIONS;
    const FOLLOWS_IDS: bool = W::FOLLOWS_IDS;
    const HAS_UNIQUE_NAMES: bool = W::HAS_UNIQUE_NAMES;

    fn error(case: Case) -> Reply {
        W::error(case)
    }

    async fn new() -> Self {
        let (sockets, stop) = (tempfile::tempdir().unwrap(), CancellationToken::new());
        Self { inner: W::new().await, sockets, drivers: AtomicUsize::new(0), stop }
    }

    fn driver_with(&self, attempt: Duration, settles: Duration) -> Box<dyn Driver> {
        let served: Arc<dyn Driver> = self.inner.driver_with(attempt, settles).into();
        let endpoint = DriverEndpoint::new(served.name(), self.serve(served));
        Box::new(RemoteDriver::open(&endpoint, TextTreatment::Cleaned, &DriverGuards::unobserved().observer))
    }

    fn request_with(&self, name: &str, uid: &str) -> MachineRequest {
        self.inner.request_with(name, uid)
    }

    fn put_for(&self, name: &str, uid: Option<&str>) -> String {
        self.inner.put_for(name, uid)
    }

    fn put_elsewhere(&self, name: &str, uid: &str) -> String {
        self.inner.put_elsewhere(name, uid)
    }

    fn attach_disk(&self, id: &str) -> String {
        self.inner.attach_disk(id)
    }

    fn has_disk(&self, disk: &str) -> bool {
        self.inner.has_disk(disk)
    }

    fn delay_deletions(&self, looks: usize) {
        self.inner.delay_deletions(looks);
    }

    fn unlist(&self, id: &str) {
        self.inner.unlist(id);
    }

    fn switch(&self) -> &dyn FaultSwitch {
        self.inner.switch()
    }

    fn vms(&self) -> usize {
        self.inner.vms()
    }

    fn remaining(&self) -> usize {
        self.inner.remaining()
    }

    fn check_requests(&self) {
        self.inner.check_requests();
    }
}
