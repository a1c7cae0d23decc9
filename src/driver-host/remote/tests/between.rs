//! A proxy between mcm and a driver that breaks one connection and keeps the others.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering::Relaxed},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        UnixListener, UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
};
use tokio_util::task::AbortOnDropHandle;

use super::*;

const PASSES: u8 = 0;
const SWALLOWS: u8 = 1;
/// GOAWAY of HTTP/2 with ENHANCE_YOUR_CALM, for all streams, as gRPC servers send it after too many pings.
const GOAWAY: [u8; 17] = [0, 0, 22, 7, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0xb];
/// Header of a PING of HTTP/2.
const PING: [u8; 9] = [0, 0, 8, 6, 0, 0, 0, 0, 0];

/// One connection, in the order in which they came.
#[derive(Clone, Default)]
pub(super) struct Between(Arc<Shared>);

#[derive(Default)]
struct Shared {
    fate: AtomicU8,
    /// Bytes that mcm sent.
    sent: Mutex<Vec<u8>>,
    to_mcm: tokio::sync::Mutex<Option<OwnedWriteHalf>>,
}

impl Between {
    /// From now on all data is dropped, without an error on either side.
    pub(super) fn swallow(&self) {
        self.0.fate.store(SWALLOWS, Relaxed);
    }

    pub(super) fn pings(&self) -> usize {
        self.0.sent.lock().windows(PING.len()).filter(|bytes| **bytes == PING).count()
    }

    /// Closes it like a server that permits fewer pings.
    pub(super) async fn refuse_pings(&self) {
        self.swallow();
        let mut to_mcm = self.0.to_mcm.lock().await.take().unwrap();
        to_mcm.write_all(&GOAWAY).await.unwrap();
        to_mcm.write_all(b"too_many_pings").await.unwrap();
        to_mcm.shutdown().await.unwrap();
    }

    async fn forward(self, mut from_mcm: OwnedReadHalf, mut to_driver: OwnedWriteHalf) {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = from_mcm.read(&mut bytes).await {
            self.0.sent.lock().extend(&bytes[..count]);
            if self.0.fate.load(Relaxed) == PASSES && to_driver.write_all(&bytes[..count]).await.is_err() {
                return;
            }
        }
    }

    async fn back(self, mut from_driver: OwnedReadHalf) {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = from_driver.read(&mut bytes).await {
            if self.0.fate.load(Relaxed) == PASSES
                && let Some(to_mcm) = &mut *self.0.to_mcm.lock().await
                && to_mcm.write_all(&bytes[..count]).await.is_err()
            {
                return;
            }
        }
        // The driver closed it.
        if self.0.fate.load(Relaxed) == PASSES {
            self.0.to_mcm.lock().await.take();
        }
    }
}

/// Passes connections on to a driver, until it is dropped.
pub(super) struct Proxy {
    all: Arc<Mutex<Vec<Between>>>,
    _task: AbortOnDropHandle<()>,
}

impl Proxy {
    pub(super) fn start(path: &Path, driver: &Path) -> Self {
        let (listener, driver) = (UnixListener::bind(path).unwrap(), driver.to_owned());
        let all: Arc<Mutex<Vec<Between>>> = Arc::default();
        let known = Arc::clone(&all);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let one = Between::default();
                known.lock().push(one.clone());
                let (from_mcm, to_mcm) = stream.into_split();
                let (from_driver, to_driver) = UnixStream::connect(&driver).await.unwrap().into_split();
                *one.0.to_mcm.lock().await = Some(to_mcm);
                tokio::spawn(one.clone().forward(from_mcm, to_driver));
                tokio::spawn(one.back(from_driver));
            }
        });
        Self { all, _task: AbortOnDropHandle::new(task) }
    }

    /// The newest connection.
    pub(super) fn newest(&self) -> Between {
        self.all.lock().last().unwrap().clone()
    }

    pub(super) fn count(&self) -> usize {
        self.all.lock().len()
    }
}
